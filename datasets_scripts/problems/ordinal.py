"""Sentences or pairs of them, each with one of several classes in an order."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

from .classification import ClassificationFormat
from .row_format import RowSource, is_numeral, list_names

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class OrdinalFormat(ClassificationFormat):
    """Rows whose ``label`` is the number of an ordered class, 0 for the lowest.

    The order is that of ``labels``, or of the names that a dataset declares; numbers are ordered by
    size.
    """

    problem_type = "ordinal"

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        resolved = super().resolve(where, sources)
        labels = resolved.labels or ()
        is_declared = self.labels is not None or sources["train"].class_names(self) is not None
        if all(map(is_numeral, labels)):
            _check_numbers(where, labels)
        elif not is_declared:
            raise ValueError(
                f"{where}: the labels {list_names(labels)} are in no known order; give all of them "
                "from the lowest to the highest, as in labels: [bad, fair, good]"
            )
        return resolved


def _check_numbers(where: str, labels: Sequence[str]) -> None:
    """Check that labels that are numbers rise or fall, and warn about gaps."""
    steps = [float(after) - float(before) for before, after in pairwise(labels)]
    if not (all(step > 0 for step in steps) or all(step < 0 for step in steps)):
        raise ValueError(
            f"{where}: the labels {list_names(labels)} are numbers, but not all different and in "
            "order; give them from the lowest to the highest"
        )
    are_integers = all(float(label).is_integer() for label in labels)
    if are_integers and max(map(abs, steps)) > 1:
        logger.warning(
            "%s: the labels are %s, without some numbers between them; if these can be labels, "
            "too, give all labels from the lowest to the highest",
            where,
            list_names(labels),
        )
