# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""A batch of one task of `MinBertForMultiTask`, and the interface of all heads.

Shapes: B rows, S sequences of a row, N = B * S sequences, L tokens of a sequence, T tokens of a
packed batch, D hidden size, K logits.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils.generic import ModelOutput

from .cpu_minbert import MinBertDropout
from .packing_minbert import MinBertSequences, Read
from .prediction_minbert import Predictor, predict_rows

# The increment and the factors of splitmix64, as signed numbers (Steele et al. 2014).
GAMMA, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
# The first arguments of the encoder.
Inputs = tuple[Tensor | None, ...]


@dataclass
class TaskBatch:
    """A batch of one task."""

    name: str  # of the task
    inputs: Inputs
    options: dict[str, Any] = field(default_factory=dict)  # other arguments of the encoder
    num_sequences: int | None = None  # of a row, (B, S, L); None for (B, L)
    labels: Tensor | None = None
    labelled_rows: Tensor | None = None  # rows that the head computes, (k,); None for all
    targets: dict[str, Tensor | None] = field(default_factory=dict)  # others, by argument
    keys: Tensor | None = None  # hashes of the texts, (B, S), for losses that compare rows
    num_windows: Tensor | None = None  # sequences of each text, (B,) or (B, S); None for one
    has_window_axis: bool = False  # of a padded batch, (B, W, L) or (B, S, W, L)
    windows: Any = None  # `Windows`, if texts are split into windows
    read: Read = None  # which states were read
    is_repeated: bool = False  # whether the batch contains all sequences twice

    @property
    def offsets(self) -> Tensor | None:
        """Where the sequences of a packed batch begin, (N + 1,); None if it is padded."""
        return self.options.get("cu_seq_lens_q")


def ids_of(inputs: Inputs) -> Tensor | None:
    """Return the ids, or a tensor of their shape."""
    return inputs[0] if inputs[4] is None else inputs[4][..., 0]


def check_inputs(batch: TaskBatch) -> None:
    """Check the number of sequences of a row."""
    name, count, offsets = batch.name, batch.num_sequences, batch.offsets
    if offsets is not None:
        total = len(offsets) - 1 if batch.num_windows is None else batch.num_windows.numel()
        if total % (count or 1):
            raise ValueError(f"task {name!r} takes {count} sequences per row, got {total} in all")
        return
    ids = ids_of(batch.inputs)
    wanted = () if count is None else (count,)
    last = -2 if batch.has_window_axis else -1
    if ids is not None and (ids.dim() != 1 + len(wanted) - last or ids.shape[1:last] != wanted):
        expected = ", ".join(map(str, ("batch", *wanted, "length")))
        raise ValueError(f"task {name!r} takes input of shape ({expected}), got {tuple(ids.shape)}")


def check_targets(batch: TaskBatch, task: Any) -> None:
    """Check that all targets belong to the type of the task."""
    for key, value in batch.targets.items():
        if value is not None and key not in task.extra_targets:
            raise ValueError(f"task {batch.name!r} is {task.kind}: leave {key} out")


def check_token_labels(batch: TaskBatch) -> None:
    """Check that there is a label for every token."""
    ids, labels = ids_of(batch.inputs), batch.labels
    if labels is not None and ids is not None and labels.shape != ids.shape:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)}, but task {batch.name!r} takes one per token, "
            f"{tuple(ids.shape)}"
        )


def mark_rows(batch: TaskBatch, padding: int | None) -> Tensor:
    """Label the rows of an unlabeled task: 1, and -100 for those that only fill the batch."""
    inputs, offsets, sentences = batch.inputs, batch.offsets, batch.num_sequences
    ids = ids_of(inputs)
    if ids is None:
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    first = ids[..., 0].flatten() if offsets is None else ids[0, offsets[:-1].long()]
    labels = torch.ones_like(first[::sentences], dtype=torch.long)
    if inputs[0] is None or padding is None:
        return labels
    if offsets is None:  # padding may also be on the left
        is_filler = (ids == padding).all(dim=-1).flatten()[::sentences]
    else:
        is_filler = first[::sentences] == padding
    return labels.masked_fill(is_filler, -100)


def text_keys(batch: TaskBatch) -> Tensor | None:
    """Hash the texts of a batch, (B, S); None without ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in batch.inputs[:2])
    if ids is None:
        return None
    return sequence_keys(ids, mask, batch.offsets).unflatten(0, (-1, batch.num_sequences or 1))


def sequence_keys(ids: Tensor, mask: Tensor | None, offsets: Tensor | None) -> Tensor:
    """Hash the ids of sequences, (N, L) or packed (1, T) with `offsets`, to 64 bits, (N,)."""
    if offsets is not None:
        sequences = MinBertSequences(offsets.int(), 0, None, (1, ids.shape[1]))
        values = _scramble(ids[0], sequences.positions())
        # sums of integers wrap around and stay exact, and so do their differences
        return F.pad(values.cumsum(0), (1, 0))[offsets.long()].diff()
    real = torch.ones_like(ids) if mask is None else mask.ne(0).long()
    return (_scramble(ids, real.cumsum(1) - 1) * real).sum(dim=1)


def _scramble(ids: Tensor, positions: Tensor) -> Tensor:
    """Hash each token with its position to 64 bits: the finalizer of splitmix64."""
    bits = ((ids.long() << 24) + positions + 1) * GAMMA
    for shift, factor in ((30, FIRST), (27, SECOND), (31, 1)):
        # the shift of a signed number repeats the sign
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
    return bits


def repeat(inputs: Inputs, options: dict[str, Any]) -> tuple[Inputs, dict[str, Any]]:
    """Append a copy of all sequences to a batch, padded or packed."""
    offsets = options.get("cu_seq_lens_q")
    dim = 0 if offsets is None else 1
    inputs = tuple(None if x is None else torch.cat([x, x], dim=dim) for x in inputs)
    if offsets is not None:
        options = options | {"cu_seq_lens_q": torch.cat([offsets, offsets[1:] + offsets[-1]])}
    return inputs, options


class MinBertHead(nn.Module):
    """The head of one task of `MinBertForMultiTask`.

    For a batch, the model calls `prepare`, `arrange` and `read`, then the encoder, and `forward`
    with its output. Without `prepare` there is no loss.

    Attributes:
        task: The description of the task.
        gathers: Whether a loss that compares rows uses the rows of all processes in training.
        computes_some_rows: Whether `forward` computes only the `labelled_rows` of a batch.
        label_smoothing: Share of a label that is spread over all classes in training.
    """

    gathers = False
    computes_some_rows = False
    label_smoothing = 0.0
    task: Any

    @property
    def smoothing(self) -> float:
        """The label smoothing of this pass: evaluation has the plain loss."""
        return self.label_smoothing if self.training else 0.0

    def init_weights(self) -> None:
        """Initialize what is not a linear layer, by functions of `transformers.initialization`.

        These leave loaded weights alone.
        """

    def prepare(self, batch: TaskBatch) -> None:
        """Check the targets of a batch and complete them in place."""

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Return the batch with inputs as the encoder takes them."""
        return batch

    def read(self, batch: TaskBatch) -> Read:
        """Return which states `forward` needs; see `MinBertModel.forward`."""
        raise NotImplementedError

    def forward(self, outputs: Any, batch: TaskBatch) -> ModelOutput:
        """Compute logits and, with labels, the loss from the output of the encoder."""
        raise NotImplementedError

    def count_terms(self, labels: Tensor) -> Tensor:
        """Count what the loss is a mean of; see `MinBertForMultiTask.count_terms`."""
        return (labels != -100).sum()

    def decode(self, logits: Tensor) -> Tensor:
        """Convert logits to predictions; see `MinBertForMultiTask.decode`."""
        raise NotImplementedError

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        """Compare two predictions of the same rows; see `MinBertForMultiTask.divergence`."""
        raise NotImplementedError

    def distillation(
        self, logits: Tensor, teacher: Tensor, temperature: float, labels: Tensor | None = None
    ) -> Tensor:
        """Compare logits with those of teachers; see `MinBertForMultiTask.distillation`."""
        raise NotImplementedError

    def to_targets(self, logits: Tensor) -> Tensor:
        """Convert logits of a teacher to what students of its task learn from."""
        return logits

    def predict(
        self, model: Any, name: str, rows: Iterable[Any], *, top_k: int | None, **options: Any
    ) -> Iterator[Any]:
        """Predict rows, with the options of `stream`; see `MinBertForMultiTask.predict`."""
        predictor = self.predictor(model, name, top_k)
        if predictor is None:
            raise NotImplementedError
        return (found for (found,) in predict_rows(model, [predictor], rows, **options))

    def predictor(self, model: Any, name: str, top_k: int | None) -> Predictor | None:
        """Return what predicts rows together with other tasks; None if only `predict` does."""
        del model, name, top_k
        return None


class MinBertHeads(nn.Module):
    """The heads of `MinBertForMultiTask` by the name of their task, sorted.

    Thus the parameters of a new model and a loaded one, and the state of an optimizer, have the
    same order.

    Other than `nn.ModuleDict`, which peft does not wrap, so that `modules_to_save=["heads"]` of
    peft trains and saves them. The wrapper passes on methods, but not `[]` and `in`: code of the
    package calls `get`, `items` and `values`.
    """

    def __init__(self, heads: Mapping[str, MinBertHead] | None = None) -> None:
        super().__init__()
        for name, head in (heads or {}).items():
            self.add(name, head)

    def add(self, name: str, head: MinBertHead) -> None:
        """Add the head of a task, in the order of names."""
        self.add_module(name, head)
        self._modules = dict(sorted(self._modules.items()))

    def get(self, name: str) -> Any:
        """Return the head of a task; None if it has none of its own."""
        return self._modules.get(name)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and heads."""
        return iter(self._modules.items())

    def values(self) -> Iterator[Any]:
        """Iterate over the heads."""
        return iter(self._modules.values())

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


class TokenHead(MinBertHead):
    """A head with a linear layer on every token."""

    def __init__(self, config: Any, task: Any, num_logits: int) -> None:
        super().__init__()
        self.task = task
        self.dropout = MinBertDropout(task.dropout)
        self.out = nn.Linear(config.hidden_size, num_logits)

    def score(self, hidden: Tensor) -> Tensor:
        """Score states, (..., D) -> (..., K)."""
        return self.out(self.dropout(hidden))


def check_shapes(logits: Tensor, other: Tensor, unit: str) -> None:
    """Check that two predictions have the same shape."""
    if logits.shape != other.shape:
        raise ValueError(
            f"logits of {tuple(logits.shape)} and {tuple(other.shape)}: a divergence needs two "
            f"predictions for the same {unit}"
        )
