"""What a run predicted of its validation rows, read from its folder, to be scored again."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.metrics.answers import QUESTION_ANSWERING
from trainers.metrics.scores import METRIC_SCORES
from trainers.metrics.squad_metrics import score_answers
from trainers.metrics.tagging import Tagged, TagNames, count_entities
from trainers.metrics.task_metrics import headline_metrics
from trainers.reports.predictions import read_predictions, read_tags
from trainers.reports.results import file_split, read_metrics

# Predictions are written as float32, and metrics.json has those of the run itself.
ROUNDING = 1e-4


@dataclass(frozen=True)
class ScoredRows:
    """What a run predicted of the rows of a task.

    Args:
        problem_type: A key of ``PRIMARY_METRIC``.
        ids: Name of each row, (N,).
        predictions: Class, 0 or 1 for a paraphrase, or score, (N,); of a question the F1 of its
            answer, (N,); of a sentence with tags how many entities are right, predicted and
            labelled, (N, 3).
        labels: In the unit of the predictions, (N,); of questions the right answers, and of
            sentences the tags, a list each.
        chosen: The metrics that stand for the task, where they are not those of its problem type.
    """

    problem_type: str
    ids: list[str]
    predictions: NDArray[Any]
    labels: NDArray[Any]
    chosen: tuple[str, ...] = ()

    @property
    def metric_name(self) -> str:
        """Name of the metric that stands for the task."""
        return headline_metrics(self.problem_type, self.chosen)[0]

    def by_metric(self) -> "list[ScoredRows]":
        """Give the rows once for every metric that stands for the task."""
        names = headline_metrics(self.problem_type, self.chosen)
        return [replace(self, chosen=(name,)) for name in names]

    @property
    def metric(self) -> float:
        """The metric that stands for the task."""
        return float(self.score(np.arange(len(self.ids))))

    def score(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Compute the metric of draws of rows, (..., N) -> (...)."""
        predictions = self.predictions[rows]
        if self.problem_type == QUESTION_ANSWERING:
            mean: NDArray[np.float64] = predictions.mean(axis=-1)
            return mean
        if self.problem_type == "token_classification":
            right, predicted, labelled = np.moveaxis(predictions.sum(axis=-2), -1, 0)
            both = np.asarray(predicted + labelled, dtype=np.float64)
            return np.divide(2.0 * right, both, out=np.zeros_like(both), where=both > 0)
        return METRIC_SCORES[self.metric_name](predictions, self.labels[rows])


def read_scored_rows(
    folder: Path,
    labels: Mapping[str, tuple[list[str], NDArray[Any]]],
    split: str = "validation",
) -> dict[str, ScoredRows]:
    """Read what a run predicted of the dev sets.

    Args:
        folder: Folder of the run.
        labels: By task, ids and labels of its validation rows as they are today, (N,); the labels
            of a question and of a sentence with tags are a list, of its answers or tags.
        split: The held-out set, such as ``validation_mismatched``.

    Returns:
        By task.

    Raises:
        ValueError: If there are no predictions, or the rows are not those that were predicted.
    """
    content = read_metrics(folder)
    scored = {}
    for task, (ids, references) in labels.items():
        head = content["tasks"][task]
        name = f"{task}-{file_split(split)}"
        read = _READERS.get(head["problem_type"], _read_values)
        file, predictions = read(folder / "predictions", name, ids, references, head)
        chosen = tuple(content.get("metric", {}).get(task, ()))
        rows = ScoredRows(head["problem_type"], ids, predictions, references, chosen)
        noted = content[split]["metrics"][f"{task}_{rows.metric_name}"]
        if not math.isclose(rows.metric, noted, abs_tol=ROUNDING):
            raise ValueError(
                f"{str(file)!r}: with the labels as they are today the {rows.metric_name} is "
                f"{rows.metric:.4f}, but metrics.json says {noted:.4f}; the labels have changed, "
                "repeat the run"
            )
        scored[task] = rows
    return scored


Read = tuple[Path, NDArray[Any]]


def _find(path: Path) -> Path:
    if not path.is_file():
        raise ValueError(f"{str(path)!r} is missing; repeat the run")
    return path


def _check_rows(path: Path, found: Sequence[Any], rows: Sequence[Any]) -> None:
    if found != rows:
        raise ValueError(
            f"{str(path)!r}: its {len(found)} rows are not the {len(rows)} validation rows as they "
            "are today; repeat the run"
        )


def _read_values(
    folder: Path, name: str, ids: list[str], _: NDArray[Any], __: Mapping[str, Any]
) -> Read:
    """Read classes or scores, (N,)."""
    path = _find(folder / f"{name}-output.csv")
    found, predictions = read_predictions(path)
    _check_rows(path, found, ids)
    return path, predictions


def _read_answers(
    folder: Path, name: str, ids: list[str], references: NDArray[Any], head: Mapping[str, Any]
) -> Read:
    """Read the answers to questions, and score each: its F1, (N,)."""
    path = _find(folder / f"{name}-predictions.json")
    try:
        found: dict[str, str] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be read ({error}); repeat the run") from None
    _check_rows(path, list(found), ids)
    is_v2 = head.get("null_score_diff_threshold") is not None
    _, f1 = score_answers(list(found.values()), references.tolist(), some_impossible=is_v2)
    return path, f1


def _read_tags(
    folder: Path, name: str, _: list[str], references: NDArray[Any], head: Mapping[str, Any]
) -> Read:
    """Read the tags of sentences, and count their entities, (N, 3)."""
    path = _find(folder / f"{name}-output.txt")
    sentences = read_tags(path)
    labelled = [[labels for labels, _ in sentence] for sentence in sentences]
    _check_rows(path, labelled, references.tolist())
    names = list(head["labels"])
    numbers = np.asarray(
        [[names.index(tag) for tag in word] for sentence in sentences for word in sentence]
    )
    places = np.repeat(np.arange(len(sentences)), [len(sentence) for sentence in sentences])
    tagged = Tagged(numbers[:, 1], numbers[:, 0], places)
    return path, count_entities(tagged, TagNames.parse(names))[1]


_READERS = {QUESTION_ANSWERING: _read_answers, "token_classification": _read_tags}
