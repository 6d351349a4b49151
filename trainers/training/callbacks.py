"""Early stopping on a metric over all tasks, and logs of the last step of every run."""

from typing import Any

from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)


class AggregateEarlyStopping(EarlyStoppingCallback):
    """Early stopping that counts anew in a new training, and stops a resumed one that was over."""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        super().on_train_begin(args, state, control, **kwargs)
        if state.global_step == 0:  # a new training, not one that is resumed
            self.early_stopping_patience_counter = 0
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True


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
