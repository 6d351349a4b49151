"""The server that most people write: sentence-transformers behind FastAPI, one text a call.

    MODEL=<folder> FILE=onnx/model.onnx uvicorn benchmarks.fastapi_server:app --workers 2

It runs in an environment of its own. Without ``FILE``, torch computes instead of ONNX Runtime.
"""

import os
from typing import Annotated, Any

import torch
from fastapi import Body, FastAPI
from sentence_transformers import SentenceTransformer

options: dict[str, Any] = {}
torch.set_num_threads(1)  # of a request; FastAPI answers many at once
if file := os.environ.get("FILE"):
    from onnxruntime import SessionOptions

    session = SessionOptions()
    session.intra_op_num_threads = 1
    options = {"file_name": file, "provider": "CPUExecutionProvider", "session_options": session}
backend: Any = "onnx" if file else "torch"
model = SentenceTransformer(os.environ["MODEL"], backend=backend, model_kwargs=options)
app = FastAPI()


def embed(text: Annotated[str, Body(embed=True)]) -> list[float]:
    """Encode a text, in a thread of FastAPI's pool."""
    return model.encode(text).tolist()


app.post("/embed")(embed)
