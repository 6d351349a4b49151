"""sentence-transformers: its trainer on pairs, with the loss on the cosine."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import nn

from .common import Job, Probe, make_dataset, pad_side, scale_labels
from .pairs import dropout_options
from .trainer_base import FixedBatches, fixed_batches, trainer_options


def make_sentence_transformer(job: Job, dtype: torch.dtype = torch.float32) -> SentenceTransformer:
    """Load the encoder with mean pooling."""
    encoder = Transformer(
        str(job.model_dir), config_kwargs=dropout_options(job), model_kwargs={"dtype": dtype}
    )
    pooling = Pooling(encoder.get_embedding_dimension(), "mean")
    return SentenceTransformer(modules=[encoder, pooling], device=job.device)


class FixedTrainer(FixedBatches, SentenceTransformerTrainer):
    """Its trainer on fixed batches."""


class TokenCollator:
    """Collate the batches of its collator from tokens, without tokenization.

    Args:
        kind: Problem of the pairs.
    """

    valid_label_columns = ("labels",)

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Pad both sides of the pairs, each to its longest sentence."""
        labels = scale_labels(self.kind, torch.tensor([row["labels"] for row in rows]))
        batch: dict[str, Any] = {"label": labels}
        for name, suffix in (("sentence1", "_a"), ("sentence2", "_b")):
            batch |= {f"{name}_{key}": value for key, value in pad_side(rows, suffix).items()}
        return batch


class SentencePeer:
    """``SentenceTransformerTrainer`` with ``CosineSimilarityLoss``.

    Args:
        job: What to do; one task of pairs.
    """

    def __init__(self, job: Job) -> None:
        (name, task), *_ = job.tasks.items()
        self.model = make_sentence_transformer(job)
        self.batches = fixed_batches(job, {name: 0})
        collator: Any = TokenCollator(task.kind)
        self.trainer: Any = FixedTrainer(
            model=self.model,
            args=SentenceTransformerTrainingArguments(**trainer_options(job)),
            train_dataset=make_dataset(job.data[name], task, columns=True),
            loss=CosineSimilarityLoss(self.model),
            data_collator=collator,
        )

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        self.trainer.watch(self.batches, probe)
        self.trainer.train()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""
        named = self.model[0].named_parameters()
        return {f"bert.{name.split('.', 1)[1]}": parameter for name, parameter in named}
