# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The pipeline of all tasks of a `MinBertForMultiTask`: from texts or pairs to labels and scores.

pipe = pipeline("minbert-multi-task", model="user/repo", trust_remote_code=True)
pipe("A text.")  # the default task
pipe([{"text": "A first.", "text_pair": "A second."}], task="quora")
pipe({"question": "Who?", "context": "A text."})  # the first task that answers questions
pipe({"text": "A context.", "choices": ["One.", "Another."]}, task="swag")
"""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from transformers import Pipeline

from .head_minbert import ids_of
from .names_minbert import unknown

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
