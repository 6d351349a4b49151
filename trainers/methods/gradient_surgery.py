"""Gradient surgery: the gradients of the tasks of a mixed step are merged without conflicts."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainerState, TrainingArguments

from trainers.data.sampling.task_sampling import TaskSampling

from .base import Method
from .pcgrad_gradvac import GradientMerger, MergeRule

SURGERY_FILE = "gradient_surgery.pt"


@dataclass
class GradientSurgery(Method):
    """PCGrad or GradVac on the parameters that all tasks share; see ``GradientMerger``.

    Args:
        rule: ``pcgrad`` or ``gradvac``.

    Raises:
        ValueError: If the rule is unknown.
    """

    rule: MergeRule
    averages_gradients = True

    def __post_init__(self) -> None:
        self.conflicts: list[float] = []
        if self.rule not in ("pcgrad", "gradvac"):
            raise ValueError(f"gradient_surgery={self.rule!r}; expected pcgrad, gradvac or null")

    def check_sampling(self, sampling: TaskSampling) -> None:
        if not sampling.mixes_tasks:
            raise ValueError(
                f"gradient_surgery: {self.rule} compares the gradients of all tasks at every step; "
                f"use task_sampling: mixed instead of {sampling.name}"
            )
        _refuse_fsdp(self.rule, os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true")

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        _refuse_fsdp(self.rule, bool(args.fsdp))

    def attach(self, trainer: Any) -> None:
        self.conflicts = []
        # tasks that share rows have one gradient
        tasks = [
            name for name, each in trainer.tasks.items() if each.training.shares_rows_with is None
        ]
        self.merger = GradientMerger(trainer.model, tasks, self.rule, trainer.args.seed)

    def after_backward(self, task: str) -> None:
        self.merger.take(task)

    def before_optimizer(self, state: TrainerState) -> None:
        self.conflicts.append(self.merger.merge(state.global_step))

    def release(self) -> None:
        self.merger.forget()

    def log(self, logs: dict[str, float]) -> None:
        """Add ``gradient_conflicts``, the share of task pairs with opposed gradients."""
        if self.conflicts:
            logs["gradient_conflicts"] = sum(self.conflicts) / len(self.conflicts)
            self.conflicts = []

    def save(self, folder: Path) -> None:
        torch.save({"targets": torch.from_numpy(self.merger.targets)}, folder / SURGERY_FILE)

    def load(self, folder: Path) -> None:
        state = torch.load(folder / SURGERY_FILE, weights_only=True)
        self.merger.targets = state["targets"].numpy()


def _refuse_fsdp(rule: str, is_sharded: bool) -> None:
    if is_sharded:
        raise ValueError(
            f"gradient_surgery: {rule} needs the whole gradient of each task, and FSDP shards it; "
            "train without FSDP or without gradient_surgery"
        )
