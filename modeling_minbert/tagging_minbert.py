# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tags of the words of any text, and the entities that they mark.

A text that is too long is split into windows, as in training: they overlap by about half, and a
word is tagged where its shorter context is longest.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any, NamedTuple

from .inference_minbert import Encoded, check_unicode, own_tokenizer
from .prediction_minbert import Predictor
from .words_minbert import find_words

# The letters of tags of spans: begin, inside or middle, end or last, single or unit or whole.
LETTERS, FIRST, LAST = "BIMELSUW", "BSUW", "ELSUW"


class Words(NamedTuple):
    """The words of a row."""

    text: str | None  # None if words were given
    words: list[str]
    spans: list[tuple[int, int]]  # start and end of each in the text, or by words without a text


class Part(NamedTuple):
    """A window of a row."""

    row: int  # index of the row
    tokens: Encoded
    places: list[int]  # the first token of each word that is tagged here


def split_words(row: Any, number: int, task: str, rule: str = "pattern") -> Words:
    """Split a text into words by a rule of `WordRule`, or take a list of them."""
    if isinstance(row, str):
        check_unicode([row], number, task)
        if rule == "given":
            raise ValueError(
                f"{task}: row {number} is a text, but the words that the task was trained on are "
                "not those that a rule finds in a text: give lists of words, made as those of the "
                "training rows (minbert predict reads them from a .conll file); or, for texts "
                'whose words are separated by spaces, set words to "whitespace" in the recipe, or '
                "for this task in config.json"
            )
        spans = find_words(row, rule)
        return Words(row, [row[start:end] for start, end in spans], spans)
    if isinstance(row, list | tuple) and all(isinstance(word, str) for word in row):
        check_unicode(row, number, task)
        return Words(None, list(row), [(place, place + 1) for place in range(len(row))])
    raise ValueError(f"{task}: row {number} must be a text or a list of words, got {row!r}")


def cut_windows(sizes: Sequence[int], room: int) -> list[tuple[int, int, int, int]]:
    """Split words of `sizes` tokens into windows of at most `room`: ranges encoded and tagged."""
    ends = [0, *accumulate(sizes)]
    if ends[-1] <= room:
        return [(0, len(sizes), 0, len(sizes))] if sizes else []
    spans = _overlapping_spans(ends, room)
    windows, word = [], 0
    for number, (first, last) in enumerate(spans):
        begin = word
        while word < last and not _has_better(ends, word, spans[number:]):
            word += 1
        if word > begin:
            windows.append((first, last, begin, word))
    return windows


def _overlapping_spans(ends: Sequence[int], room: int) -> list[tuple[int, int]]:
    """Cover all words with spans of at most `room` tokens that overlap by about half."""
    spans: list[tuple[int, int]] = []
    start, count = 0, len(ends) - 1
    while not spans or spans[-1][1] < count:
        end = max(start + 1, bisect_right(ends, ends[start] + room) - 1)
        spans.append((start, end))
        half = ends[start] + (ends[end] - ends[start]) // 2
        start = max(start + 1, bisect_left(ends, half, start))
    return spans


def _has_better(ends: Sequence[int], word: int, spans: Sequence[tuple[int, int]]) -> bool:
    """Return whether a later span than the first one has more context for a word."""
    own, *later = (_context(ends, word, span) for span in spans if span[0] <= word)
    return max(later, default=own) > own


def _context(ends: Sequence[int], word: int, span: tuple[int, int]) -> int:
    """Count the tokens on the shorter side of a word in a window."""
    return min(ends[word] - ends[span[0]], ends[span[1]] - ends[word + 1])


class TagPredictor(Predictor):
    """Predicts `words`, `tags`, `scores` and, for spans, `entities` of texts or lists of words."""

    def __init__(self, model: Any, name: str, head: Any) -> None:
        task = head.task
        self.name, self.model, self.head = name, model, head
        self.encoding = name  # the words of a row are described by the task that split it
        self.names: Sequence[str] = task.labels
        self.rule: str = task.words
        self.longest: int = task.limit_length(model.config.max_position_embeddings)
        self.texts: list[Words] = []
        self.parts: list[Part] = []
        self.results: list[list[tuple[int, float]]] = []

    def check(self, rows: Sequence[Any]) -> None:
        if isinstance(rows, str):
            raise TypeError(f"{self.name}: pass a list of texts, not one string")

    def encode(self, rows: Sequence[Any], first: int) -> list[Encoded]:
        self.texts = [
            split_words(row, number, self.name, self.rule) for number, row in enumerate(rows, first)
        ]
        self.parts = [
            part
            for row, text in enumerate(self.texts)
            for part in _encode(self.model, self.longest, row, text.words)
        ]
        self.results = [[] for _ in self.parts]
        return [part.tokens for part in self.parts]

    def keep(self, indices: list[int], inputs: dict[str, Any], output: Any) -> None:
        """Keep the tag of every word, and its probability."""
        mask = inputs.get("attention_mask")
        logits = output.logits[0] if mask is None else output.logits[mask.bool()]
        starts = accumulate((self.parts[index].tokens.tokens for index in indices), initial=0)
        places = [
            start + place
            for index, start in zip(indices, starts, strict=False)
            for place in self.parts[index].places
        ]
        scores, tags = self.head.probabilities(logits[places].float()).max(dim=-1)
        values = iter(zip(tags.tolist(), scores.tolist(), strict=True))
        for index in indices:
            self.results[index] = list(islice(values, len(self.parts[index].places)))

    def describe(self) -> list[Any]:
        rows: list[list[tuple[int, float]]] = [[] for _ in self.texts]
        for part, values in zip(self.parts, self.results, strict=True):
            rows[part.row] += values
        return [
            _describe(text, values, self.names)
            for text, values in zip(self.texts, rows, strict=True)
        ]


def _encode(model: Any, longest: int, row: int, words: list[str]) -> Iterator[Part]:
    """Tokenize a row; a word without any token becomes the unknown one."""
    if not words:
        return
    tokenizer = model.tokenizer
    room = longest - 2
    encoded = own_tokenizer(tokenizer)(
        words, is_split_into_words=True, add_special_tokens=False, truncation=False, verbose=False
    )
    pieces: list[list[int]] = [[] for _ in words]
    for token, word in zip(encoded["input_ids"], encoded.word_ids(), strict=True):
        pieces[word].append(token)
    pieces = [piece[:room] or [tokenizer.unk_token_id] for piece in pieces]
    for start, end, first, last in cut_windows(list(map(len, pieces)), room):
        places = list(accumulate(map(len, pieces[start:end]), initial=1))
        tokens = chain.from_iterable(pieces[start:end])
        ids = [tokenizer.cls_token_id, *tokens, tokenizer.sep_token_id]
        yield Part(row, Encoded([ids], [[0] * len(ids)]), places[first - start : last - start])


def _describe(row: Words, values: list[tuple[int, float]], names: Sequence[str]) -> dict[str, Any]:
    tags, scores = [names[tag] for tag, _ in values], [score for _, score in values]
    described: dict[str, Any] = {"words": row.words, "tags": tags, "scores": scores}
    if are_spans(names):
        described["entities"] = find_entities(row, tags, scores)
    return described


def are_spans(names: Sequence[str]) -> bool:
    """Return whether tags mark spans, in IOB, or with letters for their ends as in BIOES."""
    inside = [name for name in names if name != "O"]
    letters = LETTERS if any(name.startswith("B-") for name in inside) else "BI"
    return all(name[0] in letters and name[1:2] == "-" for name in inside)


def find_entities(row: Words, tags: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
    """Return the entities that tags mark, by the rule of conlleval.

    One begins at `B-`, at a change of type, and after an `O`; with other letters than `B` and `I`
    also at a single word, and after the last word of another one. Each has `label`, `text`,
    `start` and `end` (characters of the text, or words if words were given) and `score`, the mean
    of its words.
    """
    spans: list[list[int]] = []
    previous = "O"
    for place, tag in enumerate(tags):
        if tag != "O":
            if tag[0] in FIRST or previous[0] in LAST or previous[2:] != tag[2:]:
                spans.append([])
            spans[-1].append(place)
        previous = tag
    entities = []
    for places in spans:
        start, end = row.spans[places[0]][0], row.spans[places[-1]][1]
        words = row.words[places[0] : places[-1] + 1]
        text = " ".join(words) if row.text is None else row.text[start:end]
        entity = {"label": tags[places[0]][2:], "text": text, "start": start, "end": end}
        entities.append(entity | {"score": sum(scores[place] for place in places) / len(places)})
    return entities
