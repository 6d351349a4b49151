# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Predictions of multiple choice: contexts with any number of choices."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .inference_minbert import Encoded, check_top_k, check_unicode, tokenize
from .prediction_minbert import Predictor


class Question(NamedTuple):
    """A row of `predict`."""

    context: str
    start: str  # of every choice, with the space after it; or nothing
    choices: tuple[str, ...]

    def pairs(self) -> list[tuple[str, str]]:
        """Return the two texts of the sequence of each choice."""
        return [(self.context, self.start + choice) for choice in self.choices]

    def describe(self, probabilities: Tensor, top_k: int | None) -> Any:
        """Describe the most probable choice, or with `top_k` a list of them."""
        ranks = probabilities.argsort(descending=True, stable=True).tolist()
        described = [
            {"choice": self.choices[place], "index": place, "score": float(probabilities[place])}
            for place in ranks[: 1 if top_k is None else top_k]
        ]
        return described[0] if top_k is None else described


def check_questions(rows: Sequence[Any], task: str, first: int = 0) -> Iterator[Question]:
    """Check rows of a context, optionally a question, and a list of at least two choices.

    `first` is the number of the first row.
    """
    if isinstance(rows, str):
        raise TypeError(f"{task}: pass a list of rows, not one string")
    return (_check_question(row, index, task) for index, row in enumerate(rows, first))


def _check_question(given: Any, index: int, task: str) -> Question:
    row = tuple(given) if isinstance(given, tuple | list) else ()
    texts, choices = row[:-1], row[-1] if row and isinstance(row[-1], tuple | list) else ()
    is_text = all(isinstance(text, str) for text in (*texts, *choices))
    if len(texts) not in (1, 2) or len(choices) < 2 or not is_text:
        raise ValueError(
            f"{task}: row {index} must be a context, optionally a question, and a list of at least "
            f"two choices, as in ('A context.', ['A choice.', 'Another one.']), got {given!r}"
        )
    check_unicode((*texts, *choices), index, task)
    return Question(texts[0], "".join(f"{text} " for text in texts[1:]), tuple(choices))


class ChoicePredictor(Predictor):
    """Predicts the right choice of each row.

    Choices do not depend on each other: each is encoded by itself with its context, so that rows
    may have any number of them.
    """

    def __init__(self, model: Any, name: str, head: Any, top_k: int | None) -> None:
        check_top_k(top_k)
        task = head.task
        self.name, self.head, self.top_k, self.model = name, head, top_k, model
        self.options: dict[str, Any] = {
            "max_length": task.limit_length(model.config.max_position_embeddings),
            "truncation": task.truncation,
        }
        self.encoding = name  # choices are described by the task that read their row
        self.questions: list[Question] = []
        self.results: list[tuple[list[int], Tensor]] = []

    def check(self, rows: Sequence[Any]) -> None:
        for _ in check_questions(rows, self.name):
            pass

    def encode(self, rows: Sequence[Any], first: int) -> list[Encoded]:
        self.questions = list(check_questions(rows, self.name, first))
        pairs = [pair for question in self.questions for pair in question.pairs()]
        return tokenize(self.model.tokenizer, pairs, separate=False, **self.options)

    def keep(self, indices: list[int], inputs: dict[str, Any], output: Any) -> None:
        """Keep the logits of single choices, (N,)."""
        del inputs
        self.results.append((indices, output.logits.float()))

    def describe(self) -> list[Any]:
        order = torch.tensor([index for indices, _ in self.results for index in indices])
        values = torch.cat([values for _, values in self.results]).double().cpu()
        logits = iter(torch.empty_like(values).index_copy_(0, order, values).tolist())
        questions, self.questions, self.results = self.questions, [], []
        return [self._describe(each, list(islice(logits, len(each.choices)))) for each in questions]

    def _describe(self, question: Question, logits: list[float]) -> Any:
        probabilities = self.head.probabilities(torch.tensor(logits, dtype=torch.float64))
        return question.describe(probabilities, self.top_k)
