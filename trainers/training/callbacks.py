"""Early stopping on a metric over all tasks, logs of every run, and its expected time."""

import time
from collections.abc import Callable
from typing import Any

from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

WARM_UP_STEPS = 2  # slower than the others
TIMED_STEPS = 20


class AggregateEarlyStopping(EarlyStoppingCallback):
    """Early stopping that counts each evaluation once.

    The trainer reports an evaluation for each task and then for all tasks; only the first report
    with the metric counts.
    """

    _counted = -1  # step of the last counted report

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if state.global_step == 0:  # a new training, not one that is resumed
            self.early_stopping_patience_counter, self._counted = 0, -1
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def on_evaluate(  # type: ignore[override]  # the signature of EarlyStoppingCallback
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float],
        **kwargs: Any,
    ) -> None:
        name = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        if name in metrics and state.global_step != self._counted:
            self._counted = state.global_step
            super().on_evaluate(args, state, control, metrics, **kwargs)


class LastStep(TrainerCallback):
    """Logs and evaluates at the last step too, whose number is seldom a multiple of the interval.

    Without it a run shorter than ``logging_steps`` would have no loss, and the last weights could
    not be chosen as the best.
    """

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step >= state.max_steps:
            control.should_log |= args.logging_strategy == "steps"
            control.should_evaluate |= args.eval_strategy == "steps"


class TimeEstimate(TrainerCallback):
    """Prints once how long the steps of a run will take, if no progress bar does."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._steps, self._began = 0, 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._steps = 0

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._steps += 1
        if self._steps == WARM_UP_STEPS:
            self._began = self._clock()
        left = state.max_steps - state.global_step
        if self._steps != WARM_UP_STEPS + TIMED_STEPS or left <= 0 or not args.disable_tqdm:
            return
        if state.is_world_process_zero:
            minutes = (self._clock() - self._began) / TIMED_STEPS * left / 60
            shown = f"about {minutes:.0f}" if minutes >= 1 else "less than 1"
            print(  # noqa: T201  for the user
                f"{shown} min for the other {left:,} of {state.max_steps:,} steps, on "
                f"{args.device}, without evaluations"
            )
