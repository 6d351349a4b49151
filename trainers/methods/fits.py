"""What is fitted to the validation rows after training: decision thresholds, temperatures."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from trainers.data.dataset import select_labeled, spread
from trainers.files import find_inner

from .base import Method

if TYPE_CHECKING:
    from trainers.training.multitask import MultiTaskTrainer

logger = logging.getLogger(__name__)
Array: TypeAlias = NDArray[Any]

# Training rows that a threshold is fitted to.
THRESHOLD_ROWS = 2000
# Rows with a label below which a threshold for a goal is mostly chance.
FEWEST_POSITIVES = 5
MOST_LABELS = 10  # in a note; more are counted


class ThresholdFitting(Method):
    """Fit the decision thresholds of the tasks whose loss does not train them.

    They are fitted before each evaluation during training, and to the final weights. The
    trainer always has this method, at the end of its list.
    """

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        self.trainer = trainer
        self.tasks = [
            task for task, problem in trainer.problems.items() if problem.needs_threshold_fit
        ]

    def before_evaluation(self, task: str) -> None:
        if task in self.tasks:
            self.fit(task)

    def finish(self) -> None:
        with keeping_weights(self.trainer):
            for task in self.tasks:
                self.note(task, *self.fit(task))

    def fit(self, task: str) -> tuple[Array, Array]:
        """Fit a task's thresholds on training rows, or on held-out rows if its type requires it.

        Returns:
            The decisions on these rows, and their labels.
        """
        trainer = self.trainer
        data = trainer.tasks[task]
        rows: Any = spread(select_labeled(data.train), THRESHOLD_ROWS)
        if trainer.problems[task].fits_held_out and data.evaluation is not None:
            rows = data.evaluation
        model = find_inner(trainer.model)
        logits, labels = trainer.predict_task(task, rows), np.asarray(rows["labels"])
        thresholds = np.atleast_1d(model.fit_threshold(task, logits, labels))
        described = ", ".join(f"{threshold:.3f}" for threshold in thresholds)
        logger.info("%s: decision threshold %s", task, described)
        update_head(trainer, task)
        return np.asarray(model.decode(task, logits)), labels

    def note(self, task: str, predictions: Array, labels: Array) -> None:
        """Note what the thresholds reach of a goal, and warn if it is less."""
        problem: Any = self.trainer.problems[task]
        self._note_rare(task)
        goal = " ".join(f"{name} {least:g}" for name, least in problem.wanted.items())
        for found in problem.decisions(predictions, labels):
            numbers = (
                f"precision {found.precision:.3f} and recall {found.recall:.3f} on the held-out "
                "rows"
            )
            problem.notes[f"{found.name!r} for {goal}"] = numbers
            if 0 < found.labelled < FEWEST_POSITIVES:
                logger.warning(
                    "task %r, label %r: only %d of the rows have it, so its threshold is mostly "
                    "chance; give more rows with it",
                    *(task, found.name, found.labelled),
                )
            if not found.labelled:
                logger.warning(
                    "task %r: no row has the label %r, so threshold_for chose nothing",
                    *(task, found.name),
                )
            elif not found.reached:
                logger.warning(
                    "task %r, label %r: no threshold reaches %s; the best one has %s",
                    *(task, found.name, goal, numbers),
                )

    def _note_rare(self, task: str) -> None:
        """Note which labels have too few rows for a threshold, which stays as it was."""
        model = find_inner(self.trainer.model)
        heads = getattr(model, "heads", {})
        rare = getattr(heads[task], "rare", {}) if task in heads else {}
        if not rare:
            return
        problem: Any = self.trainer.problems[task]
        names, thresholds = problem.list_thresholds()
        shown = [
            f"{names[number]!r} {thresholds[number]:.3g} ({count} row{'' if count == 1 else 's'})"
            for number, count in list(rare.items())[:MOST_LABELS]
        ]
        more = f", {len(rare) - len(shown)} more" if len(rare) > len(shown) else ""
        problem.notes["thresholds that are not fitted"] = (
            f"{', '.join(shown)}{more}; fewer than {FEWEST_POSITIVES} of the rows have these labels"
        )


@contextmanager
def keeping_weights(trainer: "MultiTaskTrainer") -> Iterator[None]:
    """Predict after training without a change of the weights, which are saved next."""
    trainer.is_in_train = True  # else bf16_full_eval would cast them
    try:
        yield
    finally:
        trainer.is_in_train = False


def update_head(trainer: "MultiTaskTrainer", task: str) -> None:
    """Tell the problem of a task what was fitted."""
    model = find_inner(trainer.model)
    trainer.problems[task].spec = model.config.task(task)


logger = logging.getLogger(__name__)

# Validation rows that a temperature is fitted to: a single number needs no more.
CALIBRATION_ROWS = 10_000


class TemperatureScaling(Method):
    """Fit a temperature to the validation rows of the tasks that ask for it, after training.

    It divides the logits in probabilities, and changes no decision, so it needs no fit before. The
    trainer always has this method, after the one that fits thresholds.
    """

    def attach(self, trainer: "MultiTaskTrainer") -> None:
        self.trainer = trainer
        self.tasks = [task for task, problem in trainer.problems.items() if problem.calibrates]

    def finish(self) -> None:
        with keeping_weights(self.trainer):
            for task in self.tasks:
                self.fit(task)

    def fit(self, task: str) -> None:
        """Fit the temperature of a task, and note the calibration before and after."""
        trainer = self.trainer
        model = find_inner(trainer.model)
        logits, labels = self._predict(task)
        temperature = model.fit_temperature(task, logits, labels)
        update_head(trainer, task)
        problem: Any = trainer.problems[task]
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

    def _predict(self, task: str) -> tuple[Array, Array]:
        """Compute logits and labels of validation rows."""
        trainer = self.trainer
        problem: Any = trainer.problems[task]
        rows = problem.choose_rows(trainer.tasks[task].evaluation, CALIBRATION_ROWS)
        problem.gathers_logits = True
        try:
            values = trainer.predict_task(task, rows)
        finally:
            problem.gathers_logits = False
        logits, labels = problem.list_logits(values, rows)
        return logits, labels
