"""Steps that hold a batch of every task: one backward pass after the other, summed or merged."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from trainers.data.collators import list_batches
from trainers.methods.gradient_surgery import GradientSurgery, Method

from .method_trainer import MethodsTrainer

# In a checkpoint, beside the state of the optimizer.
SURGERY_FILE = "gradient_surgery.pt"


class MixedStepsTrainer(MethodsTrainer):
    """The part of a trainer that takes the batches of several tasks in one step.

    Args:
        model: The model.
        args: Arguments of the Trainer.
        gradient_surgery: What makes the gradients of the tasks get along; None adds them up.
        kwargs: Other arguments of ``MethodsTrainer``.

    Raises:
        ValueError: If the tasks of the model share nothing that is trained.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        gradient_surgery: Method | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(model, args, **kwargs)
        self.gradient_surgery: GradientSurgery | None = None
        self._conflicts: list[float] = []
        if gradient_surgery is not None:
            # after the layers that do not learn were frozen
            tasks = list(self.problem_types)
            self.gradient_surgery = GradientSurgery(model, tasks, gradient_surgery, args.seed)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; the memory of gradient surgery is free afterwards."""
        try:
            return super().train(*args, **kwargs)
        finally:
            if self.gradient_surgery is not None:
                self.gradient_surgery.forget()

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Add up the gradients of the tasks of a step, one after the other in the same memory.

        Returns:
            The sum of their weighted losses.
        """
        surgery, batches, losses = self.gradient_surgery, list_batches(inputs), []
        for batch in batches:
            # DDP remembers until the last backward pass which parameters had a gradient; surgery
            # averages over the processes itself
            alone = surgery is not None or batch is not batches[-1]
            with self.accelerator.no_sync(model) if alone else nullcontext():
                losses.append(super().training_step(model, batch, num_items_in_batch))
            if surgery is not None:
                surgery.take(batch["task"])
        if surgery is not None and self.accelerator.sync_gradients:
            self._conflicts.append(surgery.merge(self.state.global_step))
        return sum(losses[1:], losses[0])

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        """Count the tokens of every task of a step."""
        for batch in list_batches(inputs):
            super()._track_num_input_tokens(batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add ``gradient_conflicts``: the share of pairs of tasks with opposed gradients."""
        if "loss" in logs and self._conflicts:
            logs["gradient_conflicts"] = sum(self._conflicts) / len(self._conflicts)
            self._conflicts = []
        super().log(logs, start_time)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the state of gradient surgery, too."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.gradient_surgery is not None and self.args.should_save:
            torch.save(self.gradient_surgery.state_dict(), Path(output_dir) / SURGERY_FILE)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Load the state of gradient surgery, too."""
        super()._load_optimizer_and_scheduler(checkpoint)
        if self.gradient_surgery is not None and checkpoint is not None:
            state = torch.load(Path(checkpoint) / SURGERY_FILE, weights_only=True)
            self.gradient_surgery.load_state_dict(state)
