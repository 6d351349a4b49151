"""Notes on the data of a task, for the output of a run and its report."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from datasets import Dataset

from datasets_scripts import LARGEST_SHARE, MOST_HELD_OUT, LoadedTask, TaskData, count_equal_tokens
from modeling_minbert.words_minbert import measure_rule

MOST_LABELS = 10  # in a note; more are counted
MOST_FOUND = 0.98  # of the training words, without a warning
LARGEST_RATIO = 10  # of the numbers of rows of two labels, without a warning


def describe_data(
    task: LoadedTask,
    data: TaskData,
    head: Mapping[str, Any],
    tokenizer: Any,
    options: Mapping[str, Any],
    *,
    is_oversampled: bool = False,
) -> list[str]:
    """List what a reader should know of the rows of a task, a sentence each.

    Args:
        task: The task.
        data: Its data keys of the recipe.
        head: Its head keys of the recipe.
        tokenizer: The tokenizer of the model.
        options: How its rows are encoded, keyword arguments of `LoadedTask.encode`.
        is_oversampled: Whether rows of rare labels are repeated.
    """
    cut = task.cut_share(tokenizer, **options)
    return [
        *_describe_unlabelled(task, data),
        *_describe_held_out(task, data),
        *_describe_taught(task),
        *_describe_labels(task, is_weighed="class_weights" in head or is_oversampled),
        *([] if cut is None else [_describe_cut(cut, options)]),
    ]


def describe_words(task: LoadedTask, rule: str) -> list[str]:
    """Describe how predictions find the words of a task with tags in texts."""
    cause = f"words: {rule}"
    if rule == "given":
        return [
            f"warning: {cause}: no rule finds the words of the training rows in texts, so predict "
            "takes lists of words, but no texts; if yours separate words by spaces, give words: "
            "whitespace"
        ]
    found = measure_rule(task.head_facts()["sentences"], rule)
    note = f"{cause}: {100 * found.share:.1f} % of the training words are found so in texts"
    if found.share >= MOST_FOUND:
        return [note]
    return [
        f"warning: {note}, but others are cut otherwise, such as "
        f"{', '.join(repr(word) for word, _ in found.cut)}: predict lists of words where this "
        "matters, or give words"
    ]


def describe_seen(task: LoadedTask, encoded: Mapping[str, Any]) -> list[str]:
    """List what held-out rows have in common with training rows, a sentence for each split.

    Rows that are training rows to the model although their texts differ are added to the
    ``training_rows`` of the facts.

    Args:
        task: The task.
        encoded: Its encoded rows by split.
    """
    notes = []
    # rows of windows are not compared: only a part of a text would be equal
    whole = {split: rows for split, rows in encoded.items() if len(rows) == len(task.splits[split])}
    equal = count_equal_tokens(whole) if "train" in whole else {}
    what = {"question_answering": "passage", "multiple_choice": "context"}
    facts: Any
    for split, facts in task.facts.items():
        count, shared = facts["rows"], facts.get("shared_texts", 0)
        seen = equal.get(split, 0)
        if seen > facts.get("training_rows", 0):
            facts["training_rows"] = seen
            notes.append(
                "warning: "
                * (seen > LARGEST_SHARE * count)
                + f"{split}: {_share(seen, count)} have the tokens of a training row; where their "
                "texts differ, max_length cut the difference, or the vocabulary does not know it"
            )
        if shared:
            text = what.get(task.problem_type, "text")
            notes.append(f"{split}: {_share(shared, count)} have a {text} of a training row")
    return notes


def _share(count: int, total: int) -> str:
    return f"{count:,} of {total:,} rows ({100 * count / total:.0f} %)"


def describe_answers(rows: Dataset, task: Any) -> list[str]:
    """Describe the answers to training questions that can never be predicted.

    Args:
        rows: The encoded training rows, windows of passages.
        task: The description of the task in the configuration of the model.
    """
    first, last = np.asarray(rows["labels"][:]).reshape(-1, 2).T
    tokens: dict[str, int] = {}  # of the answer of each question that has one; 0 if in no window
    for name, answers, size in zip(
        rows["id"][:], rows["answers"][:], np.where(last > 0, last - first + 1, 0), strict=True
    ):
        if answers:
            tokens[name] = max(tokens.get(name, 0), int(size))
    sizes, most = np.fromiter(tokens.values(), int), task.max_answer_length
    counts = {
        f"in no window of max_length={task.max_length} tokens every doc_stride={task.doc_stride}, "
        "and are trained as no answer; lower doc_stride, or raise max_length": sizes == 0,
        f"longer than max_answer_length={most} tokens, and are never predicted; raise it": (
            sizes > most
        ),
    }
    return [
        f"warning: {lost.sum():,} of {len(sizes):,} answers of the training rows are {reason}"
        for reason, lost in counts.items()
        if lost.any()
    ]


def _describe_labels(task: LoadedTask, *, is_weighed: bool) -> list[str]:
    """Describe how many training rows each label has."""
    classes: Any = task.facts["train"].get("classes")
    if not classes:
        return []
    total, counts = sum(classes.values()), sorted(classes.items(), key=lambda item: -item[1])
    shares = [f"{label!r} {100 * count / total:.1f} %" for label, count in counts[:MOST_LABELS]]
    more = len(counts) - len(shares)
    notes = [f"labels of the training rows: {', '.join(shares)}" + f", {more} more" * bool(more)]
    (most, largest), (least, smallest) = counts[0], [one for one in counts if one[1]][-1]
    if largest > LARGEST_RATIO * smallest and not is_weighed:
        notes.append(
            f"warning: {largest / smallest:.0f} training rows have the label {most!r} for every "
            f"one with {least!r}; give class_weights: balanced or oversample: balanced, and judge "
            "by macro_f1"
        )
    return notes


def _describe_cut(share: float, options: Mapping[str, Any]) -> str:
    """Describe how much of the texts is longer than a row."""
    key, remedy = "max_length", "raise max_length, or choose truncation"
    if "max_windows" in options:
        key, remedy = "max_windows", "raise max_windows"
    note = f"tokens of the training rows cut by {key}={options[key]}: {100 * share:.1f} %"
    return note + (f"; {remedy}" if share >= 0.001 else "")


def _describe_unlabelled(task: LoadedTask, data: TaskData) -> list[str]:
    """Count the training rows that only other tasks learn from."""
    count = task.facts["train"].get("undecided_rows", 0)
    if not data.group or not count:
        return []
    return [f"{count:,} of the training rows have no label of this task; others learn from them"]


def _describe_taught(task: LoadedTask) -> list[str]:
    """Count the training rows that have no label."""
    if task.unlabeled is None:
        return []
    return [
        f"{len(task.unlabeled):,} more training rows have no label: the student learns what its "
        "teachers predict for them"
    ]


def _describe_held_out(task: LoadedTask, data: TaskData) -> list[str]:
    """Describe validation rows that were training rows."""
    facts = task.facts["validation"]
    if "held_out_of" not in facts:
        return []
    if data.group:
        return [
            f"validation: {100 * data.validation_share:.3g} % of the texts that it shares with "
            f"other tasks, chosen by the labels of {data.group[0].name!r} ({facts['usable_rows']:,}"
            f" of the {facts['held_out_of']:,} rows with a label of this task)"
        ]
    return [
        f"validation: {100 * data.validation_share:.3g} % of the training rows, at most "
        f"{MOST_HELD_OUT:,}, chosen at random ({facts['usable_rows']:,} of "
        f"{facts['held_out_of']:,})"
    ]
