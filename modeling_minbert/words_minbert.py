# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The words of a text: split in predictions as the words of the training rows were.

A file of tags has words, a text has none. Which rule finds the words of the file in a text is
measured on the training rows, and stored with the task.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

WordRule = Literal["pattern", "elision", "compound", "characters", "whitespace", "given"]
Span = tuple[int, int]

# What belongs to the character before it (combining marks, joiners, soft hyphens, signs of
# direction) is read as one mark, and what separates words without showing anything as a space.
MARK, JOINER, SEPARATORS = "\u0301", "\u200d", "\u200b\ufeff"
M = f"[{MARK}{JOINER}]"
HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Kana, and the scripts of Thailand, Laos, Tibet, Myanmar and Cambodia
OTHER_SPACELESS = "\u3040-\u30ff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
SPACELESS = re.compile(f"[{HAN}{OTHER_SPACELESS}]")
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
        cuts = [match.start() + cut for cut in _find_cuts(match[0], rule)]
        spans += pairwise([match.start(), *cuts, match.end()])
    return spans


def _find_cuts(word: str, rule: str) -> list[int]:
    """Return where a word with an apostrophe is cut."""
    if rule == "elision":
        return [match.end() for match in ELIDED.finditer(word)]
    clitic = CLITIC.search(word) if rule == "pattern" else None
    return [clitic.start()] if clitic is not None and clitic.start() else []


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
