"""Metrics of all tasks together."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .base.problem import Metric, Problem

AGGREGATES = ("mean", "leaderboard", "glue")


def aggregates(headlines: Mapping[str, tuple[Problem[Any], float | None]]) -> dict[str, float]:
    """Average the headline metrics of all tasks (None: undefined); empty if no task has a value.

    ``leaderboard`` is the mean after a correlation r became (r + 1) / 2, as in Stanford CS 224N's
    default project. Metrics that should be low count negatively, so that a higher mean is better.
    Tasks without labels count only if there are no others.
    """
    if not headlines:
        raise ValueError("no tasks to aggregate; expected at least one")
    known = [(problem, value) for problem, value in headlines.values() if value is not None]
    counted = [pair for pair in known if pair[0].has_labels] or known
    if not counted:
        return {}
    pairs = [_rate(problem.reported[0], value) for problem, value in counted]
    values, scaled = zip(*pairs, strict=True)
    return {"mean": float(np.mean(values)), "leaderboard": float(np.mean(scaled))}


def _rate(metric: Metric, value: float) -> tuple[float, float]:
    """Return what a value contributes to the mean and to the leaderboard: more is better."""
    value = -value if metric.lower_is_better else value
    return value, (value + 1) / 2 if metric.is_rescaled else value


def glue_score(values: Mapping[str, Sequence[float]]) -> float:
    """Average the metrics of each task, then the tasks (Wang et al. 2019, GLUE, section 3.4)."""
    return float(np.mean([np.mean(metrics) for metrics in values.values()]))
