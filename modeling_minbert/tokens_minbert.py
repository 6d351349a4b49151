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
"""Tasks of tokens: a label for every token, or where in a text an answer begins and ends.

Every model that has such a head computes it by `label_tokens` or `find_answers`.

Shapes: B rows, L tokens of a row, T tokens of a packed batch, D hidden size, K logits of a token.
"""

import os
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.loss.loss_utils import ForQuestionAnsweringLoss, fixed_cross_entropy
from transformers.modeling_outputs import QuestionAnsweringModelOutput, TokenClassifierOutput

from .configuration_minbert import MinBertConfig
from .dropout_minbert import MinBertDropout
from .inference_minbert import HUB_KEYS
from .losses_minbert import symmetric_kl
from .packing_minbert import any_at_padding
from .task_minbert import MinBertTask

IGNORED_LABEL = -100


class MinBertTokenHead(nn.Module):
    """One task of `MinBertForMultiTask` that reads every token."""

    def __init__(self, config: MinBertConfig, task: MinBertTask) -> None:
        super().__init__()
        self.task = task
        self.dropout = MinBertDropout(task.dropout or 0.0)
        self.out = nn.Linear(config.hidden_size, task.num_logits)

    def forward(self, hidden: Tensor) -> Tensor:
        """Score tokens, (..., D) -> (..., K)."""
        return self.out(self.dropout(hidden))

    def divergence(self, logits: Tensor, other: Tensor, labels: Tensor | None = None) -> Tensor:
        """Tell how far two predictions of the same tokens are apart; see `MinBertForMultiTask`."""
        if self.task.problem_type != "token_classification":
            raise ValueError(
                "a question_answering task has scores of positions, of which no divergence is "
                "defined: train it without r_drop and smart"
            )
        if logits.shape != other.shape:
            raise ValueError(
                f"logits of {tuple(logits.shape)} and {tuple(other.shape)}: a divergence is of two "
                "predictions for the same tokens"
            )
        each = symmetric_kl(logits, other)
        if labels is None:
            return each.mean()
        counted = labels != IGNORED_LABEL
        return each.masked_fill(~counted, 0).sum() / counted.sum().clamp(min=1)

    def decode(self, logits: Tensor) -> Tensor:
        """Turn logits (..., K) into the ids of tags (...)."""
        if self.task.problem_type != "token_classification":
            raise ValueError(
                "start and end of an answer are decoded together and with the text: use predict"
            )
        return logits.argmax(dim=-1)


def label_tokens(
    model: Any,
    score: Callable[[Tensor], Tensor],
    inputs: tuple[Tensor | None, ...],
    labels: Tensor | None,
    kwargs: dict[str, Any],
) -> TokenClassifierOutput:
    """Encode a batch and score every token.

    Args:
        model: Has the encoder as `bert`.
        score: Makes K logits of a state.
        inputs: What the encoder takes first: ids, mask, segments, positions and embeddings.
        labels: Ids of the tags, (B, L), (1, T) of a packed batch, -100 where none is predicted.
        kwargs: Of the model: what the encoder takes, and `num_items_in_batch`, by which the summed
            loss is divided in the place of the number of labels.

    Returns:
        `logits` (B, L, K), (1, T, K) of a packed batch, and, with labels, the mean `loss`.
    """
    stray = labels is not None and any_at_padding(labels != IGNORED_LABEL, inputs[1])
    outputs = model.bert(*inputs, return_dict=True, read="padded" if stray else "tokens", **kwargs)
    logits = score(outputs.last_hidden_state)
    if outputs.sequences is not None:
        logits = outputs.sequences.pad(logits)
    loss = None
    if labels is not None:
        number = kwargs.get("num_items_in_batch")
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = fixed_cross_entropy(logits.flatten(0, -2).to(dtype), labels.flatten(), number)
    return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


def find_answers(
    model: Any,
    score: Callable[[Tensor], Tensor],
    inputs: tuple[Tensor | None, ...],
    start_positions: Tensor | None,
    end_positions: Tensor | None,
    kwargs: dict[str, Any],
) -> QuestionAnsweringModelOutput:
    """Encode a batch and score every token as the first and the last of an answer.

    Args:
        model: Has the encoder as `bert`.
        score: Makes the two logits of a state.
        inputs: What the encoder takes first: ids, mask, segments, positions and embeddings.
        start_positions: The first token of each answer, (B,). Beyond the sequence, and at -100, of
            a row that only fills the batch up, it is ignored; as in BERT, other negative ones are
            the first token.
        end_positions: The last token, (B,).
        kwargs: Of the model: what the encoder takes.

    Returns:
        `start_logits` and `end_logits` (B, L), L being `max_length_q` for a packed batch, whose
        rows are filled up with the lowest number, and, with positions, their mean cross entropy:
        over all columns of a padded batch, as BERT's is, and over the real tokens of a packed one.
    """
    packed = kwargs.get("cu_seq_lens_q") is not None
    outputs = model.bert(*inputs, return_dict=True, read="tokens" if packed else "padded", **kwargs)
    logits = score(outputs.last_hidden_state)
    if packed:
        sequences = outputs.sequences
        logits = sequences.to_rows(logits, torch.finfo(logits.dtype).min)
        start_positions = sequences.ignore_beyond(start_positions)
        end_positions = sequences.ignore_beyond(end_positions)
    start_logits, end_logits = logits.unbind(dim=-1)
    loss = None
    if start_positions is not None and end_positions is not None:
        places = (_ignore_fillers(x, logits) for x in (start_positions, end_positions))
        loss = ForQuestionAnsweringLoss(start_logits, end_logits, *places)
    return QuestionAnsweringModelOutput(
        loss, start_logits, end_logits, outputs.hidden_states, outputs.attentions
    )


def _ignore_fillers(positions: Tensor, logits: Tensor) -> Tensor:
    """Put the positions of rows that only fill a batch up beyond the sequence."""
    return positions.masked_fill(positions == IGNORED_LABEL, logits.shape[1])


class MinBertHeadOfTask:
    """What models with one head have that take it from a task of a multi-task checkpoint."""

    # Problem type of the task, and name of the layer that is the head.
    _adopts: ClassVar[tuple[str, str]]

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Any,
        *args: Any,
        task: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Load a checkpoint; of a multi-task one, the head of a task.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            *args: As in `PreTrainedModel.from_pretrained`.
            task: Name of the task; None for the default task, or the first of this type by name,
                unless other labels are asked for.
            **kwargs: As in `PreTrainedModel.from_pretrained`.

        Raises:
            ValueError: If there is no such task, it is of another type, or reads a layer below.
        """
        path = pretrained_model_name_or_path
        kwargs = adopt_head(path, *cls._adopts, task, kwargs)
        parent: Any = super()
        return parent.from_pretrained(path, *args, **kwargs)


def adopt_head(
    path: str | os.PathLike[str], kind: str, head: str, task: str | None, kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Let a model with one head take that of a task of a multi-task checkpoint.

    Args:
        path: The checkpoint.
        kind: Problem type of the task.
        head: Name of the layer that is the head.
        task: Name of the task; None for the default task, or the first of this type by name. None
            is taken if the labels of the configuration were chosen by the caller.
        kwargs: Those of `from_pretrained`.

    Returns:
        These, completed by the configuration and where the weights are found.

    Raises:
        ValueError: If there is no such task, it is of another type, or reads a layer below.
    """
    config = kwargs.get("config")
    # an Auto class that trusts remote code has a copy of MinBertConfig that is another class
    if not isinstance(config, PreTrainedConfig):
        where = {name: kwargs[name] for name in HUB_KEYS if name in kwargs}
        config = path if config is None else config
        if task is None and not MinBertConfig.get_config_dict(config, **where)[0].get("tasks"):
            return kwargs
        others = {name: value for name, value in kwargs.items() if name not in (*HUB_KEYS, "dtype")}
        config, unused = MinBertConfig.from_pretrained(
            config, return_unused_kwargs=True, **where, **others
        )
        kwargs = unused | {name: value for name, value in kwargs.items() if name not in others}
    config = deepcopy(config)
    kwargs = {**kwargs, "config": config}
    names = [name for name in sorted(config.tasks or {}) if config.task(name).problem_type == kind]
    if task is not None and task not in names:
        kind_of = config.task(task).problem_type  # names the known tasks
        raise ValueError(f"task {task!r} is a {kind_of}, but this model is for a {kind}")
    if task is None and (not names or not config.has_default_labels):
        return kwargs
    default = config.default_task if config.default_task in names else names[0]
    name = task or str(default)
    layer = config.task(name).pooling_layer
    if layer not in (-1, config.num_hidden_layers):
        raise ValueError(
            f"task {name!r} reads layer {layer} (pooling_layer), but a model with one head the "
            "last one: load it as MinBertForMultiTask"
        )
    config.default_task = name
    config.describe_default_task()
    source = rf"^heads\.{re.escape(name)}\.out\."
    return kwargs | {"key_mapping": {source: f"{head}.", **kwargs.get("key_mapping", {})}}


__all__ = ["MinBertHeadOfTask", "MinBertTokenHead", "find_answers", "label_tokens"]
