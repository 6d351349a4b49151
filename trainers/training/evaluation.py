"""Predictions and metrics of each task, and of all of them together."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import EvalPrediction, ProgressCallback
from transformers.integrations.integration_utils import get_reporting_integration_callbacks

from modeling_minbert import unknown
from trainers.data.dataset import Rows, TaskDataset, longest_first
from trainers.data.masking import IGNORED_LABEL
from trainers.files import find_inner
from trainers.problems.base import Decode, Problem
from trainers.problems.metrics import aggregates, glue_score
from trainers.task import Task

from .terms import split_loss

ComputeMetrics = Callable[[EvalPrediction], Mapping[str, float]]


class TaskEvaluator:
    """Measures one task after the other, then all together, on decoded predictions if possible."""

    def __init__(
        self,
        tasks: Mapping[str, Task],
        problems: Mapping[str, Problem[Any]],
        model: Any,
        compute_metrics: Mapping[str, ComputeMetrics],
    ) -> None:
        self._counted = {
            name: problem
            for name, problem in problems.items()
            if not tasks[name].training.auxiliary
        }
        self._glue = {name: problems[name] for name, task in tasks.items() if task.in_glue}
        self._decode = getattr(find_inner(model), "decode", None)
        self._compute = compute_metrics

    def decoder(self, task: str) -> Decode | None:
        """Return the function of the model that decodes the logits of a task, if it has one."""
        return None if self._decode is None else partial(self._decode, task)

    def measure(
        self,
        problem: Problem[Any],
        rows: Rows,
        order: NDArray[np.int64],
        prediction: EvalPrediction,
    ) -> dict[str, float]:
        """Compute the metrics of a task from gathered values, whose rows are in ``order``."""
        values = np.asarray(prediction.predictions)
        if problem.joins_rows:
            values = values[np.argsort(order)]
        outputs = problem.collect(values, rows, prediction.label_ids, self.decoder(problem.task))
        metrics = problem.compute_metrics(outputs)
        if problem.task in self._compute:
            function: Any = self._compute[problem.task]
            if hasattr(function, "compute"):  # a module of the library evaluate
                labelled = problem.keep_labelled(outputs)
                own = function.compute(predictions=labelled.predictions, references=labelled.labels)
            else:
                own = function(_sort(prediction, np.argsort(order)))
            metrics = _join(problem.task, metrics, own)
        return metrics

    def aggregate(self, metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
        """Average the headline metrics, ``<prefix><task>_<metric>``, of all but auxiliary tasks."""
        headlines = {
            name: (problem, metrics.get(f"{prefix}{name}_{problem.headline[0]}"))
            for name, problem in self._counted.items()
        }
        return {f"{prefix}{name}": value for name, value in aggregates(headlines).items()}

    def summarize(self, metrics: Mapping[str, float], prefix: str) -> dict[str, float]:
        """Compute the aggregates and, if there are tasks of GLUE, the GLUE score."""
        summary = self.aggregate(metrics, prefix)
        if self._glue:
            values = {
                name: [metrics[f"{prefix}{name}_{metric}"] for metric in problem.headline]
                for name, problem in self._glue.items()
            }
            summary[f"{prefix}glue"] = glue_score(values)
        return summary


def _sort(prediction: EvalPrediction, places: NDArray[np.int64]) -> EvalPrediction:
    """Return values and labels, if there are any, in another order."""
    labels: Any = prediction.label_ids
    values = np.asarray(prediction.predictions)[places]
    if labels is not None:
        labels = labels[places]
    return EvalPrediction(values, labels)


def _join(task: str, metrics: dict[str, float], own: Mapping[str, float]) -> dict[str, float]:
    """Add the metrics of a user's ``compute_metrics`` to those of a task."""
    if not isinstance(own, Mapping):
        raise TypeError(
            f"compute_metrics of task {task!r} returned a {type(own).__name__}; expected a mapping "
            "from names to numbers"
        )
    if both := sorted(metrics.keys() & own.keys()):
        raise ValueError(
            f"compute_metrics of task {task!r} returned {both[0]!r}, which is a metric of the task "
            "already; rename it"
        )
    return metrics | dict(own)


def evaluate_tasks(
    trainer: Any, evaluate: Callable[..., dict[str, float]], given: Any, prefix: str
) -> dict[str, float]:
    """Evaluate every task with its own metrics, then all of them together.

    Args:
        trainer: The trainer.
        evaluate: ``evaluate`` of ``Trainer``.
        given: Encoded, labelled rows by task, or of the only task, of any kind that
            ``Task.from_dataset`` takes.
        prefix: Prefix of every name, such as ``eval``.

    Returns:
        ``<prefix>_<task>_<metric>``, ``<prefix>_mean``, ``<prefix>_leaderboard`` and, if there are
        tasks of GLUE, ``<prefix>_glue``; of some of the tasks only the first.

    Raises:
        ValueError: If ``given`` is not a mapping from known tasks to rows, or these cannot be
            measured.
    """
    rows_by_task = _rows_by_task("evaluate", "evaluation", given, trainer.tasks)
    for task, rows in rows_by_task.items():
        if rows is not trainer.tasks[task].evaluation:
            trainer.problems[task].check(f"the evaluation set of task {task!r}", rows)
    metrics: dict[str, float] = {}
    events = trainer.callback_handler
    with ExitStack() as stack:
        for method in trainer.methods:
            stack.enter_context(method.evaluating())
        with _told_once(events):
            for task, rows in rows_by_task.items():
                for method in trainer.methods if trainer.is_in_train else ():
                    method.before_evaluation(task)
                ordered, order = longest_first(task, rows, trainer.args.length_column_name)
                with _measuring(trainer, task, rows, order):
                    metrics |= evaluate(ordered, metric_key_prefix=f"{prefix}_{task}")
        # a mean of some tasks could be mistaken for that of all
        if len(rows_by_task) == len(trainer.tasks):
            summary = trainer.evaluator.summarize(metrics, f"{prefix}_")
            metrics |= summary
            trainer.log(summary)
        copied = dict(metrics)  # from which the callback for notebooks removes some
        trainer.control = events.on_evaluate(trainer.args, trainer.state, trainer.control, copied)
    return metrics


@contextmanager
def _told_once(handler: Any) -> Iterator[None]:
    """Keep the evaluation of one task from callbacks, which count evaluations of all of them.

    Only progress bars end with every task.
    """

    def on_evaluate(args: Any, state: Any, control: Any, metrics: Any) -> Any:
        for callback in handler.callbacks:
            if isinstance(callback, ProgressCallback):
                callback.on_evaluate(args, state, control, metrics=metrics)
        return control

    handler.on_evaluate = on_evaluate
    try:
        yield
    finally:
        del handler.on_evaluate


def _rows_by_task(name: str, title: str, given: Any, tasks: Mapping[str, Task]) -> dict[str, Rows]:
    """Read the rows of known tasks; rows alone are those of the only task."""
    if not _is_by_task(given, tasks):
        if len(tasks) > 1:
            known = ", ".join(tasks)
            raise ValueError(f"{name}() needs a mapping from task to rows; known tasks: {known}")
        given = dict.fromkeys(tasks, given)
    return {task: tasks[task].read_rows(title, rows) for task, rows in given.items()}


def _is_by_task(given: Any, tasks: Mapping[str, Task]) -> bool:
    return isinstance(given, Mapping) and set(given) <= set(tasks)


@contextmanager
def _measuring(trainer: Any, task: str, rows: Rows, order: NDArray[np.int64]) -> Iterator[None]:
    """Let ``Trainer`` compute the metrics of a task, and leave the random state as it was."""
    trainer.compute_metrics = partial(
        trainer.evaluator.measure, trainer.problems[task], rows, order
    )
    try:
        with torch.random.fork_rng(devices=[]):  # a loader draws a seed when it starts
            yield
    finally:
        trainer.compute_metrics = None


def predict_batch(
    trainer: Any, model: nn.Module, inputs: dict[str, Any]
) -> tuple[Tensor | None, Tensor, Tensor | None]:
    """Compute the loss of a batch, if there is any, and what its problem gathers."""
    rows = inputs.pop("num_rows", None)
    problem = trainer.problems[inputs["task"]]
    inputs = trainer._prepare_inputs(inputs)
    loss: Tensor | None = None
    with torch.no_grad(), trainer.compute_loss_context_manager():
        if problem.has_loss(inputs):
            labelled = hide_duplicates(trainer, problem, inputs)
            # computing the loss removes what the model does not take
            loss, outputs = trainer.compute_loss(model, dict(labelled), return_outputs=True)
            counts = trainer.terms.count_parts(problem.task, {"num_rows": rows, **labelled})
            trainer.evaluated.add(split_loss(problem, loss, outputs), counts)
            loss = loss.detach().mean()
        else:
            left_out = ("labels",) if trainer.takes_task else ("labels", "task")
            outputs = model(**{k: v for k, v in inputs.items() if k not in left_out})
    values, labels = problem.gather(inputs, outputs)
    if loss is None and labels is not None:
        loss = torch.zeros((), device=labels.device)
    return loss, values[:rows], None if labels is None else labels[:rows]


def hide_duplicates(trainer: Any, problem: Problem[Any], inputs: dict[str, Any]) -> dict[str, Any]:
    """Take the labels from the rows that only fill the last batches of several processes.

    The predictions for these rows, which were evaluated before, are left out later. An unlabelled
    row becomes one of padding alone, which the model ignores.
    """
    state = trainer.accelerator.gradient_state
    processes = trainer.accelerator.num_processes
    if processes == 1 or not state.end_of_dataloader or state.remainder <= 0:
        return inputs
    rows = state.active_dataloader.total_batch_size // processes
    real = min(max(state.remainder - trainer.accelerator.process_index * rows, 0), rows)
    names: list[str] = [name for name in ("labels", "next_sentence_label") if name in inputs]
    changed: dict[str, Any] = {}
    model: Any = find_inner(trainer.model)
    for name in names or ["input_ids"]:
        values, offsets = inputs[name], inputs.get("cu_seq_lens_q")
        filler = IGNORED_LABEL if names else model.config.pad_token_id
        if offsets is None or values.shape != inputs["input_ids"].shape:
            is_real = torch.arange(len(values), device=values.device) < real
            is_real = is_real.view(-1, *[1] * (values.dim() - 1))
        else:
            end = offsets[real * getattr(problem.spec, "num_sentences", 1)]
            is_real = torch.arange(values.shape[1], device=values.device) < end
        changed[name] = values.masked_fill(~is_real, filler)
    return {**inputs, **changed} if names else {**inputs, **changed, "num_rows": real}


def predict_rows(
    trainer: Any, predict: Callable[..., Any], given: Any, ignore_keys: Any, prefix: str
) -> Any:
    """Predict the encoded rows of the only task, or of several; see ``predict_in_order``, too.

    Args:
        trainer: The trainer.
        predict: ``predict`` of ``Trainer``.
        given: The rows, or those of some tasks by name; with labels, metrics are computed.
        ignore_keys: Not used.
        prefix: Prefix of the metrics, such as ``test``.

    Returns:
        A ``PredictionOutput`` of transformers; of rows by task a dictionary of them, with the
        prefix ``<prefix>_<task>``.

    Raises:
        ValueError: If there are several tasks, and the rows are not those of known ones.
    """
    if isinstance(given, TaskDataset):
        return predict(given, ignore_keys, prefix)
    outputs = {}
    is_by_task = _is_by_task(given, trainer.tasks)
    for task, rows in _rows_by_task("predict", "test", given, trainer.tasks).items():
        with _measuring(trainer, task, rows, np.arange(len(rows))):
            own_prefix = f"{prefix}_{task}" if is_by_task else prefix
            outputs[task] = predict(TaskDataset({task: rows}), ignore_keys, own_prefix)
    return outputs if is_by_task else next(iter(outputs.values()))


def predict_in_order(trainer: Any, task: str, rows: Rows) -> NDArray[Any]:
    """Predict encoded rows of a task, labelled or not; the random state stays.

    Returns:
        What its problem gathers, in the order of the rows, (N, ...): logits (N, K), or what
        ``Problem.gather`` documents for its type.

    Raises:
        ValueError: If the task is unknown or there are no rows.
    """
    if task not in trainer.tasks:
        raise ValueError(unknown("task", task, trainer.tasks))
    rows = trainer.tasks[task].read_rows("test", rows)
    if not len(rows):
        raise ValueError(f"no rows to predict for task {task!r}")
    ordered, order = longest_first(task, rows, trainer.args.length_column_name)
    with torch.random.fork_rng(devices=[]), _without_trackers(trainer):
        return trainer.predict(ordered).predictions[np.argsort(order)]


@contextmanager
def _without_trackers(trainer: Any) -> Iterator[None]:
    """Leave the services of ``report_to`` out of a prediction.

    They would log its loss as ``test/loss``, without the name of the task, and Trackio, which
    ends its run with the training, would begin another one.
    """
    trackers = tuple(get_reporting_integration_callbacks(trainer.args.report_to))
    handler = trainer.callback_handler
    callbacks = handler.callbacks
    handler.callbacks = [each for each in callbacks if not isinstance(each, trackers)]
    try:
        yield
    finally:
        handler.callbacks = callbacks
