"""The Trainer for several tasks: batches, losses, methods, logs and checkpoints.

The model computes the loss of each task; the Trainer of transformers has the loop, the optimizer
and the checkpoints.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainers.data.batches import make_collator, make_sampler
from trainers.data.collators import list_batches
from trainers.data.masking import Masking
from trainers.data.samplers import TaskBatchSampler
from trainers.data.task_dataset import Rows, TaskDataset
from trainers.data.task_orders import StepsPerEpoch
from trainers.data.task_sampling import RoundRobin, TaskSampling
from trainers.data.tasks import TaskTraining
from trainers.methods.base import Method, MethodCallback, StepLoss, nested_loss
from trainers.methods.threshold import ThresholdFitting
from trainers.problems import make_problems

from .acceleration import reused_gradients, static_shapes
from .checks import check_arguments, check_mixed, check_tasks, find_texts
from .counting import FlopCounter, mean_targets
from .evaluation import TaskEvaluationTrainer, describe_heads
from .loss_log import LossLog


class MultiTaskTrainer(TaskEvaluationTrainer):
    """Train one model on several tasks, with one task per step or all of them.

    Checkpoints hold everything that a run needs to continue as if it had not been stopped: the
    order of rows is a function of (seed, epoch), evaluation leaves the random state as it was, and
    the state of callbacks and methods is restored.

    With ``torch_compile`` batches have few shapes, with one program for each shape and task;
    evaluation during training is not compiled. ``torch_compile_mode: reduce-overhead`` (CUDA only)
    replays CUDA graphs. The backend ``aot_eager`` needs no compiler and is not faster.

    A task can also learn from unlabeled text (``masked_lm``, ``next_sentence``, ``pretraining``):
    its rows are a ``TextSource``, or for masked tokens encoded rows of single sequences without a
    format. A ``contrastive`` task learns from unlabeled sentences; its loss compares the rows of
    each process. Rows of a ``token_classification`` task have a label for every token, -100 for
    none, and ``sentence`` if several of them are windows of one sentence.

    Args:
        model: A model whose ``forward`` takes ``task`` and returns the loss of that task. If it has
            ``decode(task, logits)``, metrics are computed from its result. With a single task it
            may be a model without a ``task`` argument.
        args: Arguments of the Trainer.
        problem_types: Problem type of each task.
        train_dataset: Rows of each task, in the order of the round robin.
        eval_dataset: Rows of the same tasks.
        task_training: Batch size, loss weight and so on, where a task differs from the default.
        steps_per_epoch: When an epoch ends; see ``TaskBatchSampler``.
        sampling: How the task of a step is chosen; None for one after the other.
        max_tokens_per_batch: Tokens per process and step, for the tasks without a batch size or
            budget of their own; None takes ``per_device_train_batch_size`` rows.
        masking: Chooses the tokens to predict in masked_lm and pretraining tasks, by task.
        methods: Training methods, in the order in which they apply.
        metrics: Headline metrics of a task; see ``TaskEvaluationTrainer``.
        glue_tasks: The tasks of GLUE; see there.
        kwargs: Other arguments of ``TaskEvaluationTrainer`` and of ``Trainer``.

    Raises:
        ValueError: If tasks do not match, a training set is empty, ``metric_for_best_model`` is not
            a metric of these tasks, or an argument or method is not supported.
    """

    # the loss of a batch is a mean over its rows: divide it by the number of micro-batches
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        problem_types: Mapping[str, str],
        train_dataset: Mapping[str, Rows] | None = None,
        eval_dataset: Mapping[str, Rows] | None = None,
        task_training: Mapping[str, TaskTraining] | None = None,
        steps_per_epoch: StepsPerEpoch = "shortest",
        sampling: TaskSampling | None = None,
        max_tokens_per_batch: int | None = None,
        masking: Mapping[str, Masking] | None = None,
        methods: Sequence[Method] = (),
        metrics: Mapping[str, Sequence[str]] | None = None,
        glue_tasks: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        given = {"training": train_dataset, "evaluation": eval_dataset}
        problems = make_problems(problem_types, describe_heads(model), metrics)
        check_tasks(problems, given, task_training or {})
        check_arguments(args, problems, glue_tasks)
        self.methods: list[Method] = [*methods, ThresholdFitting()]
        sampling = _check_sampling(args, sampling or RoundRobin(), self.methods)
        self._knows_tasks = "task" in signature(model.forward).parameters
        _set_defaults(args, has_task_argument=self._knows_tasks)
        texts = find_texts(problems, masking or {})
        self.task_training = dict.fromkeys(problem_types, TaskTraining()) | dict(
            task_training or {}
        )
        self.train_rows = dict(train_dataset or {})
        self.train_sampler: TaskBatchSampler | None = None
        if train_dataset is not None:
            # before the Trainer makes the output folder: the sampler may be refused
            self.train_sampler = make_sampler(
                train_dataset,
                args,
                self.task_training,
                steps_per_epoch,
                max_tokens_per_batch,
                texts,
                sampling,
            )
        if kwargs.get("data_collator") is None:
            tokenizer = kwargs.get("processing_class")
            kwargs["data_collator"] = make_collator(
                model, args, tokenizer, train_dataset, self.train_sampler, texts
            )
        for method in self.methods:
            method.prepare(model, args)
        rows = None if train_dataset is None else TaskDataset(train_dataset, self.train_sampler)
        kwargs |= {"train_dataset": rows, "eval_dataset": eval_dataset}
        kwargs |= {"problem_types": problem_types, "metrics": metrics, "glue_tasks": glue_tasks}
        super().__init__(model, args, **kwargs)
        self._start_methods(model)

    def _start_methods(self, model: nn.Module) -> None:
        """Attach the methods and make the counters, once the Trainer is built."""
        self.model_accepts_loss_kwargs = False
        if callable(gather_rows := getattr(model, "gather_rows", None)):
            gather_rows()
        for method in self.methods:
            method.attach(self)
        self.add_callback(MethodCallback(self.methods))
        self._losses = LossLog(self.problems, self.methods, self.args.device)
        self._count_flops = FlopCounter(super().floating_point_ops)
        self._targets: dict[str, Tensor] = {}
        self._average_over_ranks = partial(self.accelerator.reduce, reduction="mean")

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Load the batches that ``train_sampler`` chooses."""
        if self.train_sampler is None:
            raise ValueError("training needs a train_dataset; this trainer was built without one")
        rows: Any = self.train_dataset
        options = self._loader_options()
        loader: DataLoader[Any] = DataLoader(rows, batch_sampler=self.train_sampler, **options)
        return self.accelerator.prepare(loader)

    def describe_training(self) -> str:
        """Show the exact share of each task in an epoch, and tables of the methods."""
        shares = self.train_sampler.describe() if self.train_sampler is not None else "no training"
        tables = [method.describe() for method in self.methods]
        return "\n\n".join(filter(None, (shares, *tables)))

    # Training

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, and let the methods finish the weights; see ``Trainer.train``."""
        try:
            with reused_gradients(self), static_shapes(self.args, len(self.problem_types)):
                output = super().train(*args, **kwargs)
        finally:
            for method in self.methods:
                method.release()
        self._targets = {}
        for method in self.methods:
            method.finish()
        return output

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Build the optimizer, whose groups methods may change."""
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        if is_new:
            whole: Any = self.model if model is None else model
            for method in self.methods:
                method.scale_optimizer(optimizer, whole)
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> LRScheduler:
        """Build the schedule of a method, if one has its own, else that of ``args``."""
        optimizer = optimizer or self.optimizer
        if optimizer is None or self.train_sampler is None or self.lr_scheduler:
            return super().create_scheduler(num_training_steps, optimizer)
        steps = math.ceil(self.train_sampler.steps / self.args.gradient_accumulation_steps)
        warmup_steps = self.args.get_warmup_steps(num_training_steps)
        for method in self.methods:
            scheduler = method.make_scheduler(
                optimizer, steps_per_epoch=steps, warmup_steps=warmup_steps
            )
            if scheduler is not None:
                self.lr_scheduler = scheduler
                self._created_lr_scheduler = True
                return scheduler
        return super().create_scheduler(num_training_steps, optimizer)

    def training_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor:
        """Accumulate the gradients of the tasks of a step, one after the other.

        Returns:
            The sum of their weighted losses.
        """
        batches, losses = list_batches(inputs), []
        own_average = any(method.averages_gradients for method in self.methods)
        for batch in batches:
            # DDP records until the last backward pass which parameters had a gradient
            is_local = own_average or batch is not batches[-1]
            with self.accelerator.no_sync(model) if is_local else nullcontext():
                losses.append(super().training_step(model, batch, num_items_in_batch))
            for method in self.methods:
                method.after_backward(batch["task"])
        if self.accelerator.sync_gradients:
            for method in self.methods:
                method.before_optimizer(self.state)
        return sum(losses[1:], losses[0])

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Compute the loss of a batch; in training with methods, weighted, and logged."""
        inputs.pop("num_rows", None)
        task = inputs["task"] if self._knows_tasks else inputs.pop("task")
        if model.training and task in self._targets:
            inputs["num_items_in_batch"] = self._targets[task]
        compute: Any = partial(super().compute_loss, model, inputs, True, num_items_in_batch)
        if not model.training:
            return compute() if return_outputs else compute()[0]

        def plain() -> StepLoss:
            loss, outputs = compute()
            return StepLoss(loss, loss, outputs)

        step = nested_loss(self.methods, plain, task, inputs)
        self._losses.add(task, step)
        loss = step.loss * self.task_training[task].loss_weight
        return (loss, step.outputs) if return_outputs else loss

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Take the batches of an optimizer step, and count their labeled tokens."""
        samples, number = super().get_batch_samples(*args, **kwargs)
        # a single batch needs no count, and DataParallel cannot distribute one
        is_alone = len(samples) * self.args.world_size == 1 or self.args.n_gpu > 1
        self._targets = (
            {}
            if is_alone
            else mean_targets(samples, self.problems, self.args.device, self._average_over_ranks)
        )
        return samples, number

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Count as the Trainer does, but the parameters only once, not at every step."""
        return self._count_flops(inputs)

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        for batch in list_batches(inputs):
            super()._track_num_input_tokens(batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add ``loss_<task>``, the mean loss over ranks and batches since the last log."""
        if "loss" in logs:
            logs |= self._losses.flush(self._average_over_ranks)
            for method in self.methods:
                method.log(logs)
        super().log(logs, start_time)

    # Evaluation

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate the weights that methods choose; see ``TaskEvaluationTrainer.evaluate``."""
        with ExitStack() as stack:
            for method in self.methods:
                stack.enter_context(method.evaluating())
            return super().evaluate(*args, **kwargs)

    def _evaluate_task(self, task: str, *args: Any, **kwargs: Any) -> dict[str, float]:
        if self.is_in_train:
            for method in self.methods:
                method.before_evaluation(task)
        return super()._evaluate_task(task, *args, **kwargs)

    # Checkpoints

    def _prepare_for_training(self, max_steps: int, *args: Any, **kwargs: Any) -> Any:
        """Start the methods, or restore their state from a checkpoint."""
        prepared = super()._prepare_for_training(max_steps, *args, **kwargs)
        checkpoint = kwargs.get("resume_from_checkpoint", args[1] if len(args) > 1 else None)
        for method in self.methods:
            method.begin()
            if checkpoint is not None:
                method.load(Path(checkpoint))
        return prepared

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Restore the state; look for the best checkpoint in the current output folder.

        The state has the old path: if a stopped run was moved, Trainer would not find it.
        """
        trained: tuple[int, int] = super()._init_training_state(*args, **kwargs)
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
        best = Path(str(self.args.output_dir)) / name
        if best.is_dir():
            self.state.best_model_checkpoint = str(best)
        return trained

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Run an epoch, unless the resumed run was finished: Trainer would do one more step."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        for method in self.methods:
            method.load_best(Path(str(self.state.best_model_checkpoint)))

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            for method in self.methods:
                method.save(Path(output_dir))

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the random state of every rank before any rank continues.

        ``trainer_state.json`` comes next: once it exists the checkpoint is complete, and the one
        before may be deleted.
        """
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Keep the card that a run has written; else let the Trainer write one."""
        if not (Path(str(self.args.output_dir)) / "README.md").is_file():
            super().create_model_card(*args, **kwargs)


def _check_sampling(
    args: TrainingArguments, sampling: TaskSampling, methods: Sequence[Method]
) -> TaskSampling:
    if sampling.mixes_tasks:
        check_mixed(args)
    for method in methods:
        method.check_sampling(sampling)
    return sampling


def _set_defaults(args: TrainingArguments, *, has_task_argument: bool) -> None:
    """Set the arguments that the trainer depends on."""
    if args.ddp_find_unused_parameters is None and has_task_argument:
        # only one head has a gradient at a step, also with activation checkpointing, for which the
        # Trainer would turn this off
        args.ddp_find_unused_parameters = True
    args.restore_callback_states_from_checkpoint = True
