"""What is fitted to rows after training: decision thresholds and temperatures."""

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from modeling_minbert.calibration import FEWEST_POSITIVES
from trainers.data.rows import find_labeled, spread
from trainers.files import find_inner
from trainers.problems.metrics import Array, count_decisions, score_counts

from .base import Method

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer

logger = logging.getLogger(__name__)

# Training rows that a threshold is fitted to.
THRESHOLD_ROWS = 2000
# Validation rows that a temperature is fitted to: a single number needs no more.
CALIBRATION_ROWS = 10_000
MOST_LABELS = 10  # in a note; more are counted


class Fitting(Method):
    """Fit the decision thresholds that no loss trains, and the temperatures that tasks ask for.

    Thresholds are fitted before each evaluation during training, and to the final weights. A
    temperature divides the logits in probabilities, and changes no decision, so it is fitted to the
    final weights alone. The trainer adds this method by itself.
    """

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        self.trainer = trainer
        problems = trainer.problems
        self.thresholds = [task for task in problems if problems[task].needs_threshold_fit]
        self.temperatures = [task for task in problems if problems[task].calibrates]

    def before_evaluation(self, task: str) -> None:
        if task in self.thresholds:
            self._fit_threshold(task)

    def finish(self) -> None:
        self.trainer.is_in_train = True  # else bf16_full_eval would cast the weights
        try:
            for task in self.thresholds:
                self._note_threshold(task, *self._fit_threshold(task))
            for task in self.temperatures:
                self._fit_temperature(task)
        finally:
            self.trainer.is_in_train = False

    def _fit_threshold(self, task: str) -> tuple[Array, Array]:
        """Fit thresholds to training rows, or to held-out rows if the type of the task requires it.

        Returns the decisions on these rows, and their labels.
        """
        trainer = self.trainer
        problem: Any = trainer.problems[task]
        train, evaluation = trainer.tasks[task].train, trainer.tasks[task].evaluation
        rows: Any = spread(train.select(np.flatnonzero(find_labeled(train))), THRESHOLD_ROWS)
        if problem.fits_held_out and evaluation is not None:
            rows = evaluation
        model = find_inner(trainer.model)
        logits, labels = trainer.predict_task(task, rows), np.asarray(rows["labels"][:])
        thresholds = np.atleast_1d(model.fit_threshold(task, logits, labels))
        described = ", ".join(f"{threshold:.3f}" for threshold in thresholds)
        logger.info("%s: decision threshold %s", task, described)
        trainer.problems[task].spec = model.config.task(task)
        return np.asarray(model.decode(task, logits)), labels

    def _note_threshold(self, task: str, predictions: Array, labels: Array) -> None:
        """Note what the thresholds reach of a goal, and warn if it is less."""
        problem: Any = self.trainer.problems[task]
        heads = getattr(find_inner(self.trainer.model), "heads", {})
        # labels with too few rows for a threshold, which stays as it was
        if rare := getattr(heads[task], "rare", {}) if task in heads else {}:
            names, thresholds = problem.list_thresholds()
            shown = [
                f"{names[place]!r} {thresholds[place]:.3g} ({count} row{'' if count == 1 else 's'})"
                for place, count in list(rare.items())[:MOST_LABELS]
            ]
            more = f", {len(rare) - len(shown)} more" if len(rare) > len(shown) else ""
            problem.notes["thresholds that are not fitted"] = (
                f"{', '.join(shown)}{more}; fewer than {FEWEST_POSITIVES} of the rows have these "
                "labels"
            )
        if not problem.wanted:
            return
        ((goal, least),) = problem.wanted.items()
        columns = (values.reshape(len(labels), -1) for values in (predictions, labels))
        counts = np.stack(count_decisions(*columns), axis=-1)
        for name, count in zip(problem.list_thresholds()[0], counts, strict=True):
            scores, labelled = score_counts(count), int(count[2])
            numbers = (
                f"precision {scores['precision']:.3f} and recall {scores['recall']:.3f} on the "
                "held-out rows"
            )
            problem.notes[f"{name!r} for {goal} {least:g}"] = numbers
            where = f"task {task!r}, label {name!r}"
            if not labelled:
                logger.warning("%s: no row has the label, so threshold_for chose nothing", where)
                continue
            if labelled < FEWEST_POSITIVES:
                logger.warning(
                    "%s: only %d of the rows have it, so its threshold is mostly chance; give more "
                    "rows with it",
                    *(where, labelled),
                )
            if scores[goal] < least:
                logger.warning(
                    "%s: no threshold reaches %s %g; the best one has %s",
                    *(where, goal, least, numbers),
                )

    def _fit_temperature(self, task: str) -> None:
        trainer = self.trainer
        problem: Any = trainer.problems[task]
        model = find_inner(trainer.model)
        rows = problem.choose_rows(trainer.tasks[task].evaluation, CALIBRATION_ROWS)
        problem.gathers_logits = True
        try:
            values = trainer.predict_task(task, rows)
        finally:
            problem.gathers_logits = False
        logits, labels = problem.list_logits(values, rows)
        temperature = model.fit_temperature(task, logits, labels)
        problem.spec = model.config.task(task)
        if temperature is None:
            reason = (
                "no temperature fits the validation rows best, as when all predictions are right "
                "or no better than chance; the probabilities are not calibrated"
            )
            logger.warning("task %r: %s", task, reason)
            problem.notes["temperature"] = reason
            return
        predictions = np.asarray(model.decode(task, logits))
        # probabilities divide logits by the temperature
        before, after = (
            problem.check_calibration(values, predictions, labels)["ece"]
            for values in (np.asarray(logits, np.float64) * temperature, logits)
        )
        problem.notes["temperature"] = (
            f"{temperature:.3f}; calibration error {before:.4f} without it and {after:.4f} with it "
            "on the validation rows that it was fitted to"
        )
