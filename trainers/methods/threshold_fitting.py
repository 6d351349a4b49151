"""Fit decision thresholds that the loss does not learn."""

import logging
from typing import Any

import numpy as np

from trainers.data.task_dataset import spread
from trainers.wrapped_models import find_inner

from .base import Method

logger = logging.getLogger(__name__)

# Training rows that a threshold is fitted to.
THRESHOLD_ROWS = 2000


class ThresholdFitting(Method):
    """Fit the decision thresholds of the tasks whose loss does not train them.

    They are fitted before each evaluation during training, and to the final weights. The
    trainer always has this method, at the end of its list.
    """

    def attach(self, trainer: Any) -> None:
        self.trainer = trainer
        self.tasks = [
            task for task, problem in trainer.problems.items() if problem.needs_threshold_fit
        ]

    def before_evaluation(self, task: str) -> None:
        if task in self.tasks:
            self.fit(task)

    def finish(self) -> None:
        # else bf16_full_eval would cast the weights, which are saved next
        self.trainer.is_in_train = True
        try:
            for task in self.tasks:
                self.fit(task)
        finally:
            self.trainer.is_in_train = False

    def fit(self, task: str) -> None:
        """Fit a task's thresholds on training rows, or on held-out rows if its type requires it."""
        trainer = self.trainer
        data = trainer.tasks[task]
        rows: Any = spread(data.train, THRESHOLD_ROWS)
        if trainer.problems[task].fits_held_out and data.evaluation is not None:
            rows = data.evaluation
        model: Any = find_inner(trainer.model)
        logits, labels = trainer.predict_task(task, rows), np.asarray(rows["labels"])
        thresholds = np.atleast_1d(model.fit_threshold(task, logits, labels))
        described = ", ".join(f"{threshold:.3f}" for threshold in thresholds)
        logger.info("%s: decision threshold %s", task, described)
