"""Labels that are probably wrong, by confident learning (Northcutt, Jiang and Chuang 2021).

The probabilities must be out of sample: of a model that was not trained on these rows.

The library cleanlab finds the same rows, in the same order. It is no dependency: what is needed of
it is short and stable, and it would add pandas, tqdm and termcolor to every installation.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class LabelIssues(NamedTuple):
    """M rows whose label is probably wrong, the most suspicious first."""

    rows: NDArray[np.int64]  # indices, (M,)
    given: NDArray[np.int64]  # their labels, (M,)
    suggested: NDArray[np.int64]  # the class that the label probably should be, (M,)
    confidences: NDArray[np.float64]  # probability of the given label (self-confidence), (M,)
    margins: NDArray[np.float64]  # this probability less the highest other one, (M,)
    counted: int  # rows with a label and finite probabilities
    noise: float  # estimated share of wrong labels among these, in [0, 1]

    def list_first(self, most: int) -> list[tuple[int, int, int, float]]:
        """List the first rows with label, suggested class, and the probability of the label."""
        columns = (self.rows, self.given, self.suggested, self.confidences)
        return list(zip(*(column[:most].tolist() for column in columns), strict=True))


def find_label_issues(labels: NDArray[np.int64], probabilities: NDArray[np.float64]) -> LabelIssues:
    """Find the rows that count as label errors in the confident joint, by their normalized margin.

    A row is confidently of class j if its probability of j reaches the mean probability of j of the
    rows with the label j; of several such classes it is the most probable one. It is suspicious if
    this class is not its label, and its most probable class is not its label, either: otherwise a
    rare class with a low mean would claim rows that the model does not doubt.

    Args:
        labels: The given classes, (N,); rows with a negative one do not count.
        probabilities: Out-of-sample probabilities of K classes, (N, K).

    Returns:
        The rows. ``noise`` is the share off the diagonal of the calibrated joint.

    Source: section 3.1 (thresholds, confident joint, its calibration) and section 3.2 (its
    off-diagonal rows, ranked by margin).
    """
    counted = np.flatnonzero((labels >= 0) & np.isfinite(probabilities).all(axis=1))
    given, confident = labels[counted], probabilities[counted]
    count = probabilities.shape[1]
    sizes = np.bincount(given, minlength=count)
    everyone = np.arange(len(given))
    own = confident[everyone, given] if len(given) else np.empty(0)
    sums = np.bincount(given, weights=own, minlength=count)
    # no row is confidently of a class that no label names
    thresholds = np.where(sizes > 0, sums / np.maximum(sizes, 1), np.inf)
    # the mean of equal numbers may round up
    reached = np.where(confident >= thresholds - 1e-6, confident, -1)
    true = np.where(reached.max(axis=1, initial=-1) >= 0, reached.argmax(axis=1), -1)
    noise = _estimate_noise(given, true, sizes)
    others = confident.copy()
    others[everyone, given] = -1
    margins = own - others.max(axis=1, initial=-1)
    found = np.flatnonzero((true >= 0) & (true != given) & (confident.argmax(axis=1) != given))
    order = found[np.argsort(margins[found], kind="stable")]
    return LabelIssues(
        counted[order],
        given[order],
        true[order],
        own[order],
        margins[order],
        counted=len(counted),
        noise=noise,
    )


def _estimate_noise(
    given: NDArray[np.int64], true: NDArray[np.int64], sizes: NDArray[np.int64]
) -> float:
    """Estimate the share of wrong labels from the confident joint, calibrated by label."""
    count, is_confident = len(sizes), true >= 0
    joint = np.zeros((count, count))
    np.add.at(joint, (given[is_confident], true[is_confident]), 1)
    # of a label without a confident row nothing is known: it counts as right
    empty = joint.sum(axis=1) == 0
    joint[empty, empty] = 1
    right = (np.diagonal(joint) / joint.sum(axis=1) * sizes).sum()
    return float(1 - right / sizes.sum()) if sizes.sum() else 0.0
