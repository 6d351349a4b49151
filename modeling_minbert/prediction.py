# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`predict_all`, predictions of several tasks for the same rows, and the pipeline."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, tee
from typing import Any

from transformers import Pipeline

from .heads import RowKind, ids_of
from .inference import predict_rows
from .names import unknown
from .texts import list_rows

# One row of a kind.
ONE: dict[RowKind, str] = {
    "single texts": "a single text",
    "pairs": "a pair",
    "contexts with choices": "a context with choices",
}


class MinBertPredictingAll:
    """Mixin of models with several tasks: their predictions for the same rows."""

    heads: Any
    _head: Any

    def predict_all(
        self,
        sentences: Sequence[str] | Sequence[Sequence[str]],
        tasks: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
        precision: str | None = None,
    ) -> dict[str, list[Any]]:
        """Predict several tasks for the same sentences or pairs, in one pass where possible.

        The predictions are those of `predict`, but the encoder runs once for all tasks whose rows
        have the same tokens: tasks on single texts with the same `max_length` and `truncation`,
        and likewise joint pairs, separate pairs, and contexts with choices. Rows that no task
        truncates have the same tokens in any case. Heads, pooling and `pooling_layer` may differ. A
        question_answering task is predicted by itself.

        Args:
            sentences: Sentences, pairs (first, second), or contexts with choices, in a container
                as in `predict`.
            tasks: Names of the tasks; None for all that take such rows.
            top_k: As in `predict`, for all tasks.
            max_tokens_per_batch: Tokens that are computed together; None for a default of the
                device.
            show_progress: Whether to show a progress bar; None shows it for long lists.
            precision: In which to compute: `float32`, `bfloat16`, `int8` or `auto`, as in
                `set_precision`; None for that of the model.

        Returns:
            What `predict` returns, by task, in the order of `tasks` or sorted by name.

        Raises:
            TypeError: If `sentences` or `tasks` is one string.
            ValueError: If there is no such task, none or not every one takes such rows, or as in
                `predict`.
        """
        given = self._list_rows(sentences, tasks)
        sentences = given if isinstance(given, Sequence) else list(given)
        names = self.choose_tasks(sentences, tasks)
        options = {
            "max_tokens": max_tokens_per_batch,
            "show_progress": show_progress,
            "precision": precision,
        }
        rows = list(self._predict_several(names, sentences, top_k=top_k, **options))
        return {name: [row[name] for row in rows] for name in names}

    def predict_all_stream(
        self,
        sentences: Iterable[str] | Iterable[Sequence[str]],
        tasks: Sequence[str] | None = None,
        *,
        top_k: int | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
        precision: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Predict several tasks for more rows than fit into memory; see `predict_all`.

        `sentences` may be any iterable; its first row is read at once, and some thousand rows are
        read ahead.

        Yields:
            The predictions of each row by task, in the order given.
        """
        first, rows = _look_ahead(self._list_rows(sentences, tasks))
        names = self.choose_tasks([] if first is None else [first], tasks)
        options = {
            "max_tokens": max_tokens_per_batch,
            "show_progress": show_progress,
            "precision": precision,
        }
        return self._predict_several(names, rows, top_k=top_k, **options)

    def choose_tasks(
        self, sentences: Sequence[Any], tasks: Sequence[str] | None = None
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
        if tasks is None:
            specs = {name: head.task for name, head in self.heads.items()}
            return _fitting(specs, sentences[0]) if len(sentences) else list(specs)
        if not len(tasks):
            raise ValueError("tasks is empty: name at least one task, or leave it out")
        specs = {name: self._head(name).task for name in tasks}
        if len(sentences):
            _check_fit(specs, sentences[0])
        return list(specs)

    def _list_rows(self, sentences: Any, tasks: Sequence[str] | None) -> Any:
        if isinstance(tasks, str):
            return sentences  # which `choose_tasks` refuses
        heads = self.heads.values() if tasks is None else map(self._head, tasks)
        return list_rows(sentences, "predict_all", [head.task for head in heads])

    def _predict_several(
        self, names: Sequence[str], rows: Iterable[Any], **options: Any
    ) -> Iterator[dict[str, Any]]:
        return predict_several(self, {name: self._head(name) for name in names}, rows, **options)


def _find_kind(row: Any) -> RowKind:
    if isinstance(row, str):
        return "single texts"
    has_choices = isinstance(row, tuple | list) and row and isinstance(row[-1], tuple | list)
    return "contexts with choices" if has_choices else "pairs"


def _fitting(tasks: Mapping[str, Any], row: Any) -> list[str]:
    """Return the tasks that take such a row."""
    kind = _find_kind(row)
    names = [name for name, task in tasks.items() if task.row_kind == kind]
    if not names:
        raise ValueError(f"row 0 is {ONE[kind]}, which no task takes; {_describe(tasks)}")
    return names


def _check_fit(tasks: Mapping[str, Any], row: Any) -> None:
    """Name the tasks that do not take a row."""
    kind = _find_kind(row)
    others = {
        name: task
        for name, task in tasks.items()
        # a sequence may also contain the words of a text
        if task.row_kind != kind and not (kind == "pairs" and task.is_token_level)
    }
    if others:
        kinds = {task.row_kind: None for task in others.values()}
        taken = " or ".join(kinds)
        raise ValueError(
            f"row 0 is {ONE[kind]}, but these tasks take {taken}: {', '.join(others)}; leave them "
            "out"
        )


def _describe(tasks: Mapping[str, Any]) -> str:
    """Say which tasks take what."""
    named: dict[str, list[str]] = {}
    for kind in ONE:
        names = [name for name, task in tasks.items() if task.row_kind == kind]
        if names:
            named[kind] = names
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in named.items()) or "no tasks"


def predict_several(
    model: Any, heads: dict[str, Any], rows: Iterable[Any], *, top_k: int | None, **options: Any
) -> Iterator[dict[str, Any]]:
    """Yield the predictions of each row by task; see `MinBertPredictingAll.predict_all`."""
    made = {name: head.predictor(model, name, top_k) for name, head in heads.items()}
    together = {name: each for name, each in made.items() if each is not None}
    alone = [name for name in made if name not in together]
    names = [*together, *alone]
    count = len(alone) + bool(together)
    copies = iter([rows] * count if isinstance(rows, Sequence) else tee(rows, count))
    columns: list[Iterator[tuple[Any, ...]]] = []
    if together:
        columns.append(predict_rows(model, list(together.values()), next(copies), **options))
    for name in alone:
        found = heads[name].predict(model, name, next(copies), top_k=top_k, **options)
        columns.append(zip(found))
    joined = (dict(zip(names, chain(*parts), strict=True)) for parts in zip(*columns, strict=True))
    return ({name: row[name] for name in heads} for row in joined)


def _look_ahead(rows: Iterable[Any]) -> tuple[Any, Iterable[Any]]:
    """Return the first row, None if there is none, and all rows."""
    if isinstance(rows, Sequence):
        return (rows[0] if len(rows) else None), rows
    source = iter(rows)
    first = next(source, None)
    return first, rows if first is None else chain([first], source)


# Rows that are read ahead; rows of one task are computed together.
WINDOW = 1_024
KEYS = ("text", "text_pair", "choices")
# keys of transformers' question answering up to 4.57
QUESTION = ("question", "context")


def check_row_of_pipeline(name: str, task: Any, inputs: Any, positions: int) -> None:
    """Refuse what transformers' own pipelines would answer otherwise than `predict`.

    Args:
        name: Name of the default task, which these pipelines compute.
        task: Its description.
        inputs: Ids and attention mask, (B, L).
        positions: Number of positions of the model.

    Raises:
        ValueError: If the task has predictions that these pipelines do not know, or a text is
            longer than the task reads.
    """
    advice = f'use pipeline("minbert-multi-task"), or predict({name!r}, ...) of the model'
    if (problem := task.pipeline_problem) is not None:
        raise ValueError(
            f"task {name!r} {problem}, which this pipeline of transformers does not know: {advice}"
        )
    ids: Any = ids_of(inputs)
    mask = inputs[1]
    tokens = ids.shape[-1] if mask is None else int(mask.ne(0).sum(dim=-1).max())
    limit = task.limit_length(positions)
    if tokens > limit and task.truncation == "head":
        raise ValueError(
            f"task {name!r} reads {limit} tokens of a text, but this pipeline of transformers "
            f"gives {tokens}: pass truncation=True, max_length={limit} to it, or {advice}"
        )
    if tokens >= limit and task.truncation != "head":  # of which the pipeline may keep the head
        raise ValueError(
            f"task {name!r} reads the {task.truncation} of a text of {limit} tokens or more, which "
            f"this pipeline of transformers cannot: {advice}"
        )


class MinBertMultiTaskPipeline(Pipeline):
    """Predicts any task of a `MinBertForMultiTask`, as its `predict` does.

    A row is a text, a pair of texts as a tuple, or a dictionary `{"text", "text_pair", "task"}`,
    whose last two keys are optional; for a multiple_choice task also with a list of `choices`, or a
    tuple that ends with this list; or a question and its text, `{"question", "context", "task"}`,
    by default for the first question_answering task. A list, a dataset or a generator are many
    rows, whose tasks may differ. `batch_size` and `num_workers` have no effect: rows are sorted by
    length and batched by tokens, without padding.
    """

    model: Any
    _load_tokenizer = True
    _load_processor = False
    _load_image_processor = False
    _load_video_processor = False
    _load_feature_extractor = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not hasattr(self.model, "predict"):
            raise ValueError(
                f"{type(self.model).__name__} has no named tasks: this pipeline is for a "
                "MinBertForMultiTask; take text-classification, or another one of transformers"
            )
        if self.tokenizer is not None:
            self.model.tokenizer = self.tokenizer

    def __call__(self, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Predict rows.

        Args:
            inputs: A row, a list of rows, or a dataset or generator of them.
            *args: Not used.
            **kwargs: `task`, of all rows that name none, by default `config.default_task`; `top_k`,
                `max_tokens_per_batch` and `precision` as in `predict`.

        Returns:
            The prediction of a row; for a list a list of them, for a dataset or generator an
            iterator, which reads some rows ahead.

        Raises:
            ValueError: If a row is malformed, there is no such task, or a row does not fit its
                task.
        """
        if isinstance(inputs, list | tuple) and not inputs:
            return []  # the base class looks at the first row
        return super().__call__(inputs, *args, **kwargs)

    def _sanitize_parameters(
        self,
        task: str | None = None,
        top_k: int | None = None,
        max_tokens_per_batch: int | None = None,
        precision: str | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        forward = {
            "top_k": top_k,
            "max_tokens_per_batch": max_tokens_per_batch,
            "precision": precision,
        }
        given = {name: value for name, value in forward.items() if value is not None}
        return {} if task is None else {"task": task}, given, {}

    def preprocess(self, row: Any, task: str | None = None) -> dict[str, Any]:
        """Return the texts of a row and its task."""
        if isinstance(row, dict):
            task = row.get("task") or task
            names = KEYS
            if not row.keys().isdisjoint(QUESTION):
                task, names = self.model._answering_task(task)[0], QUESTION
            for key in row:
                if key not in (*names, "task"):
                    raise ValueError(f"row {row!r}: {unknown('key', key, (*names, 'task'))}")
            texts = [row[name] for name in names if row.get(name) is not None]
            row = texts[0] if len(texts) == 1 else texts  # a single list contains words to tag
        return {"row": row, "task": task or self.model.config.default_task}

    def _forward(self, inputs: dict[str, Any], **options: Any) -> Any:
        return self.model.predict(inputs["task"], [inputs["row"]], **options)[0]

    def postprocess(self, prediction: Any) -> Any:
        """Return a prediction unchanged."""
        return prediction

    def get_iterator(
        self,
        inputs: Iterable[Any],
        num_workers: int,  # noqa: ARG002  rows are computed by tokens
        batch_size: int,  # noqa: ARG002  as above
        preprocess_params: dict[str, Any],
        forward_params: dict[str, Any],
        postprocess_params: dict[str, Any],  # noqa: ARG002  there are none
    ) -> Iterator[Any]:
        """Predict many rows, grouped by task."""
        rows = (self.preprocess(row, **preprocess_params) for row in inputs)
        while window := list(islice(rows, WINDOW)):
            predictions: dict[int, Any] = {}
            for task in dict.fromkeys(row["task"] for row in window):
                places = [place for place, row in enumerate(window) if row["task"] == task]
                texts = [window[place]["row"] for place in places]
                some = self.model.predict(task, texts, **forward_params)
                predictions |= dict(zip(places, some, strict=True))
            yield from (predictions[place] for place in range(len(window)))
