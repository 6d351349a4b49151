"""The Trainer for several tasks: what differs from the loop of transformers' Trainer."""

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainers.data.collators import list_batches
from trainers.data.task_batch_sampler import TaskBatchSampler
from trainers.data.task_dataset import Rows, TaskDataset, longest_first
from trainers.data.task_sampling import RoundRobin, StepsPerEpoch, TaskSampling
from trainers.errors import WriteError, named_writes
from trainers.hub_token import HubToken
from trainers.methods.base import Method, MethodCallback, StepLoss, nested_loss
from trainers.methods.threshold_fitting import ThresholdFitting
from trainers.task import Task, find_rows
from trainers.wrapped_models import takes_task

from .acceleration import reused_gradients, static_shapes
from .batches import loader_options, make_collator, make_sampler
from .checks import check_arguments, check_compute_metrics, check_sampling, check_tasks
from .counters import FlopCounter, LossLog, mean_targets
from .divergence import DivergenceCheck
from .evaluation import ComputeMetrics, TaskEvaluator
from .resuming import write_checksums


class MultiTaskTrainer(Trainer):
    """Train one model on several tasks, with one task per step or all of them.

    Checkpoints hold everything that a run needs to continue as if it had not been stopped: the
    order of rows is a function of (seed, epoch), evaluation leaves the random state as it was, and
    the state of callbacks and methods is restored.

    With ``torch_compile`` batches have few shapes, with one program for each shape and task;
    evaluation during training is not compiled. ``torch_compile_mode: reduce-overhead`` (CUDA only)
    replays CUDA graphs. The backend ``aot_eager`` needs no compiler and is not faster.

    Args:
        model: A model whose ``forward`` takes ``task`` and returns the loss of that task. If it has
            ``decode(task, logits)``, metrics are computed from its result. With a single task it
            may be a model without a ``task`` argument. It may be wrapped, as by peft or
            ``torch.compile``.
        args: Arguments of the Trainer.
        tasks: The tasks, in the order of the round robin.
        methods: Training methods, in the order in which they apply.
        sampling: How the task of a step is chosen; None for one after the other.
        steps_per_epoch: When an epoch ends; see ``TaskBatchSampler``.
        max_tokens_per_batch: Tokens per process and step, for the tasks without a batch size or
            budget of their own; None takes ``per_device_train_batch_size`` rows.
        compute_metrics: A function of an ``EvalPrediction`` for all tasks, or one by task. It gets
            the values that ``predict_task`` returns and the labels, in the order of the rows. Its
            metrics join those of the task as ``eval_<task>_<name>``, and may choose the best model.
        kwargs: Other arguments of ``Trainer``.

    Attributes:
        tasks: The tasks by name.
        problems: Problem of each task: its metrics, and all else that depends on its type.
        train_sampler: Chooses the rows of every step; None without training rows.

    Raises:
        ValueError: If two tasks have one name, a task does not fit the model, some have no rows,
            ``metric_for_best_model`` is not a metric of these tasks, or an argument or method is
            not supported.
        TrainingDivergedError: By ``train``, if the loss, the gradients or the weights are NaN or
            infinite. Nothing of that step is saved.
    """

    # the loss of a batch is a mean over its rows: divide it by the number of micro-batches
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        tasks: Sequence[Task],
        *,
        methods: Sequence[Method] = (),
        sampling: TaskSampling | None = None,
        steps_per_epoch: StepsPerEpoch = "shortest",
        max_tokens_per_batch: int | None = None,
        compute_metrics: ComputeMetrics | Mapping[str, ComputeMetrics] | None = None,
        **kwargs: Any,
    ) -> None:
        self.tasks, self.problems = check_tasks(tasks, model)
        own_metrics = check_compute_metrics(compute_metrics, self.tasks)
        in_glue = [task.name for task in tasks if task.in_glue]
        check_arguments(args, self.problems, in_glue, own_metrics)
        self._divergence = DivergenceCheck()
        self.methods: list[Method] = [*methods, ThresholdFitting(), self._divergence]
        sampling = sampling or RoundRobin()
        check_sampling(args, sampling, self.methods)
        self._has_task_argument = takes_task(model)
        _set_defaults(args, has_task_argument=self._has_task_argument)
        self.train_sampler: TaskBatchSampler | None = None
        train, held_out = find_rows(tasks, "train"), find_rows(tasks, "evaluation")
        if train:
            # before the Trainer makes the output folder: the sampler may be refused
            sizes = (steps_per_epoch, max_tokens_per_batch)
            self.train_sampler = make_sampler(self.tasks, args, *sizes, sampling)
        if kwargs.get("data_collator") is None:
            given = (kwargs.get("processing_class"), self.tasks, self.train_sampler)
            kwargs["data_collator"] = make_collator(model, args, *given)
        for method in self.methods:
            method.prepare(model, args)
        self.evaluator = TaskEvaluator(self.tasks, self.problems, model, own_metrics)
        rows = TaskDataset(train, self.train_sampler) if train else None
        super().__init__(model, args, train_dataset=rows, eval_dataset=held_out or None, **kwargs)
        self._start(model)

    def _start(self, model: nn.Module) -> None:
        """Attach the methods and make the counters, once the Trainer is built."""
        if self.args.label_names is None:
            self.label_names = ["labels"]  # not those of all tasks of the model
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
        if self.train_sampler is None:
            raise ValueError("training needs tasks with training rows; these have none")
        options = loader_options(self.args, self.data_collator)
        rows: Any = self.train_dataset
        return self.accelerator.prepare(
            DataLoader(rows, batch_sampler=self.train_sampler, **options)
        )

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        options = loader_options(self.args, self.data_collator) | {"persistent_workers": False}
        loader = DataLoader(eval_dataset, batch_size=self.args.eval_batch_size, **options)
        return self.accelerator.prepare(loader)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return self.get_eval_dataloader(test_dataset)

    def describe_training(self) -> str:
        """Show the exact share of each task in an epoch, and tables of the methods."""
        shares = self.train_sampler.describe() if self.train_sampler is not None else "no training"
        return "\n\n".join(filter(None, (shares, *(each.describe() for each in self.methods))))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with reused_gradients(self), static_shapes(self.args, len(self.tasks)):
                output = super().train(*args, **kwargs)
        finally:
            for method in self.methods:
                method.release()
        self._targets = {}
        for method in self.methods:
            method.finish()
        return output

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        whole: Any = self.model if model is None else model
        for method in self.methods if is_new else ():
            method.scale_optimizer(optimizer, whole)
        return optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> LRScheduler:
        optimizer = optimizer or self.optimizer
        if optimizer is None or self.train_sampler is None or self.lr_scheduler:
            return super().create_scheduler(num_training_steps, optimizer)
        steps = math.ceil(self.train_sampler.steps / self.args.gradient_accumulation_steps)
        warmup = self.args.get_warmup_steps(num_training_steps)
        options = {"steps_per_epoch": steps, "warmup_steps": warmup}
        for method in self.methods:
            if (scheduler := method.make_scheduler(optimizer, **options)) is not None:
                self.lr_scheduler, self._created_lr_scheduler = scheduler, True
                return scheduler
        return super().create_scheduler(num_training_steps, optimizer)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Tensor:
        batches, losses = list_batches(inputs), []
        own_average = any(method.averages_gradients for method in self.methods)
        for batch in batches:
            # DDP records until the last backward pass which parameters had a gradient
            is_local = own_average or batch is not batches[-1]
            with self.accelerator.no_sync(model) if is_local else nullcontext():
                losses.append(super().training_step(model, batch, *args, **kwargs))
            for method in self.methods:
                method.after_backward(batch["task"])
        for method in self.methods if self.accelerator.sync_gradients else ():
            method.before_optimizer(self.state)
        return sum(losses[1:], losses[0])

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        inputs.pop("num_rows", None)
        task = inputs["task"] if self._has_task_argument else inputs.pop("task")
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
        loss = step.loss * self.tasks[task].training.loss_weight
        return (loss, step.outputs) if return_outputs else loss

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        norm = super()._get_grad_norm(*args, **kwargs)
        self._divergence.check_gradients(norm)
        return norm

    def save_model(self, output_dir: str | None = None, *args: Any, **kwargs: Any) -> None:
        self._divergence.check_weights(self.accelerator.unwrap_model(self.model))
        super().save_model(output_dir, *args, **kwargs)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        samples, number = super().get_batch_samples(*args, **kwargs)
        # a single batch needs no count, and DataParallel cannot distribute one
        is_alone = len(samples) * self.args.world_size == 1 or self.args.n_gpu > 1
        options = (self.problems, self.args.device, self._average_over_ranks)
        self._targets = mean_targets([] if is_alone else samples, *options)
        return samples, number

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        return self._count_flops(inputs)

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        for batch in list_batches(inputs):
            super()._track_num_input_tokens(batch)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= self._losses.flush(self._average_over_ranks)
            for method in self.methods:
                method.log(logs)
        super().log(logs, start_time)

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics, then all of them together.

        Args:
            eval_dataset: Encoded, labelled rows by task, or of the only task; None uses the rows of
                the tasks.
            ignore_keys: Not used.
            metric_key_prefix: Prefix of every name.

        Returns:
            ``<prefix>_<task>_<metric>``, ``<prefix>_mean``, ``<prefix>_leaderboard`` and, if there
            are tasks of GLUE, ``<prefix>_glue``.

        Raises:
            ValueError: If ``eval_dataset`` is not a mapping from known tasks to rows.
        """
        given = self.eval_dataset if eval_dataset is None else eval_dataset
        if isinstance(given, datasets.Dataset) and len(self.tasks) == 1:
            given = dict.fromkeys(self.tasks, given)
        if not isinstance(given, Mapping) or not set(given) <= set(self.tasks):
            known = ", ".join(self.tasks)
            raise ValueError(f"evaluate() needs a mapping from task to rows; known tasks: {known}")
        metrics: dict[str, float] = {}
        with ExitStack() as stack:
            for method in self.methods:
                stack.enter_context(method.evaluating())
            for task, rows in given.items():
                metrics |= self._evaluate_task(task, rows, f"{metric_key_prefix}_{task}")
            if len(given) < len(self.tasks):
                return metrics  # a mean of some tasks could be mistaken for that of all
            summary = self.evaluator.summarize(metrics, f"{metric_key_prefix}_")
            metrics |= summary
            self.log(summary)
            events = self.callback_handler
            self.control = events.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _evaluate_task(self, task: str, rows: Rows, prefix: str) -> dict[str, float]:
        for method in self.methods if self.is_in_train else ():
            method.before_evaluation(task)
        ordered, order = longest_first(task, rows, self.args.length_column_name)
        measure = partial(self.evaluator.measure, self.problems[task], rows, order)
        with self._measuring(measure):
            return super().evaluate(ordered, metric_key_prefix=prefix)

    @contextmanager
    def _measuring(self, measure: Any) -> Iterator[None]:
        """Let ``Trainer`` compute these metrics, and leave the random state as it was."""
        self.compute_metrics = measure
        try:
            with torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
                yield
        finally:
            self.compute_metrics = None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        with static_shapes(self.args, len(self.tasks)):
            return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,  # refused by `check_arguments`
        ignore_keys: list[str] | None = None,  # the problem selects outputs by name
    ) -> tuple[Any, Any, Any]:
        rows = inputs.pop("num_rows", None)
        problem = self.problems[inputs["task"]]
        inputs = self._prepare_inputs(inputs)
        loss: Tensor | None = None
        with torch.no_grad(), self.compute_loss_context_manager():
            if problem.has_loss(inputs):
                # computing the loss removes what the model does not take
                loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
                loss = loss.detach().mean()
            else:
                left_out = ("labels",) if self._has_task_argument else ("labels", "task")
                outputs = model(**{k: v for k, v in inputs.items() if k not in left_out})
        values, labels = problem.gather(inputs, outputs)
        if loss is None and labels is not None:
            loss = torch.zeros((), device=labels.device)
        return loss, values[:rows], None if labels is None else labels[:rows]

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> Any:
        """Predict the encoded rows of the only task; see ``predict_task`` for several.

        Args:
            test_dataset: The rows; with labels, the metrics of the task are computed.
            ignore_keys: Not used.
            metric_key_prefix: Prefix of the metrics.

        Returns:
            A ``PredictionOutput`` of transformers.

        Raises:
            ValueError: If the trainer has several tasks.
        """
        if not isinstance(test_dataset, datasets.Dataset):
            return super().predict(test_dataset, ignore_keys, metric_key_prefix)
        if len(self.tasks) > 1:
            names = ", ".join(self.tasks)
            raise ValueError(
                f"predict() needs a task: use predict_task(task, rows), one of {names}"
            )
        (task,) = self.tasks
        rows = TaskDataset({task: test_dataset})
        order = np.arange(len(test_dataset))
        measure = partial(self.evaluator.measure, self.problems[task], test_dataset, order)
        with self._measuring(measure):
            return super().predict(rows, ignore_keys, metric_key_prefix)

    def predict_task(self, task: str, dataset: Rows) -> NDArray[Any]:
        """Predict encoded rows of a task, labelled or not; the random state stays.

        Returns:
            What its problem gathers, in the order of the rows, (N, ...): logits (N, K), or what
            ``Problem.gather`` documents for its type.

        Raises:
            ValueError: If the task is unknown or there are no rows.
        """
        if task not in self.tasks:
            raise ValueError(f"unknown task {task!r}; known tasks: {', '.join(self.tasks)}")
        if not len(dataset):
            raise ValueError(f"no rows to predict for task {task!r}")
        rows, order = longest_first(task, dataset, self.args.length_column_name)
        with torch.random.fork_rng(devices=[]):
            return self.predict(rows).predictions[np.argsort(order)]

    def _prepare_for_training(self, max_steps: int, *args: Any, **kwargs: Any) -> Any:
        prepared = super()._prepare_for_training(max_steps, *args, **kwargs)
        checkpoint = kwargs.get("resume_from_checkpoint", args[1] if len(args) > 1 else None)
        for method in self.methods:
            method.begin()
            if checkpoint is not None:
                method.load(Path(checkpoint))
        return prepared

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        trained: tuple[int, int] = super()._init_training_state(*args, **kwargs)
        # the state has the old path: if a stopped run was moved, Trainer would not find it
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
        best = Path(str(self.args.output_dir)) / name
        if best.is_dir():
            self.state.best_model_checkpoint = str(best)
        return trained

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        # if the resumed run was finished, Trainer would do one more step
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        for method in self.methods:
            method.load_best(Path(str(self.state.best_model_checkpoint)))

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        run = Path(self._get_output_dir(trial=trial))
        folder = run / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        if self.args.should_save and folder.is_dir():
            shutil.rmtree(folder)  # a damaged one, before which the run was resumed
        self.accelerator.wait_for_everyone()
        try:
            with named_writes(folder):
                super()._save_checkpoint(model, trial)
                if self.args.should_save:
                    write_checksums(folder)
        except WriteError:
            if self.args.should_save:
                shutil.rmtree(folder, ignore_errors=True)
            raise

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        super()._save_optimizer_and_scheduler(output_dir)
        if self.args.should_save:
            for method in self.methods:
                method.save(Path(output_dir))

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        # trainer_state.json comes next, after which the checkpoint counts as complete
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        if not (Path(str(self.args.output_dir)) / "README.md").is_file():  # that of the run stays
            super().create_model_card(*args, **kwargs)


def _set_defaults(args: TrainingArguments, *, has_task_argument: bool) -> None:
    """Set the arguments that the trainer depends on."""
    if args.ddp_find_unused_parameters is None and has_task_argument:
        # only one head has a gradient at a step, also with activation checkpointing, for which the
        # Trainer would turn this off
        args.ddp_find_unused_parameters = True
    args.restore_callback_states_from_checkpoint = True
    if args.hub_token is not None:
        args.hub_token = HubToken(args.hub_token)
