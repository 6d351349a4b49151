"""Calibrate probabilities after training by one temperature per task (Guo et al. 2017)."""

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainers.wrapped_models import find_inner

from .base import Method
from .threshold_fitting import keeping_weights, update_head

logger = logging.getLogger(__name__)

# Validation rows that a temperature is fitted to: a single number needs no more.
CALIBRATION_ROWS = 10_000


class TemperatureScaling(Method):
    """Fit a temperature to the validation rows of the tasks that ask for it, after training.

    It divides the logits in probabilities, and changes no decision, so it needs no fit before. The
    trainer always has this method, after the one that fits thresholds.
    """

    def attach(self, trainer: Any) -> None:
        self.trainer = trainer
        self.tasks = [task for task, problem in trainer.problems.items() if problem.calibrates]

    def finish(self) -> None:
        with keeping_weights(self.trainer):
            for task in self.tasks:
                self.fit(task)

    def fit(self, task: str) -> None:
        """Fit the temperature of a task, and note the calibration before and after."""
        trainer = self.trainer
        model: Any = find_inner(trainer.model)
        logits, labels = self._predict(task)
        temperature = model.fit_temperature(task, logits, labels)
        update_head(trainer, task)
        problem = trainer.problems[task]
        problem.fitted = None
        problem.notes.pop("temperature", None)
        if temperature is None:
            logger.warning(
                "task %r: no temperature fits the validation rows best, as when all predictions "
                "are right or no better than chance; the probabilities are not calibrated",
                task,
            )
            return
        predictions = np.asarray(model.decode(task, logits))
        problem.fitted = problem.compare(logits, predictions, labels)
        before, after = (each["ece"] for each in problem.fitted)
        problem.notes["temperature"] = (
            f"{temperature:.3f}; calibration error {before:.4f} without it and {after:.4f} with it "
            "on the validation rows that it was fitted to"
        )

    def _predict(self, task: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Compute logits and labels of validation rows."""
        trainer = self.trainer
        problem = trainer.problems[task]
        rows = problem.choose_rows(trainer.tasks[task].evaluation, CALIBRATION_ROWS)
        reader = trainer.problems[task] = problem.reading_logits()
        try:
            values = trainer.predict_task(task, rows)
        finally:
            trainer.problems[task] = problem
        logits, labels = reader.list_logits(values, rows)
        return logits, labels
