"""Metrics of a task, and what stands for all tasks together.

They go through the ``evaluate`` library; ``metric_classes.py`` has them.
"""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import EvalPrediction

from trainers.data.text import MASKED, SCORES, TEXT_TYPES

from .answers import ANSWER_METRICS, QUESTION_ANSWERING
from .embeddings import EMBEDDING_METRICS, embedding_metrics
from .scores import METRIC_SCORES

# The metric that stands for a task in the aggregates.
PRIMARY_METRIC = {
    "classification": "accuracy",
    "paraphrase": "accuracy",
    "similarity": "pearson",
    "contrastive": "accuracy",
    "token_classification": "f1",
    "question_answering": "f1",
    "masked_lm": "mlm_accuracy",
    "next_sentence": "nsp_accuracy",
    "pretraining": "mlm_accuracy",
}
# Problem types without labels, which count in the aggregates only if there are no others.
UNLABELLED = ("contrastive", *TEXT_TYPES)
MLM_METRICS = ("mlm_accuracy", "mlm_loss", "perplexity")
NSP_METRICS = ("nsp_accuracy", "nsp_loss")
METRIC_NAMES = {
    "classification": ("accuracy", "macro_f1"),
    "paraphrase": ("accuracy", "f1", "macro_f1"),
    "similarity": ("pearson", "spearman"),
    "contrastive": EMBEDDING_METRICS,
    "token_classification": ("f1", "precision", "recall", "accuracy"),
    "question_answering": ANSWER_METRICS,
    "masked_lm": MLM_METRICS,
    "next_sentence": NSP_METRICS,
    "pretraining": (*MLM_METRICS, *NSP_METRICS),
}
# What a task may choose beside these to stand for it.
MORE_METRICS = {
    "classification": ("matthews_correlation",),
    "paraphrase": ("matthews_correlation",),
    "similarity": (),
}
AGGREGATES = ("mean", "leaderboard", "glue")

Decode = Callable[[NDArray[Any]], Any]


def metric_names(problem_type: str, metric: Sequence[str] = ()) -> tuple[str, ...]:
    """List the metrics of a task, those that it chose first; the first one stands for it.

    Args:
        problem_type: A key of ``PRIMARY_METRIC``.
        metric: What the task chose; empty for what its problem type has.
    """
    primary = (PRIMARY_METRIC[problem_type],)
    return tuple(dict.fromkeys((*(metric or primary), *METRIC_NAMES[problem_type])))


def headline_metrics(problem_type: str, metric: Sequence[str] = ()) -> tuple[str, ...]:
    """List the metrics that stand for a task: what it chose, or the primary one."""
    return tuple(metric) or (PRIMARY_METRIC[problem_type],)


def check_metric(task: str, problem_type: str, metric: Sequence[str]) -> None:
    """Check the metrics that a task chose.

    Raises:
        ValueError: If the problem type does not have one of them.
    """
    known = METRIC_NAMES[problem_type] if problem_type in MORE_METRICS else ()
    known += MORE_METRICS.get(problem_type, ())
    if unknown := [name for name in metric if name not in known]:
        allowed = f"it has {', '.join(known)}" if known else "its metrics are fixed, leave it out"
        raise ValueError(
            f"task {task!r}: metric={unknown[0]!r} is none of a {problem_type}; {allowed}"
        )


def task_metrics(
    problem_type: str, decode: Decode | None = None, metric: Sequence[str] = ()
) -> Callable[[EvalPrediction], dict[str, float]]:
    """Build the ``compute_metrics`` of a task.

    Args:
        problem_type: A key of ``PRIMARY_METRIC``, but tags and answers, which have their own files.
        decode: How the model turns its logits (N, K) into predictions (N,); None for ``decide``.
        metric: What the task chose beside the metrics of its problem type.

    Returns:
        A function of logits (N, K) and labels (N,) that gives the metrics of ``metric_names``; for
        text of what ``score_text`` says of every row, (N, 5), and of a contrastive task of vectors,
        (N, S, D), which have only a uniformity if S is 1.

    Raises:
        ValueError: If the problem type is unknown, or one of tags or answers.
    """
    _known(problem_type)
    if problem_type in TEXT_TYPES:
        return lambda prediction: text_metrics(problem_type, np.asarray(prediction.predictions))
    if problem_type == "contrastive":
        return lambda prediction: embedding_metrics(np.asarray(prediction.predictions))
    if problem_type == "token_classification":
        raise ValueError("tags are counted in sentences: use trainers.metrics.tagging.tag_metrics")
    if problem_type == QUESTION_ANSWERING:
        raise ValueError(
            "answers are scored with the texts of their windows: use trainers.measure_answers"
        )

    def compute(prediction: EvalPrediction) -> dict[str, float]:
        # Importing it takes memory that a run which only trains can do without. It also draws from
        # Python's random state, which a checkpoint holds, and a resumed run imports it elsewhere.
        state = random.getstate()
        from .metric_classes import METRICS

        random.setstate(state)
        module = METRICS[problem_type](keep_in_memory=True)
        references = np.asarray(prediction.label_ids)
        predictions = decide(problem_type, prediction.predictions, decode)
        values = module.compute(
            predictions=predictions, references=references.astype(predictions.dtype)
        )
        return {name: float(values[name]) for name in metric_names(problem_type, metric)}

    return compute


def text_metrics(problem_type: str, scores: NDArray[Any]) -> dict[str, float]:
    """Sum up what ``score_text`` says of every row, (N, 5).

    Losses are means in nats, of the MLM over all predicted tokens; the perplexity is its exponent.
    """
    sums = dict(zip(SCORES, scores.astype(np.float64).sum(axis=0).tolist(), strict=True))
    targets, rows = max(1.0, sums["mlm_targets"]), max(1, len(scores))
    values = {
        "mlm_accuracy": sums["mlm_correct"] / targets,
        "mlm_loss": sums["mlm_nll"] / targets,
        # a loss of 700 is the most that a float can take the exponent of
        "perplexity": math.exp(min(700.0, sums["mlm_nll"] / targets)),
        "nsp_accuracy": sums["nsp_correct"] / rows,
        "nsp_loss": sums["nsp_nll"] / rows,
    }
    return {name: values[name] for name in METRIC_NAMES[problem_type]}


def decide(problem_type: str, logits: Any, decode: Decode | None = None) -> NDArray[Any]:
    """Turn logits (N, K) into what a metric compares with the labels, (N,).

    What the model says, where it can: the correlation of a score is not that of its logit if a
    sigmoid lies between them. Else a class index, 1 for a paraphrase (logit > 0) and 0 otherwise,
    or the logit as the score.
    """
    values = np.asarray(logits[0] if isinstance(logits, tuple) else logits)
    if decode is not None:
        decoded = np.asarray(decode(values))
        return decoded.astype(np.float64 if problem_type == "similarity" else np.int64)
    if problem_type == "classification":
        return values.argmax(axis=-1)
    if problem_type == "paraphrase":
        return (values[:, 0] > 0).astype(np.int64)
    return values[:, 0].astype(np.float64)


def aggregates(primary: Mapping[str, tuple[str, float | None]]) -> dict[str, float]:
    """Sum up all tasks in one number.

    Args:
        primary: Problem type and value of the primary metric of each task; None if it has none.

    Returns:
        ``mean``, the mean of the values; and ``leaderboard``, the mean after a correlation r in
        [-1, 1] became (r + 1) / 2, as on the leaderboard of Stanford CS 224N's default project.
        Tasks that learn without labels count only if there are no others. Nothing if no task has a
        primary metric.

    Raises:
        ValueError: If there is no task.
    """
    if not primary:
        raise ValueError("no tasks to aggregate; expected at least one")
    known = [(kind, value) for kind, value in primary.values() if value is not None]
    counted = [found for found in known if found[0] not in UNLABELLED] or known
    if not counted:
        return {}
    values = [value for _, value in counted]
    scaled = [(value + 1) / 2 if kind == "similarity" else value for kind, value in counted]
    return {"mean": float(np.mean(values)), "leaderboard": float(np.mean(scaled))}


def glue_score(values: Mapping[str, Sequence[float]]) -> float:
    """Average as the leaderboard of GLUE does: first the numbers of a task, then the tasks.

    Source: Wang et al. 2019, GLUE, section 3.4.

    Args:
        values: The official metrics of each task, on both development sets of MNLI.
    """
    return float(np.mean([np.mean(found) for found in values.values()]))


def standard_error(
    problem_type: str,
    logits: Any,
    labels: Any,
    *,
    decode: Decode | None = None,
    metric: str | None = None,
    resamples: int = 1000,
    seed: int = 0,
) -> float:
    """Estimate the standard error of the primary metric over the choice of the rows.

    Args:
        problem_type: A key of ``PRIMARY_METRIC``.
        logits: Outputs of the model, (N, K); vectors of a contrastive task with pairs, (N, S, D).
        labels: (N,); nothing of tasks without labels.
        decode: As in ``task_metrics``.
        metric: The metric; None for the primary one of the problem type.
        resamples: Bootstrap samples for what is no accuracy.
        seed: Of the bootstrap.

    Returns:
        sqrt(p (1 - p) / N) for an accuracy p, the bootstrap standard error for an F1 or a
        correlation. For an accuracy over the tokens of rows, which are not independent, that of a
        ratio of sums over the rows.

    Raises:
        ValueError: If the problem type is unknown or there are no rows.
    """
    if not len(logits):
        raise ValueError("no rows; a standard error needs at least one")
    if _known(problem_type) in MASKED:
        correct, targets = np.asarray(logits, dtype=np.float64)[:, 1:3].T
        residuals = correct - correct.sum() / targets.sum() * targets
        return float(np.sqrt((residuals**2).sum()) / targets.sum())
    if problem_type in TEXT_TYPES:
        logits, labels, problem_type = logits[:, 4:] - 0.5, np.ones(len(logits)), "paraphrase"
        metric = "accuracy"  # of segments told apart
    if problem_type == "contrastive":
        accuracy = embedding_metrics(np.asarray(logits))["accuracy"]
        return float(np.sqrt(accuracy * (1 - accuracy) / len(logits)))
    predictions = decide(problem_type, logits, decode)
    references = np.asarray(labels)
    name = metric or PRIMARY_METRIC[problem_type]
    if name == "accuracy":
        accuracy = float(np.mean(predictions == references))
        return float(np.sqrt(accuracy * (1 - accuracy) / len(references)))
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(resamples):
        rows = generator.integers(len(references), size=len(references))
        values.append(float(METRIC_SCORES[name](predictions[rows], references[rows])))
    return float(np.nanstd(values))


def _known(problem_type: str) -> str:
    if problem_type not in METRIC_NAMES:
        known = ", ".join(METRIC_NAMES)
        raise ValueError(f"problem_type={problem_type!r}; expected one of {known}")
    return problem_type
