"""Notes on the data of a task, for the output of a run and its report."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from datasets import Dataset

from datasets_scripts import MOST_HELD_OUT, TaskData, TaskRows
from modeling_minbert.inference import find_upper
from modeling_minbert.texts import measure_rule

MOST_LABELS = 10  # in a note; more are counted
MOST_FOUND = 0.98  # of the training words, without a warning
MOST_UNKNOWN = 0.01  # of the tokens, without a warning
MOST_UPPER = 0.001  # of the pieces of a vocabulary that is lower-cased, without a warning
# A word of so many letters is spelled if it has a piece for almost every letter.
LONG_WORD, SPELLED = 4, 0.8
MOST_SPELLED = 0.5  # of such words, without a warning
LARGEST_RATIO = 10  # of the numbers of rows of two labels, without a warning


def describe_data(
    task: TaskRows,
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
        options: How its rows are encoded, keyword arguments of `TaskRows.encode`.
        is_oversampled: Whether rows of rare labels are repeated.
    """
    cut = task.cut_share(tokenizer, **options)
    return [
        *_describe_held_out(task, data),
        *_describe_taught(task),
        *_describe_labels(task, is_weighed="class_weights" in head or is_oversampled),
        *([] if cut is None else [_describe_cut(cut, options)]),
    ]


def describe_words(task: TaskRows, rule: str) -> list[str]:
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


def describe_vocabulary(texts: Sequence[str], tokenizer: Any) -> list[str]:
    """Describe how well a vocabulary fits some training texts."""
    notes = _describe_case(tokenizer)
    tokens, unknown, words, spelled = 0, Counter[str](), 0, 0
    encoded = tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False)
    for text, encoding in zip(texts, encoded.encodings, strict=True):
        tokens += len(encoding.ids)
        parts = zip(encoding.word_ids, encoding.ids, encoding.offsets, strict=True)
        for _, pieces in groupby(parts, key=lambda part: part[0]):
            _, ids, spans = zip(*pieces, strict=True)
            word = text[spans[0][0] : spans[-1][1]]
            unknown.update(word for token in ids if token == tokenizer.unk_token_id)
            if len(word) >= LONG_WORD and word[0].isalpha():
                words += 1
                spelled += len(ids) >= LONG_WORD and len(ids) >= SPELLED * len(word)
    notes.append(describe_unknown(unknown.total(), tokens, unknown))
    if words and spelled > MOST_SPELLED * words:
        notes.append(
            f"warning: {100 * spelled / words:.0f} % of the words of {LONG_WORD} letters and more "
            f"are cut into single letters: the vocabulary is of another language, or too small"
        )
    return notes


def describe_unknown(unknown: int, tokens: int, words: Counter[str] | None = None) -> str:
    """Describe the share of unknown tokens; ``words`` are those that became one."""
    share = unknown / max(1, tokens)
    note = f"unknown tokens ([UNK]): {100 * share:.3g} % of the tokens of the training rows"
    if share <= MOST_UNKNOWN:
        return note
    such = ", ".join(repr(word) for word, _ in (words or Counter[str]()).most_common(3))
    return (
        f"warning: {note}{', such as ' if such else ''}{such}: the model cannot tell them apart; "
        "take a checkpoint whose vocabulary has the language, and the case, of the texts"
    )


def _describe_case(tokenizer: Any) -> list[str]:
    """Name the pieces of a vocabulary that a tokenizer that lower-cases never produces."""
    normalizer = tokenizer.backend_tokenizer.normalizer
    if normalizer is None or normalizer.normalize_str("A") != "a":
        return []
    upper = find_upper(tokenizer.get_vocab())
    if len(upper) <= MOST_UPPER * len(tokenizer):
        return []
    return [
        f"warning: the tokenizer lower-cases, so {len(upper):,} pieces of its vocabulary with "
        f"upper-case letters can never occur, such as {', '.join(map(repr, sorted(upper)[:3]))}; "
        "if the checkpoint is cased, set do_lower_case to false in its tokenizer_config.json, and "
        "remove tokenizer.json if there is a vocab.txt"
    ]


def _describe_labels(task: TaskRows, *, is_weighed: bool) -> list[str]:
    """Describe how many training rows each label has."""
    classes: Any = task.facts["train"].get("classes")
    if not classes:
        return []
    total, counts = sum(classes.values()), sorted(classes.items(), key=lambda item: -item[1])
    # as the report names them
    names = (
        {"0": "'0' (different)", "1": "'1' (paraphrase)"}
        if task.problem_type == "paraphrase"
        else {}
    )
    shares = [
        f"{names.get(label, repr(label))} {100 * count / total:.1f} %"
        for label, count in counts[:MOST_LABELS]
    ]
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


def _describe_taught(task: TaskRows) -> list[str]:
    """Count the training rows that have no label."""
    if task.unlabeled is None:
        return []
    return [
        f"{len(task.unlabeled):,} more training rows have no label: the student learns what its "
        "teachers predict for them"
    ]


def _describe_held_out(task: TaskRows, data: TaskData) -> list[str]:
    """Describe validation rows that were training rows."""
    facts = task.facts["validation"]
    if "held_out_of" not in facts:
        return []
    return [
        f"validation: {100 * data.validation_share:.3g} % of the training rows, at most "
        f"{MOST_HELD_OUT:,}, chosen at random ({facts['usable_rows']:,} of "
        f"{facts['held_out_of']:,})"
    ]
