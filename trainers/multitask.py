"""The Trainer for several tasks: order, loss weights, evaluation and reporting.

The model owns the loss of each task; the Trainer of transformers owns the loop, the optimizer and
the checkpoints.
"""

import math
from collections.abc import Mapping
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from .acceleration import reused_gradients, static_shapes
from .batches import make_collator, make_sampler
from .checks import check_arguments, check_tasks, find_texts
from .collators import TaskCollator, list_rows
from .data import Rows, TaskDataset, longest_first
from .masking import IGNORED_LABEL, Masking
from .metrics import PRIMARY_METRIC, Decode, aggregates, task_metrics
from .samplers import RoundRobinBatchSampler
from .tasks import TaskTraining
from .text import MASKED, TEXT_TYPES, count_rows, score_text


class MultiTaskTrainer(Trainer):
    """Train one model on several tasks, one task per step.

    Checkpoints hold all that a run needs to go on as if it had not been stopped: the order of rows
    is a function of (seed, epoch), evaluation leaves the random state as it was, and the state of
    the callbacks is restored.

    With ``torch_compile`` in ``args`` batches have few shapes, and there is a program for each
    shape and task; evaluation during training is not compiled. ``torch_compile_mode`` is that of
    ``torch.compile``: ``reduce-overhead``, which needs CUDA, replays CUDA graphs. The Trainer takes
    the backend ``inductor`` unless ``torch_compile_backend`` names another one; ``aot_eager`` needs
    no compiler and is not faster.

    A task can also learn from text without labels: ``masked_lm``, ``next_sentence``, or both in one
    pass of the encoder, ``pretraining``. The rows of such a task are a ``TextSource``, or for
    masked tokens alone encoded rows of single sequences without a format.

    Args:
        model: A model whose ``forward`` takes ``task`` and returns the loss of that task. If it has
            ``decode(task, logits)``, metrics are of what that gives. With one task alone it may be
            a model that does not know tasks.
        args: Arguments of the Trainer.
        train_dataset: Rows of each task, in the order of the round robin.
        eval_dataset: Rows of the same tasks.
        problem_types: Problem type of each task: classification, paraphrase, similarity,
            masked_lm, next_sentence or pretraining.
        masking: What chooses the tokens that the tasks masked_lm and pretraining predict, by task.
        task_training: Batch size and loss weight where a task differs from the default.
        stop: When an epoch ends; see ``RoundRobinBatchSampler``.
        max_tokens_per_batch: Tokens per process and step of the tasks that do not say it
            themselves; None takes ``per_device_train_batch_size`` rows.
        exponential_lr_gamma: Multiply the learning rate by this after every epoch, in (0, 1], in
            the place of ``lr_scheduler_type``. Warmup stays.
        kwargs: Other arguments of ``Trainer``.

    Raises:
        ValueError: If tasks do not match, a training set is empty, ``metric_for_best_model`` is no
            metric of these tasks, or an argument asks for what this trainer does not do.
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
        stop: Literal["shortest", "longest"] | int = "shortest",
        max_tokens_per_batch: int | None = None,
        exponential_lr_gamma: float | None = None,
        masking: Mapping[str, Masking] | None = None,
        **kwargs: Any,
    ) -> None:
        given = {"training": train_dataset, "evaluation": eval_dataset}
        check_tasks(problem_types, given, task_training or {})
        check_arguments(args, problem_types)
        if exponential_lr_gamma is not None and not 0 < exponential_lr_gamma <= 1:
            raise ValueError(f"exponential_lr_gamma={exponential_lr_gamma!r}; expected in (0, 1]")
        self._knows_tasks = "task" in signature(model.forward).parameters
        if args.ddp_find_unused_parameters is None and self._knows_tasks:
            # only one head has a gradient at a step, also with activation checkpointing, for which
            # the Trainer would turn this off
            args.ddp_find_unused_parameters = True
        args.restore_callback_states_from_checkpoint = True
        texts = find_texts(problem_types, masking or {})
        self.problem_types = dict(problem_types)
        self.task_training = {
            task: (task_training or {}).get(task, TaskTraining()) for task in problem_types
        }
        self.exponential_lr_gamma = exponential_lr_gamma
        self._metrics = {
            task: task_metrics(kind, None if task in texts else decoder(model, task))
            for task, kind in problem_types.items()
        }
        self._train_rows = None if train_dataset is None else TaskDataset(train_dataset)
        self.train_sampler: RoundRobinBatchSampler | None = None
        if train_dataset is not None and self._train_rows is not None:
            # before the Trainer makes the output folder, for a sampler that is refused
            self.train_sampler = make_sampler(
                train_dataset, args, self.task_training, stop, max_tokens_per_batch, texts
            )
            # the dataset is told the epoch and passes it on
            self._train_rows.register_sampler(self.train_sampler)
        if kwargs.get("data_collator") is None:
            kwargs["data_collator"] = make_collator(
                model, args, _pad_token_id(model, kwargs), train_dataset, self.train_sampler, texts
            )
        super().__init__(
            model=model,
            args=args,
            train_dataset=self._train_rows,
            eval_dataset=None if eval_dataset is None else dict(eval_dataset),
            **kwargs,
        )
        self.model_accepts_loss_kwargs = False
        if args.label_names is None:
            # the Trainer would wait for all labels that some task of the model takes
            self.label_names = ["labels"]
        names = [name for task, kind in problem_types.items() for name in loss_names(task, kind)]
        self._loss_sums = dict.fromkeys(names, torch.zeros((), device=self.args.device))
        self._loss_counts = dict.fromkeys(problem_types, 0)
        self._flops_of_token: int | None = None

    # Data

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Load the batches that ``train_sampler`` chooses."""
        if self._train_rows is None or self.train_sampler is None:
            raise ValueError("training needs a train_dataset; this trainer was built without one")
        loader = DataLoader(
            self._train_rows, batch_sampler=self.train_sampler, **self._loader_options()
        )
        return self.accelerator.prepare(loader)

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Load the rows of a ``TaskDataset`` in their order."""
        options = self._loader_options() | {"persistent_workers": False}
        loader = DataLoader(eval_dataset, batch_size=self.args.eval_batch_size, **options)
        return self.accelerator.prepare(loader)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Load the rows of a ``TaskDataset`` in their order."""
        return self.get_eval_dataloader(test_dataset)

    def _loader_options(self) -> dict[str, Any]:
        args = self.args
        collate = self.data_collator
        if not isinstance(collate, TaskCollator):
            collate = partial(list_rows, collate)
        return {
            "collate_fn": collate,
            "num_workers": args.dataloader_num_workers,
            # without an accelerator pinning does nothing but warn
            "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
            "prefetch_factor": args.dataloader_prefetch_factor,
            "persistent_workers": args.dataloader_persistent_workers,
        }

    # Training

    def describe_training(self) -> str:
        """Show the exact share of every task in an epoch, as a table."""
        return self.train_sampler.describe() if self.train_sampler is not None else "no training"

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; see ``Trainer.train``."""
        with reused_gradients(self), static_shapes(self.args, len(self.problem_types)):
            return super().train(*args, **kwargs)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> LRScheduler:
        """Build the exponential decay per epoch if asked for, else the schedule of ``args``."""
        optimizer = optimizer or self.optimizer
        gamma = self.exponential_lr_gamma
        if gamma is None or optimizer is None or self.train_sampler is None or self.lr_scheduler:
            return super().create_scheduler(num_training_steps, optimizer)
        factor = partial(
            exponential_factor,
            gamma=gamma,
            steps_per_epoch=math.ceil(
                self.train_sampler.steps / self.args.gradient_accumulation_steps
            ),
            warmup_steps=self.args.get_warmup_steps(num_training_steps),
        )
        self.lr_scheduler = LambdaLR(optimizer, factor)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Weight the loss of the task in training, and add it up unweighted for the logs."""
        inputs.pop("num_rows", None)
        task = inputs["task"] if self._knows_tasks else inputs.pop("task")
        kind = self.problem_types[task]
        if kind in MASKED and model.training and self.args.world_size > 1:
            inputs["num_items_in_batch"] = self._mean_targets(inputs["labels"])
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training:
            self._loss_counts[task] += 1
            for name, key in loss_names(task, kind).items():
                found = loss if key == "loss" else outputs[key]
                self._loss_sums[name] = self._loss_sums[name] + found.detach().mean()
            loss = loss * self.task_training[task].loss_weight
        return (loss, outputs) if return_outputs else loss

    def _mean_targets(self, labels: Tensor) -> Tensor:
        """Count the predicted tokens of a step, per rank.

        Ranks have different numbers of them: the mean of their means is not that over all tokens.
        """
        count = (labels != IGNORED_LABEL).sum().float()
        mean: Tensor = self.accelerator.reduce(count, reduction="mean")
        return mean

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Count as the Trainer does, but the parameters only once, not at every step."""
        tokens = inputs["input_ids"].numel() if "input_ids" in inputs else 0
        if not tokens:
            return super().floating_point_ops(inputs)
        if self._flops_of_token is None:
            self._flops_of_token = super().floating_point_ops(inputs) // tokens
        return tokens * self._flops_of_token

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add ``loss_<task>``, the mean over ranks and steps since the last log of the loss."""
        if "loss" in logs:
            sums = torch.stack(list(self._loss_sums.values()))
            totals = self.accelerator.reduce(sums, reduction="mean").tolist()
            found = dict(zip(self._loss_sums, totals, strict=True))
            for task, kind in self.problem_types.items():
                for name in loss_names(task, kind) if self._loss_counts[task] else ():
                    logs[name] = found[name] / self._loss_counts[task]
            self._loss_sums = dict.fromkeys(self._loss_sums, torch.zeros_like(sums[0]))
            self._loss_counts = dict.fromkeys(self._loss_counts, 0)
        super().log(logs, start_time)

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Restore the state; the best checkpoint is looked for where the run is now.

        The state names its folder, and Trainer forgets it if a stopped run was moved meanwhile.
        """
        trained: tuple[int, int] = super()._init_training_state(*args, **kwargs)
        name = f"{PREFIX_CHECKPOINT_DIR}-{self.state.best_global_step}"
        best = Path(str(self.args.output_dir)) / name
        if best.is_dir():
            self.state.best_model_checkpoint = str(best)
        return trained

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        """Run an epoch, unless the run that is resumed was over: Trainer would do one more step."""
        if self.state.global_step >= self.state.max_steps:
            self.control.should_training_stop = True
        if not self.control.should_training_stop:
            super()._run_epoch(*args, **kwargs)

    def _save_rng_state(self, output_dir: str) -> None:
        """Save the random state of every rank before any rank goes on.

        ``trainer_state.json`` comes next: where it is, the checkpoint is whole, and the one before
        may be deleted.
        """
        super()._save_rng_state(output_dir)
        self.accelerator.wait_for_everyone()

    # Evaluation

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics, then all of them together.

        Args:
            eval_dataset: Encoded, labelled rows of each task; None takes those of the trainer.
            ignore_keys: Outputs of the model that are no predictions.
            metric_key_prefix: Begins every name.

        Returns:
            ``<prefix>_<task>_<metric>`` for all tasks, ``<prefix>_mean`` and
            ``<prefix>_leaderboard``.

        Raises:
            ValueError: If there is no evaluation set, or not one per task name.
        """
        tasks = self.eval_dataset if eval_dataset is None else eval_dataset
        if not isinstance(tasks, Mapping) or not set(tasks) <= set(self.problem_types):
            raise ValueError(
                "evaluate() needs a mapping from task to dataset; known tasks: "
                f"{', '.join(self.problem_types)}"
            )
        metrics: dict[str, float] = {}
        primary = {}
        for task, dataset in tasks.items():
            prefix = f"{metric_key_prefix}_{task}"
            metrics |= self._evaluate_task(task, dataset, ignore_keys, prefix)
            kind = self.problem_types[task]
            primary[task] = (kind, metrics[f"{prefix}_{PRIMARY_METRIC[kind]}"])
        if len(primary) < len(self.problem_types):
            return metrics  # a mean of some tasks would pass for that of all
        summary = {
            f"{metric_key_prefix}_{name}": value for name, value in aggregates(primary).items()
        }
        metrics |= summary
        self.log(summary)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _evaluate_task(
        self, task: str, dataset: Rows, ignore_keys: list[str] | None, prefix: str
    ) -> dict[str, float]:
        """Evaluate one task; the random state afterwards is the one before."""
        rows, _ = longest_first(task, dataset, self.args.length_column_name)
        self.compute_metrics = self._metrics[task]
        try:
            with torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
                return super().evaluate(rows, ignore_keys, prefix)
        finally:
            self.compute_metrics = None

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Compute logits and metrics; see ``Trainer.evaluation_loop``."""
        with static_shapes(self.args, len(self.problem_types)):
            return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[Any, Any, Any]:
        """Compute the logits of a batch; those of filler rows are cut off."""
        rows = inputs.pop("num_rows", None)
        kind = self.problem_types[inputs["task"]]
        if kind in TEXT_TYPES:
            step: Any = self._score_step(model, inputs, kind)
        else:
            step = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        loss, logits, labels = step
        if rows is None:
            return loss, logits, labels
        logits = logits[0] if isinstance(logits, tuple) else logits
        return loss, logits[:rows], None if labels is None else labels[:rows]

    def _score_step(
        self, model: nn.Module, inputs: dict[str, Any], kind: str
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the loss of a batch of text, and in the place of logits the scores of its rows.

        The Trainer computes no metrics without labels; they are in the scores.
        """
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
        scores = score_text(kind, inputs, outputs)
        return loss.detach().mean(), scores, torch.zeros(count_rows(inputs), device=scores.device)

    def predict_task(self, task: str, dataset: Rows) -> NDArray[np.float32]:
        """Compute the logits of a task.

        Args:
            task: Its name.
            dataset: Encoded rows, labelled or not.

        Returns:
            Logits in the order of the rows, (N, K); for text what ``score_text`` says of each.

        Raises:
            ValueError: If the task is unknown or there are no rows.
        """
        if task not in self.problem_types:
            raise ValueError(f"unknown task {task!r}; known tasks: {', '.join(self.problem_types)}")
        if not len(dataset):
            raise ValueError(f"no rows to predict for task {task!r}")
        rows, order = longest_first(task, dataset, self.args.length_column_name)
        with torch.random.fork_rng(devices=[]):
            predictions = self.predict(rows).predictions
        logits = predictions[0] if isinstance(predictions, tuple) else predictions
        ordered = np.empty_like(logits)
        ordered[order] = logits
        return ordered

    # Hub

    def create_model_card(self, *args: Any, **kwargs: Any) -> None:
        """Keep the card that a run has written; else let the Trainer write one."""
        if not (Path(str(self.args.output_dir)) / "README.md").is_file():
            super().create_model_card(*args, **kwargs)


def exponential_factor(
    step: int, *, gamma: float, steps_per_epoch: int, warmup_steps: int
) -> float:
    """Scale the learning rate: a linear warmup times one factor ``gamma`` per finished epoch."""
    warmup = min(1.0, step / warmup_steps) if warmup_steps else 1.0
    return warmup * gamma ** (step // steps_per_epoch)


def loss_names(task: str, kind: str) -> dict[str, str]:
    """Name what is logged of the losses of a task, and where the model puts it."""
    names = {f"loss_{task}": "loss"}
    if kind == "pretraining":
        names |= {f"loss_{task}_mlm": "mlm_loss", f"loss_{task}_nsp": "nsp_loss"}
    return names


def decoder(model: Any, task: str) -> Decode | None:
    """Find how a model turns the logits of a task into predictions: by ``decode(task, logits)``."""
    return partial(model.decode, task) if hasattr(model, "decode") else None


def _pad_token_id(model: nn.Module, options: Mapping[str, Any]) -> int:
    tokenizer = options.get("processing_class")
    token = getattr(tokenizer, "pad_token_id", None)
    if token is None:
        token = getattr(getattr(model, "config", None), "pad_token_id", None)
    return token or 0
