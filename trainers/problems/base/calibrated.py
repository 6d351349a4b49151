"""Problems that predict probabilities: their calibration, and thresholds chosen for a goal."""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainers.problems.measures import entities
from trainers.problems.measures.analysis import calibrate


class Fitted(NamedTuple):
    """Calibration of the rows that a temperature was fitted to; see ``analysis.calibrate``."""

    before: dict[str, Any]
    after: dict[str, Any]


class Calibrated:
    """What problems with probabilities share: mixed into a ``Problem``.

    Attributes:
        fitted: What training found when it fitted the temperature; None if it did not.
    """

    head: dict[str, Any]
    fitted: Fitted | None = None

    @property
    def temperature(self) -> float:
        """Divisor of the logits in probabilities; 1 if none was fitted."""
        return float(self.head.get("temperature") or 1)

    @property
    def calibrates(self) -> bool:
        """Whether training fits a temperature: if asked to, or to replace an earlier one."""
        return bool(self.head.get("calibrate") or self.head.get("temperature"))

    @property
    def caution(self) -> str:
        """Advice to readers of the results."""
        if not self.head.get("temperature"):
            return ""
        return (
            f"Probabilities are calibrated by a temperature of {self.temperature:.3f}, fitted to "
            "the validation rows, so the calibration error of these rows is optimistic; judge it "
            "by a test set."
        )

    def scale(self, logits: Any) -> NDArray[np.float64]:
        """Divide logits by the temperature."""
        return np.asarray(logits, dtype=np.float64) / self.temperature

    def confidences(self, logits: Any, predictions: NDArray[Any]) -> NDArray[np.float64]:
        """Compute the probability of each prediction, of the same shape."""
        raise NotImplementedError

    def reading_logits(self) -> Any:
        """Return a problem whose ``gather`` returns logits."""
        return self

    def list_logits(self, values: NDArray[Any], rows: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return logits, (N, K), and labels, (N,) or (N, K), from the gathered values of rows."""
        return values, np.asarray(rows["labels"])

    def compare(self, logits: Any, predictions: NDArray[Any], labels: NDArray[Any]) -> Fitted:
        """Compare confidences with accuracy, before and after the temperature.

        Args:
            logits: Of rows, (N, K).
            predictions: (N,), or (N, K) for several labels.
            labels: Of the same shape; those of -100 do not count.
        """
        counted = labels != -100
        right = (predictions == labels)[counted]
        head, found = self.head, []
        try:
            for values in ({**head, "temperature": None}, head):
                self.head = values
                found.append(calibrate(self.confidences(logits, predictions)[counted], right))
        finally:
            self.head = head
        return Fitted(*found)

    def describe_calibration(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Describe the effect of the temperature for a report; empty if none was fitted.

        ``outputs`` are those of labelled splits. Splits without logits are left out.
        """
        if self.fitted is None or not self.head.get("temperature"):
            return {}
        found = {
            split: self.compare(each.logits, each.predictions, np.asarray(each.labels))
            for split, each in outputs.items()
            if getattr(each, "logits", None) is not None
        }
        found = {"validation": self.fitted, **found}
        return {
            "calibration": found["validation"].after,
            "uncalibrated": found["validation"].before,
            "temperature": self.temperature,
            "calibration_errors": [
                {"split": split, "before": one.before["ece"], "after": one.after["ece"]}
                for split, one in found.items()
            ],
        }


class Decision(NamedTuple):
    """What a decision threshold reaches on some rows."""

    name: str  # of the label
    threshold: float
    precision: float  # 0 without predictions, as recall without labels
    recall: float
    labelled: int
    reached: bool  # whether the goal of ``threshold_for`` is reached


class ThresholdProblem(Calibrated):
    """What problems share whose thresholds can be chosen for a goal: precision or recall."""

    of_each: ClassVar[str] = ""  # what has a threshold of its own

    @property
    def wanted(self) -> dict[str, float]:
        """The goal, as in ``{"precision": 0.9}``; empty for none."""
        return self.head.get("threshold_for") or {}

    @property
    def fits_held_out(self) -> bool:
        """Whether decision thresholds are fitted to held-out rows instead of training rows."""
        return bool(self.wanted)

    def decisions(self, predictions: NDArray[Any], labels: NDArray[Any]) -> list[Decision]:
        """List what the thresholds reach for ``wanted``; empty without a goal.

        Predictions and labels are 0 or 1, (N,) or (N, K); labels of -100 do not count.
        """
        if not self.wanted:
            return []
        ((goal, least),) = self.wanted.items()
        shape = (len(labels), -1)
        given = np.asarray(labels).reshape(shape)
        predicted = (np.asarray(predictions).reshape(shape) == 1) & (given != -100)
        counts = np.stack([predicted & (given == 1), predicted, given == 1], axis=-1).sum(axis=0)
        found = []
        for name, threshold, row in zip(*self.list_thresholds(), counts, strict=True):
            scores = entities.score(row)
            numbers = (threshold, scores["precision"], scores["recall"])
            found.append(Decision(name, *numbers, int(row[2]), scores[goal] >= least))
        return found

    def describe_decisions(self, outputs: Any) -> dict[str, Any]:
        """Describe ``decisions`` for a report; empty without a goal."""
        if not self.wanted:
            return {}
        found = self.decisions(outputs.predictions, np.asarray(outputs.labels))
        ((goal, least),) = self.wanted.items()
        rows = [decision._asdict() for decision in found]
        return {"decisions": {"goal": goal, "least": least, "labels": rows}}

    @property
    def caution(self) -> str:
        if not self.fits_held_out:
            return super().caution
        chosen = (
            f"The decision threshold{self.of_each} was chosen on the validation rows, so metrics "
            "on these rows are optimistic; judge the model by a test set."
        )
        return f"{chosen} {super().caution}".strip()

    def list_thresholds(self) -> tuple[Sequence[str], Sequence[float]]:
        """Return the names of the labels that are decided, and their thresholds."""
        raise NotImplementedError
