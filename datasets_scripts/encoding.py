"""Rows as tokens: sentences, choices, tagged words, and windows of long texts.

What becomes of a text is decided by `modeling_minbert.texts`, for predictions, too. The rows that
are returned are cached by `datasets`, under a name made of the rows, the options and a tokenizer
without truncation or padding of its own: what was set on it before does not count.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, islice
from operator import itemgetter
from typing import Any, TypeAlias

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase

from modeling_minbert import unknown
from modeling_minbert.texts import (
    HEAD_SHARES,
    WINDOWS,
    Encoded,
    Encoding as Encoding,
    QuestionWindow,
    Span,
    cut_windows,
    cut_word_windows,
    own_tokenizer,
    pair_choices,
    tokenize,
    tokenize_words,
)

from .hub import count_batch, progress_bars

# What the rows say of themselves, so that a trainer can store it with the task.
ENCODED_WITH = "encoded by minBERT with max_length="
LONG_MAP = 20_000  # rows; fewer are encoded before a progress bar is of use

Row = dict[str, Any]
Columns = dict[str, list[Any]]
# A type of a column: a name as of `datasets.Value`, a list with one, or a feature.
Feature: TypeAlias = "str | list[Feature] | datasets.Value | datasets.List"
Types = dict[str, Feature]

ONE_SEQUENCE: Types = {"input_ids": ["int32"], "token_type_ids": ["int8"]}
SEVERAL_SEQUENCES: Types = {"input_ids": [["int32"]], "token_type_ids": [["int8"]]}


def make_features(**types: Feature) -> datasets.Features:
    """Make features of types; a list with one type is a list of any length."""

    def make(kind: Feature) -> Any:
        if isinstance(kind, list):
            return datasets.List(make(kind[0]))
        return datasets.Value(kind) if isinstance(kind, str) else kind

    return datasets.Features({name: make(kind) for name, kind in types.items()})


def note_length(rows: datasets.Dataset, max_length: int) -> datasets.Dataset:
    """Note in the description of encoded rows at which length texts were cut or split."""
    rows.info.description = f"{ENCODED_WITH}{max_length}"
    return rows


# Sentences and choices


def encode_rows(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    encoding: Encoding,
    *,
    label_type: Feature = "int64",
    is_contrastive: bool = False,
) -> datasets.Dataset:
    """Tokenize rows with id, sentences, and label if labeled; padding is left to the collator.

    The labels get the type that the loss needs. Each text of a contrastive row is a sequence.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each sequence if they are separate),
        length (in tokens, of the longest sequence) and labels (if labeled). For windows, those of
        all texts of a row are one list, ``num_windows`` counts those of each text, and length is
        that of all windows.

    Raises:
        ValueError: If ``pair_encoding`` does not fit the rows, or ``truncation`` is unknown.
    """
    allowed: tuple[str | None, ...]
    if is_contrastive:
        kind, allowed = "of a contrastive task", ("separate",)
    elif "sentence2" in rows.column_names:
        kind, allowed = "pairs", ("joint", "separate")
    else:
        kind, allowed = "single sentences", (None,)
    pairs, truncation = encoding.pair_encoding, encoding.truncation
    if pairs not in allowed:
        remedy = "remove it" if None in allowed else f"allowed: {', '.join(map(repr, allowed))}"
        raise ValueError(f"pair_encoding={pairs!r}, but the rows are {kind}; {remedy}")
    if truncation not in (*HEAD_SHARES, WINDOWS):
        raise ValueError(unknown("truncation", truncation, (*HEAD_SHARES, WINDOWS)))
    if truncation == WINDOWS and pairs == "joint":
        raise ValueError("truncation='windows' needs each text of a pair as a sequence")
    types = ONE_SEQUENCE
    if truncation == WINDOWS:
        types = SEVERAL_SEQUENCES | {"num_windows": ["int32"]}
    elif pairs == "separate":
        types = SEVERAL_SEQUENCES
    return _map(rows, _encode_texts, tokenizer, encoding, types, label_type)


def encode_choices(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
) -> datasets.Dataset:
    """Tokenize the pairs of a context and each of its choices; a missing one is padding.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each choice), length (in tokens, of
        the longest sequence) and labels (if labeled).

    Raises:
        ValueError: If ``pair_encoding`` or ``truncation`` is unknown, or a row has more choices.
    """
    if encoding.pair_encoding != "joint":
        raise ValueError(
            f"pair_encoding={encoding.pair_encoding!r}: choices are encoded as 'joint' alone"
        )
    if encoding.truncation not in HEAD_SHARES:
        raise ValueError(unknown("truncation", encoding.truncation, HEAD_SHARES))
    return _map(rows, _encode_choices, tokenizer, encoding, SEVERAL_SEQUENCES, "int64")


def _map(
    rows: datasets.Dataset,
    encode: Callable[..., Columns],
    tokenizer: PreTrainedTokenizerBase,
    encoding: Encoding,
    token_types: Types,
    label_type: Feature,
) -> datasets.Dataset:
    """Encode rows, with their ids and labels."""
    labels = {"labels": label_type} if "label" in rows.column_names else {}
    with progress_bars(shown=len(rows) > LONG_MAP):
        encoded = rows.map(
            encode,
            batched=True,
            batch_size=count_batch(rows),
            fn_kwargs={"tokenizer": own_tokenizer(tokenizer), "encoding": encoding},
            remove_columns=[name for name in rows.column_names if name != "id"],
            features=make_features(id="string", **token_types, length="int32", **labels),
            desc="encode",
        )
    return note_length(encoded, encoding.max_length)


def _encode_texts(
    batch: Columns, *, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
) -> Columns:
    rows = _list_texts(batch)
    if encoding.truncation == WINDOWS:
        texts = iter(encoding.split_documents(tokenizer, list(chain.from_iterable(rows))))
        columns: Columns = {name: [] for name in (*Encoded._fields, "num_windows", "length")}
        for row in rows:
            parts = list(islice(texts, len(row)))
            windows = list(chain.from_iterable(parts))
            columns["input_ids"].append([window.input_ids[0] for window in windows])
            columns["token_type_ids"].append([window.token_type_ids[0] for window in windows])
            columns["num_windows"].append(list(map(len, parts)))
            columns["length"].append(sum(window.tokens for window in windows))
        return columns | _copy_labels(batch)
    is_separate = encoding.pair_encoding == "separate"
    encoded = tokenize(tokenizer, rows, encoding)
    columns = {"length": [max(map(len, row.input_ids)) for row in encoded]}
    for name in Encoded._fields:
        sequences = [getattr(row, name) for row in encoded]
        columns[name] = sequences if is_separate else [ids for (ids,) in sequences]
    return columns | _copy_labels(batch)


def _encode_choices(
    batch: Columns, *, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
) -> Columns:
    sizes = list(map(len, batch["choices"]))
    num_choices = encoding.num_choices or max(sizes)
    if max(sizes) > num_choices:
        raise ValueError(f"a row has {max(sizes)} choices, but the task takes {num_choices}")
    rows = zip(_list_texts(batch), batch["choices"], strict=True)
    pairs = [pair for texts, choices in rows for pair in pair_choices(texts, choices)]
    encoded = tokenize(tokenizer, pairs, encoding)
    columns: Columns = {}
    for name, padding in (("input_ids", tokenizer.pad_token_id or 0), ("token_type_ids", 0)):
        sequences = iter([getattr(pair, name)[0] for pair in encoded])
        columns[name] = [
            [*islice(sequences, size), *([[padding]] * (num_choices - size))] for size in sizes
        ]
    columns["length"] = [max(map(len, row)) for row in columns["input_ids"]]
    return columns | _copy_labels(batch)


def _list_texts(batch: Columns) -> list[tuple[str, ...]]:
    names = [name for name in ("sentence1", "sentence2", "sentence3") if name in batch]
    return list(zip(*(batch[name] for name in names), strict=True))


def _copy_labels(batch: Columns) -> Columns:
    return {"labels": batch["label"]} if "label" in batch else {}


def count_cut(encoding: Encoding, lengths: Iterable[int], special: int) -> int:
    """Count the tokens that are in no kept window, of texts with these ``special`` ones."""
    room, cut = encoding.max_length - special, 0
    for length in lengths:
        spans = cut_windows(length - special, room, room - (encoding.window_overlap or 0))
        is_kept = np.zeros(length - special, dtype=bool)
        for place in encoding.choose_windows(len(spans)):
            is_kept[slice(*spans[place])] = True
        cut += int((~is_kept).sum())
    return cut


# Questions


LONG_QUESTIONS = 5_000  # questions; fewer are encoded before a progress bar is of use
BATCH = 200  # questions tokenized together, so that a shared passage is tokenized once


def encode_questions(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
) -> datasets.Dataset:
    """Encode questions as ``[CLS] question [SEP] window [SEP]``, one row for each window.

    By default a question has 64 tokens at most, and a window begins every 128.

    Returns:
        Rows in the order of the questions, all windows of a question together:

        - ``id`` of the question, ``input_ids``, ``token_type_ids`` (1 for the passage), ``length``;
        - ``labels``: positions of the first and the last token of the first answer, [start, end];
          both are 0, the position of [CLS], unless the window contains the whole answer. Only if
          labeled;
        - ``answers``: the texts of all correct answers; only if labeled;
        - ``passage``: the text of the window, and ``passage_start``, its start in the whole passage
          in characters;
        - ``first_token``: position of the first passage token in ``input_ids``, and
          ``token_starts`` and ``token_ends``, the characters of each passage token in ``passage``;
        - ``owned``: [first, last + 1] of the passage tokens that have more context in this window
          than in any other one. Only these may start an answer.

    Raises:
        ValueError: If a size is below 1, a question may leave no room for a passage, or the
            tokenizer does not report the characters of tokens.
    """
    labels = {"labels": datasets.List(datasets.Value("int32"), length=2), "answers": ["string"]}
    with progress_bars(shown=len(rows) > LONG_QUESTIONS):
        encoded = rows.map(
            _encode_questions,
            batched=True,
            batch_size=BATCH,
            fn_kwargs={"tokenizer": own_tokenizer(tokenizer), "encoding": encoding},
            remove_columns=rows.column_names,
            features=make_features(
                id="string",
                input_ids=["int32"],
                token_type_ids=["int8"],
                length="int32",
                passage="string",
                passage_start="int32",
                first_token="int32",  # noqa: S106  (no password)
                token_starts=["int32"],
                token_ends=["int32"],
                owned=["int32"],
                **(labels if "label" in rows.column_names else {}),
            ),
            desc="encode",
        )
    return note_length(encoded, encoding.max_length)


def _encode_questions(
    batch: Columns, *, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
) -> Columns:
    encoded: list[Row] = []
    for window in encoding.split_questions(tokenizer, _list_texts(batch)):
        question = {name: values[window.question] for name, values in batch.items()}
        ids, types = window.encoded.input_ids[0], window.encoded.token_type_ids[0]
        start, end = window.tokens
        characters = window.characters[start:end]
        first, last = (characters[0][0], characters[-1][1]) if characters else (0, 0)
        row = {
            "id": question["id"],
            "input_ids": ids,
            "token_type_ids": types,
            "length": len(ids),
            "passage": question["sentence2"][first:last],
            "passage_start": first,
            "first_token": window.first,
            "token_starts": [begin - first for begin, _ in characters],
            "token_ends": [stop - first for _, stop in characters],
            "owned": [token - start for token in window.owned],
        }
        if "label" in batch:
            row |= {"labels": _find_answer(window, question), "answers": question["answers"]}
        encoded.append(row)
    return {name: [row[name] for row in encoded] for name in encoded[0]}


def _find_answer(window: QuestionWindow, question: Row) -> Span:
    """Return the places of the shortest span of tokens that covers the first answer.

    They are those of [CLS] unless the window contains the whole answer.
    """
    if not question["answers"]:
        return (0, 0)
    text, place = question["answers"][0], question["answer_starts"][0]
    start = place + len(text) - len(text.lstrip())
    end = place + len(text.rstrip())
    first = bisect_right(window.characters, start, key=itemgetter(1))
    last = bisect_left(window.characters, end, key=itemgetter(0)) - 1
    # else no token: the tokenizer drops all characters of the answer
    if window.tokens[0] <= first <= last < window.tokens[1]:
        shift = window.first - window.tokens[0]
        return (first + shift, last + shift)
    return (0, 0)


# Tagged words


# of a token without a label, and of a word with an unknown tag
IGNORED_LABEL, UNKNOWN_LABEL = -100, -1
TOKENIZED_SENTENCES = 1000

Pieces = list[list[int]]


def encode_tagged(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    encoding: Encoding,
    *,
    document_context: bool = False,
) -> datasets.Dataset:
    """Encode sentences with tags; a long sentence becomes several rows.

    The first token of a word has its label, all others have -100. A word without any token, such as
    a control character, becomes the unknown token. ``document_context`` fills the rest of a row
    with unlabeled words before and after the sentence in its document, evenly on both sides.

    Returns:
        Rows with id and number (``sentence``) of the sentence, the labeled words, input_ids,
        token_type_ids, length and labels, -1 for a word with an unknown tag.
    """
    room = encoding.max_length - 2  # without [CLS] and [SEP]
    pieces: list[Pieces] = []
    for batch in rows.select_columns(["words"]).iter(TOKENIZED_SENTENCES):
        pieces += tokenize_words(tokenizer, batch["words"], encoding.max_length)
    tags = rows["tags"][:] if "tags" in rows.column_names else None
    documents = rows["document"][:]
    names, words = rows["id"][:], rows["words"][:]
    encoded: list[Row] = []
    for number, sentence in enumerate(pieces):
        known = [UNKNOWN_LABEL] * len(sentence) if tags is None else tags[number]
        for window in cut_word_windows([len(word) for word in sentence], room):
            ids: list[int] = []
            labels: list[int] = []
            for word in range(window.start, window.end):
                ids += sentence[word]
                is_here = window.first <= word < window.last
                labels += [known[word] if is_here else IGNORED_LABEL]
                labels += [IGNORED_LABEL] * (len(sentence[word]) - 1)
            is_whole = window.end - window.start == len(sentence)
            free = room - len(ids) if document_context and is_whole else 0
            before, after = _find_context(pieces, documents, number, free)
            ids = [tokenizer.cls_token_id, *before, *ids, *after, tokenizer.sep_token_id]
            left, right = [IGNORED_LABEL] * (1 + len(before)), [IGNORED_LABEL] * (1 + len(after))
            encoded.append(
                {
                    "id": names[number],
                    "sentence": number,
                    "words": words[number][window.first : window.last],
                    "input_ids": ids,
                    "token_type_ids": [0] * len(ids),
                    "length": len(ids),
                    "labels": [*left, *labels, *right],
                }
            )
    features = make_features(
        id="string",
        sentence="int64",
        words=["string"],
        input_ids=["int32"],
        token_type_ids=["int8"],
        length="int32",
        labels=["int16"],
    )
    return note_length(datasets.Dataset.from_list(encoded, features), encoding.max_length)


def _find_context(
    pieces: Sequence[Pieces], documents: Sequence[int], number: int, room: int
) -> tuple[list[int], list[int]]:
    """Return tokens of whole words before and after a sentence in its document."""
    sides = []
    for step in (-1, 1):  # words of the neighbors on each side, the nearest first
        nearest: Pieces = []
        used, other = 0, number + step
        while 0 <= other < len(pieces) and documents[other] == documents[number] and used < room:
            nearest += pieces[other][::step]
            used += sum(map(len, pieces[other]))
            other += step
        sides.append(_take(nearest, room))
    before, after = sides
    kept = _take(before, max(room // 2, room - sum(map(len, after))))
    rest = _take(after, room - sum(map(len, kept)))
    return list(chain.from_iterable(reversed(kept))), list(chain.from_iterable(rest))


def _take(words: Pieces, room: int) -> Pieces:
    """Return the first words, up to one that does not fit; every word has a token."""
    ends = accumulate(map(len, words))
    return [word for word, end in zip(words, ends, strict=True) if end <= room]
