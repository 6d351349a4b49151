"""Tokenize sentences with tags, in windows, with or without their document context."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import datasets
from transformers import PreTrainedTokenizerBase

from datasets_scripts.problems.row_format import make_features

from .sequences import tokenize_whole

# of a token without a label, and of a word with an unknown tag
IGNORED_LABEL, UNKNOWN_LABEL = -100, -1
TOKENIZED_SENTENCES = 1000

Pieces = list[list[int]]


class Window(NamedTuple):
    """A part of a sentence, with labels for some of its words."""

    start: int  # first word
    end: int  # last word, exclusive
    first: int  # first labeled word
    last: int  # last labeled word, exclusive


def cut_windows(sizes: Sequence[int], room: int) -> list[Window]:
    """Split a sentence, given the tokens of each word, into windows that overlap by about half."""
    # A word is labeled in the window with most context (Devlin et al. 2019, for answers).
    ends = [0, *accumulate(sizes)]
    if ends[-1] <= room:
        return [Window(0, len(sizes), 0, len(sizes))]
    spans: list[tuple[int, int]] = []
    start = 0
    while not spans or spans[-1][1] < len(sizes):
        end = start + 1
        while end < len(sizes) and ends[end + 1] - ends[start] <= room:
            end += 1
        spans.append((start, end))
        half = ends[start] + (ends[end] - ends[start]) // 2
        start = max(start + 1, next(word for word in range(start, end + 1) if ends[word] >= half))
    owners = []
    for word in range(len(sizes)):
        sides = {
            number: min(ends[word] - ends[first], ends[last] - ends[word + 1])
            for number, (first, last) in enumerate(spans)
            if first <= word < last
        }
        owners.append(max(sides, key=lambda number: (sides[number], -number)))
    return [
        Window(*span, owners.index(number), owners.index(number) + owners.count(number))
        for number, span in enumerate(spans)
        if number in owners
    ]


def encode_tagged(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    max_length: int,
    document_context: bool = False,
) -> datasets.Dataset:
    """Encode sentences with tags; a long sentence becomes several rows.

    The first token of a word has its label, all others have -100. A word without any token, such as
    a control character, becomes the unknown token.

    Args:
        rows: Rows with id, words, document and tags (if labeled).
        tokenizer: Tokenizer of the model.
        max_length: Maximum tokens of a row, including special tokens.
        document_context: Whether to fill the rest of ``max_length`` with unlabeled words before and
            after the sentence in its document, evenly on both sides.

    Returns:
        Rows with id and number (``sentence``) of the sentence, the labeled words, input_ids,
        token_type_ids, length and labels, -1 for a word with an unknown tag.
    """
    room = max_length - 2
    pieces = list(_tokenize(rows, tokenizer, room))
    tags = rows["tags"][:] if "tags" in rows.column_names else None
    documents = rows["document"][:]
    names, words = rows["id"][:], rows["words"][:]
    encoded: list[dict[str, Any]] = []
    for number, sentence in enumerate(pieces):
        known = [UNKNOWN_LABEL] * len(sentence) if tags is None else tags[number]
        for window in cut_windows([len(word) for word in sentence], room):
            ids, labels = _label(sentence, known, window)
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
    return datasets.Dataset.from_list(encoded, features)


def _tokenize(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, room: int
) -> Iterator[Pieces]:
    """Yield the tokens of each word of a sentence; a word has a token, and fits a window."""
    for batch in rows.select_columns(["words"]).iter(TOKENIZED_SENTENCES):
        encoded = tokenize_whole(tokenizer, batch["words"], is_split_into_words=True)
        for number, words in enumerate(batch["words"]):
            pieces: Pieces = [[] for _ in words]
            places = encoded.word_ids(number)
            for token, word in zip(encoded["input_ids"][number], places, strict=True):
                pieces[word].append(token)
            yield [word[:room] or [tokenizer.unk_token_id] for word in pieces]


def _label(pieces: Pieces, tags: Sequence[int], window: Window) -> tuple[list[int], list[int]]:
    ids: list[int] = []
    labels: list[int] = []
    for word in range(window.start, window.end):
        ids += pieces[word]
        is_here = window.first <= word < window.last
        labels += [tags[word] if is_here else IGNORED_LABEL]
        labels += [IGNORED_LABEL] * (len(pieces[word]) - 1)
    return ids, labels


def _find_context(
    pieces: Sequence[Pieces], documents: Sequence[int], number: int, room: int
) -> tuple[list[int], list[int]]:
    """Return tokens of whole words before and after a sentence in its document."""
    before = _nearest(pieces, documents, number, -1, room)
    after = _nearest(pieces, documents, number, 1, room)
    kept = _take(before, max(room // 2, room - sum(map(len, after))))
    rest = _take(after, room - sum(map(len, kept)))
    return list(chain.from_iterable(reversed(kept))), list(chain.from_iterable(rest))


def _nearest(
    pieces: Sequence[Pieces], documents: Sequence[int], number: int, step: int, room: int
) -> list[list[int]]:
    """List words of the neighbors on one side, the nearest first, up to the room."""
    nearest: list[list[int]] = []
    used, other = 0, number + step
    while 0 <= other < len(pieces) and documents[other] == documents[number] and used < room:
        nearest += pieces[other][::step]
        used += sum(map(len, pieces[other]))
        other += step
    return _take(nearest, room)


def _take(words: list[list[int]], room: int) -> list[list[int]]:
    """Return the first words, up to one that does not fit; every word has a token."""
    ends = accumulate(map(len, words))
    return [word for word, end in zip(words, ends, strict=True) if end <= room]
