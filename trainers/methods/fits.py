"""What is fitted to rows after training: decision thresholds and temperatures."""

import logging
from typing import Any

import numpy as np

from modeling_minbert.calibration import FEWEST_POSITIVES
from trainers.data.rows import find_labeled, spread
from trainers.files import find_inner

from .base import Method, OwnTrainer

logger = logging.getLogger(__name__)

THRESHOLD_ROWS = 2000  # training rows that a threshold is fitted to
# Validation rows that a temperature is fitted to: a single number needs no more.
CALIBRATION_ROWS = 10_000
MOST_LABELS = 10  # in a note; more are counted


class Fitting(Method):
    """Fit the decision thresholds that no loss trains, and the temperatures that tasks ask for.

    Thresholds are fitted before each evaluation during training, and to the final weights. A
    temperature divides the logits in probabilities, and changes no decision, so it is fitted to the
    final weights alone. The trainer adds this method by itself.
    """

    def attach(self, trainer: OwnTrainer) -> None:
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
                self._fit_threshold(task)
                self._note_rare_labels(task)
            for task in self.temperatures:
                self._fit_temperature(task)
        finally:
            self.trainer.is_in_train = False

    def _fit_threshold(self, task: str) -> None:
        """Fit thresholds to training rows, or to held-out rows if the type requires it."""
        trainer = self.trainer
        problem: Any = trainer.problems[task]
        train, evaluation = trainer.tasks[task].train, trainer.tasks[task].evaluation
        rows: Any = spread(train.select(np.flatnonzero(find_labeled(train))), THRESHOLD_ROWS)
        if problem.fits_held_out and evaluation is not None:
            rows = evaluation
        if not len(rows):  # a teacher has taught the task
            logger.warning("task %r: no labeled rows to fit thresholds to; they stay", task)
            return
        model = find_inner(trainer.model)
        logits, labels = trainer.predict_task(task, rows), np.asarray(rows["labels"][:])
        thresholds = np.atleast_1d(model.fit_threshold(task, logits, labels))
        described = ", ".join(f"{threshold:.3f}" for threshold in thresholds)
        logger.info("%s: decision threshold %s", task, described)
        trainer.problems[task].spec = model.config.task(task)

    def _note_rare_labels(self, task: str) -> None:
        """Note the labels with too few rows for a threshold, which stayed as it was."""
        problem: Any = self.trainer.problems[task]
        heads = getattr(find_inner(self.trainer.model), "heads", {})
        if rare := getattr(heads[task], "rare", {}) if task in heads else {}:
            chosen = problem.spec.thresholds
            shown = [
                f"{problem.name_of(place)!r} {chosen[place]:.3g} "
                f"({count} row{'' if count == 1 else 's'})"
                for place, count in list(rare.items())[:MOST_LABELS]
            ]
            more = f", {len(rare) - len(shown)} more" if len(rare) > len(shown) else ""
            problem.notes["thresholds that are not fitted"] = (
                f"{', '.join(shown)}{more}; fewer than {FEWEST_POSITIVES} of the rows have these "
                "labels"
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
