# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Predictions of one or several tasks for the same rows: equal tokens are encoded once.

Rows come in windows of some thousand, as in `stream`. Tasks for which all rows of a window have the
same tokens share the passes of the encoder: their batches are the same, so are their predictions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from .inference_minbert import (
    Encoded,
    batches,
    check_rows,
    check_top_k,
    choose_tokens,
    predicting,
    tokenize,
    windows_of,
)
from .precision_minbert import check_precision

# Tasks whose rows have the same tokens.
Group = tuple[list[Encoded], list["Predictor"]]


class Predictor:
    """How a head predicts the rows of a window.

    Its methods are called in this order: `check`, then for every window `encode`, `keep` for each
    batch, and `describe`.

    Attributes:
        name: Name of the task.
        encoding: What `encode` depends on: predictors with equal ones tokenize a window once.
    """

    name: str
    encoding: Any

    def check(self, rows: Sequence[Any]) -> None:
        """Check all rows before any is computed."""

    def encode(self, rows: Sequence[Any], first: int) -> list[Encoded]:
        """Tokenize the rows of a window, of which the first one has the number `first`."""
        raise NotImplementedError

    def keep(self, indices: list[int], inputs: dict[str, Any], output: Any) -> None:
        """Keep what `describe` needs of a batch: the output for the encoded rows at `indices`."""
        raise NotImplementedError

    def describe(self) -> list[Any]:
        """Return the predictions of the window, one per row, and forget it."""
        raise NotImplementedError


class PooledPredictor(Predictor):
    """Predicts a task with one vector per sequence, from (B, K) of each batch; see `PooledHead`."""

    def __init__(self, model: Any, name: str, head: Any, top_k: int | None) -> None:
        check_top_k(top_k)
        task = head.task
        self.name, self.head, self.top_k, self.model = name, head, top_k, model
        self.num_texts: int = task.num_texts
        self.options: dict[str, Any] = {
            "separate": task.is_separate,
            "max_length": task.limit_length(model.config.max_position_embeddings),
            "truncation": task.truncation,
        }
        self.encoding = (self.num_texts, *self.options.values())
        self.results: list[tuple[list[int], Tensor]] = []

    def check(self, rows: Sequence[Any]) -> None:
        for _ in check_rows(rows, self.name, self.num_texts):
            pass

    def encode(self, rows: Sequence[Any], first: int) -> list[Encoded]:
        checked = list(check_rows(rows, self.name, self.num_texts, first))
        return tokenize(self.model.tokenizer, checked, **self.options)

    def keep(self, indices: list[int], inputs: dict[str, Any], output: Any) -> None:
        del inputs
        self.results.append((indices, self.head.summarize(output.logits).float()))

    def describe(self) -> list[Any]:
        order = torch.tensor([index for indices, _ in self.results for index in indices])
        values = torch.cat([values for _, values in self.results]).cpu()
        self.results = []
        ordered = torch.empty_like(values).index_copy_(0, order, values)
        described: list[Any] = self.head.describe(ordered, self.top_k)
        return described


def predict_rows(
    model: Any,
    predictors: Sequence[Predictor],
    rows: Iterable[Any],
    *,
    max_tokens: int | None,
    show_progress: bool | None,
    precision: str | None,
) -> Iterator[tuple[Any, ...]]:
    """Yield the predictions of each row, in the order of the predictors."""
    tokens = choose_tokens(model, max_tokens)
    check_precision(precision)
    if isinstance(rows, Sequence):
        for predictor in predictors:
            predictor.check(rows)

    def run() -> Iterator[tuple[Any, ...]]:
        first = 0
        for window, bar in windows_of(rows, show_progress):
            groups = group_by_tokens(predictors, window, first)
            with predicting(model, precision):
                _compute(model, groups, tokens, _progress(bar, len(window), groups))
            yield from zip(*(each.describe() for each in predictors), strict=True)
            first += len(window)

    return run()


def group_by_tokens(
    predictors: Sequence[Predictor], rows: Sequence[Any], first: int
) -> list[Group]:
    """Group the tasks for which all rows have the same tokens."""
    known: dict[Any, list[Encoded]] = {}
    groups: list[Group] = []
    for each in predictors:
        if each.encoding not in known:
            known[each.encoding] = each.encode(rows, first)
        encoded = known[each.encoding]
        for tokens, members in groups:
            if tokens is encoded or tokens == encoded:
                members.append(each)
                break
        else:
            groups.append((encoded, [each]))
    return groups


def _compute(
    model: Any, groups: list[Group], max_tokens: int, advance: Callable[[int], None]
) -> None:
    for encoded, members in groups:
        names = [each.name for each in members]
        for indices, inputs in batches(model, encoded, max_tokens):
            outputs = model(**inputs, task=names)
            for each in members:
                each.keep(indices, inputs, outputs[each.name])
            advance(len(indices))


def _progress(bar: Any, rows: int, groups: list[Group]) -> Callable[[int], None]:
    """Return a function that moves a bar of `rows`, given how many of all encodings are done."""
    total = sum(len(encoded) for encoded, _ in groups)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        before, done = done, done + count
        bar.update(rows * done // total - rows * before // total)

    return advance
