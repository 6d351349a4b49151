# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Predictions of one task, or of several tasks for the same rows; what pipelines may predict."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F

from .heads import RowKind, ids_of
from .inference import Batching, PooledPredictor, check_container, compute_rows, predict_rows

# One row of a kind.
ONE: dict[RowKind, str] = {
    "single texts": "a single text",
    "pairs": "a pair",
    "contexts with choices": "a context with choices",
}


def find_kind(row: object) -> RowKind:
    """Return of what kind a row is; a list of words looks like a pair."""
    if isinstance(row, str):
        return "single texts"
    has_choices = isinstance(row, tuple | list) and row and isinstance(row[-1], tuple | list)
    return "contexts with choices" if has_choices else "pairs"


class MinBertPredicting:
    """Mixin of models with named tasks: their predictions."""

    heads: Any
    _head: Any

    def predict(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> list[Any]:
        """Predict a task for sentences or pairs of sentences.

        Args:
            task: Name of the task.
            sentences: Sentences, or pairs (first, second) for a pair task and a contrastive one.
                For a token_classification texts of any length, or lists of words; for a
                question_answering pairs of a question and a text. An array or a column of a frame
                or dataset is as good as a list.
            top_k: Maximum number of labels or answers per row, most probable first; None for the
                predicted one. Not for a token_classification.
            **batching: See `Batching`.

        Returns:
            One dictionary per row, in the order given, or with `top_k` a list of them: `label` and
            `score` (its probability), or only `score`: within the range of the task for a
            similarity, the cosine for a contrastive task, in the units of the data for a
            regression, where several targets have `scores` by name. A multi_output_classification
            has `labels`: label and score of each output by name. For a token_classification
            `words`, `tags`, `scores`, and `entities` with `label`, `text`, `start`, `end` and
            `score` if the tags mark any. For a question `answer`, empty for none, its `score`, and
            `start` and `end` in characters of the text.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: If there is no such task, it is of pre-training, a row has the wrong number
                of sentences, or `top_k` is below 1.
        """
        return list(self.predict_stream(task, sentences, top_k=top_k, **batching))

    def predict_stream(
        self,
        task: str,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> Iterator[Any]:
        """Predict a task for more rows than fit into memory; see `predict` for the arguments.

        `sentences` may be any iterable; some thousand rows are read ahead.

        Yields:
            The prediction of each row, in the order given.
        """
        head = self._head(task)
        check_container(sentences, task)
        predictor = head.predictor(self, task, top_k)
        return (found for (found,) in predict_rows(self, [predictor], sentences, batching))

    def predict_all(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        tasks: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> dict[str, list[Any]]:
        """Predict several tasks for the same sentences or pairs, in one pass where possible.

        The predictions are those of `predict`, but the encoder runs once for all tasks whose rows
        have the same tokens and that read the same states. Tokens are the same for tasks on single
        texts with equal `max_length` and `truncation`, and likewise for joint pairs, separate
        pairs, and contexts with choices; rows that no task truncates have the same tokens in any
        case. States are the same for a `pooling` of `cls` and `pooler`, and for one of `mean` and
        `max` and tags, of one `pooling_layer`.

        Args:
            sentences: Sentences, pairs (first, second), or contexts with choices.
            tasks: Names of the tasks; None for all that take such rows.
            top_k: As in `predict`, for all tasks.
            **batching: See `Batching`.

        Returns:
            What `predict` returns, by task, in the order of `tasks` or sorted by name.

        Raises:
            TypeError: If `sentences` or `tasks` is one string.
            ValueError: If there is no such task, none or not every one takes such rows, or as in
                `predict`.
        """
        check_container(sentences, "predict_all")
        given: Any = sentences
        rows = given if isinstance(given, Sequence) else list(given)
        names = self.choose_tasks(rows, tasks)
        predicted = list(self.predict_all_stream(rows, tasks, top_k=top_k, **batching))
        return {name: [row[name] for row in predicted] for name in names}

    def predict_all_stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        tasks: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        **batching: Unpack[Batching],
    ) -> Iterator[dict[str, Any]]:
        """Predict several tasks for more rows than fit into memory; see `predict_all`.

        `sentences` may be any iterable; its first row is read at once, and some thousand rows are
        read ahead.

        Yields:
            The predictions of each row by task, in the order given.
        """
        check_container(sentences, "predict_all")
        known: Any = sentences
        rows: Any = sentences
        if not isinstance(sentences, Sequence):
            source = iter(sentences)
            known = list(islice(source, 1))
            rows = chain(known, source)
        names = self.choose_tasks(known, tasks)
        predictors = [self._head(name).predictor(self, name, top_k) for name in names]
        predicted = predict_rows(self, predictors, rows, batching)
        return (dict(zip(names, row, strict=True)) for row in predicted)

    def choose_tasks(
        self, sentences: Sequence[object], tasks: Sequence[str] | None = None
    ) -> list[str]:
        """Return the tasks that `predict_all` predicts, judged by the first row.

        Args:
            sentences: Rows as in `predict_all`; if there are none, every task takes them.
            tasks: Names of tasks, to check that they take such rows; None for all that do.

        Raises:
            TypeError: If `sentences` or `tasks` is one string.
            ValueError: If there is no such task, or none or not every one takes such rows.
        """
        for given in (sentences, tasks):
            if isinstance(given, str):
                raise TypeError(
                    f"pass a list of sentences and a list of tasks, not {given!r} alone"
                )
        if tasks is not None and not len(tasks):
            raise ValueError("tasks is empty: name at least one task, or leave it out")
        names = list(self.heads) if tasks is None else tasks
        specs = {name: self._head(name).task for name in names}
        if not len(sentences):
            return list(specs)
        kind = find_kind(sentences[0])
        fitting = [
            name
            for name, task in specs.items()
            # a sequence may also contain the words of a text, if a caller names the task
            if task.row_kind == kind or (tasks and kind == "pairs" and task.is_token_level)
        ]
        if (fitting and tasks is None) or len(fitting) == len(specs) > 0:
            return fitting
        others = [f"{x} takes {specs[x].row_kind}" for x in specs if x not in fitting]
        raise ValueError(f"row 0 is {ONE[kind]}, but {', '.join(others) or 'there are no tasks'}")

    def teach(
        self,
        task: str,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        **batching: Unpack[Batching],
    ) -> Tensor:
        """Compute what a student learns from this model as its teacher; see `distillation`.

        Args:
            task: Name of a task that scores texts, such as a classification; none about tokens or
                vectors.
            sentences: Rows as for `predict`: sentences, pairs of them, or contexts with choices.
            **batching: See `Batching`; computed in float32 by default.

        Returns:
            Float32 logits on the CPU, (number of rows, K); scores in units of the range for a
            similarity, (number of rows, 1). Of multiple choice the lowest number where a row has
            fewer choices than others.

        Raises:
            ValueError: If there is no such task, or it has another type; else as for `predict`.
        """
        head = self._head(task)
        predictor = head.predictor(self, task, None)
        if not isinstance(predictor, PooledPredictor) or head.task.is_unlabelled:
            raise ValueError(f"task {task!r} is {head.task.kind}, which does not score texts")
        check_container(sentences, task)
        options = Batching(precision="float32") | batching
        targets = [predictor.teach() for _ in compute_rows(self, [predictor], sentences, options)]
        # rows that were read together may all have fewer choices than others
        width, least = max(part.shape[1] for part in targets), torch.finfo(torch.float32).min
        return torch.cat([F.pad(part, (0, width - part.shape[1]), value=least) for part in targets])


def check_row_of_pipeline(name: str, task: Any, inputs: Any, positions: int) -> None:
    """Refuse what transformers' own pipelines would answer otherwise than `predict`.

    They know one label a row, the one with the highest score, and the start of a text.
    """
    advice = f"use predict({name!r}, ...) of the model"
    if task.problem_type != "classification" or task.is_separate or task.truncation != "head":
        raise ValueError(
            f"task {name!r}: this pipeline of transformers knows classifications that read the "
            f"head of a text, or of a joint pair, only: {advice}"
        )
    ids: Any = ids_of(inputs)
    mask = inputs[1]
    tokens = ids.shape[-1] if mask is None else int(mask.ne(0).sum(dim=-1).max())
    limit = task.limit_length(positions)
    if tokens > limit:
        raise ValueError(
            f"task {name!r} reads {limit} tokens of a text, but this pipeline of transformers "
            f"gives {tokens}: pass truncation=True, max_length={limit} to it, or {advice}"
        )
