"""Shared by the peers with a Trainer."""

import tempfile
from typing import Any

import datasets
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from transformers import PrinterCallback, TrainerCallback, TrainingArguments

from benchmarks.tasks import Task

from .common import CLIP, LEARNING_RATE, WEIGHT_DECAY, Job, Probe, make_dataset


class ProbeCallback(TrainerCallback):
    """Forwards the events of a Trainer to a probe."""

    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """Forward the event."""
        self.probe.on_gradients()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """Forward the event."""
        self.probe.on_step()


class FixedBatches:
    """Mixin for a Trainer: the batches of the job in their order, loaded as the Trainer does."""

    probe: Probe
    fixed_batches: list[list[int]]
    # of the Trainer
    args: Any
    accelerator: Any
    data_collator: Any
    train_dataset: Any

    def watch(self, batches: list[list[int]], probe: Probe) -> None:
        """Set the batches and the probe."""
        self.fixed_batches = batches
        self.probe = probe
        trainer: Any = self
        trainer.remove_callback(PrinterCallback)
        trainer.add_callback(ProbeCallback(probe))

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Load the fixed batches."""
        loader = DataLoader(
            self.train_dataset,
            batch_sampler=self.fixed_batches,
            collate_fn=self.data_collator,
            pin_memory=torch.cuda.is_available(),
        )
        return self.accelerator.prepare(loader)

    def training_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any) -> Tensor:
        """Forward inputs and loss of a step to the probe."""
        self.probe.on_batch(inputs)
        loss: Tensor = super().training_step(model, inputs, *args)  # type: ignore[misc]
        self.probe.on_loss(loss)
        return loss


def trainer_options(job: Job) -> dict[str, Any]:
    """Return the arguments of the Trainer that differ from its defaults."""
    options: dict[str, Any] = {
        "output_dir": tempfile.gettempdir(),
        "max_steps": job.steps,
        "learning_rate": LEARNING_RATE,
        "weight_decay": WEIGHT_DECAY,
        "max_grad_norm": CLIP,
        "per_device_train_batch_size": max(task.rows for task in job.tasks.values()),
        "use_cpu": job.device == "cpu",
        "bf16": job.bf16,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
    }
    if job.compile is not None:
        options |= {"torch_compile": True, "torch_compile_mode": job.compile}
    return options


def make_arguments(
    job: Job, kind: type[TrainingArguments] = TrainingArguments, **more: Any
) -> TrainingArguments:
    """Create the arguments of the Trainer."""
    return kind(**trainer_options(job) | more)


class OneAfterTheOther(Dataset[dict[str, Any]]):
    """Datasets of several tasks one after the other; rows have their task if there are several.

    Args:
        job: The job; its tasks with two columns for pairs.
    """

    def __init__(self, job: Job) -> None:
        self.parts = {
            name: make_dataset(rows, job.tasks[name], columns=True)
            for name, rows in job.data.items()
        }
        self.starts = offsets(self.parts)

    def __len__(self) -> int:
        return sum(map(len, self.parts.values()))

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        name = max(
            (name for name, start in self.starts.items() if start <= indices[0]),
            key=self.starts.__getitem__,
        )
        rows = self.parts[name][[index - self.starts[name] for index in indices]]
        extra = {"task": name} if len(self.parts) > 1 else {}
        return [
            extra | dict(zip(rows, values, strict=True))
            for values in zip(*rows.values(), strict=True)
        ]


def offsets(parts: dict[str, datasets.Dataset]) -> dict[str, int]:
    """Return the number of rows before each part."""
    starts, total = {}, 0
    for name, part in parts.items():
        starts[name] = total
        total += len(part)
    return starts


def fixed_batches(job: Job, starts: dict[str, int]) -> list[list[int]]:
    """Return the rows of all steps, numbered over all tasks."""
    return [[starts[task] + row for row in rows] for task, rows in job.batches()]


def first_task(job: Job) -> Task:
    """Return the only task of a workload, or the first."""
    return next(iter(job.tasks.values()))
