"""Evaluation and prediction of several tasks, each with its own metrics."""

from collections.abc import Collection, Mapping, Sequence
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
from trainers.data.text import TEXT_TYPES, find_output, score_text
from trainers.metrics.answers import (
    QUESTION_ANSWERING,
    AnswerSearch,
    answer_questions,
    measure_answers,
    score_windows,
)
from trainers.metrics.tagging import (
    UNKNOWN_LABEL,
    find_names,
    join_rows_of_words,
    tag_metrics,
    tags_by_row,
)
from trainers.metrics.task_metrics import (
    UNLABELLED,
    Decode,
    aggregates,
    check_metric,
    glue_score,
    headline_metrics,
    task_metrics,
)

from .acceleration import static_shapes


class TaskEvaluationTrainer(Trainer):
    """The part of a trainer that evaluates: one task after the other, then all of them together.

    Evaluation leaves the random state as it was.

    Args:
        model: If it has ``decode(task, logits)``, metrics are of what that gives.
        args: Arguments of the Trainer.
        problem_types: Problem type of each task.
        eval_dataset: Rows of the same tasks.
        metrics: The metrics that stand for a task, the first one in means over tasks, where they
            are not the primary one of its problem type.
        glue_tasks: The tasks of GLUE, of which there will be a score.
        answer_search: How the answers of question_answering tasks are chosen; the default is that
            of SQuAD 1.1.
        kwargs: Other arguments of ``Trainer``.
    """

    # whoever trains sets these
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
        answer_search: Mapping[str, AnswerSearch] | None = None,
        **kwargs: Any,
    ) -> None:
        self.problem_types = dict(problem_types)
        self.metrics = {task: tuple(names) for task, names in (metrics or {}).items()}
        self.glue_tasks = tuple(glue_tasks)
        for task, names in self.metrics.items():
            check_metric(task, self.problem_types[task], names)
        self.answer_search = {
            task: (answer_search or {}).get(task, AnswerSearch())
            for task, kind in problem_types.items()
            if kind == QUESTION_ANSWERING
        }
        self._metrics = {
            task: task_metrics(
                kind,
                None if kind in TEXT_TYPES else decoder(model, task),
                self.metrics.get(task, ()),
            )
            for task, kind in problem_types.items()
            if kind not in ("token_classification", QUESTION_ANSWERING)
        }
        super().__init__(
            model=model,
            args=args,
            eval_dataset=None if eval_dataset is None else dict(eval_dataset),
            **kwargs,
        )
        if args.label_names is None:
            # the Trainer would wait for all labels that some task of the model takes
            self.label_names = ["labels"]

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
        return {
            "collate_fn": partial(collate_rows, self.data_collator),
            "num_workers": args.dataloader_num_workers,
            # without an accelerator pinning does nothing but warn
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
            eval_dataset: Encoded, labelled rows of each task; None takes those of the trainer.
            ignore_keys: Outputs of the model that are no predictions.
            metric_key_prefix: Begins every name.

        Returns:
            ``<prefix>_<task>_<metric>`` for all tasks, ``<prefix>_mean``, ``<prefix>_leaderboard``
            and, if there are tasks of GLUE, ``<prefix>_glue``.

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
            if not self.task_training[task].auxiliary:
                kind = self.problem_types[task]
                primary[task] = (kind, metrics.get(f"{prefix}_{self.headline(task)[0]}"))
        if len(tasks) < len(self.problem_types):
            return metrics  # a mean of some tasks would pass for that of all
        found = aggregates(primary)
        if self.glue_tasks:
            keys = {
                task: [f"{metric_key_prefix}_{task}_{name}" for name in self.headline(task)]
                for task in self.glue_tasks
            }
            found["glue"] = glue_score(
                {task: [metrics[key] for key in names] for task, names in keys.items()}
            )
        summary = {f"{metric_key_prefix}_{name}": value for name, value in found.items()}
        metrics |= summary
        self.log(summary)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def headline(self, task: str) -> tuple[str, ...]:
        """List the metrics that stand for a task."""
        return headline_metrics(self.problem_types[task], self.metrics.get(task, ()))

    def _evaluate_task(
        self, task: str, dataset: Rows, ignore_keys: list[str] | None, prefix: str
    ) -> dict[str, float]:
        """Evaluate one task; the random state afterwards is the one before."""
        rows, order = longest_first(task, dataset, self.args.length_column_name)
        kind = self.problem_types[task]
        if kind == "token_classification":
            self.compute_metrics = partial(self._measure_tags, task, dataset, order)
        elif kind == QUESTION_ANSWERING:
            self.compute_metrics = partial(self._measure_answers, task, dataset, order)
        else:
            self.compute_metrics = self._metrics[task]
        try:
            with torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
                return super().evaluate(rows, ignore_keys, prefix)
        finally:
            self.compute_metrics = None

    def _measure_tags(
        self, task: str, dataset: Rows, order: NDArray[np.int64], prediction: Any
    ) -> dict[str, float]:
        """Measure the tags of sentences, which are put together again from their rows."""
        tags = _restore(prediction.predictions, order)
        names = find_names(self.accelerator.unwrap_model(self.model), task)
        return tag_metrics(join_rows_of_words(tags, dataset), names)

    def _measure_answers(
        self, task: str, windows: Any, order: NDArray[np.int64], prediction: EvalPrediction
    ) -> dict[str, float]:
        """Score the answers of windows whose places come in another order."""
        search = self.answer_search[task]
        places = _restore(np.asarray(prediction.predictions), order)
        return measure_answers(windows, answer_questions(windows, places, search), search)[0]

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
        if kind in UNLABELLED or kind == QUESTION_ANSWERING:
            step: Any = self._score_step(model, inputs, kind)
        elif kind == "token_classification":
            step = self._tag_step(model, inputs)
        else:
            # with labels the loss is computed, which takes the name of the task out by itself
            inputs = inputs if "labels" in inputs else self._of_model(inputs)
            step = super().prediction_step(model, inputs, prediction_loss_only, ignore_keys)
        loss, logits, labels = step
        if rows is None:
            return loss, logits, labels
        logits = logits[0] if isinstance(logits, tuple) else logits
        return loss, logits[:rows], None if labels is None else labels[:rows]

    def _of_model(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Leave the name of the task out for a model that does not know tasks."""
        if self._knows_tasks:
            return inputs
        return {name: value for name, value in inputs.items() if name != "task"}

    def _score_step(
        self, model: nn.Module, inputs: dict[str, Any], kind: str
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Compute the loss of a batch without labels, its logits, and labels that say nothing.

        The Trainer computes no metrics without labels. In the place of logits of text there are the
        scores of its rows, for which they are enough, and of windows what can become an answer.
        """
        inputs = self._prepare_inputs(inputs)
        if kind == QUESTION_ANSWERING:
            return self._answer_step(model, inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
        if kind in TEXT_TYPES:
            scores = score_text(kind, inputs, outputs)
        else:
            scores = find_output(outputs, "logits").detach()
        return loss.detach().mean(), scores, torch.zeros(len(scores), device=scores.device)

    def _tag_step(self, model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the loss of a batch, and what is predicted for the words of each row.

        Without a known tag there is no loss; it is given as 0.
        """
        inputs = self._prepare_inputs(inputs)
        labels = inputs["labels"]
        is_known = not bool((labels == UNKNOWN_LABEL).any())
        if not is_known:
            inputs = {name: value for name, value in inputs.items() if name != "labels"}
        with torch.no_grad(), self.compute_loss_context_manager():
            if is_known:
                loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
            else:
                loss, outputs = (
                    torch.zeros((), device=labels.device),
                    model(**self._of_model(inputs)),
                )
        logits = find_output(outputs, "logits").detach()
        tags, given = tags_by_row(logits, labels, inputs.get("cu_seq_lens_q"))
        return loss.detach().mean(), tags, given

    def _answer_step(
        self, model: nn.Module, inputs: dict[str, Any]
    ) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Compute the loss of windows, if they are labelled, and what can become an answer."""
        with torch.no_grad(), self.compute_loss_context_manager():
            if "labels" not in inputs:
                return None, score_windows(inputs, model(**self._of_model(inputs))), None
            labels = inputs["labels"]
            loss, outputs = self.compute_loss(model, dict(inputs), return_outputs=True)
        return loss.detach().mean(), score_windows(inputs, outputs), labels

    def predict_task(self, task: str, dataset: Rows) -> NDArray[np.float32]:
        """Compute the logits of a task.

        Args:
            task: Its name.
            dataset: Encoded rows, labelled or not.

        Returns:
            Logits in the order of the rows, (N, K); for text what ``score_text`` says of each, for
            a contrastive task vectors, (N, S, D), for a token_classification the ids of the tags,
            (N, words), filled with -100, and of windows what ``keep_places`` keeps.

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
        return _restore(logits, order)


def _restore(values: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Put values of rows that were ordered by length into the order of the rows."""
    ordered = np.empty_like(values)
    ordered[order] = values
    return ordered


def decoder(model: Any, task: str) -> Decode | None:
    """Find how a model turns the logits of a task into predictions: by ``decode(task, logits)``."""
    return partial(model.decode, task) if hasattr(model, "decode") else None
