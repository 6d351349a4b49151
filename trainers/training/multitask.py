"""The Trainer for several tasks: what differs from the loop of transformers' Trainer."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments, set_seed
from transformers.integrations.integration_utils import TensorBoardCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainers.data.collate import list_batches
from trainers.data.dataset import Rows, TaskDataset
from trainers.data.sampling.task_sampling import RoundRobin, StepsPerEpoch, TaskSampling
from trainers.files import WriteError, find_inner, named_writes, takes_task
from trainers.methods.base import Method, MethodCallback, nested_loss
from trainers.methods.fits import TemperatureScaling, ThresholdFitting
from trainers.task import Task, find_rows

from .callbacks import DivergenceCheck, TensorBoard
from .checks import (
    avoid_single_rows,
    check_comparisons,
    compares_rows,
    keep_row_lengths,
    search_hyperparameters,
    static_shapes,
)
from .evaluation import (
    ComputeMetrics,
    evaluate_tasks,
    predict_batch,
    predict_in_order,
    predict_rows,
)
from .resuming import find_best_checkpoint, write_checksums
from .setup import Setup, make_loader
from .terms import (
    TERMS,
    FlopCounter,
    LossLog,
    LossMean,
    TermCounter,
    smooth_labels,
    weigh_loss,
    without_smoothing,
)


class MultiTaskTrainer(Trainer):
    """Train one model on several tasks, with one task per step or all of them.

    Checkpoints hold everything that a run needs to continue as if it had not been stopped: the
    order of rows is a function of (seed, epoch), evaluation leaves the random state as it was, and
    the state of callbacks and methods is restored.

    Args:
        model: A model whose ``forward`` takes ``task`` and returns the loss of that task. If it has
            ``decode(task, logits)``, metrics are computed from its result. With a single task it
            may be a model without a ``task`` argument. It may be wrapped, as by peft or
            ``torch.compile``.
        args: Arguments of the Trainer.
        tasks: The tasks, in the order of the round robin.
        model_init: A function that makes the model, instead of ``model``: every ``train`` starts
            with a new one. It may take the trial of ``hyperparameter_search``.
        methods: Training methods, in the order in which they apply.
        sampling: How the task of a step is chosen; None for one after the other.
        steps_per_epoch: When an epoch ends; see ``TaskBatchSampler``.
        max_tokens_per_batch: Tokens per process and step, for the tasks without a batch size or
            budget of their own; None takes ``per_device_train_batch_size`` rows.
        compute_metrics: A function of an ``EvalPrediction`` for all tasks, or one by task. It gets
            the values that ``predict_task`` returns and the labels, -100 for none, in the order of
            the rows. Its metrics join those of the task as ``eval_<task>_<name>``, and may choose
            the best model. A module of the library evaluate gets predictions and labels.
        data_collator: Makes a batch of the rows of one task; ``call_collator`` documents how. Those
            of transformers do. None takes a ``TaskCollator``, packed if the model supports it.
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

    # the loss of a batch is a mean over its terms: divide it by the number of micro-batches
    loss_is_scaled_for_ga = False
    settings_before_search: dict[str, Any]

    def __init__(
        self,
        model: nn.Module | None = None,
        args: TrainingArguments | None = None,
        tasks: Sequence[Task] = (),
        *,
        model_init: Callable[..., Any] | None = None,
        methods: Sequence[Method] = (),
        sampling: TaskSampling | None = None,
        steps_per_epoch: StepsPerEpoch = "shortest",
        max_tokens_per_batch: int | None = None,
        compute_metrics: ComputeMetrics | Mapping[str, ComputeMetrics] | None = None,
        data_collator: Callable[..., Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if (model is None) is (model_init is None):
            raise ValueError("give a model, or a model_init that makes one, and not both")
        for name in ("train_dataset", "eval_dataset"):
            if kwargs.get(name) is not None:
                raise ValueError(f"{name}: rows belong to a task; give them to Task.from_dataset")
        args = args or TrainingArguments()
        self._divergence = DivergenceCheck()
        always = (ThresholdFitting(), TemperatureScaling(), self._divergence)
        self.methods: list[Method] = [*methods, *always]
        self._setup = Setup(
            list(tasks),
            sampling or RoundRobin(),
            steps_per_epoch,
            max_tokens_per_batch,
            compute_metrics,
            data_collator,
            kwargs.get("processing_class"),
        )
        self.model_init: Any = model_init
        self._first_model = model
        if model_init is not None:
            set_seed(args.seed)  # as for the model of `train`
            self._first_model = super().call_model_init()
        # before the Trainer makes the output folder: all of this may be refused
        self._fit_to(self._first_model, args)
        held_out = find_rows(tasks, "evaluation") or None
        kwargs |= {"train_dataset": self.train_dataset, "eval_dataset": held_out}
        kwargs["data_collator"] = self.data_collator
        with without_smoothing(args):
            super().__init__(model, args, model_init=model_init, **kwargs)
        self.add_callback(MethodCallback(self.methods))
        tensorboard: Any = self.pop_callback(TensorBoardCallback)
        if tensorboard is not None:
            self.add_callback(TensorBoard(tensorboard.tb_writer))
        self._start()

    def _fit_to(self, model: Any, args: TrainingArguments) -> None:
        """Check tasks, arguments and methods, and make what depends on the model or on them."""
        self.takes_task = takes_task(model)
        parts = self._setup.fit(model, args, self.methods)
        self.tasks, self.problems, self.evaluator = parts.tasks, parts.problems, parts.evaluator
        self.train_sampler, self.train_dataset = parts.train_sampler, parts.train_dataset
        self.data_collator: Any = parts.data_collator

    def _start(self) -> None:
        """Attach the methods and make the counters, once the Trainer has its model."""
        if self.args.label_names is None:
            self.label_names = ["labels"]  # not those of all tasks of the model
        self.model_accepts_loss_kwargs = False
        model: Any = self.model
        if callable(gather_rows := getattr(find_inner(model), "gather_rows", None)):
            gather_rows()
        self._smoother: Any = smooth_labels(model, self.args, self.problems)
        for method in self.methods:
            method.attach(self)
        check_comparisons(self)
        self._losses = LossLog(self.problems, self.methods, self.args.device)
        self._count_flops = FlopCounter(super().floating_point_ops)
        self.terms = TermCounter(model, self.problems, self.methods)
        self.evaluated = LossMean()
        self._weights: list[float] = []  # of the losses of this optimizer step
        self._average_over_ranks = partial(self.accelerator.reduce, reduction="mean")

    def call_model_init(self, trial: Any = None) -> Any:
        if self._first_model is not None:  # by the constructor of the Trainer
            return self._first_model
        if trial is not None:
            # Trainer does so later, too late for a seed of the trial; other settings of an earlier
            # trial must not remain
            vars(self.args).update(self.settings_before_search)
            super()._hp_search_setup(trial)
            set_seed(self.args.seed)
        return super().call_model_init(trial)

    def _hp_search_setup(self, trial: Any) -> None:
        super()._hp_search_setup(trial)
        if self.model_init is not None:  # and has just made a model
            self._fit_to(self.model, self.args)
            self._start()

    def hyperparameter_search(  # type: ignore[override]  # another default direction
        self,
        hp_space: Callable[[Any], dict[str, Any]] | None = None,
        compute_objective: Callable[[dict[str, float]], float] | None = None,
        n_trials: int = 20,
        direction: str | list[str] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Find the best settings in several trials; see ``search_hyperparameters``."""
        search: Any = super().hyperparameter_search
        given = (hp_space, compute_objective, n_trials, direction)
        return search_hyperparameters(self, search, *given, **kwargs)

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self.train_sampler is None:
            raise ValueError("training needs tasks with training rows; these have none")
        loader = make_loader(self, self.train_dataset, batch_sampler=self.train_sampler)
        return self.accelerator.prepare(loader)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        rows: int = self.args.eval_batch_size
        if isinstance(eval_dataset, TaskDataset):  # its longest rows come first
            rows = eval_dataset.fit_rows(rows)
            model: Any = self.model
            if any(compares_rows(find_inner(model), task) for task in eval_dataset.sizes):
                rows = avoid_single_rows(rows, len(eval_dataset))
        options = {"batch_size": rows, "persistent_workers": False}
        return self.accelerator.prepare(make_loader(self, eval_dataset, **options))

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return self.get_eval_dataloader(test_dataset)

    def describe_training(self) -> str:
        """Show the exact share of each task in an epoch, and tables of the methods."""
        shares = "no training"
        if self.train_sampler is not None:
            held_out: Any = self.eval_dataset or {}
            sizes = {task: len(held_out[task]) for task in held_out}
            shares = self.train_sampler.describe(sizes)
        return "\n\n".join(filter(None, (shares, *(each.describe() for each in self.methods))))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        self._first_model = None
        try:
            output = super().train(*args, **kwargs)
        finally:
            self.is_in_train = False
            for method in self.methods:
                method.release()
        for method in self.methods:
            method.finish()
        return output

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        model: Any = self.model
        keep_row_lengths(find_inner(model), self.tasks, self.processing_class)
        with static_shapes(self.args, len(self.tasks)):
            return super()._inner_training_loop(*args, **kwargs)

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        whole: Any = self.model if model is None else model
        for method in self.methods if is_new else ():
            method.scale_optimizer(optimizer, whole)
        return optimizer

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> Tensor:
        batches, losses = list_batches(inputs), []
        own_average = any(method.averages_gradients for method in self.methods)
        for batch in batches:
            # DDP records until the last backward pass which parameters had a gradient
            is_local = own_average or batch is not batches[-1]
            task = batch["task"]  # which a step removes
            with self.accelerator.no_sync(model) if is_local else nullcontext():
                losses.append(super().training_step(model, batch, *args, **kwargs))
            for method in self.methods:
                method.after_backward(task)
            self._weights.append(self.tasks[task].training.loss_weight)
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
        task = inputs["task"] if self.takes_task else inputs.pop("task")
        terms = inputs.pop(TERMS, {})
        self.label_smoother = self._smoother if model.training else None
        compute: Any = partial(super().compute_loss, model, inputs, True, num_items_in_batch)
        if not model.training:
            return compute() if return_outputs else compute()[0]
        for method in self.methods:
            method.take(inputs)
        problem = self.problems[task]
        step = nested_loss(
            self.methods, lambda: weigh_loss(problem, compute(), terms), task, inputs
        )
        self._losses.add(task, step)
        loss = step.loss * self.tasks[task].training.loss_weight
        return (loss, step.outputs) if return_outputs else loss

    def _clip_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        # the limit is that of a gradient without weights, which would be lost in a step of one task
        most = self.args.max_grad_norm
        self.args.max_grad_norm *= sum(self._weights) / len(self._weights)
        try:
            return super()._clip_grad_norm(*args, **kwargs)
        finally:
            self.args.max_grad_norm = most

    def _get_grad_norm(self, *args: Any, **kwargs: Any) -> Any:
        self._weights.clear()
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
        if not is_alone:
            self.terms.mark(samples, self.args.device, self._average_over_ranks)
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
        if logs.get("train_samples_per_second") and logs["train_runtime"]:
            # Trainer multiplies steps by per_device_train_batch_size, or epochs by all rows
            rate = self._count_trained_rows() / logs["train_runtime"]
            logs["train_samples_per_second"] = round(rate, 3)
        super().log(logs, start_time)

    def _count_trained_rows(self) -> int:
        """Count the rows of this training, over all ranks, from the steps since it began."""
        sampler: Any = self.train_sampler
        counts = []
        for step in (self._initial_global_step, self.state.global_step):
            done = sampler.count_micro_steps(step, self.args.gradient_accumulation_steps)
            counts.append(sum(sampler.count_task_rows(done).values()))
        return counts[1] - counts[0]

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics, then all together; see ``evaluate_tasks``."""
        rows = self.eval_dataset if eval_dataset is None else eval_dataset
        return evaluate_tasks(self, super().evaluate, rows, metric_key_prefix)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        self.evaluated = LossMean()
        with static_shapes(self.args, len(self.tasks)):
            output = super().evaluation_loop(*args, **kwargs)
        mean, metrics = self.evaluated.compute(self._average_over_ranks), output.metrics
        if mean is not None and metrics is not None:
            # Trainer's own is a mean of the batches' means
            metrics[f"{kwargs['metric_key_prefix']}_loss"] = mean
        return output

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,  # refused by `check_arguments`
        ignore_keys: list[str] | None = None,  # the problem selects outputs by name
    ) -> tuple[Any, Any, Any]:
        return predict_batch(self, model, inputs)

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> Any:
        """Predict encoded rows of the only task, or of several by name; see ``predict_rows``."""
        given = (ignore_keys, metric_key_prefix)
        return predict_rows(self, super().predict, test_dataset, *given)

    def predict_task(self, task: str, dataset: Rows) -> NDArray[Any]:
        """Predict encoded rows of a task, labelled or not; see ``predict_in_order``."""
        return predict_in_order(self, task, dataset)

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
        if (
            best := find_best_checkpoint(self._get_output_dir(self._trial), self.state)
        ) is not None:
            self.state.best_model_checkpoint = best
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
        except WriteError:
            if self.args.should_save:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        if self.args.should_save:
            with named_writes(folder):  # without checksums a checkpoint is complete, and stays
                write_checksums(folder)

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        if self.args.should_save:
            for method in self.methods:
                method.save(Path(output_dir))
        # trainer_state.json comes next, after which the checkpoint counts as complete
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        if not (Path(str(self.args.output_dir)) / "README.md").is_file():  # that of the run stays
            super().create_model_card(*args, **kwargs)
