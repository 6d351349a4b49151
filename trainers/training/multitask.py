"""The Trainer for several tasks: order, loss weights and reporting.

The model owns the loss of each task; the Trainer of transformers owns the loop, the optimizer and
the checkpoints.
"""

import logging
import math
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR, LRScheduler
from torch.utils.data import DataLoader
from transformers import TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainers.data.batches import make_collator, make_sampler
from trainers.data.collators import list_batches
from trainers.data.masking import IGNORED_LABEL, Masking
from trainers.data.samplers import TaskBatchSampler
from trainers.data.task_dataset import Rows, TaskDataset, spread
from trainers.data.task_sampling import SamplingArguments, Stop
from trainers.data.tasks import TaskTraining
from trainers.methods.gradient_surgery import Method, check_surgery
from trainers.problems import make_problems

from .acceleration import reused_gradients, static_shapes
from .checks import check_arguments, check_mixed, check_tasks, find_texts
from .evaluation import describe_heads
from .mixed_trainer import MixedStepsTrainer

logger = logging.getLogger(__name__)

# Training rows by which the threshold of a cosine is chosen.
THRESHOLD_ROWS = 2000


class MultiTaskTrainer(MixedStepsTrainer):
    """Train one model on several tasks, one task per step, or all of them.

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
    masked tokens alone encoded rows of single sequences without a format. A ``contrastive`` task
    learns from rows of sentences without labels; its loss compares the rows of each process. Rows
    of a ``token_classification`` have a label for every token, -100 where there is none, and
    ``sentence`` if several of them are windows of one sentence.

    Args:
        model: A model whose ``forward`` takes ``task`` and returns the loss of that task. If it has
            ``decode(task, logits)``, metrics are of what that gives. With one task alone it may be
            a model that does not know tasks.
        args: Arguments of the Trainer.
        train_dataset: Rows of each task, in the order in which they take turns.
        eval_dataset: Rows of the same tasks.
        problem_types: Problem type of each task: classification, paraphrase, similarity,
            contrastive, token_classification, masked_lm, next_sentence or pretraining.
        masking: What chooses the tokens that the tasks masked_lm and pretraining predict, by task.
        task_training: Batch size, loss weight and the like where a task differs from the default.
        stop: When an epoch ends; see ``TaskBatchSampler``.
        sampling: How the task of a step is chosen; None for one after the other.
        max_tokens_per_batch: Tokens per process and step of the tasks that do not say it
            themselves; None takes ``per_device_train_batch_size`` rows.
        gradient_surgery: ``pcgrad`` or ``gradvac``, which make the gradients of the tasks of a
            mixed step get along on what they share (see ``GradientSurgery``); None adds them up.
        exponential_lr_gamma: Multiply the learning rate by this after every epoch, in (0, 1], in
            the place of ``lr_scheduler_type``. Warmup stays.
        metrics: The metrics that stand for a task; see ``TaskEvaluationTrainer``.
        glue_tasks: The tasks of GLUE; see there.
        kwargs: Other arguments of ``MethodsTrainer`` and of ``Trainer``.

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
        stop: Stop = "shortest",
        sampling: SamplingArguments | None = None,
        gradient_surgery: Method | None = None,
        max_tokens_per_batch: int | None = None,
        exponential_lr_gamma: float | None = None,
        masking: Mapping[str, Masking] | None = None,
        metrics: Mapping[str, Sequence[str]] | None = None,
        glue_tasks: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        given = {"training": train_dataset, "evaluation": eval_dataset}
        problems = make_problems(problem_types, describe_heads(model), metrics)
        check_tasks(problems, given, task_training or {})
        check_arguments(args, problems, glue_tasks)
        sampling = sampling or SamplingArguments()
        if sampling.task_sampling == "mixed":
            check_mixed(args)
        check_surgery(gradient_surgery, sampling, args)
        if exponential_lr_gamma is not None and not 0 < exponential_lr_gamma <= 1:
            raise ValueError(f"exponential_lr_gamma={exponential_lr_gamma!r}; expected in (0, 1]")
        self._knows_tasks = "task" in signature(model.forward).parameters
        if args.ddp_find_unused_parameters is None and self._knows_tasks:
            # only one head has a gradient at a step, also with activation checkpointing, for which
            # the Trainer would turn this off
            args.ddp_find_unused_parameters = True
        args.restore_callback_states_from_checkpoint = True
        texts = find_texts(problems, masking or {})
        self.task_training = {
            task: (task_training or {}).get(task, TaskTraining()) for task in problem_types
        }
        self.exponential_lr_gamma = exponential_lr_gamma
        self._rows_by_task = dict(train_dataset or {})
        self._train_rows = None if train_dataset is None else TaskDataset(train_dataset)
        self.train_sampler: TaskBatchSampler | None = None
        if train_dataset is not None and self._train_rows is not None:
            # before the Trainer makes the output folder, for a sampler that is refused
            self.train_sampler = make_sampler(
                train_dataset, args, self.task_training, stop, max_tokens_per_batch, texts, sampling
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
            problem_types=problem_types,
            metrics=metrics,
            glue_tasks=glue_tasks,
            gradient_surgery=gradient_surgery,
            train_dataset=self._train_rows,
            eval_dataset=eval_dataset,
            **kwargs,
        )
        self.model_accepts_loss_kwargs = False
        if callable(gather_rows := getattr(model, "gather_rows", None)):
            gather_rows()
        self._without_threshold = [
            task for task, problem in self.problems.items() if problem.needs_threshold_fit
        ]
        names = [name for task in problem_types for name in self._logged(task)]
        self._loss_sums = dict.fromkeys(names, torch.zeros((), device=self.args.device))
        self._loss_counts = dict.fromkeys(problem_types, 0)
        self._flops_of_token: int | None = None
        self._targets: dict[str, Tensor] = {}

    # Data

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Load the batches that ``train_sampler`` chooses."""
        if self._train_rows is None or self.train_sampler is None:
            raise ValueError("training needs a train_dataset; this trainer was built without one")
        loader = DataLoader(
            self._train_rows, batch_sampler=self.train_sampler, **self._loader_options()
        )
        return self.accelerator.prepare(loader)

    # Training

    def describe_training(self) -> str:
        """Show the exact share of every task in an epoch, and rates by layer, as tables."""
        shares = self.train_sampler.describe() if self.train_sampler is not None else "no training"
        return "\n\n".join(filter(None, (shares, self.describe_learning_rates())))

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, and choose the thresholds of the weights that are left; see ``Trainer.train``."""
        with reused_gradients(self), static_shapes(self.args, len(self.problem_types)):
            found = super().train(*args, **kwargs)
        self._targets = {}
        self.is_in_train = True  # else bf16_full_eval would cast the weights, which are saved next
        try:
            for task in self._without_threshold:
                self._fit_threshold(task)
        finally:
            self.is_in_train = False
        return found

    def _evaluate_task(self, task: str, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate a task; in training by the threshold of the weights of now."""
        if self.is_in_train and task in self._without_threshold:
            self._fit_threshold(task)
        return super()._evaluate_task(task, *args, **kwargs)

    def _fit_threshold(self, task: str) -> None:
        """Choose above which cosine a pair is a paraphrase, by training rows of the task."""
        rows: Any = spread(self._rows_by_task[task], THRESHOLD_ROWS)
        model: Any = self.accelerator.unwrap_model(self.model)
        logits, labels = self.predict_task(task, rows), np.asarray(rows["labels"])
        threshold = model.fit_threshold(task, logits, labels)
        logger.info("%s: a cosine above %.3f is a paraphrase", task, threshold)

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
        if model.training and task in self._targets:
            inputs["num_items_in_batch"] = self._targets[task]
        compute: Any = partial(super().compute_loss, model, inputs, True, num_items_in_batch)
        if not model.training:
            return compute() if return_outputs else compute()[0]
        found = self.regularize(compute, task, inputs)
        self._loss_counts[task] += 1
        told = {name: found.outputs[key] for name, key in self._part_losses(task).items()}
        told |= {f"loss_{task}": found.plain}
        told |= {f"{name}_{task}": fact for name, fact in found.facts.items()}
        for name, value in told.items():
            self._loss_sums[name] = self._loss_sums[name] + value.detach().mean()
        loss = found.loss * self.task_training[task].loss_weight
        return (loss, found.outputs) if return_outputs else loss

    def regularizes(self, task: str) -> bool:
        """Tell whether the outputs of a task can be compared, and are to be."""
        return super().regularizes(task) and self.task_training[task].regularize

    def _logged(self, task: str) -> list[str]:
        """Name what is logged of the steps of a task."""
        facts = [f"{name}_{task}" for name in self.regularizer_names(task)]
        return [f"loss_{task}", *self._part_losses(task), *facts]

    def _part_losses(self, task: str) -> dict[str, str]:
        """Name the logged parts of a loss, and the outputs of the model that have them."""
        parts = self.problems[task].part_losses
        return {f"loss_{task}_{part}": output for part, output in parts.items()}

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Take the batches of a step of the optimizer, and count the tokens that it predicts."""
        samples, number = super().get_batch_samples(*args, **kwargs)
        self._targets = self._mean_targets(samples)
        return samples, number

    def _mean_targets(self, samples: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        """Count the predicted tokens of each task of tokens, by batch and rank.

        Batches and ranks have different numbers of them: the mean of their means is not that over
        all tokens of the step. Nothing is counted where there is one batch alone, nor where one
        process has several GPUs: DataParallel cannot deal out a number.
        """
        if len(samples) * self.args.world_size == 1 or self.args.n_gpu > 1:
            return {}
        counts: dict[str, list[Tensor]] = {}
        for batch in (batch for inputs in samples for batch in list_batches(inputs)):
            if self.problems[batch["task"]].predicts_tokens:
                count = (batch["labels"] != IGNORED_LABEL).sum().float()
                counts.setdefault(batch["task"], []).append(count.to(self.args.device))
        if not counts:
            return {}
        means = torch.stack([torch.stack(found).mean() for found in counts.values()])
        means = self.accelerator.reduce(means, reduction="mean").clamp(min=1)
        return dict(zip(counts, means, strict=True))

    def floating_point_ops(self, inputs: dict[str, Any]) -> int:
        """Count as the Trainer does, but the parameters only once, not at every step."""
        batches = [batch for batch in list_batches(inputs) if "input_ids" in batch]
        tokens = sum(batch["input_ids"].numel() for batch in batches)
        if not tokens:
            return super().floating_point_ops(inputs)
        if self._flops_of_token is None:
            first = batches[0]
            count = first["input_ids"].numel()
            self._flops_of_token = super().floating_point_ops(first) // count
        return tokens * self._flops_of_token

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Add ``loss_<task>``, the mean over ranks and steps since the last log of the loss."""
        if "loss" in logs:
            sums = torch.stack(list(self._loss_sums.values()))
            totals = self.accelerator.reduce(sums, reduction="mean").tolist()
            found = dict(zip(self._loss_sums, totals, strict=True))
            for task in self.problem_types:
                for name in self._logged(task) if self._loss_counts[task] else ():
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


def _pad_token_id(model: nn.Module, options: Mapping[str, Any]) -> int:
    tokenizer = options.get("processing_class")
    token = getattr(tokenizer, "pad_token_id", None)
    if token is None:
        token = getattr(getattr(model, "config", None), "pad_token_id", None)
    return token or 0
