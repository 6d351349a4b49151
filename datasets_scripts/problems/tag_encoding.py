"""Tokenize sentences with tags, in windows, with or without their document context."""

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import Any, NamedTuple

import datasets
from transformers import PreTrainedTokenizerBase

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
    """Split a long sentence into windows of at most ``room`` tokens that overlap by about half.

    Every word is labeled once, in the window with most context on its shorter side (the maximum
    context rule of Devlin et al. 2019 for answers). ``sizes`` are the tokens of each word.
    """
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
    pieces = list(chain.from_iterable(_tokenize(rows, tokenizer, room)))
    tags = rows["tags"][:] if "tags" in rows.column_names else None
    documents = rows["document"][:]
    names, words = rows["id"][:], rows["words"][:]
    columns: dict[str, list[Any]] = {name: [] for name in _features()}
    for number, sentence in enumerate(pieces):
        known = [UNKNOWN_LABEL] * len(sentence) if tags is None else tags[number]
        for window in cut_windows([len(word) for word in sentence], room):
            ids, labels = _label(sentence, known, window)
            is_whole = window.end - window.start == len(sentence)
            free = room - len(ids) if document_context and is_whole else 0
            before, after = _find_context(pieces, documents, number, free)
            ids = [*before, *ids, *after]
            labels = [IGNORED_LABEL] * len(before) + labels + [IGNORED_LABEL] * len(after)
            columns["id"].append(names[number])
            columns["sentence"].append(number)
            columns["words"].append(words[number][window.first : window.last])
            columns["input_ids"].append([tokenizer.cls_token_id, *ids, tokenizer.sep_token_id])
            columns["token_type_ids"].append([0] * (len(ids) + 2))
            columns["length"].append(len(ids) + 2)
            columns["labels"].append([IGNORED_LABEL, *labels, IGNORED_LABEL])
    return datasets.Dataset.from_dict(columns, datasets.Features(_features()))


def _features() -> dict[str, Any]:
    return {
        "id": datasets.Value("string"),
        "sentence": datasets.Value("int64"),
        "words": datasets.List(datasets.Value("string")),
        "input_ids": datasets.List(datasets.Value("int32")),
        "token_type_ids": datasets.List(datasets.Value("int8")),
        "length": datasets.Value("int32"),
        "labels": datasets.List(datasets.Value("int16")),
    }


def _tokenize(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, room: int
) -> Iterator[list[Pieces]]:
    """Yield tokens by word of batches of sentences; a word has a token, and fits a window."""
    for batch in rows.select_columns(["words"]).iter(TOKENIZED_SENTENCES):
        encoded = tokenizer(
            batch["words"],
            is_split_into_words=True,
            add_special_tokens=False,
            padding=False,
            truncation=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        sentences: list[Pieces] = []
        for number, words in enumerate(batch["words"]):
            pieces: Pieces = [[] for _ in words]
            places = encoded.word_ids(number)
            for token, word in zip(encoded["input_ids"][number], places, strict=True):
                pieces[word].append(token)
            sentences.append([word[:room] or [tokenizer.unk_token_id] for word in pieces])
        yield sentences


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
    half = room // 2
    left = max(half, room - sum(map(len, after)))
    kept: list[list[int]] = []
    used = 0
    for word in before:
        if used + len(word) > left:
            break
        kept.append(word)
        used += len(word)
    rest: list[int] = []
    for word in after:
        if used + len(rest) + len(word) > room:
            break
        rest += word
    return [token for word in reversed(kept) for token in word], rest


def _nearest(
    pieces: Sequence[Pieces], documents: Sequence[int], number: int, step: int, room: int
) -> list[list[int]]:
    """List words of the neighbors on one side, the nearest first, up to the room."""
    nearest: list[list[int]] = []
    used = 0
    other = number + step
    while 0 <= other < len(pieces) and documents[other] == documents[number] and used < room:
        words = pieces[other] if step > 0 else pieces[other][::-1]
        for word in words:
            if used + len(word) > room:
                return nearest
            nearest.append(word)
            used += len(word)
        other += step
    return nearest
