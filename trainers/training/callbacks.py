"""Early stopping on a metric over all tasks, logs of the last step, and TensorBoard."""

from pathlib import Path
from typing import Any

from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.integration_utils import TensorBoardCallback


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


class TensorBoard(TensorBoardCallback):
    """Logs to TensorBoard; a resumed run goes on with the curves of its first part.

    What the first part logged after the checkpoint is replaced, as in the state of the Trainer.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        is_resumed = state.global_step > 0 and not state.is_hyper_param_search
        if is_resumed and state.is_world_process_zero and self.tb_writer is None:
            if self.logging_dir is None:
                events = Path(str(args.output_dir), "runs").glob("*/events.out.tfevents.*")
                last = max(events, key=lambda path: path.stat().st_mtime, default=None)
                self.logging_dir = None if last is None else str(last.parent)
            if self.logging_dir is not None:
                after = state.global_step + 1
                self.tb_writer = self._SummaryWriter(log_dir=self.logging_dir, purge_step=after)
        super().on_train_begin(args, state, control, **kwargs)


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
