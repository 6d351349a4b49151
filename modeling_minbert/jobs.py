# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Rows of many calls, which are computed together; as `rows.py` without torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .rows import check_container, group_by_tokens


@dataclass
class Job:
    """Rows of a call as tokens.

    Attributes:
        encoded: The tokens of its sequences or windows.
        members: What predicts them, or makes their vectors.
        has_vectors: Whether these are wanted.
    """

    encoded: list[Any]
    members: list[Any]
    has_vectors: bool = False

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return sum(row.tokens for row in self.encoded)

    def describe(self) -> Any:
        """Return predictions by task, or vectors, once all rows have been computed."""
        if self.has_vectors:
            return self.members[0].describe()
        return {member.name: member.describe() for member in self.members}


class MinBertJoining:
    """Mixin of what computes the rows of many calls in one pass: `start` them in any threads.

    Another method, `compute`, takes the jobs of all calls; then each of them has results.
    """

    heads: Any  # as those of `MinBertPredicting`
    choose_tasks: Any
    _predictor: Any
    _plan: Any
    _embedder: Any

    def list_tasks(self) -> dict[str, dict[str, Any]]:
        """Return the tasks that predict by name, each with `problem_type`, `rows` and `labels`."""
        tasks = {name: head.task for name, head in self.heads.items()}
        return {
            name: {"problem_type": task.problem_type, "rows": task.row_kind}
            | {"labels": getattr(task, "labels", None)}
            for name, task in tasks.items()
        }

    def start(
        self, tasks: Sequence[str], rows: Sequence[object], top_k: int | None = None
    ) -> list[Job]:
        """Check and tokenize rows for `predict_all`; each job describes some of the tasks.

        Raises:
            ValueError: As `predict_all`, or if there are no rows.
        """
        check_container(rows, "predict_all")
        if not rows:
            raise ValueError("there are no rows to start; give at least one")
        names = self.choose_tasks(rows, tasks)
        predictors = [self._predictor(name, top_k) for name in names]
        return [Job(*group) for group in group_by_tokens(predictors, rows, 0)]

    def start_vectors(self, texts: Sequence[str], **options: Any) -> list[Job]:
        """Check and tokenize texts for `encode` with its options; the only job has vectors."""
        check_container(texts, "encode")
        if not texts:
            raise ValueError("there are no texts to start; give at least one")
        embedder = self._embedder(self._plan(**options))
        return [Job(embedder.encode(texts, 0), [embedder], has_vectors=True)]
