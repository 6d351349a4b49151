"""What is refused before training starts."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from transformers import TrainingArguments

from trainers.data.masking import Masking
from trainers.data.rows import FlatRows, TextSource, has_token_labels
from trainers.data.task_dataset import Rows
from trainers.data.tasks import TaskTraining
from trainers.data.text import MASKED, PAIRED, TEXT_TYPES, TextTask
from trainers.metrics.tagging import UNKNOWN_LABEL
from trainers.metrics.task_metrics import AGGREGATES, METRIC_NAMES, UNLABELLED, metric_names


def check_tasks(
    problem_types: Mapping[str, str],
    given: Mapping[str, Mapping[str, Rows] | None],
    task_training: Mapping[str, TaskTraining],
) -> None:
    """Check that all mappings name the same tasks and that each task has labelled rows.

    Args:
        problem_types: Problem type of each task.
        given: Data of each task by what it is for; None where there is none.
        task_training: Settings of some tasks.

    Raises:
        ValueError: If names do not match, or a data set is empty or has no labels.
    """
    known = ", ".join(problem_types)
    for what, tasks in given.items():
        if tasks is None:
            continue
        if set(tasks) != set(problem_types):
            raise ValueError(f"{what} data is for {', '.join(tasks)}; expected the tasks {known}")
        for task, rows in tasks.items():
            _check_rows(what, task, problem_types[task], rows)
    if unknown := sorted(set(task_training) - set(problem_types)):
        raise ValueError(f"task_training names {', '.join(unknown)}; known tasks: {known}")
    helpers = {task for task, training in task_training.items() if training.auxiliary}
    if helpers >= set(problem_types):
        raise ValueError(f"auxiliary: all tasks are ({known}); leave it out of those that count")


def _check_rows(what: str, task: str, kind: str, rows: Rows) -> None:
    where = f"the {what} set of task {task!r}"
    if not len(rows):
        raise ValueError(f"{where} is empty; give it rows")
    if kind not in UNLABELLED:
        if not has_labels(rows):
            raise ValueError(f"{where} has no labels")
        if kind == "token_classification":
            _check_tags(where, rows)
    elif kind == "contrastive":
        _check_sentences(where, rows)
    elif not isinstance(rows, TextSource):
        _check_maskable(where, kind, rows)


def _check_tags(where: str, rows: Rows) -> None:
    """Check that rows have a label for every token."""
    if isinstance(rows, TextSource) or not has_token_labels(rows) or FlatRows.read(rows) is None:
        raise ValueError(
            f"{where} is of a token_classification: labels must be a list with a number for every "
            "token, -100 for those without one, of a dataset without a format or transform (see "
            "with_format(None))"
        )


def _check_sentences(where: str, rows: Rows) -> None:
    """Check that rows have sentences of their own, and no labels, which the model would refuse."""
    flat = FlatRows.read(rows) if not isinstance(rows, TextSource) else None
    if isinstance(rows, TextSource) or (flat is not None and not flat.is_separate):
        raise ValueError(
            f"{where} is of a contrastive task: input_ids and token_type_ids must have a list for "
            "every sentence of a row"
        )
    if has_labels(rows):
        raise ValueError(
            f"{where} has labels, but a contrastive task learns without them; remove the column"
        )


def _check_maskable(where: str, kind: str, rows: Rows) -> None:
    if kind in PAIRED:
        raise ValueError(
            f"{where} has no segment pairs; problem_type {kind!r} learns from a text source, whose "
            "rows are pairs"
        )
    flat = FlatRows.read(rows)
    if flat is None or flat.is_separate:
        raise ValueError(
            f"{where} cannot be masked: masks need rows with input_ids and token_type_ids, one "
            "sequence each, of a dataset without a format or transform (see with_format(None))"
        )


def check_labels(
    problem_types: Mapping[str, str],
    given: Mapping[str, Mapping[str, Rows] | None],
    described: Mapping[str, Mapping[str, Any]],
) -> None:
    """Check that numbers are in the range of their task, where a loss would take any for one.

    Args:
        problem_types: Problem type of each task.
        given: Data of each task by what it is for; None where there is none.
        described: The tasks of the model's configuration.

    Raises:
        ValueError: If a label is out of range.
    """
    for what, tasks in given.items():
        for task, rows in (tasks or {}).items():
            allowed = _label_range(problem_types[task], described.get(task, {}))
            if allowed is None or isinstance(rows, TextSource) or rows.format["type"] is not None:
                continue
            labels = np.asarray(rows["labels"][:], dtype=float)
            fits = (labels >= allowed[0]) & (labels <= allowed[1]) | (labels == -100)
            if not fits.all():
                row = int(np.flatnonzero(~fits)[0])
                raise ValueError(
                    f"the {what} set of task {task!r}, row {row}: the label {labels[row]:g} is out "
                    f"of range; allowed are {allowed[0]:g} to {allowed[1]:g}, and -100 for none"
                )


def _label_range(kind: str, described: Mapping[str, Any]) -> tuple[float, float] | None:
    """Find the least and the largest label; None if there are none, or nobody says it."""
    if kind == "paraphrase":
        return 0, 1
    if kind == "similarity" and described.get("score_range"):
        low, high = described["score_range"]
        return low, high
    if kind == "classification" and described.get("labels"):
        return 0, len(described["labels"]) - 1
    return None


def has_labels(rows: Rows) -> bool:
    """Tell whether rows have labels, and of words more than that nobody knows them."""
    if isinstance(rows, TextSource) or "labels" not in rows.column_names:
        return False
    return not has_token_labels(rows) or UNKNOWN_LABEL not in rows[0]["labels"]


def find_texts(
    problem_types: Mapping[str, str], masking: Mapping[str, Masking]
) -> dict[str, TextTask]:
    """List the tasks that learn from text without labels.

    Args:
        problem_types: Problem type of each task.
        masking: What chooses the tokens to be predicted, by task.

    Raises:
        ValueError: If a task needs masks, but there is nothing that draws them.
    """
    texts = {}
    for position, (task, kind) in enumerate(problem_types.items()):
        if kind in MASKED and task not in masking:
            raise ValueError(
                f"task {task!r} of problem_type {kind!r} predicts masked tokens: give "
                f"masking={{{task!r}: Masking.from_tokenizer(tokenizer)}}"
            )
        if kind in TEXT_TYPES:
            texts[task] = TextTask(kind, masking[task] if kind in MASKED else None, position)
    return texts


def check_arguments(
    args: TrainingArguments,
    problem_types: Mapping[str, str],
    metrics: Mapping[str, Sequence[str]] | None = None,
    glue_tasks: Collection[str] = (),
    single: Collection[str] = (),
) -> None:
    """Refuse arguments that would be ignored or would go wrong.

    Args:
        args: Arguments of the Trainer.
        problem_types: Problem type of each task.
        metrics: The metrics that stand for a task, where they are not those of its problem type.
        glue_tasks: The tasks of GLUE.
        single: Contrastive tasks whose rows are one sentence: of these only the uniformity and the
            loss are measured, which stand for nothing.

    Raises:
        ValueError: If an argument does not go with several tasks.
    """
    refused = {
        "train_sampling_strategy": args.train_sampling_strategy
        not in ("random", "group_by_length"),
        "label_smoothing_factor": args.label_smoothing_factor != 0,
        "auto_find_batch_size": args.auto_find_batch_size,
        "batch_eval_metrics": args.batch_eval_metrics,
        "prediction_loss_only": args.prediction_loss_only,
        # its noise is scaled by the length of the padded row
        "neftune_noise_alpha": args.neftune_noise_alpha is not None,
    }
    for name, is_refused in refused.items():
        if is_refused:
            raise ValueError(
                f"{name}={getattr(args, name)!r} is not supported with several tasks; leave it out"
                + (" or use 'random' or 'group_by_length'" if "strategy" in name else "")
            )
    if args.torch_compile_mode == "reduce-overhead" and args.gradient_accumulation_steps > 1:
        raise ValueError(
            "torch_compile_mode='reduce-overhead' replays CUDA graphs, whose gradients do not "
            "outlive a step: use it with gradient_accumulation_steps=1"
        )
    config: Any = args.accelerator_config
    if config.split_batches or config.dispatch_batches:
        raise ValueError(
            "accelerator_config: split_batches and dispatch_batches would mix tasks; leave them out"
        )
    known = _list_metrics(problem_types, metrics or {}, glue_tasks, single)
    best = args.metric_for_best_model
    if best is not None and best.removeprefix("eval_") not in known:
        raise ValueError(f"metric_for_best_model={best!r}; expected one of {', '.join(known)}")
    worse = tuple(f"_{name}" for name in ("perplexity", "alignment", "uniformity"))
    if best is not None and best.endswith(worse) and args.greater_is_better:
        name = best.rsplit("_", 1)[1]
        other = ", or take the mlm_loss, its logarithm" if name == "perplexity" else ""
        raise ValueError(
            f"metric_for_best_model={best!r}: a lower {name} is better; add "
            f"greater_is_better: false{other}"
        )


def _list_metrics(
    problem_types: Mapping[str, str],
    metrics: Mapping[str, Sequence[str]],
    glue_tasks: Collection[str],
    single: Collection[str],
) -> list[str]:
    """List what an evaluation reports; see `check_arguments`."""
    known = [name for name in AGGREGATES if name != "glue" or glue_tasks]
    if set(problem_types) <= set(single):
        known = []
    for task, kind in problem_types.items():
        names = metric_names(kind, metrics.get(task, ())) if kind in METRIC_NAMES else ()
        names = names[-1:] if task in single else names
        known += [f"{task}_{name}" for name in (*names, "loss")]
    return known


def check_mixed(args: TrainingArguments) -> None:
    """Refuse what does not outlive several backward passes before an optimizer step.

    Args:
        args: Arguments of the Trainer.

    Raises:
        ValueError: If an argument is such a one.
    """
    optimizer = str(getattr(args.optim, "value", args.optim))
    problems = {
        f"optim={optimizer!r}, which steps within the backward pass": steps_in_backward(args),
        "torch_compile_mode='reduce-overhead', whose gradients do not outlive a backward pass": (
            args.torch_compile_mode == "reduce-overhead"
        ),
        "DeepSpeed, which steps after each backward pass": args.deepspeed_plugin is not None,
    }
    for problem, is_there in problems.items():
        if is_there:
            raise ValueError(
                "task_sampling: mixed adds up the gradients of several backward passes and does "
                f"not go with {problem}; leave that out, or take another task_sampling"
            )


def steps_in_backward(args: TrainingArguments) -> bool:
    """Tell whether the optimizer takes gradients while they are computed, layer by layer."""
    return any(name in str(args.optim).lower() for name in ("layerwise", "lomo"))
