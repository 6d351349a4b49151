"""transformers without a library around it: a plain call, and its pipeline."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer, BertModel, pipeline

from .contenders import Apply

BATCH = 32


def load_encoder(folder: Path, _precision: str, _threads: int) -> Apply:
    """Load BERT in float32: tokenizer, model and mean; longest sentences first."""
    source = folder / "models" / "encoder"
    model: Any = BertModel.from_pretrained(source).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(source)

    @torch.no_grad()
    def embed(rows: list[str]) -> Tensor:
        batch = tokenizer(rows, padding=True, truncation=True, return_tensors="pt")
        states = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)

    def encode(sentences: str | list[str]) -> Tensor:
        if isinstance(sentences, str):
            return embed([sentences])[0]
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        vectors = torch.empty(len(sentences), model.config.hidden_size)
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            vectors[rows] = embed([sentences[row] for row in rows])
        return vectors

    return encode


def load_pipeline(folder: Path, precision: str, _threads: int) -> Apply:
    """Load the pipeline for text classification; returns the classes."""
    source = folder / "models" / "sst-bert"
    model = AutoModelForSequenceClassification.from_pretrained(
        source, dtype=getattr(torch, precision)
    )
    classify: Any = pipeline(
        "text-classification",
        model=model,
        tokenizer=AutoTokenizer.from_pretrained(source),
        device="cpu",
        batch_size=BATCH,
    )

    def predict(sentences: str | list[str]) -> list[int]:
        found = classify(sentences)
        return [int(row["label"].removeprefix("LABEL_")) for row in found]

    return predict
