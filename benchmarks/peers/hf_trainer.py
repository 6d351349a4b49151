"""The Trainer of transformers with its BERT: default settings, padding to the longest row."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from transformers import (
    BertTokenizer,
    DataCollatorForTokenClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerBase,
    Trainer,
)

from .common import Job, Probe
from .pairs import make_model
from .trainer_base import FixedBatches, OneAfterTheOther, fixed_batches, make_arguments


class FixedTrainer(FixedBatches, Trainer):
    """Trainer on fixed batches."""


class PairCollator:
    """transformers' own padding on either side of a pair.

    Args:
        tokenizer: Pads.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.collate: Any = DataCollatorWithPadding(tokenizer)

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate a batch: single rows as they are, pairs as ``first`` and ``second``."""
        task = {"task": rows[0]["task"]} if "task" in rows[0] else {}
        rows = [{key: row[key] for key in row if key != "task"} for row in rows]
        if "input_ids" in rows[0]:
            return task | self.collate(rows).data
        sides = {}
        for name, suffix in (("first", "_a"), ("second", "_b")):
            side = [
                {key.removesuffix(suffix): row[key] for key in row if key.endswith(suffix)}
                for row in rows
            ]
            sides[name] = self.collate(side).data
        return task | {"labels": torch.tensor([row["labels"] for row in rows]), **sides}


class TrainerPeer:
    """transformers' Trainer and model.

    Args:
        job: What to do.
    """

    def __init__(self, job: Job) -> None:
        self.model = make_model(job)
        tokenizer = BertTokenizer.from_pretrained(job.folder / "tokenizer")
        rows = OneAfterTheOther(job)
        self.batches = fixed_batches(job, rows.starts)
        self.trainer = FixedTrainer(
            model=self.model,
            args=make_arguments(job, remove_unused_columns=False),
            train_dataset=rows,
            data_collator=(
                DataCollatorForTokenClassification(tokenizer)
                if job.is_mlm
                else PairCollator(tokenizer)
            ),
        )

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        self.trainer.watch(self.batches, probe)
        self.trainer.train()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by name."""
        return dict(self.model.named_parameters())
