"""minBERT with its own trainer: packed batches, or padded ones for comparison."""

import re
from typing import Any

import torch
from torch import nn
from transformers import Trainer

from benchmarks.tasks import Task as BenchmarkTask
from modeling_minbert import MinBertForMaskedLM, MinBertForMultiTask
from trainers import FastTrainingArguments, MultiTaskTrainer, Task, TaskCollator

from .common import Job, Probe, make_dataset, set_classifier
from .masked import make_mlm_collator
from .pairs import dropout_options
from .trainer_base import (
    FixedBatches,
    OneAfterTheOther,
    fixed_batches,
    make_arguments,
    offsets,
)


class FixedMultiTaskTrainer(FixedBatches, MultiTaskTrainer):
    """minBERT's trainer on fixed batches."""


class FixedTrainer(FixedBatches, Trainer):
    """The plain Trainer on fixed batches."""


class MinBertPeer:
    """minBERT as a user runs it.

    Args:
        job: What to do.
        padded: Whether batches are padded and the attention is the plain one.
    """

    def __init__(self, job: Job, *, padded: bool = False) -> None:
        self.job = job
        options = dropout_options(job)
        options["attn_implementation"] = "eager" if padded else "sdpa"
        if job.is_mlm:
            self._make_mlm(options, padded=padded)
        else:
            self._make_multi_task(options, padded=padded)

    def _make_multi_task(self, options: dict[str, Any], *, padded: bool) -> None:
        job = self.job
        specs = {name: describe_task(task, job) for name, task in job.tasks.items()}
        self.model: Any = MinBertForMultiTask.from_pretrained(job.model_dir, tasks=specs, **options)
        head: Any
        for head in self.model.heads.values():
            if head.out is not None:
                set_classifier(head.out)
        parts = {name: make_dataset(rows, job.tasks[name]) for name, rows in job.data.items()}
        self.batches = fixed_batches(job, offsets(parts))
        kwargs: dict[str, Any] = {"data_collator": TaskCollator(0)} if padded else {}
        self.trainer: Any = FixedMultiTaskTrainer(
            self.model,
            make_arguments(job, FastTrainingArguments),
            [Task(name, spec["problem_type"], parts[name]) for name, spec in specs.items()],
            **kwargs,
        )

    def _make_mlm(self, options: dict[str, Any], *, padded: bool) -> None:
        job = self.job
        self.model = MinBertForMaskedLM.from_pretrained(job.model_dir, **options)
        if not padded and job.device == "cpu":
            self.model.reuse_gradients()  # as MultiTaskTrainer does
        rows = OneAfterTheOther(job)
        self.batches = fixed_batches(job, rows.starts)
        packed = not padded and self.model.supports_packed_input(torch.device(job.device))
        self.trainer = FixedTrainer(
            model=self.model,
            args=make_arguments(job, FastTrainingArguments, remove_unused_columns=False),
            train_dataset=rows,
            data_collator=make_mlm_collator(job, packed=packed),
        )

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        self.trainer.watch(self.batches, probe)
        self.trainer.train()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""
        # heads.<task>.out.<weight or bias>
        return {
            re.sub(r"^heads\.\w+\.out", "classifier", name): parameter
            for name, parameter in self.model.named_parameters()
        }


class MinBertPadded(MinBertPeer):
    """minBERT with padding and plain attention."""

    def __init__(self, job: Job) -> None:
        super().__init__(job, padded=True)


def describe_task(task: BenchmarkTask, job: Job) -> dict[str, Any]:
    """Return the head of a task, the same function as in the peers."""
    if task.kind == "classification":
        labels = [str(label) for label in range(5)]
        return {"problem_type": task.kind, "labels": labels, "dropout": job.dropout_rate}
    pair = {"pair_encoding": "separate", "head": "cosine", "loss": "mse", "dropout": 0.0}
    scale = {"score_range": [0, 5]} if task.kind == "similarity" else {}
    return {"problem_type": task.kind, **pair, **scale}
