# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""A batch of one task of `MinBertForMultiTask`: checks, and what follows from its ids.

Shapes: B rows, S sequences of a row, N = B * S sequences, L tokens of a sequence.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from .loss_functions_minbert import sequence_keys
from .packing_minbert import Read

# What the encoder takes first: ids, mask, segments, positions, embeddings.
Inputs = tuple[Tensor | None, ...]
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")


@dataclass
class TaskBatch:
    """A batch of one task.

    Args:
        name: Name of the task.
        inputs: Ids, mask, segments, positions and embeddings, as the encoder takes them.
        options: Further keyword arguments of the encoder, `num_items_in_batch` among them.
        num_sequences: Sequences of a row, (B, S, L); None for (B, L).
        labels: As the task takes them; None for no loss.
        targets: Further targets by the name of the argument.
        keys: Hashes of the texts, (B, S), for losses that compare rows.
        read: Which states were read.
        is_repeated: Whether all sequences come twice.
    """

    name: str
    inputs: Inputs
    options: dict[str, Any] = field(default_factory=dict)
    num_sequences: int | None = None
    labels: Tensor | None = None
    targets: dict[str, Tensor | None] = field(default_factory=dict)
    keys: Tensor | None = None
    read: Read = None
    is_repeated: bool = False

    @property
    def offsets(self) -> Tensor | None:
        """Where the sequences of a packed batch begin, (N + 1,); None if it is padded."""
        return self.options.get("cu_seq_lens_q")


def ids_of(inputs: Inputs) -> Tensor | None:
    """Return the ids, or what has their shape."""
    return inputs[0] if inputs[4] is None else inputs[4][..., 0]


def check_inputs(batch: TaskBatch) -> None:
    """Check the number of sequences of a row."""
    name, count, offsets = batch.name, batch.num_sequences, batch.offsets
    if offsets is not None:
        if count is not None and (len(offsets) - 1) % count:
            numerals = {2: "two", 3: "three"}
            raise ValueError(
                f"task {name!r} takes {numerals[count]} sequences a row, got {len(offsets) - 1} "
                "in all"
            )
        return
    ids = ids_of(batch.inputs)
    wanted = () if count is None else (count,)
    if ids is not None and (ids.dim() != 2 + len(wanted) or ids.shape[1:-1] != wanted):
        expected = ", ".join(map(str, ("batch", *wanted, "length")))
        raise ValueError(f"task {name!r} takes input of shape ({expected}), got {tuple(ids.shape)}")


def check_targets(batch: TaskBatch, task: Any) -> None:
    """Check that there are only targets that the type of the task takes."""
    for key, value in batch.targets.items():
        if value is not None and key not in task.extra_targets:
            raise ValueError(f"task {batch.name!r} is a {task.problem_type}: leave {key} out")


def check_token_labels(batch: TaskBatch) -> None:
    """Check that there is a label for every token."""
    ids, labels = ids_of(batch.inputs), batch.labels
    if labels is not None and ids is not None and labels.shape != ids.shape:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)}, but task {batch.name!r} takes one a token, "
            f"{tuple(ids.shape)}"
        )


def mark_rows(batch: TaskBatch, padding: int | None) -> Tensor:
    """Label the rows of an unlabelled task: 1, and -100 for those that only pad the batch."""
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
    """Hash the texts of a batch, (B, S); None if there are no ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in batch.inputs[:2])
    if ids is None:
        return None
    return sequence_keys(ids, mask, batch.offsets).unflatten(0, (-1, batch.num_sequences or 1))


def repeat(inputs: Inputs, options: dict[str, Any]) -> tuple[Inputs, dict[str, Any]]:
    """Append a copy of all sequences to a batch, padded or packed."""
    offsets = options.get("cu_seq_lens_q")
    dim = 0 if offsets is None else 1
    inputs = tuple(None if x is None else torch.cat([x, x], dim=dim) for x in inputs)
    if offsets is not None:
        options = options | {"cu_seq_lens_q": torch.cat([offsets, offsets[1:] + offsets[-1]])}
    return inputs, options


__all__ = [
    "INPUTS",
    "Inputs",
    "TaskBatch",
    "check_inputs",
    "check_targets",
    "check_token_labels",
    "ids_of",
    "mark_rows",
    "repeat",
    "text_keys",
]
