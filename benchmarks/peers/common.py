"""Shared by all peers: job, hooks into every step, optimizer, schedule and padding."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import datasets
import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import get_linear_schedule_with_warmup

from benchmarks.tasks import TASKS, WORKLOADS, Task
from benchmarks.workloads import IGNORED, Rows

LEARNING_RATE = 2e-5
WEIGHT_DECAY = 0.01
CLIP = 1.0
DROPOUT = 0.1
CLASSES = 5


@dataclass(frozen=True)
class Job:
    """The job of one peer.

    Args:
        folder: The workloads.
        workload: Name of the workload.
        size: Name of the model.
        steps: Optimizer steps.
        first: Batch to begin with; batches come round again.
        rows: Rows that are taken of each batch; None takes all.
        dropout: Whether there is dropout, of 0.1 everywhere.
        device: ``cpu`` or ``cuda``.
        bf16: Whether to use autocast.
        compile: Mode of ``torch.compile``, such as ``default``; None for eager.
    """

    folder: Path
    workload: str
    size: str
    steps: int
    first: int = 0
    rows: int | None = None
    dropout: bool = True
    device: str = "cpu"
    bf16: bool = False
    compile: str | None = None

    @property
    def tasks(self) -> dict[str, Task]:
        """The tasks of the workload, in turn."""
        return {name: TASKS[name] for name in WORKLOADS[self.workload]}

    @property
    def is_mlm(self) -> bool:
        """Whether it is masked language modeling."""
        return any(task.kind == "mlm" for task in self.tasks.values())

    @property
    def dropout_rate(self) -> float:
        """Probability of dropping an element."""
        return DROPOUT if self.dropout else 0.0

    @property
    def dtype(self) -> torch.dtype:
        """Type of the weights for inference; in training they are fp32."""
        return torch.bfloat16 if self.bf16 else torch.float32

    @property
    def model_dir(self) -> Path:
        """Folder of the weights."""
        return self.folder / "models" / self.size

    @cached_property
    def data(self) -> dict[str, Rows]:
        """The rows of each task."""
        return {name: Rows.load(self.folder / f"{name}.npz") for name in self.tasks}

    def batch(self, step: int) -> tuple[str, list[int]]:
        """Yield the task and the rows of every step."""
        names = list(self.tasks)
        turn, index = divmod(self.first + step, len(names))
        batches = self.data[names[index]].batches
        return names[index], batches[turn % len(batches)][: self.rows].tolist()

    def batches(self) -> Iterator[tuple[str, list[int]]]:
        """List the steps."""
        return map(self.batch, range(self.steps))

    def sentences(self) -> list[str]:
        """Read the sentences to encode, ``rows`` of them."""
        text = (self.folder / "sentences.txt").read_text(encoding="utf-8")
        return text.splitlines()[: self.rows]


class Probe:
    """Hooks that a peer calls in every step; these do nothing."""

    def on_batch(self, inputs: Mapping[str, Any]) -> None:
        """Receive the inputs of the model."""

    def on_loss(self, loss: Tensor) -> None:
        """Receive the loss."""

    def on_gradients(self) -> None:
        """Called after clipping, before the optimizer."""

    def on_step(self) -> None:
        """Called at the end of a step."""


class Peer(Protocol):
    """One way to train a model on the batches of a job."""

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by their names in BERT's classes for one sequence."""


Maker = Callable[[Job], Peer]


def set_classifier(layer: nn.Linear) -> None:
    """Initialize a new classifier with the same weights in every peer."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) * 0.02)
        layer.bias.zero_()


def scale_labels(kind: str, labels: Tensor) -> Tensor:
    """Scale similarity scores to [0, 1], the target of the cosine."""
    return labels / 5 if kind == "similarity" else labels


def make_optimizer(model: nn.Module) -> torch.optim.AdamW:
    """Create the Trainer's optimizer: fused, no decay of biases and norms."""
    no_decay = ("bias", "LayerNorm.weight")
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {
            "params": [p for name, p in named if name.endswith(no_decay) == skips],
            "weight_decay": 0.0 if skips else WEIGHT_DECAY,
        }
        for skips in (False, True)
    ]
    return torch.optim.AdamW(groups, lr=LEARNING_RATE, fused=True)


def make_schedule(optimizer: torch.optim.Optimizer, steps: int) -> LambdaLR:
    """Create the Trainer's schedule: linear to zero, no warmup."""
    return get_linear_schedule_with_warmup(optimizer, 0, steps)


def make_dataset(rows: Rows, task: Task, *, columns: bool = False) -> datasets.Dataset:
    """Create a dataset of tokens in the format of the loaders.

    Args:
        rows: The rows.
        task: Their task.
        columns: Whether the sequences of a pair are two columns, ``_a`` and ``_b``, instead of
            lists of two.

    Returns:
        Columns input_ids, token_type_ids and labels.
    """
    count = len(rows.starts) - 1
    features: dict[str, list[Any]] = {}
    for name, values in (("input_ids", rows.ids), ("token_type_ids", rows.segments)):
        sequences = [rows.sequence(values, index) for index in range(count)]
        if rows.per_row == 1:
            features[name] = sequences
        elif columns:
            features[f"{name}_a"], features[f"{name}_b"] = sequences[::2], sequences[1::2]
        else:
            features[name] = [list(p) for p in zip(sequences[::2], sequences[1::2], strict=True)]
    if task.kind == "mlm":
        features["labels"] = [rows.sequence(rows.labels, index) for index in range(count)]
    else:
        features["labels"] = rows.labels.tolist()
    return datasets.Dataset.from_dict(features)


def pad(sequences: Sequence[Sequence[int]], value: int) -> Tensor:
    """Pad sequences at their end, (N, L) int64."""
    lengths = np.fromiter(map(len, sequences), dtype=np.int64, count=len(sequences))
    mask = np.arange(lengths.max()) < lengths[:, None]
    padded = np.full(mask.shape, value, dtype=np.int64)
    padded[mask] = np.concatenate([np.asarray(sequence) for sequence in sequences])
    return torch.from_numpy(padded)


def pad_side(rows: Sequence[Mapping[str, Any]], suffix: str = "") -> dict[str, Tensor]:
    """Pad single sequences, or one side of pairs, to the longest of the batch."""
    ids = [row["input_ids" + suffix] for row in rows]
    return {
        "input_ids": pad(ids, 0),
        "token_type_ids": pad([row["token_type_ids" + suffix] for row in rows], 0),
        "attention_mask": pad([[1] * len(sequence) for sequence in ids], 0),
    }


def collate_columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Pad a batch of a dataset with ``columns``; the two sides of a pair are two dictionaries."""
    batch: dict[str, Any] = {"task": rows[0]["task"]} if "task" in rows[0] else {}
    if isinstance(rows[0]["labels"], list):
        batch["labels"] = pad([row["labels"] for row in rows], IGNORED)
    else:
        batch["labels"] = torch.tensor([row["labels"] for row in rows])
    if "input_ids" in rows[0]:
        return batch | pad_side(rows)
    return batch | {"first": pad_side(rows, "_a"), "second": pad_side(rows, "_b")}
