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
