"""Evaluation and prediction of several tasks, each with its own metrics."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import EvalPrediction, Trainer, TrainingArguments

from trainers.data.collators import collate_rows
from trainers.data.task_dataset import Rows, longest_first
from trainers.data.tasks import TaskTraining
from trainers.problems import make_problems
from trainers.problems.aggregates import aggregates, glue_score
from trainers.problems.problem import Decode, Problem

from .acceleration import static_shapes


class TaskEvaluationTrainer(Trainer):
    """A trainer that evaluates one task after the other, then all of them together.

    Evaluation leaves the random state unchanged.

    Args:
        model: If it has ``decode(task, logits)``, metrics use the decoded predictions.
        args: Arguments of the Trainer.
        problem_types: Problem type of each task.
        eval_dataset: Rows of the same tasks.
        metrics: Headline metrics of tasks that do not use the default of their problem type; the
            first one counts in means over tasks.
        glue_tasks: The tasks of GLUE, of which a score is computed.
        kwargs: Other arguments of ``Trainer``.
    """

    # set by the subclass that trains
    task_training: dict[str, TaskTraining]
    _knows_tasks: bool

    def __init__(
        self,
        model: nn.Module,
        args: TrainingArguments,
        *,
        problem_types: Mapping[str, str],
        eval_dataset: Mapping[str, Rows] | None = None,
        metrics: Mapping[str, Sequence[str]] | None = None,
        glue_tasks: Collection[str] = (),
        **kwargs: Any,
    ) -> None:
        self.problem_types = dict(problem_types)
        self.metrics = {task: tuple(names) for task, names in (metrics or {}).items()}
        self.glue_tasks = tuple(glue_tasks)
        self.problems = make_problems(problem_types, describe_heads(model), self.metrics)
        self._decode = getattr(model, "decode", None)
        super().__init__(
            model=model,
            args=args,
            eval_dataset=None if eval_dataset is None else dict(eval_dataset),
            **kwargs,
        )
        if args.label_names is None:
            # the default is the union of the labels of all tasks of the model
            self.label_names = ["labels"]

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader[Any]:
        """Load the rows of a ``TaskDataset`` in order."""
        options = self._loader_options() | {"persistent_workers": False}
        loader = DataLoader(eval_dataset, batch_size=self.args.eval_batch_size, **options)
        return self.accelerator.prepare(loader)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader[Any]:
        """Load the rows of a ``TaskDataset`` in order."""
        return self.get_eval_dataloader(test_dataset)

    def _loader_options(self) -> dict[str, Any]:
        args = self.args
        return {
            "collate_fn": partial(collate_rows, self.data_collator),
            "num_workers": args.dataloader_num_workers,
            # without an accelerator pinning only warns
            "pin_memory": args.dataloader_pin_memory and torch.accelerator.is_available(),
            "prefetch_factor": args.dataloader_prefetch_factor,
            "persistent_workers": args.dataloader_persistent_workers,
        }

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Evaluate every task with its own metrics, then all of them together.

        Args:
            eval_dataset: Encoded, labelled rows of each task; None uses those of the trainer.
            ignore_keys: As in ``Trainer.evaluate``; not used.
            metric_key_prefix: Prefix of every name.

        Returns:
            ``<prefix>_<task>_<metric>`` for all tasks, ``<prefix>_mean``, ``<prefix>_leaderboard``
            and, if there are tasks of GLUE, ``<prefix>_glue``.

        Raises:
            ValueError: If ``eval_dataset`` is not a mapping from known tasks to rows.
        """
        tasks = self.eval_dataset if eval_dataset is None else eval_dataset
        if not isinstance(tasks, Mapping) or not set(tasks) <= set(self.problems):
            raise ValueError(
                "evaluate() needs a mapping from task to dataset; known tasks: "
                f"{', '.join(self.problems)}"
            )
        metrics: dict[str, float] = {}
        for task, dataset in tasks.items():
            prefix = f"{metric_key_prefix}_{task}"
            metrics |= self._evaluate_task(task, dataset, ignore_keys, prefix)
        if len(tasks) < len(self.problems):
            return metrics  # a mean of some tasks could be mistaken for that of all
        summary = self.aggregate(tasks, metrics, f"{metric_key_prefix}_")
        if self.glue_tasks:
            values = {
                task: [
                    metrics[f"{metric_key_prefix}_{task}_{name}"]
                    for name in self.problems[task].headline
                ]
                for task in self.glue_tasks
            }
            summary[f"{metric_key_prefix}_glue"] = glue_score(values)
        metrics |= summary
        self.log(summary)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def aggregate(
        self, tasks: Iterable[str], metrics: Mapping[str, float], prefix: str = ""
    ) -> dict[str, float]:
        """Average the headline metrics of all tasks but the auxiliary ones.

        Args:
            tasks: All tasks.
            metrics: ``<prefix><task>_<metric>``.
            prefix: Prefix of every name, here and in the result.
        """
        counted = [self.problems[task] for task in tasks if not self.task_training[task].auxiliary]
        headlines = {
            problem.task: (problem, metrics.get(f"{prefix}{problem.task}_{problem.headline[0]}"))
            for problem in counted
        }
        return {f"{prefix}{name}": value for name, value in aggregates(headlines).items()}

    def decoder(self, task: str) -> Decode | None:
        """Return the function of the model that decodes the logits of a task, if it has one."""
        return None if self._decode is None else partial(self._decode, task)

    def _evaluate_task(
        self, task: str, dataset: Rows, ignore_keys: list[str] | None, prefix: str
    ) -> dict[str, float]:
        """Evaluate one task; the random state stays."""
        rows, order = longest_first(task, dataset, self.args.length_column_name)
        self.compute_metrics = partial(self._measure, self.problems[task], dataset, order)
        try:
            with torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
                return super().evaluate(rows, ignore_keys, prefix)
        finally:
            self.compute_metrics = None

    def _measure(
        self,
        problem: Problem[Any],
        rows: Rows,
        order: NDArray[np.int64],
        prediction: EvalPrediction,
    ) -> dict[str, float]:
        """Compute the metrics of gathered values, which are ordered by length."""
        values = np.asarray(prediction.predictions)
        if problem.joins_rows:
            values = _restore(values, order)
        outputs = problem.collect(values, rows, prediction.label_ids, self.decoder(problem.task))
        return problem.compute_metrics(outputs)

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Compute outputs and metrics; see ``Trainer.evaluation_loop``."""
        with static_shapes(self.args, len(self.problems)):
            return super().evaluation_loop(*args, **kwargs)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,  # noqa: ARG002  refused by `check_arguments`
        ignore_keys: list[str] | None = None,  # noqa: ARG002  the problem selects outputs by name
    ) -> tuple[Any, Any, Any]:
        """Compute what the problem of a batch gathers; filler rows are removed."""
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
                outputs = model(**self._without_labels(inputs))
        values, labels = problem.gather(inputs, outputs)
        if loss is None and labels is not None:
            loss = torch.zeros((), device=labels.device)
        if rows is None:
            return loss, values, labels
        return loss, values[:rows], None if labels is None else labels[:rows]

    def _without_labels(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Remove the labels, and the task for a model that has no tasks."""
        left_out = ("labels",) if self._knows_tasks else ("labels", "task")
        return {name: value for name, value in inputs.items() if name not in left_out}

    def predict_task(self, task: str, dataset: Rows) -> NDArray[Any]:
        """Predict the rows of a task.

        Args:
            task: Its name.
            dataset: Encoded rows, labelled or not.

        Returns:
            What its problem gathers, in the order of the rows, (N, ...): logits (N, K), or what
            ``Problem.gather`` documents for its type.

        Raises:
            ValueError: If the task is unknown or there are no rows.
        """
        if task not in self.problems:
            raise ValueError(f"unknown task {task!r}; known tasks: {', '.join(self.problems)}")
        if not len(dataset):
            raise ValueError(f"no rows to predict for task {task!r}")
        rows, order = longest_first(task, dataset, self.args.length_column_name)
        with torch.random.fork_rng(devices=[]):
            return _restore(self.predict(rows).predictions, order)


def _restore(values: Any, order: NDArray[np.int64]) -> NDArray[Any]:
    """Return the values of rows that were ordered by length in the order of the rows."""
    restored = np.empty_like(values)
    restored[order] = values
    return restored


def describe_heads(model: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the descriptions of the heads of a model, by task."""
    return getattr(getattr(model, "config", None), "tasks", None) or {}
