# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Words and answers: what rows of such tasks are, and what is found in them.

As `rows.py` without torch. Shapes: W windows of a question.
"""

import math
from collections import Counter
from collections.abc import Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from .pieces import (
    QuestionWindow,
    SentenceWindow,
    find_words,
    split_questions,
    split_sentences,
)
from .rows import check_rows, check_unicode, read_row
from .texts import Encoded, Encoding, Row

# Words and their tags

# The letters of tags of spans: begin, inside or middle, end or last, single or unit or whole.
LETTERS, FIRST, LAST = "BIMELSUW", "BSUW", "ELSUW"


class Words(NamedTuple):
    """The words of a row."""

    text: str | None  # None if words were given
    words: list[str]
    spans: list[tuple[int, int]]  # start and end of each in the text, or by words without a text


def split_words(row: object, number: int, task: str, rule: str = "pattern") -> Words:
    """Split a text into words by a rule of `WordRule`, or take a list of them."""
    row = read_row(row)
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


class TagReader:
    """Reads texts or lists of words: `words`, `tags`, `scores` and, for spans, `entities`.

    Attributes:
        results: Tag and score of the words of each part, by its number.
    """

    def __init__(
        self, model: Any, name: str, task: Any, encoding: Encoding, top_k: int | None
    ) -> None:
        if top_k is not None:
            raise ValueError(
                f"task {name!r} is a token_classification task with one tag per word: leave top_k "
                "out"
            )
        self.model, self.name, self.longest = model, name, encoding.max_length
        self.names: Sequence[str] = task.labels
        self.rule: str = task.words
        self.is_span = are_spans(task.labels, getattr(task, "scheme", None))  # old exports lack it
        self.texts: list[Words] = []
        self.parts: list[SentenceWindow] = []
        self.results: dict[int, list[tuple[int, float]]] = {}

    def encode(self, rows: Sequence[object], first: int) -> list[Encoded]:
        """Tokenize rows, of which the first one has the number `first`, to `parts`."""
        self.texts = [
            split_words(row, number, self.name, self.rule) for number, row in enumerate(rows, first)
        ]
        words = [text.words for text in self.texts]
        self.parts = split_sentences(self.model.tokenizer, words, self.longest)
        return [part.encoded for part in self.parts]

    def describe(self) -> list[Any]:
        """Return the predictions of the rows, and forget the results."""
        rows: list[list[tuple[int, float]]] = [[] for _ in self.texts]
        for number, part in enumerate(self.parts):
            rows[part.sentence] += self.results.pop(number)
        described = []
        for text, values in zip(self.texts, rows, strict=True):
            tags, scores = [self.names[tag] for tag, _ in values], [score for _, score in values]
            described.append({"words": text.words, "tags": tags, "scores": scores})
            if self.is_span:
                described[-1]["entities"] = find_entities(text, tags, scores)
        return described


def are_spans(names: Sequence[str], scheme: str | None = None) -> bool:
    """Return whether tags mark spans, in IOB, or with letters for their ends as in BIOES."""
    if scheme is not None:
        return scheme == "spans"
    inside = [name for name in names if name != "O"]
    letters = LETTERS if any(name.startswith("B-") for name in inside) else "BI"
    return all(name[0] in letters and name[1:2] == "-" for name in inside)


def mark_entities(tags: Sequence[str], spans: bool = True) -> list[tuple[int, int, str]]:
    """Return the first and the last word and the type of the entities of a row, as conlleval.

    One begins at `B-`, at a change of type, and after an `O`; with other letters than `B` and `I`
    also at a single word, and after the last word of another one. Tags that are not of `spans` are
    types, and mark one word each, all but `O`.
    """
    entities: list[tuple[int, int, str]] = []
    previous = "O"
    for place, tag in enumerate(tags):
        if tag != "O" and not spans:
            entities.append((place, place, tag))
        elif tag != "O":
            begins = tag[0] in FIRST or previous[0] in LAST
            if begins or previous == "O" or previous[2:] != tag[2:]:
                entities.append((place, place, tag[2:]))
            else:
                entities[-1] = (entities[-1][0], place, tag[2:])
        previous = tag
    return entities


def find_entities(row: Words, tags: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
    """Return the entities that tags mark.

    Each has `label`, `text`, `start` and `end` (characters of the text, or words if words were
    given) and `score`, the mean of its words.
    """
    entities = []
    for first, last, label in mark_entities(tags):
        start, end = row.spans[first][0], row.spans[last][1]
        words, of_words = row.words[first : last + 1], scores[first : last + 1]
        text = " ".join(words) if row.text is None else row.text[start:end]
        entity = {"label": label, "text": text, "start": start, "end": end}
        entities.append(entity | {"score": sum(of_words) / len(of_words)})
    return entities


# Answers

# Number of best starts and ends of a window that are combined.
PLACES = 20
# Questions whose windows are computed together.
QUESTIONS = 256
LONGEST_WINDOW = 384


class RankedAnswers(NamedTuple):
    """The best answers to a question, each of another text, and no answer.

    Scores are sums of two logits.
    """

    spans: list[tuple[float, str, int, int]]  # score, text, its first and last character
    null: float  # score of no answer: the lowest of [CLS] in a window
    total: float  # logarithm of the sum of the exponentials of all scores


def add_logarithms(values: Sequence[float]) -> float:
    """Return the logarithm of the sum of exponentials."""
    largest = max(values)
    return largest + math.log(sum(math.exp(value - largest) for value in values))


def rank_answers(
    texts: Sequence[str],
    windows: Sequence[QuestionWindow],
    scores: Sequence[Sequence[float]],
    max_answer_length: int,
    top_k: int,
) -> RankedAnswers:
    """Rank the answers to one question, given the text and `keep_scores` of each window."""
    half = 2 + 2 * PLACES
    kept = [(row[:half], row[half:]) for row in scores]
    total = sum(add_logarithms([side[0] for side in sides]) for sides in zip(*kept, strict=True))
    null = min(start[1] + end[1] for start, end in kept)
    spans = []
    for number, (window, sides) in enumerate(zip(windows, kept, strict=True)):
        shift = window.tokens[0] - window.first  # from places in the sequence to tokens of the text
        starts, ends = (
            [
                (int(place) + shift, logit)
                for place, logit in zip(side[2 : 2 + PLACES], side[2 + PLACES :], strict=True)
                if logit > -math.inf
            ]
            for side in sides
        )
        for first, start_logit in starts:
            if not window.owned[0] <= first < window.owned[1]:
                continue
            for last, end_logit in ends:
                if first <= last < min(window.tokens[1], first + max_answer_length):
                    span = window.characters[first][0], window.characters[last][1]
                    spans.append((start_logit + end_logit, number, *span))
    ranked: dict[str, tuple[float, str, int, int]] = {}
    for score, number, start, end in sorted(spans, key=itemgetter(0), reverse=True):
        answer = texts[number][start:end]
        if answer:
            ranked.setdefault(answer, (score, answer, start, end))
        if len(ranked) == top_k:
            break
    return RankedAnswers(list(ranked.values()), null, total)


class QuestionReader:
    """Reads pairs of a question and its text."""

    size = QUESTIONS

    def __init__(self, model: Any, name: str, task: Any, encoding: Encoding) -> None:
        self.model, self.name, self.task, self.encoding = model, name, task, encoding
        self.rows: list[Row] = []
        self.windows: list[QuestionWindow] = []

    def encode(self, rows: Sequence[object], first: int) -> list[Encoded]:
        """Tokenize rows, of which the first one has the number `first`, to windows."""
        self.rows = list(check_rows(rows, self.name, 2, first))
        asked = [(question.strip(), text) for question, text in self.rows]
        self.windows = split_questions(self.encoding, self.model.tokenizer, asked)
        return [window.encoded for window in self.windows]

    def describe_answers(self, scores: Sequence[Sequence[float]], top_k: int | None) -> list[Any]:
        """Describe the rows by `keep_scores` of their windows: answers, best first.

        `start` and `end` are characters of the text, 0 for no answer; `score` is the probability
        among all spans of all windows (Clark and Gardner 2018, section 3.2), 0 if no span can be an
        answer.
        """
        counts = Counter(window.question for window in self.windows)
        limits = self.task.max_answer_length, top_k or 1
        threshold = self.task.null_score_diff_threshold
        described, first = [], 0
        for number, (_, text) in enumerate(self.rows):
            end = first + counts[number]
            windows = self.windows[first:end]
            texts = [text] * len(windows)
            best, null, total = rank_answers(texts, windows, scores[first:end], *limits)
            if threshold is not None:
                rank = 0
                if best and null - best[0][0] <= threshold:
                    rank = max(1, sum(score >= null for score, *_ in best))
                best.insert(rank, (null, "", 0, 0))
            answers: list[Any] = [
                {"score": math.exp(score - total), "start": start, "end": last, "answer": answer}
                for score, answer, start, last in best[: top_k or 1]
            ]
            answers = answers or [{"score": 0.0, "start": 0, "end": 0, "answer": ""}]
            described.append(answers[0] if top_k is None else answers)
            first = end
        return described
