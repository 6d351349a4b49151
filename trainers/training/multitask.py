"""The Trainer for several tasks: what differs from the loop of transformers' Trainer."""

import inspect
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader
from transformers import (
    EvalPrediction,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from modeling_minbert import TASKS, unknown
from modeling_minbert.inference import check_vocabulary
from trainers.data.rows import (
    IGNORED_LABEL,
    TEACHER,
    Ids,
    Rows,
    TaskCollator,
    TaskDataset,
    longest_first,
    read_lengths,
)
from trainers.data.sampling import StepsPerEpoch, TaskBatchSampler, TaskSampling
from trainers.files import HubToken, WriteError, find_inner, named_writes, takes_task
from trainers.methods.base import Batch, ComputeLoss, Method, StepLoss
from trainers.problems.base import AnyProblem, Decode
from trainers.problems.metrics import aggregates, glue_score
from trainers.task import Task, find_rows

from .callbacks import (
    OWNER,
    DivergenceCheck,
    FreedMemory,
    keeping_patience,
    keeping_weights,
    prepare_again,
    preparing,
    told_to_bars,
)
from .checks import (
    TIMES,
    check_arguments,
    check_compute_metrics,
    check_methods,
    check_optimizer,
    check_tasks,
    keep_row_lengths,
    make_schedule,
    needs_rows,
    refuse_scaling,
    warn_of_half,
)
from .resuming import find_missing, last_complete_checkpoint, write_checksums
from .terms import FEWEST, TERMS, LossLog, TermCounter, smooth_labels, split_loss

if TYPE_CHECKING:
    from trainers.data.masking import TextMasking

ComputeMetrics: TypeAlias = Callable[[EvalPrediction], Mapping[str, float]]


class MultiTaskTrainer(Trainer):
    """Train one model on several tasks, with one of them at each step.

    Checkpoints hold everything that a run needs to continue as if it had not been stopped: the
    order of rows is a function of (seed, epoch), evaluation leaves the random state as it was, and
    the state of callbacks is restored.

    In a step the Trainer calls ``get_batch_samples``, ``training_step`` for each batch, which calls
    ``compute_loss``, and then ``_clip_grad_norm``, ``_get_grad_norm`` and the optimizer.

    Args:
        model: A model whose ``forward`` takes ``task`` and returns the loss of that task. If it has
            ``decode(task, logits)``, metrics are computed from its result. With a single task it
            may be a model without a ``task`` argument. It may be wrapped, as by peft.
        args: Arguments of the Trainer.
        tasks: The tasks, in the order of the round robin.
        methods: Training methods, in the order in which they apply.
        sampling: How the task of a step is chosen; None for one after the other.
        steps_per_epoch: When an epoch ends; see ``TaskBatchSampler``.
        compute_metrics: A function of an ``EvalPrediction`` for all tasks, or one by task. It gets
            the values that ``predict_task`` returns and the labels, -100 for none, in the order of
            the rows. Its metrics join those of the task as ``eval_<task>_<name>``, and may choose
            the best model.
        data_collator: Makes the batches; None takes one that packs if the model supports it.
        processing_class: As in ``Trainer``, like ``callbacks`` and ``optimizers``.

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

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments | None = None,
        tasks: Sequence[Task] = (),
        *,
        methods: Sequence[Method] = (),
        sampling: TaskSampling | None = None,
        steps_per_epoch: StepsPerEpoch = "longest",
        compute_metrics: ComputeMetrics | Mapping[str, ComputeMetrics] | None = None,
        data_collator: TaskCollator | None = None,
        processing_class: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Optimizer | None, LambdaLR | None] = (None, None),
    ) -> None:
        if not isinstance(data_collator, TaskCollator | None):
            raise TypeError(
                f"data_collator={data_collator!r}: batches are made by a TaskCollator, which pads "
                "or packs rows; leave it out, and change rows before they become a Task"
            )
        args = args or TrainingArguments()
        self._divergence = DivergenceCheck()
        # before the Trainer makes the output folder: all of this may be refused
        check_methods(methods, optimizers, model)
        self.tasks, self.problems = check_tasks(tasks, model)
        self.methods: list[Method] = [*methods, self._divergence]
        if any(x.needs_threshold_fit or x.calibrates for x in self.problems.values()):
            from trainers.methods.fits import Fitting

            self.methods.insert(-1, Fitting())
        self._user_metrics = check_compute_metrics(compute_metrics, self.problems)
        in_glue = [task.name for task in tasks if task.in_glue]
        auxiliary = [task.name for task in tasks if task.training.auxiliary]
        check_arguments(args, self.problems, in_glue, self._user_metrics, auxiliary)
        self.takes_task = takes_task(model)
        self._set_defaults(args)
        rows, held_out = find_rows(tasks), find_rows(tasks, "evaluation")
        self.train_sampler, dataset = None, None
        if rows:
            check_optimizer(args, model, optimizers)
            warn_of_half(args, model)
            self.train_sampler = make_sampler(self.tasks, args, sampling, steps_per_epoch)
            dataset = TaskDataset(rows, self.train_sampler)
        collator: Any = data_collator  # of `Joined` rows, where Trainer expects lists
        if collator is None:
            collator = make_collator(model, args, processing_class, self.tasks)
        for method in self.methods:
            method.prepare(model, args)
        # Trainer would smooth the labels of all tasks, and expects a config
        factor, args.label_smoothing_factor = args.label_smoothing_factor, 0.0
        try:
            super().__init__(
                model,
                args,
                collator,
                dataset,
                held_out or None,
                processing_class,
                callbacks=callbacks,
                optimizers=optimizers,
            )
        finally:
            args.label_smoothing_factor = factor
        self._resumed: str | None = None  # the checkpoint that a training goes on from
        self._memory = FreedMemory()
        self.add_callback(self._memory)
        self.label_names = ["labels"]  # not those of all tasks of the model
        self.model_accepts_loss_kwargs = False
        self._inner: Any = find_inner(model)
        keep_row_lengths(self._inner, self.tasks, processing_class)
        if hasattr(self._inner, "gather_rows"):
            self._inner.gather_rows()
        self._smoother = smooth_labels(model, self.args, self.problems)
        for method in self.methods:
            method.attach(self)
        if any(map(needs_rows, self.problems.values())):
            from .comparisons import check_comparisons  # few losses compare rows

            check_comparisons(self)
        self._losses = LossLog(self.problems)
        self._terms = TermCounter(model, self.problems, self.methods)
        # of an evaluation, by part: sums of losses, and numbers of their terms, (2,) by batch
        self._evaluated: dict[str, list[Tensor]] = {}
        self._weights: list[float] = []  # of the losses of this optimizer step
        self.stage = object()  # by which a model knows for whom it is prepared
        self._scales = False  # whether methods have changed the optimizer
        self._average_over_ranks = partial(self.accelerator.reduce, reduction="mean")

    def _set_defaults(self, args: TrainingArguments) -> None:
        if args.ddp_find_unused_parameters is None and self.takes_task:
            # only one head has a gradient at a step, also with activation checkpointing, for which
            # the Trainer would turn this off
            args.ddp_find_unused_parameters = True
        args.restore_callback_states_from_checkpoint = True
        # the filter waits for the device twice at every step, and hides what DivergenceCheck
        # reports
        args.logging_nan_inf_filter = False
        if args.hub_token is not None:
            args.hub_token = HubToken(args.hub_token)

    # Batches

    def _make_loader(self, rows: Any, **options: Any) -> DataLoader[Any]:
        args, lasting = self.args, self.args.dataloader_persistent_workers
        defaults = {
            "collate_fn": self.data_collator,
            "num_workers": args.dataloader_num_workers,
            # without an accelerator pinning only warns
            "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
            "prefetch_factor": args.dataloader_prefetch_factor,
            "persistent_workers": lasting,
            # which draw from the random state when they begin, and again in a resumed run
            "generator": torch.Generator().manual_seed(args.seed) if lasting else None,
            "multiprocessing_context": args.dataloader_multiprocessing_context,
        }
        return self.accelerator.prepare(DataLoader(rows, **(defaults | options)))

    def get_train_dataloader(self) -> DataLoader[Any]:
        if self.train_sampler is None:
            raise ValueError("training needs tasks with training rows; these have none")
        return self._make_loader(self.train_dataset, batch_sampler=self.train_sampler)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        rows: int = eval_dataset.fit_rows(self.args.eval_batch_size)  # its longest come first
        is_several = len(eval_dataset) > 1
        if is_several and any(needs_rows(self.problems[task]) for task in eval_dataset.sizes):
            # about as many, so that the last one is not alone
            sizes = chain(range(rows, 1, -1), count(rows + 1))
            rows = next(size for size in sizes if len(eval_dataset) % size != 1)
        return self._make_loader(eval_dataset, batch_size=rows, persistent_workers=False)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        return self.get_eval_dataloader(test_dataset)

    # Training

    def describe_training(self) -> str:
        """Show the exact share of each task in an epoch."""
        if self.train_sampler is None:
            return "no training"
        held_out = find_rows(self.tasks.values(), "evaluation")
        return self.train_sampler.describe({task: len(held_out[task]) for task in held_out})

    def train(
        self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        folder, count = resume_from_checkpoint, self.args.world_size
        if folder is True:  # the Trainer would take the newest, which a kill may have cut short
            folder = last_complete_checkpoint(str(self.args.output_dir), count)
            if folder is None:
                raise ValueError(f"output_dir={self.args.output_dir!r} has no complete checkpoint")
        elif folder and (problem := find_missing(Path(folder), count)) is not None:
            if Path(folder).is_dir():
                problem += "; to start anew from its weights, load the model from it"
            raise ValueError(f"resume_from_checkpoint={str(folder)!r} cannot be used: {problem}")
        is_sharded = self.is_deepspeed_enabled or self.is_fsdp_enabled
        if folder and not is_sharded and not Path(folder, "optimizer.pt").is_file():
            raise ValueError(
                f"resume_from_checkpoint={str(folder)!r} was written with FSDP or DeepSpeed, whose "
                "optimizer this run would not load: start it as the one before"
            )
        self._resumed = folder or None
        try:
            output = super().train(folder, *args, **kwargs)
        finally:
            self.is_in_train = False
            self._memory.end()
        for method in self.methods:
            method.finish()
        return output

    def _prepare_for_training(
        self, max_steps: int, train_dataloader: object, resume_from_checkpoint: str | None
    ) -> object:
        if self.model_wrapped is self.model:
            prepare_again(self)
        prepared = super()._prepare_for_training(
            max_steps, train_dataloader, resume_from_checkpoint
        )
        vars(self.model)[OWNER] = self.stage
        self._weights.clear()  # of a training that was stopped within a step
        self._losses = LossLog(self.problems)
        for method in self.methods:
            method.begin()
        return prepared

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the parameters that decay, also of a task with a name such as ``norm``."""
        heads = [
            name
            for name, value in model.named_parameters()
            if ".heads." in f".{name}" and value.ndim > 1
        ]
        return [*dict.fromkeys([*super().get_decay_parameter_names(model), *heads])]

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        is_new = self.optimizer is None
        optimizer: torch.optim.Optimizer = super().create_optimizer(model)
        whole: Any = self.model if model is None else model
        if is_new:
            for method in self.methods:
                method.scale_optimizer(optimizer, whole)
            self._scales = True
        return optimizer

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        if self.lr_scheduler is None:
            driven: Any = self.optimizer if optimizer is None else optimizer
            self.lr_scheduler = make_schedule(self.args, driven, num_training_steps)
            self._created_lr_scheduler = True
        return self.lr_scheduler

    def _init_training_state(self, *args: object, **kwargs: object) -> tuple[int, int]:
        with keeping_patience(self.callback_handler):
            trained: tuple[int, int] = super()._init_training_state(*args, **kwargs)
        # the state has the old path if a run was moved
        best = f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
        here = Path(str(self.args.output_dir)) / best
        if self._resumed is not None:
            known = Path(self._resumed).absolute().parent / best
            if not known.is_dir():
                known = Path(self.state.best_model_checkpoint or here)
            is_other = known.is_dir() and here.is_dir() and not here.samefile(known)
            if is_other and self.args.load_best_model_at_end:
                raise ValueError(
                    f"{str(here)!r} is of another run than {self._resumed!r}, and would be taken "
                    "for its best checkpoint: choose another output_dir"
                )
            if known.is_dir():
                self.state.best_model_checkpoint = str(known)
        return trained

    def _run_epoch(self, *args: object, **kwargs: object) -> None:
        if not self._scales:
            refuse_scaling(self.methods, "create_optimizer of a subclass has made another one")
        # if the resumed run was finished, Trainer would do one more step
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        samples, number = super().get_batch_samples(*args, **kwargs)
        # a single batch needs no count, and DataParallel cannot distribute one
        if len(samples) * self.args.world_size > 1 and self.args.n_gpu <= 1:
            self._terms.mark(samples, self.args.device, self._average_over_ranks)
        return samples, number

    def compute_loss(
        self,
        model: nn.Module,
        inputs: Batch,
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        task = inputs["task"] if self.takes_task else inputs.pop("task")
        terms, teacher = inputs.pop(TERMS, {}), inputs.pop(TEACHER, None)
        self.label_smoother = self._smoother if model.training else None
        options: Any = {"return_outputs": True, "num_items_in_batch": num_items_in_batch}
        forward: Any = partial(super().compute_loss, model, **options)
        labels = None if self.takes_task else inputs.get("labels")
        if not model.training:
            return forward(inputs) if return_outputs else forward(inputs)[0]

        def compute() -> StepLoss:
            if labels is None:
                loss, outputs = forward(inputs)
            else:  # a mean over no label would be NaN, and so would its gradient
                has_labels = (labels != IGNORED_LABEL).any()
                known = torch.where(has_labels, labels, torch.zeros_like(labels))
                loss, outputs = forward({**inputs, "labels": known})
                loss = loss * has_labels
            if terms:  # the step has other passes, whose terms count as much
                parts = split_loss(self.problems[task], loss, outputs).items()
                weighted = [value * terms[part].weight for part, value in parts]
                loss = sum(weighted[1:], weighted[0])
            return StepLoss(loss, loss, outputs, terms=terms, teacher=teacher)

        nested: ComputeLoss = compute
        for method in self.methods:  # later ones wrap earlier ones
            nested = partial(method.loss, nested, task, inputs)
        step = nested()
        self._losses.add(task, step)
        weight = self.tasks[task].training.loss_weight
        self._weights.append(weight)
        loss = step.loss * weight
        return (loss, step.outputs) if return_outputs else loss

    def _clip_grad_norm(self, *args: object, **kwargs: object) -> object:
        # the limit is that of a gradient without weights, which would be lost in a step of one task
        most = self.args.max_grad_norm
        self.args.max_grad_norm *= sum(self._weights) / len(self._weights)
        try:
            return super()._clip_grad_norm(*args, **kwargs)
        finally:
            self.args.max_grad_norm = most

    def _get_grad_norm(self, *args: object, **kwargs: object) -> object:
        self._weights.clear()
        norm = super()._get_grad_norm(*args, **kwargs)
        self._divergence.check_gradients(norm)
        return norm

    # Logs

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            logs |= self._losses.flush(self._average_over_ranks)
            self._divergence.check_notes()
        if logs.get("train_samples_per_second") and logs["train_runtime"]:
            # Trainer multiplies steps by per_device_train_batch_size, or epochs by all rows
            sampler: Any = self.train_sampler
            counts = []
            for step in (self._initial_global_step, self.state.global_step):
                done = sampler.count_micro_steps(step, self.args.gradient_accumulation_steps)
                counts.append(sampler.count_rows(done))
            rate = (counts[1] - counts[0]) / logs["train_runtime"]
            logs["train_samples_per_second"] = round(rate, 3)
        super().log(logs, start_time)

    # Evaluation

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics, then all of them together.

        Args:
            eval_dataset: Encoded, labelled rows by task, or of the only task, of any kind that
                ``Task`` takes; None for the evaluation rows of the tasks.
            ignore_keys: Not used: a problem selects outputs by name.
            metric_key_prefix: Prefix of every name.

        Returns:
            ``<prefix>_<task>_<metric>``, ``<prefix>_mean``, ``<prefix>_leaderboard`` and, if there
            are tasks of GLUE, ``<prefix>_glue``; of some of the tasks only the first.
        """
        given = self.eval_dataset if eval_dataset is None else eval_dataset
        rows_by_task, prefix = self._read_rows(given), metric_key_prefix
        for task, rows in rows_by_task.items():
            if rows is not self.tasks[task].evaluation:
                self.problems[task].check(f"the evaluation set of task {task!r}", rows)
        metrics: dict[str, float] = {}
        events = self.callback_handler
        with told_to_bars(events):
            for task, rows in rows_by_task.items():
                for method in self.methods if self.is_in_train else ():
                    method.before_evaluation(task)
                ordered, order = longest_first(task, rows, self.args.length_column_name)
                with self._measuring(task, rows, order):
                    found = super().evaluate(ordered, metric_key_prefix=f"{prefix}_{task}")
                for name in metrics.keys() & found.keys():
                    if name.startswith(f"{prefix}_{task}_"):  # not the epoch
                        raise ValueError(
                            f"compute_metrics gives two tasks the metric {name!r}, {task!r} and "
                            "one before; rename it"
                        )
                metrics |= found
        # a mean of some tasks could be mistaken for that of all
        if len(rows_by_task) == len(self.tasks):
            summary = self.aggregate(metrics, f"{prefix}_")
            glue = {
                name: [metrics[f"{prefix}_{name}_{metric}"] for metric in problem.headline]
                for name, problem in self.problems.items()
                if self.tasks[name].in_glue
            }
            if glue:
                summary[f"{prefix}_glue"] = glue_score(glue)
            metrics |= summary
            self.log(summary)
        copied = dict(metrics)  # from which the callback for notebooks removes some
        self.control = events.on_evaluate(self.args, self.state, self.control, copied)
        return metrics

    def predict(
        self,
        test_dataset: Any,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "test",
    ) -> Any:
        """Predict encoded rows of the only task; ``predict_task`` predicts those of any.

        Several tasks raise ValueError.
        """
        if len(self.tasks) > 1:
            raise ValueError(
                f"predict() is for one task, and there are several ({', '.join(self.tasks)}); use "
                "predict_task(task, rows), or evaluate({task: rows}) for metrics"
            )
        ((task, own),) = self.tasks.items()
        rows = own.read_rows("test", test_dataset)
        measuring: Any = torch.random.fork_rng(devices=[])
        if len(rows) and self.problems[task].is_labelled(rows):
            self.problems[task].check(f"the test set of task {task!r}", rows)
            measuring = self._measuring(task, rows, np.arange(len(rows)))
        with measuring:
            return super().predict(TaskDataset({task: rows}), ignore_keys, metric_key_prefix)

    def predict_task(self, task: str, dataset: Any) -> NDArray[Any]:
        """Predict encoded rows of a task, labelled or not; the random state stays.

        Returns what its problem gathers, in the order of the rows, (N, ...): logits (N, K), or what
        ``Problem.gather`` documents for its type. An unknown task or no rows raise ValueError.
        """
        if task not in self.tasks:
            raise ValueError(unknown("task", task, self.tasks))
        rows = self.tasks[task].read_rows("test", dataset)
        if not len(rows):
            raise ValueError(f"no rows to predict for task {task!r}")
        ordered, order = longest_first(task, rows, self.args.length_column_name)
        with torch.random.fork_rng(devices=[]), told_to_bars(self.callback_handler):
            output: Any = super().predict(ordered)
        return output.predictions[np.argsort(order)]

    def decoder(self, task: str) -> Decode | None:
        """Return the function of the model that decodes the logits of a task, if it has one."""
        # of a module around a model of transformers, too
        decode = getattr(self.model, "decode", getattr(self._inner, "decode", None))
        return None if decode is None else partial(decode, task)

    def aggregate(self, metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
        """Average the headline metrics, ``<prefix><task>_<metric>``, of all but auxiliary tasks."""
        headlines = {
            name: (problem, metrics.get(f"{prefix}{name}_{problem.headline[0]}"))
            for name, problem in self.problems.items()
            if not self.tasks[name].training.auxiliary
        }
        return {f"{prefix}{name}": value for name, value in aggregates(headlines).items()}

    def _read_rows(self, given: Any) -> dict[str, Rows]:
        """Read evaluation rows of known tasks; rows alone are those of the only task."""
        if not isinstance(given, Mapping) or not set(given) <= set(self.tasks):
            if len(self.tasks) > 1:
                raise ValueError(
                    "evaluate() needs a mapping from task to rows; known tasks: "
                    f"{', '.join(self.tasks)}"
                )
            given = dict.fromkeys(self.tasks, given)
        rows = {task: self.tasks[task].read_rows("evaluation", x) for task, x in given.items()}
        missing = [
            task for task in rows or self.tasks if rows.get(task) is None or not len(rows[task])
        ]
        if missing:
            raise ValueError(
                f"no evaluation rows of {', '.join(missing)}: give some to the Task or to evaluate"
            )
        return rows

    @contextmanager
    def _measuring(self, task: str, rows: Rows, order: Ids) -> Iterator[None]:
        """Let ``Trainer`` compute the metrics of a task, and leave the random state as it was.

        The gathered values are those of ``rows`` in this order.
        """
        problem, places = self.problems[task], np.argsort(order)

        def measure(prediction: EvalPrediction) -> dict[str, float]:
            values = np.asarray(prediction.predictions)[places]
            metrics = problem.compute_metrics(problem.collect(values, rows, self.decoder(task)))
            if task not in self._user_metrics:
                return metrics
            labels: Any = prediction.label_ids  # None for rows without
            known: Any = None if labels is None else labels[places]
            others = self._user_metrics[task](EvalPrediction(values, known))
            if not isinstance(others, Mapping):
                raise TypeError(
                    f"compute_metrics of task {task!r} returned a {type(others).__name__}; "
                    "expected a mapping from names to numbers"
                )
            for name in others:
                if name.removeprefix(f"eval_{task}_") in (*metrics, "loss", *TIMES):
                    raise ValueError(
                        f"compute_metrics of task {task!r} returned {name!r}, which is a metric of "
                        "the task already; rename it"
                    )
            return metrics | dict(others)

        self.compute_metrics = measure
        try:
            with torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
                yield
        finally:
            self.compute_metrics = None

    def evaluation_loop(self, dataloader: Any, *args: Any, **kwargs: Any) -> Any:
        self._evaluated = {}
        with preparing(self), keeping_weights(self.model):
            output = super().evaluation_loop(dataloader, *args, **kwargs)
        # would keep the rows of every evaluation
        loaders: list[Any] = self.accelerator._dataloaders
        loaders[:] = [loader for loader in loaders if loader is not dataloader]
        if self._evaluated and output.metrics is not None:
            sums = torch.stack([torch.stack(x).sum(dim=0) for x in self._evaluated.values()])
            sums = self._average_over_ranks(sums)
            # Trainer's own is a mean of the batches' means
            mean = float((sums[:, 0] / sums[:, 1].clamp(min=FEWEST)).sum())
            output.metrics[f"{kwargs['metric_key_prefix']}_loss"] = mean
        return output

    def prediction_step(
        self,
        model: nn.Module,
        inputs: Batch,
        prediction_loss_only: bool,  # refused by `check_arguments`
        ignore_keys: list[str] | None = None,  # the problem selects outputs by name
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        problem = self.problems[inputs["task"]]
        inputs = self._prepare_inputs(inputs)
        loss: Tensor | None = None
        with torch.no_grad(), self.compute_loss_context_manager():
            if problem.has_loss(inputs):
                labelled, real = hide_duplicates(model, self.accelerator, problem, inputs)
                # computing the loss removes what the model does not take
                loss, outputs = self.compute_loss(model, dict(labelled), return_outputs=True)
                counts = self._terms.count_parts(labelled, real)
                for part, value in split_loss(problem, loss, outputs).items():
                    mean = value.detach().float().mean()
                    count = torch.as_tensor(counts[part], dtype=torch.float32, device=mean.device)
                    # a mean of no terms may be NaN
                    terms = torch.stack([(mean * count).where(count > 0, 0.0), count])
                    self._evaluated.setdefault(part, []).append(terms)
                loss = loss.detach().mean()
            else:
                left_out = ("labels",) if self.takes_task else ("labels", "task")
                outputs = model(**{k: v for k, v in inputs.items() if k not in left_out})
        values, labels = problem.gather(inputs, outputs)
        if loss is None and labels is not None:
            loss = torch.zeros((), device=labels.device)
        return loss, values, labels

    # Checkpoints

    def _determine_best_metric(self, *args: Any, **kwargs: Any) -> bool:
        is_best: bool = super()._determine_best_metric(*args, **kwargs)
        # the best evaluation may lie between two checkpoints
        self.control.should_save |= is_best and self.args.load_best_model_at_end
        return is_best

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        self._divergence.check_weights(self.accelerator.unwrap_model(self.model))
        super().save_model(output_dir, _internal_call)

    def push_to_hub(self, *args: Any, **options: Any) -> Any:
        """Push the output folder, then delete files of a model before that a load would take.

        For arguments see `transformers.Trainer.push_to_hub`.
        """
        given = inspect.signature(Trainer.push_to_hub).bind(self, *args, **options).arguments
        pushed = super().push_to_hub(*args, **options)
        if self.is_world_process_zero():
            from modeling_minbert.folders import delete_leftovers  # few runs push

            keys = ("token", "revision")
            where = (given.get(key) or getattr(self.args, f"hub_{key}") for key in keys)
            saved = [path.name for path in Path(str(self.args.output_dir)).iterdir()]
            delete_leftovers(str(self.hub_model_id), saved, *where, after=pushed)
        return pushed

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        folder = Path(str(self.args.output_dir))
        folder /= f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
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
        # trainer_state.json comes next, after which the checkpoint counts as complete
        self.accelerator.wait_for_everyone()

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        if not (Path(str(self.args.output_dir)) / "README.md").is_file():  # that of the run stays
            super().create_model_card(*args, **kwargs)


def find_texts(tasks: Mapping[str, Task]) -> dict[str, "TextMasking"]:
    """List the tasks that train on text without labels."""
    texts = {}
    for position, (name, task) in enumerate(tasks.items()):
        kind = TASKS[task.problem_type]
        if kind.is_pretraining:
            from trainers.data.masking import TextMasking  # few runs have text

            masking = task.masking if kind.predicts_masked_tokens else None
            texts[name] = TextMasking(masking, kind.predicts_next_sentence, position)
    return texts


def make_sampler(
    tasks: Mapping[str, Task],
    args: TrainingArguments,
    sampling: TaskSampling | None,
    steps_per_epoch: StepsPerEpoch,
) -> TaskBatchSampler:
    """Build the sampler of tasks with training rows; see ``MultiTaskTrainer``."""
    rows = find_rows(tasks.values())
    batch_sizes = {
        name: (task.training.batch_size or args.per_device_train_batch_size) * max(1, args.n_gpu)
        for name, task in tasks.items()
    }
    lengths = None
    if args.train_sampling_strategy == "group_by_length":
        lengths = {name: read_lengths(name, rows[name], args.length_column_name) for name in rows}
    return TaskBatchSampler(
        {name: len(rows[name]) for name in tasks},
        batch_sizes,
        num_replicas=args.world_size,
        seed=args.seed if args.data_seed is None else args.data_seed,
        steps_per_epoch=steps_per_epoch,
        sampling=sampling,
        lengths=lengths,
        changing=find_texts(tasks),
    )


def make_collator(
    model: nn.Module, args: TrainingArguments, tokenizer: Any, tasks: Mapping[str, Task]
) -> TaskCollator:
    """Build the collator of a run, which packs if the model supports it."""
    config: Any = getattr(find_inner(model), "config", None)
    if getattr(config, "position_offset", 0) and tokenizer is not None:
        check_vocabulary(tokenizer, config)
    padding = getattr(tokenizer, "pad_token_id", None)
    if padding is None:
        padding = getattr(config, "pad_token_id", None)
    elif hasattr(config, "tasks") and padding != config.pad_token_id:
        # that of some checkpoints is the token that starts a text; heads know empty ones by it
        config.pad_token_id = find_inner(model).get_input_embeddings().padding_idx = padding
    heads = getattr(config, "tasks", None) or {}
    if args.n_gpu > 1 and any(config.task(name).has_windows for name in tasks if name in heads):
        raise ValueError(
            f"windows of texts need one process for each of the {args.n_gpu} GPUs; start it with "
            "`accelerate launch --multi_gpu`, or show it one with CUDA_VISIBLE_DEVICES"
        )
    # DataParallel would split the single row of a packed batch
    supports = getattr(model, "supports_packed_input", lambda _: False)
    packed = args.n_gpu <= 1 and supports(args.device)
    return TaskCollator(padding or 0, packed=packed, texts=find_texts(tasks))


def hide_duplicates(
    model: nn.Module, accelerator: Any, problem: AnyProblem, inputs: Batch
) -> tuple[Batch, int | None]:
    """Take the labels from the rows that only fill the last batches of several processes.

    The predictions for these rows, which were evaluated before, are left out later. An unlabelled
    row becomes one of padding alone, which the model ignores. Also returns how many rows are
    real, if that cannot be told from their labels.
    """
    state, processes = accelerator.gradient_state, accelerator.num_processes
    if processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
        return inputs, None
    rows = state.active_dataloader.total_batch_size // processes
    real = min(max(state.remainder - accelerator.process_index * rows, 0), rows)
    names: list[str] = [name for name in ("labels", "next_sentence_label") if name in inputs]
    changed: Batch = {}
    for name in names or ["input_ids"]:
        values, offsets = inputs[name], inputs.get("cu_seq_lens_q")
        filler = IGNORED_LABEL if names else find_inner(model).config.pad_token_id
        if offsets is None or values.shape != inputs["input_ids"].shape:
            is_real = torch.arange(len(values), device=values.device) < real
            is_real = is_real.view(-1, *[1] * (values.dim() - 1))
        else:
            end = offsets[real * getattr(problem.spec, "num_sentences", 1)]
            is_real = torch.arange(values.shape[1], device=values.device) < end
        changed[name] = values.masked_fill(~is_real, filler)
    return {**inputs, **changed}, None if names else real
