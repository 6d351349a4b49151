# Copyright 2026 The minBERT authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""What a batch of a task of `MinBertForMultiTask` must be, and what can be told of it.

Shapes: B rows, S sequences of a row, N = B * S sequences, L tokens of a sequence.
"""

from typing import Any

import torch
from torch import Tensor

from .losses_minbert import sequence_keys
from .task_minbert import MinBertTask

# What the encoder takes first: ids, mask, segments, positions, embeddings.
Inputs = tuple[Tensor | None, ...]
INPUTS = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
# Labels that only one type of problem takes.
OWNERS = {
    "next_sentence_label": "pretraining",
    "start_positions": "question_answering",
    "end_positions": "question_answering",
}


def ids_of(inputs: Inputs) -> Tensor | None:
    """Return the ids, or what has their shape."""
    return inputs[0] if inputs[4] is None else inputs[4][..., 0]


def check_inputs(inputs: Inputs, name: str, task: MinBertTask, offsets: Tensor | None) -> None:
    """Check that a task gets as many sequences a row as it takes."""
    count = task.num_sequences
    if offsets is not None:
        if count is not None and (len(offsets) - 1) % count:
            words = {2: "two", 3: "three"}
            raise ValueError(
                f"task {name!r} takes {words[count]} sequences a row, got {len(offsets) - 1} in all"
            )
        return
    ids = ids_of(inputs)
    wanted = () if count is None else (count,)
    if ids is not None and (ids.dim() != 2 + len(wanted) or ids.shape[1:-1] != wanted):
        expected = ", ".join(map(str, ("batch", *wanted, "length")))
        raise ValueError(f"task {name!r} takes input of shape ({expected}), got {tuple(ids.shape)}")


def check_owners(name: str, task: MinBertTask, given: dict[str, Tensor | None]) -> None:
    """Check that nothing is given which is for another type of problem."""
    for key, value in given.items():
        if value is not None and task.problem_type != OWNERS[key]:
            raise ValueError(
                f"task {name!r} is a {task.problem_type}: leave {key} out, it is for a "
                f"{OWNERS[key]} task"
            )


def check_token_labels(name: str, inputs: Inputs, labels: Tensor | None) -> None:
    """Check that there is a label for every token."""
    ids = ids_of(inputs)
    if labels is not None and ids is not None and labels.shape != ids.shape:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)}, but task {name!r} takes one a token, "
            f"{tuple(ids.shape)}"
        )


def mark_rows(
    inputs: Inputs, offsets: Tensor | None, sentences: int | None, padding: int | None
) -> Tensor:
    """Label the rows of a contrastive task: 1, and -100 for those that only fill a batch up."""
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


def text_keys(inputs: Inputs, offsets: Tensor | None, sentences: int | None) -> Tensor | None:
    """Make numbers that tell the texts of a batch apart, (B, S); None if there are no ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in inputs[:2])
    if ids is None:
        return None
    return sequence_keys(ids, mask, offsets).unflatten(0, (-1, sentences or 1))


def repeat(inputs: Inputs, kwargs: dict[str, Any]) -> tuple[Inputs, dict[str, Any]]:
    """Put all sequences of a batch, padded or packed, once more behind themselves."""
    offsets = kwargs.get("cu_seq_lens_q")
    dim = 0 if offsets is None else 1
    inputs = tuple(None if x is None else torch.cat([x, x], dim=dim) for x in inputs)
    if offsets is not None:
        kwargs = kwargs | {"cu_seq_lens_q": torch.cat([offsets, offsets[1:] + offsets[-1]])}
    return inputs, kwargs


__all__ = [
    "INPUTS",
    "Inputs",
    "check_inputs",
    "check_owners",
    "check_token_labels",
    "ids_of",
    "mark_rows",
    "repeat",
    "text_keys",
]
