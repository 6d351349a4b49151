# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Decision thresholds on probabilities: with the best F1, or for a wanted precision or recall."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import functional as F

from .task_minbert import RECIPE
from .temperature_minbert import CalibratedTask

GOALS = ("precision", "recall")
# Rows with a label that the threshold of its best F1 needs: that of fewer is chance, and may give
# the label to most rows.
FEWEST_POSITIVES = 5


@strict
@dataclass(kw_only=True)
class ThresholdTask(CalibratedTask):
    """A task with yes-or-no decisions, whose thresholds training can choose for a purpose.

    Args:
        threshold_for: What decision thresholds must reach on the validation rows:
            `{"precision": 0.9}` for the highest recall with a precision of at least 0.9,
            `{"recall": 0.9}` for the highest precision with such a recall; None for the default of
            the type. If no threshold reaches it, the one that comes nearest is taken.
    """

    threshold_for: dict[str, float | int] | None = field(default=None, metadata=RECIPE)

    def validate_threshold_for(self) -> None:
        """Refuse what is not one goal, and goals without probabilities."""
        wanted = self.threshold_for
        if wanted is None:
            return
        fits = [name in GOALS and 0 < value <= 1 for name, value in wanted.items()]
        if fits != [True]:
            raise ValueError(
                f"threshold_for={wanted} must be one goal above 0 and at most 1, as in "
                "{precision: 0.9} or {recall: 0.9}"
            )
        self.check_likelihood(f"threshold_for={wanted}")


class Candidates(NamedTuple):
    """All different decisions of rows by a threshold on their probabilities, (M,) each."""

    thresholds: Tensor  # 0.5, and the middles between two neighboring probabilities
    hits: Tensor  # rows above the threshold that belong there
    predicted: Tensor  # rows above it
    given: Tensor  # rows that belong above, ()


def list_candidates(values: Tensor, is_above: Tensor) -> Candidates:
    """List the thresholds that decide rows with probabilities (N,) and labels (N,) differently."""
    ordered, order = values.double().sort()
    above = is_above[order].double()
    # hits and predictions if the first n lie below
    hits = above.sum() - F.pad(above.cumsum(0), (1, 0))
    predicted = torch.arange(len(above), -1, -1, device=above.device)
    edges = F.pad(F.pad(ordered, (1, 0), value=0.0), (0, 1), value=1.0)
    middles = (edges[1:] + edges[:-1]) / 2
    places = (edges[1:] != edges[:-1]).nonzero().flatten()  # none between equal ones
    at_half = (ordered <= 0.5).sum().unsqueeze(0)
    thresholds = torch.cat([middles[places], middles.new_tensor([0.5])])
    places = torch.cat([places, at_half])
    return Candidates(thresholds, hits[places], predicted[places], above.sum())


def best_f1_threshold(values: Tensor, is_above: Tensor) -> float:
    """Return the threshold on probabilities, (N,), with the best F1; ties: nearest to 0.5.

    It is 0.5, or the middle between two neighboring probabilities.
    """
    found = list_candidates(values, is_above)
    return _choose(found, 2 * found.hits / (found.predicted + found.given).clamp(min=1))


def choose_threshold(
    values: Tensor, is_above: Tensor, wanted: Mapping[str, float | int] | None
) -> float | None:
    """Return the threshold on probabilities, (N,), for a goal; see `ThresholdTask`.

    Without a goal it is that of the best F1. If no threshold reaches the goal, it is the one that
    comes nearest; None if no row belongs above. Ties go to the threshold with more of the goal,
    then to the nearest to 0.5.
    """
    if wanted is None:
        return best_f1_threshold(values, is_above)
    found = list_candidates(values, is_above)
    if not found.given:
        return None
    # without predictions there is no precision
    precision = (found.hits / found.predicted).masked_fill(found.predicted == 0, 0)
    recall = found.hits / found.given
    ((name, least),) = wanted.items()
    goal, other = (precision, recall) if name == "precision" else (recall, precision)
    capped = goal.clamp(max=least)  # all that reach it are equally good
    return _choose(found, capped, other, goal)


def _choose(found: Candidates, *scores: Tensor) -> float:
    """Return the threshold with the highest score; ties go by the next one, at last to 0.5."""
    kept = torch.ones_like(found.thresholds, dtype=torch.bool)
    for score in (*scores, -(found.thresholds - 0.5).abs()):
        kept &= score == score[kept].max()
    return float(found.thresholds[kept][0])
