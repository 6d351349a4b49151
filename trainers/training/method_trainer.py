"""The trainer's methods beside the plain one: rates by layer, regularisers and averages."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainers.methods.averaging import WeightAverage, first_step
from trainers.methods.layers import (
    GradualUnfreezing,
    check_learning,
    count_layers,
    describe_learning_rates,
    freeze_below,
    learning_rate_factors,
    scale_learning_rates,
)
from trainers.methods.method_arguments import MethodArguments
from trainers.methods.regularization import Regularized, Regularizer

from .evaluation import TaskEvaluationTrainer

logger = logging.getLogger(__name__)

# Where checkpoints have the averages.
AVERAGE_FILE = "average.safetensors"
BREGMAN_FILE = "bregman.safetensors"


class MethodsTrainer(TaskEvaluationTrainer):
    """The part of a trainer that knows the methods: rates, regularisers and averages.

    Args:
        model: The model.
        args: Arguments of the Trainer.
        methods: The methods; None for none.
        kwargs: Other arguments of ``TaskEvaluationTrainer``.

    Raises:
        ValueError: If a method does not go with the model or with other arguments.
    """

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        methods: MethodArguments | None = None,
        **kwargs: Any,
    ) -> None:
        self.methods = methods or MethodArguments()
        self._average: WeightAverage | None = None
        self._regularizer: Regularizer | None = None
        rdrop, smart = self.methods.make_r_drop(), self.methods.make_smart()
        self._averaging = self.methods.make_averaging()
        self._batches = 0
        if self._averaging is not None and args.save_only_model and args.load_best_model_at_end:
            raise ValueError(
                "save_only_model leaves the average out of checkpoints, so that "
                "load_best_model_at_end could not load what was best; leave one of them out"
            )
        if rdrop is not None or smart is not None:
            _check_passes(args, is_smart=smart is not None)
            # a second pass would write to buffers that the first still needs
            args.ddp_broadcast_buffers = False
            self._regularizer = Regularizer(
                rdrop, smart, model, seed=args.seed, rank=args.process_index
            )
        if self.methods.layerwise_lr_decay is not None:
            self._factors(model)  # refuses a model without layers
        if self.methods.freeze_layers is not None:
            check_learning(model, self.methods.freeze_layers, "freeze_layers")
            freeze_below(model, self.methods.freeze_layers)
        if self.methods.unfreeze_layer_every is not None:
            name = "unfreeze_layer_every"
            check_learning(model, count_layers(model, name), name)
        super().__init__(model, args, **kwargs)
        self._check_sharding()
        if self._regularizer is not None:
            self._check_regularized()
        self.add_callback(_AfterStep(self._take_averages))
        if self.methods.unfreeze_layer_every is not None:
            self.add_callback(GradualUnfreezing(self.methods.unfreeze_layer_every))

    def _check_sharding(self) -> None:
        """Refuse what would need all weights in one place."""
        sharded = self.is_fsdp_enabled or self.is_deepspeed_enabled
        asked = [
            name
            for name, value in (
                ("weight_averaging", self._averaging),
                ("r_drop or smart", self._regularizer),
                ("layerwise_lr_decay", self.methods.layerwise_lr_decay),
            )
            if value is not None
        ]
        if sharded and asked:
            raise ValueError(f"{asked[0]} needs whole weights on each rank; train without sharding")

    def _check_regularized(self) -> None:
        """Refuse regularisers that no task has a use for, and name the tasks that go without."""
        without = [task for task in self.problem_types if not self.regularizes(task)]
        if len(without) == len(self.problem_types):
            raise ValueError(
                "r_drop and smart compare predictions of classification, paraphrase and similarity "
                f"tasks with regularize: true; {', '.join(without)} are none of these: leave "
                "r_drop and smart out"
            )
        if without:
            logger.warning("%s learn without r_drop and smart", ", ".join(without))

    def _factors(self, model: nn.Module) -> dict[str, float]:
        methods = self.methods
        return learning_rate_factors(
            model,
            methods.layerwise_lr_decay or 1.0,
            decay_embeddings=methods.layerwise_lr_decay_embeddings,
        )

    def describe_learning_rates(self) -> str:
        """Show the learning rate of every layer as a table; nothing if all have the same."""
        model: Any = self.model
        if self.methods.layerwise_lr_decay is None:
            return ""
        return describe_learning_rates(model, self._factors(model), self.args.learning_rate)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Make the optimizer, with a rate for every layer if asked for."""
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if is_new and self.methods.layerwise_lr_decay is not None:
            whole: Any = self.model if model is None else model
            scale_learning_rates(optimizer, whole, self._factors(whole))
        return optimizer

    def regularize(
        self,
        compute: Callable[[], tuple[Tensor, Any]],
        task: str,
        inputs: Mapping[str, Any],
    ) -> Regularized:
        """Compute the loss of a batch with the terms of R-Drop and SMART, if asked for.

        Args:
            compute: Gives the loss and the outputs of the model.
            task: That of the batch.
            inputs: The batch.
        """
        if self._regularizer is None or not self.regularizes(task):
            loss, outputs = compute()
            return Regularized(loss, loss, outputs, {})
        self._batches += 1  # tells batches apart that one step of the optimizer takes together
        return self._regularizer(compute, inputs, (self.state.global_step, self._batches))

    def regularizes(self, task: str) -> bool:
        """Tell whether the outputs of a task are whole predictions that can be compared."""
        return self.problems[task].is_comparable

    def regularizer_names(self, task: str) -> tuple[str, ...]:
        """Name what the regularisers tell of a task."""
        if self._regularizer is None or not self.regularizes(task):
            return ()
        return self._regularizer.names

    # Averages

    def _prepare_for_training(self, max_steps: int, *args: Any, **kwargs: Any) -> Any:
        """Begin the averages, or go on with those of a checkpoint."""
        prepared = super()._prepare_for_training(max_steps, *args, **kwargs)
        checkpoint = kwargs.get("resume_from_checkpoint", args[1] if len(args) > 1 else None)
        if self._averaging is not None:
            self._average = WeightAverage(self._plain_model())
        for name, average in self._averages().items():
            average.begin()
            if checkpoint is not None:
                average.load(Path(checkpoint) / name)
        return prepared

    def _plain_model(self) -> nn.Module:
        plain: nn.Module = self.accelerator.unwrap_model(self.model)
        return plain

    def _averages(self) -> dict[str, WeightAverage]:
        """List the averages by the files in which checkpoints have them."""
        of_files = {
            AVERAGE_FILE: self._average,
            BREGMAN_FILE: self._regularizer.average if self._regularizer is not None else None,
        }
        return {name: average for name, average in of_files.items() if average is not None}

    def _take_averages(self, state: TrainerState) -> None:
        """Take the weights after a step into the averages."""
        self._batches = 0
        step, steps = state.global_step, state.max_steps
        settings = self._averaging
        begun = settings is not None and step >= first_step(settings.start, steps)
        if settings is not None and self._average is not None and begun:
            taken = self._average.count
            self._average.update(settings.kind, min(settings.decay, (1 + taken) / (10 + taken)))
        if self._regularizer is not None:
            self._regularizer.update(step, steps)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Save the averages beside the optimizer."""
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            for name, average in self._averages().items():
                average.save(Path(output_dir) / name)

    def _load_best_model(self) -> None:
        """Load the weights of the best checkpoint, and its average, which was what was best."""
        super()._load_best_model()
        if self._average is not None:
            self._average.load(Path(str(self.state.best_model_checkpoint)) / AVERAGE_FILE)

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; the model then has the averages, if there are any."""
        found = super().train(*args, **kwargs)
        if self._average is not None:
            self._average.keep()
            self._average = None
        return found

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate; during the training of averages these."""
        if self._average is None:
            return super().evaluate(*args, **kwargs)
        with self._average.applied():
            return super().evaluate(*args, **kwargs)


def _check_passes(args: TrainingArguments, *, is_smart: bool) -> None:
    """Refuse what does not let a batch be computed several times."""
    if args.torch_compile:
        raise ValueError(
            "r_drop and smart compute a batch several times with hooks, which torch_compile does "
            "not follow; leave one of them out"
        )
    if is_smart and args.n_gpu > 1:
        raise ValueError(
            f"smart needs a process for each of the {args.n_gpu} GPUs; start it with `accelerate "
            "launch --multi_gpu`, or show it one with CUDA_VISIBLE_DEVICES"
        )


class _AfterStep(TrainerCallback):
    """Calls a function after every step of the optimizer."""

    def __init__(self, function: Callable[[TrainerState], None]) -> None:
        self.function = function

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002  the signature of TrainerCallback
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        **_: Any,
    ) -> None:
        """Call it."""
        self.function(state)
