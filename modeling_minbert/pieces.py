# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Texts in pieces: their words and their windows.

A file of tags has words, a text has none. Which rule finds the words of the file in a text is
measured on the training rows, and stored with the task.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, Literal, NamedTuple

from .texts import HAN, SPACELESS, Encoded, Encoding, Row, Tokenizer, own_tokenizer, tokenize_whole

WordRule = Literal["pattern", "elision", "compound", "characters", "whitespace", "given"]
Span = tuple[int, int]

# What belongs to the character before it (combining marks, joiners, soft hyphens, signs of
# direction) is read as one mark, and what separates words without showing anything as a space.
MARK, JOINER, SEPARATORS = "\u0301", "\u200d", "\u200b\ufeff"
M = f"[{MARK}{JOINER}]"
LETTERS = rf"(?:[^\W{HAN}]{M}*)+"
# The words of treebanks of English and of CoNLL-2003: of two that fit, the first one.
WORDS = re.compile(
    r"(?:https?://|www\.)\S*[\w/]"
    rf"|(?<!\w)(?:[^\W\d_]\.){{2,}}(?:-{LETTERS})?"  # U.S., a.m., U.S.-led
    r"|(?<!\w)[A-Z]\.(?=\s+[A-Z])"  # an initial
    r"|(?<![\w.,])[.+]\d+(?:[.,]\d+)*"  # .5, +3
    rf"|[@#](?=[^\W\d_]){LETTERS}"
    rf"|{LETTERS}(?:(?:['\u2019.&/@-]|(?<=\d)[,:](?=\d)){LETTERS})*"
    rf"|[{HAN}]{M}*"
    r"|\.{2,}|-{2,}"
    rf"|[^\w\s{MARK}{JOINER}]{M}*(?:(?<={JOINER})[^\w\s{MARK}{JOINER}]{M}*)*"  # also joined emoji
    rf"|{M}+"
)
CHARACTERS = re.compile(rf"[^\s{MARK}{JOINER}]{M}*|{M}+")
CHUNKS = re.compile(r"\S+")
# at the end of a word
CLITIC = re.compile(r"(?i)(?:n['\u2019]t|['\u2019](?:s|m|d|re|ve|ll))$")

ELIDED = re.compile(r"(?<=\w)['\u2019](?=\w)")

# Share of the training words that a rule must find for texts to be split by it.
LEAST_FOUND = 0.8
OPENING, CLOSING = ("Ps", "Pi"), ("Pe", "Pf", "Po")
# Punctuation with a space before it
SPACED = frozenset("\"'&@*/#\\\u00bf\u00a1")


class Found(NamedTuple):
    """How well a rule finds the words of some sentences in their texts."""

    share: float  # of the words that it finds
    cut: list[tuple[str, int]]  # the most frequent ones that it does not find


def find_words(text: str, rule: str) -> list[Span]:
    """Find the words of a text, as first and last character, exclusive."""
    shadow = text
    if not text.isascii():
        shadow = text.translate({ord(x): _simplify(x) for x in set(text) if not x.isascii()})
    if rule == "characters":
        return [match.span() for match in CHARACTERS.finditer(shadow)]
    if rule == "whitespace":
        return [match.span() for match in CHUNKS.finditer(shadow)]
    spans: list[Span] = []
    for match in WORDS.finditer(shadow):
        start, cuts = match.start(), []  # where a word with an apostrophe is cut
        if rule == "elision":
            cuts = [start + elided.end() for elided in ELIDED.finditer(match[0])]
        elif rule == "pattern" and (clitic := CLITIC.search(match[0])) and clitic.start():
            cuts = [start + clitic.start()]
        spans += pairwise([start, *cuts, match.end()])
    return spans


def _simplify(character: str) -> str:
    if character == JOINER:
        return character
    if character in SEPARATORS:
        return " "
    kind = unicodedata.category(character)
    return MARK if kind[0] == "M" or kind == "Cf" else character


def choose_rule(sentences: Sequence[Sequence[str]]) -> WordRule:
    """Choose the rule that finds the words of sentences in their texts."""
    rules: list[WordRule] = ["pattern", "elision", "compound", "whitespace"]
    if _is_spaceless(sentences):
        rules.append("characters")
    shares = {rule: measure_rule(sentences, rule).share for rule in rules}
    best = max(rules, key=lambda rule: shares[rule])  # the first one of equal ones
    return best if shares[best] >= LEAST_FOUND else "given"


def measure_rule(sentences: Sequence[Sequence[str]], rule: str) -> Found:
    """Join the words of sentences to texts, as they are written, and look for them by a rule."""
    total, missed, spaceless = 0, Counter[str](), _is_spaceless(sentences)
    for words in sentences:
        text, spans = _join(words, spaceless=spaceless)
        found = set(find_words(text, rule))
        total += len(spans)
        missed.update(text[slice(*span)] for span in spans if span not in found)
    return Found(1 - missed.total() / max(1, total), missed.most_common(3))


def _is_spaceless(sentences: Sequence[Sequence[str]]) -> bool:
    """Return whether most words are of scripts that are written without spaces."""
    words = [word for words in sentences for word in words if word[:1].isalnum()]
    return 2 * sum(SPACELESS.match(word) is not None for word in words) > len(words)


def _join(words: Sequence[str], *, spaceless: bool) -> tuple[str, list[Span]]:
    """Write words as a text: spaces between them, but none before a comma."""
    text, spans, last = "", list[Span](), ""
    for word in words:
        if last and word and not _touches(last, word, spaceless=spaceless):
            text += " "
        spans.append((len(text), len(text) + len(word)))
        text, last = text + word, word
    return text, spans


def _touches(left: str, right: str, *, spaceless: bool) -> bool:
    """Return whether no space is written between two words."""
    if spaceless or SPACELESS.match(left[-1]) or SPACELESS.match(right):
        # foreign words next to each other, if they are not single letters
        return max(len(left), len(right)) == 1 or not (left[-1].isascii() and right.isascii())
    if right[0] not in SPACED and unicodedata.category(right[0]) in CLOSING:
        return not right[1:2].isalnum()  # .5
    if unicodedata.category(left[-1]) in OPENING or CLITIC.fullmatch(right):
        return True
    return len(left) > 1 and left[-1] in "'\u2019" and left[-2].isalpha()  # l' homme


# Tokens


class Layout(NamedTuple):
    """The special tokens of a sequence, of BERT `[CLS] a [SEP] b [SEP]`."""

    start: list[int]
    middle: list[int]  # between two texts
    end: list[int]

    @property
    def single(self) -> int:
        """Special tokens of a sequence with one text."""
        return len(self.start) + len(self.end)

    def wrap(self, ids: Sequence[int]) -> list[int]:
        """Add the special tokens of a sequence with one text."""
        return [*self.start, *ids, *self.end]


def find_layout(tokenizer: Tokenizer) -> Layout:
    """Find which special tokens a tokenizer adds, by a pair of letters.

    Raises:
        ValueError: If it adds none, or others to one text than to two.
    """
    options: dict[str, Any] = {"return_special_tokens_mask": True, "truncation": False}
    one, two = (own_tokenizer(tokenizer)(*texts, **options) for texts in (("a",), ("a", "b")))
    parts = [
        (is_special, [token for token, _ in run])
        for is_special, run in groupby(
            zip(two["input_ids"], two["special_tokens_mask"], strict=True), key=lambda pair: pair[1]
        )
    ]
    known = [ids for is_special, ids in parts if is_special]
    if len(known) == 3 and len(parts) == 5:
        layout = Layout(*known)
        if one["input_ids"] == layout.wrap(parts[1][1]):
            return layout
    raise ValueError(
        f"{type(tokenizer).__name__} adds no special tokens around texts and between two of them, "
        "as [CLS] and [SEP] of BERT do; use the tokenizer of an encoder"
    )


# Windows of long texts


def cut_windows(length: int, room: int, doc_stride: int) -> list[Span]:
    """Cut a text of `length` tokens into windows of at most `room`; an empty one has one window."""
    step = min(room, doc_stride)
    starts = range(0, max(1, length - room + step), step)
    return [(first, min(first + room, length)) for first in starts]


def split_documents(
    encoding: Encoding, tokenizer: Tokenizer, texts: Sequence[str]
) -> list[list[Encoded]]:
    """Tokenize texts to windows of one sequence each."""
    # tokenizers can split texts, too, but lose the end of long ones before version 0.23.3
    layout = find_layout(tokenizer)
    room, overlap = encoding.max_length - layout.single, encoding.window_overlap or 0
    if room <= overlap:
        raise ValueError(
            f"window_overlap={overlap} must be less than max_length={encoding.max_length} without "
            f"{layout.single} special tokens"
        )
    windows = []
    for ids in tokenize_whole(tokenizer, list(texts))["input_ids"]:
        spans = cut_windows(len(ids), room, room - overlap)
        kept = [spans[place] for place in encoding.choose_windows(len(spans))]
        parts = [layout.wrap(ids[slice(*span)]) for span in kept]
        windows.append([Encoded([part], [[0] * len(part)]) for part in parts])
    return windows


# Windows of texts with a question

# Weight of the length of a window in the context of its tokens, as in google-research/bert.
LENGTH_WEIGHT = 0.01


def share_tokens(windows: Sequence[Span]) -> list[Span]:
    """Assign each token to the first window with the highest `min(left, right) + 0.01 * length`."""
    # Both terms change in steps of one, so comparing neighboring windows is enough.
    cuts = [0]
    for left, right in pairwise(windows):
        better = (t for t in range(right[0], left[1]) if _context(t, right) > _context(t, left))
        cuts.append(max(cuts[-1], next(better, left[1])))
    return list(pairwise([*cuts, windows[-1][1]]))


def _context(token: int, window: Span) -> float:
    first, end = window
    return min(token - first, end - 1 - token) + LENGTH_WEIGHT * (end - first)


class QuestionWindow(NamedTuple):
    """A part of a text with its question, `[CLS] question [SEP] part [SEP]`, types 0 and 1."""

    question: int  # index of the question
    encoded: Encoded
    first: int  # place of the first token of the part in the sequence
    tokens: Span  # the part, by the tokens of the whole text
    owned: Span  # those of its tokens that have most context in this window
    characters: list[Span]  # start and end of each token of the whole text


def _trim_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """Take white space from the ends of tokens, of which some tokenizers write it into the next.

    Combining marks that a tokenizer strips, as uncased ones do, belong to the token before them;
    letters that no token has, to the one after them: byte-level tokenizers that split at white
    space take the first letter of a word for a space.
    """
    spans, trimmed, reached = list(spans), list[Span](), 0
    following = [start for start, _ in spans[1:]] + [len(text)]
    for (start, end), limit in zip(spans, following, strict=False):
        left = start
        while left > reached and (
            text[left - 1].isalnum() and text[start : start + 1].isalnum()
            if start < end
            else not text[left - 1].isspace()
        ):
            left -= 1
        start = left  # noqa: PLW2901
        while start < end < limit and unicodedata.category(text[end])[0] == "M":
            end += 1  # noqa: PLW2901
        token = text[start:end].lstrip()
        first = end - len(token)
        trimmed.append((first, first + len(token.rstrip())))
        reached = max(reached, end)
    return trimmed


def split_questions(
    encoding: Encoding, tokenizer: Tokenizer, rows: Sequence[Row]
) -> list[QuestionWindow]:
    """Tokenize questions, each with its text, to windows in the order of the questions.

    Raises:
        ValueError: If a question may leave no room for a text, or the tokenizer does not report
            the characters of tokens.
    """
    longest, stride = encoding.max_question_length or 64, encoding.doc_stride or 128
    layout = find_layout(tokenizer)
    special = sum(map(len, layout))
    if encoding.max_length <= longest + special:
        raise ValueError(
            f"max_length={encoding.max_length} leaves no room for a text next to a question of "
            f"max_question_length={longest} tokens and {special} special ones; raise "
            "max_length (384 is usual) or lower max_question_length"
        )
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not report the characters of tokens; use a "
            "fast tokenizer (tokenizer.json)"
        )
    unique = list(dict.fromkeys(chain.from_iterable(rows)))
    whole = tokenize_whole(tokenizer, unique, return_offsets_mapping=True)
    characters = map(_trim_spans, unique, whole["offset_mapping"])
    known = dict(zip(unique, zip(whole["input_ids"], characters, strict=True), strict=True))
    windows = []
    for number, (question, text) in enumerate(rows):
        kept = known[question][0][:longest]
        head = [*layout.start, *kept, *layout.middle]
        ids, places = known[text]
        spans = cut_windows(len(ids), encoding.max_length - len(head) - len(layout.end), stride)
        for span, owned in zip(spans, share_tokens(spans), strict=True):
            tokens = [*head, *ids[slice(*span)], *layout.end]
            types = [0] * len(head) + [1] * (len(tokens) - len(head))
            encoded = Encoded([tokens], [types])
            windows.append(QuestionWindow(number, encoded, len(head), span, owned, places))
    return windows


# Windows of words


class WordWindow(NamedTuple):
    """A part of a sentence, with tags for some of its words."""

    start: int  # first word
    end: int  # last word, exclusive
    first: int  # first tagged word
    last: int  # last tagged word, exclusive


def tokenize_words(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_length: int
) -> list[list[list[int]]]:
    """Return the tokens of each word of sentences.

    A word without any token, such as a control character, becomes the unknown one; a longer one
    than a sequence is truncated.
    """
    space = find_space(tokenizer)
    spaced = [[*words[:1], *(space + word for word in words[1:])] for words in sentences]
    encoded = tokenize_whole(tokenizer, spaced, is_split_into_words=True)
    room = max_length - find_layout(tokenizer).single
    tokenized = []
    for number, words in enumerate(sentences):
        pieces: list[list[int]] = [[] for _ in words]
        places = encoded.word_ids(number)
        for token, word in zip(encoded["input_ids"][number], places, strict=True):
            pieces[word].append(token)
        tokenized.append([word[:room] or [tokenizer.unk_token_id] for word in pieces])
    return tokenized


class SentenceWindow(NamedTuple):
    """Some words of a sentence in a sequence of its own."""

    sentence: int  # index of the sentence
    encoded: Encoded
    tagged: Span  # those of its words that are tagged here
    places: list[int]  # the first token of each of these


def split_sentences(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_length: int
) -> list[SentenceWindow]:
    """Tokenize the words of sentences to windows in the order of the sentences."""
    layout = find_layout(tokenizer)
    windows = []
    for number, pieces in enumerate(tokenize_words(tokenizer, sentences, max_length)):
        sizes = list(map(len, pieces))
        for start, end, first, last in cut_word_windows(sizes, max_length - layout.single):
            ids = layout.wrap(list(chain.from_iterable(pieces[start:end])))
            places = list(accumulate(sizes[start:end], initial=len(layout.start)))
            encoded = Encoded([ids], [[0] * len(ids)])
            chosen = places[first - start : last - start]
            windows.append(SentenceWindow(number, encoded, (first, last), chosen))
    return windows


def find_space(tokenizer: Tokenizer) -> str:
    """Return what a word that is tokenized alone needs before it to be read as within a text.

    A byte-level tokenizer writes the space before a word into its first token.
    """
    pair = tokenize_whole(tokenizer, [["a", "a"]], is_split_into_words=True)["input_ids"]
    return " " if pair != tokenize_whole(tokenizer, ["a a"])["input_ids"] else ""


def cut_word_windows(sizes: Sequence[int], room: int) -> list[WordWindow]:
    """Split words of `sizes` tokens into windows of at most `room` that overlap by about half.

    A word is tagged where its shorter context is longest (Devlin et al. 2019, for answers).
    """
    ends = [0, *accumulate(sizes)]
    if ends[-1] <= room:
        return [WordWindow(0, len(sizes), 0, len(sizes))] if sizes else []
    spans: list[Span] = []
    start = 0
    while not spans or spans[-1][1] < len(sizes):
        end = max(start + 1, bisect_right(ends, ends[start] + room) - 1)
        spans.append((start, end))
        half = ends[start] + (ends[end] - ends[start]) // 2
        start = max(start + 1, bisect_left(ends, half, start))
    windows, word = [], 0
    for number, (first, last) in enumerate(spans):
        begin = word
        while word < last and not _has_better(ends, word, spans[number:]):
            word += 1
        if word > begin:
            windows.append(WordWindow(first, last, begin, word))
    return windows


def _has_better(ends: Sequence[int], word: int, spans: Sequence[Span]) -> bool:
    """Return whether a later span than the first one has more context for a word."""
    here, *later = (
        min(ends[word] - ends[first], ends[last] - ends[word + 1])
        for first, last in spans
        if first <= word
    )
    return max(later, default=here) > here
