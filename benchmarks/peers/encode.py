"""Sentences to vectors: one call, tokenization included."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import BertModel, BertTokenizer

from benchmarks.tasks import TASKS
from modeling_minbert import MinBertForMultiTask

from .common import Job
from .minbert import describe_task

BATCH = 32
Encode = Callable[[list[str]], Tensor]


def encode_minbert(job: Job) -> Encode:
    """Load minBERT's ``encode``, mean pooling."""
    spec = describe_task(TASKS["sts"], job)
    model: Any = MinBertForMultiTask.from_pretrained(
        job.model_dir, tasks={"sts": spec}, dtype=job.dtype
    )
    model.tokenizer = BertTokenizer.from_pretrained(job.model_dir)
    model = model.to(job.device).eval()
    return lambda sentences: model.encode(sentences, show_progress=False)


def encode_sentence_transformers(job: Job) -> Encode:
    """Load ``SentenceTransformer.encode``, mean pooling."""
    from .sentence import make_sentence_transformer

    model: Any = make_sentence_transformer(job, job.dtype).eval()
    return lambda sentences: model.encode(
        sentences, batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True
    )


def encode_bare(job: Job) -> Encode:
    """Load BERT of transformers in a loop over sentences of similar length."""
    model: Any = BertModel.from_pretrained(job.model_dir, dtype=job.dtype)
    model = model.to(job.device).eval()
    tokenizer = BertTokenizer.from_pretrained(job.model_dir)

    def encode(sentences: list[str]) -> Tensor:
        order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
        vectors = torch.empty(len(sentences), model.config.hidden_size)
        with torch.no_grad():
            for start in range(0, len(order), BATCH):
                rows = order[start : start + BATCH]
                batch = tokenizer(
                    [sentences[row] for row in rows], padding=True, return_tensors="pt"
                ).to(job.device)
                states = model(**batch).last_hidden_state
                mask = batch["attention_mask"].unsqueeze(-1)
                vectors[rows] = ((states * mask).sum(dim=1) / mask.sum(dim=1)).cpu()
        return vectors

    return encode
