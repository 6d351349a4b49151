"""Notes on the data of a task, for the output of a run and its report: what may be wrong."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from datasets import Dataset
from tokenizers.models import WordPiece

from datasets_scripts import MOST_HELD_OUT, TaskRows
from datasets_scripts.loading import LARGEST_SHARE, digest_alike
from datasets_scripts.readers import is_numeral
from modeling_minbert import MinBertTask
from modeling_minbert.inference import find_upper
from modeling_minbert.texts import SPACELESS, WINDOWS, Encoding, own_tokenizer, tokenize_whole

LARGEST_CUT = 0.001  # of the tokens, without a note
MISSING = ("nan", "null", "none", "n/a", "na")  # what programs write for a missing value
LARGEST_RATIO = 10  # of the numbers of rows of two labels, without a warning
MOST_FOUND = 0.98  # of the training words, without a warning
MOST_UNKNOWN = 0.01  # of the tokens, without a warning
MOST_UPPER = 0.001  # of the pieces of a vocabulary that is lower-cased, without a warning
# A piece of one letter within a word: of WordPiece, and of other tokenizers, of which a piece may
# be a byte, but not the mark of a word
LETTER = re.compile(r"##[^\W\d_]")
UNMARKED_LETTER = re.compile("(?![\u0120\u2581])(?:[^\\W\\d_]|[^\\x00-\\x7f])")
MOST_SPELLED = 0.65  # of the tokens, without a warning


def describe_data(
    rows: TaskRows,
    task: MinBertTask,
    encoded: Mapping[str, Dataset],
    tokenizer: Any,
    encoding: Encoding,
    weights: Mapping[str, Any],
    *,
    quotes: bool = True,
) -> list[str]:
    """List what a reader should know of the rows of a task, a sentence each.

    ``encoding`` says how the rows were encoded, and ``weights`` are those of labels in the recipe.
    ``quotes`` says whether words of the rows may be quoted.
    """
    notes = []
    facts: Any = rows.facts["validation"]
    if "held_out_of" in facts:
        share = 100 * rows.row_format.data.held_out_share
        notes.append(
            f"validation: {share:.3g} % of the training rows, at most {MOST_HELD_OUT:,}, chosen at "
            f"random ({facts['usable_rows']:,} of {facts['held_out_of']:,})"
        )

    notes += _describe_shared(rows, task)
    notes += _describe_counts(rows, task, weights)
    notes += _describe_labels(rows)
    measured, cut = rows.measured_rows, 0.0
    if encoding.truncation == WINDOWS or max(encoded["train"]["length"][:]) >= encoding.max_length:
        cut = rows.row_format.cut_share(measured, tokenizer, encoding) or 0.0
    if cut >= LARGEST_CUT:
        key, remedy = "max_length", "raise max_length, or choose truncation"
        if encoding.max_windows is not None:
            key, remedy = "max_windows", "raise max_windows"
        cause = f"cut by {key}={getattr(encoding, key)}: {100 * cut:.1f} %; {remedy}"
        notes.append(f"tokens of the training rows {cause}")

    texts = list(rows.row_format.texts(measured))
    if missing := Counter(text for text in texts if text.strip().casefold() in MISSING):
        notes.append(
            f"warning: {100 * missing.total() / len(texts):.3g} % of the training texts are "
            f"{', '.join(map(repr, missing))}, which may be missing values; if so, delete the rows"
        )
    notes += describe_vocabulary(texts, tokenizer, quotes=quotes)
    if (rule := getattr(task, "words", None)) == "given":
        notes.append(
            "warning: words: given: no rule finds the words of the training rows in texts, so "
            "predict takes lists of words, but no texts; if yours separate words by spaces, give "
            "words: whitespace"
        )
    elif rule is not None:
        from modeling_minbert.pieces import measure_rule

        found = measure_rule(rows.head_facts()["sentences"], rule)
        such = f", such as {', '.join(repr(word) for word, _ in found.cut)}" if quotes else ""
        if found.share < MOST_FOUND:
            notes.append(
                f"warning: words: {rule}: {100 * found.share:.1f} % of the training words are "
                f"found so in texts, but others are cut otherwise{such}: predict lists of words "
                "where this matters, or give words"
            )
    if task.answers_questions:
        notes += _describe_questions(texts[::2], encoded["train"], tokenizer, encoding, task)
    return notes


def describe_prompts(rows: TaskRows, prompts: Mapping[str, str] | None) -> list[str]:
    """Warn of the prompts of a checkpoint if no column of the training rows of its vectors has one.

    Only of those that `encode_query` and `encode_document` write.
    """
    texts = {name: (prompts or {}).get(name, "") for name in ("query", "document")}
    known = {name: text for name, text in texts.items() if text.strip()}
    if not known:
        return []
    columns = rows.row_format.text_names
    found = list(rows.row_format.texts(rows.measured_rows))
    for place in range(len(columns)):
        column = found[place :: len(columns)]
        if 2 * sum(text.startswith(tuple(known.values())) for text in column) > len(column):
            return []
    names = ", ".join(f"{name}: {text!r}" for name, text in known.items())
    return [
        f"warning: the checkpoint has prompts ({names}), but training reads the rows as they are; "
        "encode_query and encode_document of the trained model write them: begin such texts of the "
        "rows with them, too, or call encode, which writes none"
    ]


def _describe_shared(rows: TaskRows, task: MinBertTask) -> Iterator[str]:
    """Tell of validation rows with a text, or questions with a passage, of a training row."""
    train, validation = rows.splits["train"], rows.splits["validation"]
    if len(rows.row_format.text_names) < 2:  # equal rows are counted elsewhere
        return
    names = rows.row_format.unit_columns(train)
    what = "their passage" if task.answers_questions else "a text"
    known = {key for name in names for key in digest_alike(train, [name])}
    keys = zip(*(digest_alike(validation, [name]) for name in names), strict=True)
    shared = sum(not known.isdisjoint(row) for row in keys)
    if shared > LARGEST_SHARE * len(validation):
        yield (
            f"{shared:,} of {len(validation):,} validation rows have {what} in common with a "
            "training row; metrics on new texts may be lower"
        )


def _describe_counts(
    rows: TaskRows, task: MinBertTask, weights: Mapping[str, Any]
) -> Iterator[str]:
    """Tell which weight is whose, and warn of labels that no or few training rows have."""
    for key, given in weights.items():
        if isinstance(given, list):
            names = getattr(task, "labels", None) or ()
            pairs = [f"{weight:g} for {name!r}" for weight, name in zip(given, names, strict=True)]
            yield f"{key}: {', '.join(pairs)}"
    for where, sizes, remedy in _count_labels(rows, task):
        counts = {label: count for label, count in sizes.items() if count}
        if missing := [label for label in sizes if label not in counts]:
            yield (
                f"warning: no training row has the label {', '.join(map(repr, missing))}{where}, "
                "which cannot be learned"
            )
        if counts and not weights:
            most, least = max(counts, key=counts.__getitem__), min(counts, key=counts.__getitem__)
            if (ratio := counts[most] / counts[least]) > LARGEST_RATIO:
                yield (
                    f"warning: {ratio:.0f} training rows have the label {most!r} for every one "
                    f"with {least!r}{where}; {remedy}judge by macro_f1"
                )


def _count_labels(rows: TaskRows, task: MinBertTask) -> Iterator[tuple[str, dict[str, int], str]]:
    """Yield where labels are, the numbers of their training rows, and a remedy if these differ."""
    row_format, train = rows.row_format, rows.splits["train"]
    key = "pos_weight" if hasattr(task, "pos_weight") else "class_weights"
    if row_format.class_names or key == "pos_weight":
        names = row_format.class_names or row_format.labels or ()
        sizes = dict(zip(names, row_format.count_labels(train) or (), strict=True))
        yield "", sizes, f"give {key}: balanced, and " if hasattr(task, key) else ""
    columns, classes = row_format.data.label_columns or (), getattr(row_format, "classes", ())
    for place, (column, names) in enumerate(zip(columns, classes, strict=False)):
        found = Counter(label[place] for label in train["label"])
        sizes = {name: found[number] for number, name in enumerate(names)}
        yield f" in column {column!r}", sizes, ""


def _describe_labels(rows: TaskRows) -> Iterator[str]:
    """Warn of labels, found in the rows, that may be another label or none."""
    row_format = rows.row_format
    data, classes = row_format.data, getattr(row_format, "classes", ())
    found = dict(zip(data.label_columns or (), classes, strict=False))
    if data.labels is None and data.label_column is not None:
        found = {data.label_column: row_format.labels or ()}
    for column, names in found.items():
        alike: dict[str | float, list[str]] = {}
        for name in names:
            alike.setdefault(float(name) if is_numeral(name) else name.casefold(), []).append(name)
            is_negative = name == "-1" and "0" in names  # as copies on the Hub have it
            if name == column or name.casefold() in MISSING or is_negative:
                yield (
                    f"warning: the label {name!r} of column {column!r} may be no label, but a "
                    "missing value or a line of a header; if so, delete it or its rows"
                )
        for group in alike.values():
            if len(group) > 1:
                yield (
                    f"warning: {', '.join(map(repr, group))} are different labels of column "
                    f"{column!r}; if they are one, write it in one way"
                )


def describe_vocabulary(texts: Sequence[str], tokenizer: Any, *, quotes: bool = True) -> list[str]:
    """Warn of a vocabulary that does not fit some training texts, which ``quotes`` quotes."""
    notes = []
    normalizer = tokenizer.backend_tokenizer.normalizer
    is_wordpiece = isinstance(tokenizer.backend_tokenizer.model, WordPiece)
    if is_wordpiece and normalizer is not None and normalizer.normalize_str("A") == "a":
        upper = find_upper(tokenizer.get_vocab())
        if len(upper) > MOST_UPPER * len(tokenizer):
            notes.append(
                f"warning: the tokenizer lower-cases, so {len(upper):,} pieces of its vocabulary "
                "with upper-case letters can never occur, such as "
                f"{', '.join(map(repr, sorted(upper)[:3]))}; if the checkpoint is cased, set "
                "do_lower_case to false in its tokenizer_config.json, and remove tokenizer.json if "
                "there is a vocab.txt"
            )
    inner = own_tokenizer(tokenizer).backend_tokenizer
    encodings = inner.encode_batch(list(texts), add_special_tokens=False)
    unknown = Counter(
        text[slice(*encoding.offsets[place])]
        for text, encoding in zip(texts, encodings, strict=True)
        if tokenizer.unk_token_id in encoding.ids
        for place, token in enumerate(encoding.ids)
        if token == tokenizer.unk_token_id
    )
    if empty := sum(not encoding.ids for encoding in encodings):
        notes.append(
            f"warning: {100 * empty / len(texts):.3g} % of the texts have no token: the tokenizer "
            "drops all of their characters, so the model cannot tell them apart"
        )
    ids = np.asarray([number for encoding in encodings for number in encoding.ids], np.int64)
    words = unknown if quotes else None
    notes += describe_unknown(tokenizer.unk_token, unknown.total(), len(ids), words)
    pattern = LETTER if is_wordpiece else UNMARKED_LETTER
    letters = [
        place
        for piece, place in tokenizer.get_vocab().items()
        if pattern.fullmatch(piece) and not SPACELESS.fullmatch(piece)
    ]
    spelled = np.isin(ids, letters).sum() / max(1, len(ids))
    if spelled > MOST_SPELLED:
        notes.append(
            f"warning: {100 * spelled:.0f} % of the tokens are single letters within a word: the "
            "vocabulary is of another language, or too small"
        )
    return notes


def describe_unknown(
    token: str | None, unknown: int, tokens: int, words: Counter[str] | None = None
) -> list[str]:
    """Warn of many unknown tokens; ``words`` are those that became ``token``."""
    share = unknown / max(1, tokens)
    if share <= MOST_UNKNOWN:
        return []
    such = ", ".join(repr(word) for word, _ in (words or Counter[str]()).most_common(3))
    return [
        f"warning: unknown tokens ({token}): {100 * share:.3g} % of the tokens of the training rows"
        f"{', such as ' if such else ''}{such}: the model cannot tell them apart; take a "
        "checkpoint whose vocabulary has the language, and the case, of the texts"
    ]


def _describe_questions(
    questions: list[str], rows: Dataset, tokenizer: Any, encoding: Encoding, task: Any
) -> Iterator[str]:
    """Warn of training questions that are cut, and of answers that are never predicted."""
    longest = encoding.max_question_length or 0
    found = tokenize_whole(tokenizer, questions)["input_ids"]
    cut = np.fromiter((len(question) > longest for question in found), np.bool_)
    if cut.any():
        yield (
            f"warning: max_question_length={longest} cuts {100 * cut.mean():.3g} % of the training "
            "questions; raise it"
        )
    first, last = np.asarray(rows["labels"][:]).reshape(-1, 2).T
    tokens: dict[str, int] = {}  # of the answer of each question that has one; 0 if in no window
    for name, answers, size in zip(
        rows["id"][:], rows["answers"][:], np.where(last > 0, last - first + 1, 0), strict=True
    ):
        if answers:
            tokens[name] = max(tokens.get(name, 0), int(size))
    sizes, most = np.fromiter(tokens.values(), int), task.max_answer_length
    is_long = sizes > most
    counts = {
        f"in no window of max_length={task.max_length} tokens every doc_stride={task.doc_stride}, "
        "and are trained as no answer; lower doc_stride, or raise max_length": sizes == 0,
        f"longer than max_answer_length={most} tokens, and are never predicted; raise it": is_long,
    }
    for reason, lost in counts.items():
        if lost.any():
            count = f"{lost.sum():,} of {len(sizes):,} answers of the training rows"
            yield f"warning: {count} are {reason}"
