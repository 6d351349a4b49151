# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""What a model reads of texts, in training and in predictions: rows, words, tokens, and windows.

A file of tags has words, a text has none. Which rule finds the words of the file in a text is
measured on the training rows, and stored with the task. All functions of tokens are pure: what a
call, or whoever made the tokenizer, set on it before has no effect.
"""

import copy
import json
import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, groupby, pairwise
from typing import Any, Literal, NamedTuple

from transformers import PreTrainedTokenizerBase as Tokenizer

Row = tuple[str, ...]
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


# Share of the kept tokens that comes from the start of a text: the paper's 128 of 510, with 382
# from the end. Source: Sun et al. 2019, How to Fine-Tune BERT for Text Classification?, 5.3.1.
HEAD_SHARES = {"head": 1.0, "tail": 0.0, "head_tail": 128 / 510}
WINDOWS, OVERLAP = "windows", 64  # the truncation that keeps all of a text


class Encoded(NamedTuple):
    """The tokens of one row."""

    input_ids: list[list[int]]  # one list per sequence: two for separate pairs, else one
    token_type_ids: list[list[int]]

    @property
    def tokens(self) -> int:
        """Number of tokens of all its sequences."""
        return sum(map(len, self.input_ids))


def default_overlap(max_length: int | None) -> int:
    """Return the `window_overlap` of a task that leaves it out."""
    return OVERLAP if max_length is None else min(OVERLAP, max_length // 4)


def check_overlap(overlap: int, max_length: int) -> None:
    """Check that a token is in at most two windows."""
    if not 0 <= overlap <= max_length // 2:
        raise ValueError(
            f"window_overlap={overlap} must be from 0 to half of max_length={max_length}"
        )


@dataclass(frozen=True)
class Encoding:
    """How the texts of a row become tokens, in training and in predictions.

    Args:
        max_length: Maximum tokens of a sequence, special ones included.
        pair_encoding: As in `PooledTask`; choices are `joint`.
        truncation: As in `PooledTask`.
        window_overlap: Tokens that a window shares with the one before; only for windows.
        max_windows: Maximum windows of a text, evenly spread over a longer one; None for all.
        num_choices: Sequences of a row of choices; None for as many as rows have.
        max_question_length: Maximum tokens of a question, which is truncated; 64.
        doc_stride: Tokens from the start of a window of a text with a question to the start of the
            next one; 128. A step, as in google-research/bert, not the overlap that tokenizers call
            `stride`.

    Raises:
        ValueError: If a size is below 1, or a token would be in more than two windows.
    """

    max_length: int
    pair_encoding: str | None = None
    truncation: str = "head"
    window_overlap: int | None = None
    max_windows: int | None = None
    num_choices: int | None = None
    max_question_length: int | None = None
    doc_stride: int | None = None

    def __post_init__(self) -> None:
        if self.window_overlap is not None:
            check_overlap(self.window_overlap, self.max_length)
        for name in ("max_windows", "max_question_length", "doc_stride"):
            if (size := getattr(self, name)) is not None and size < 1:
                raise ValueError(f"{name}={size} must be at least 1")

    def choose_windows(self, count: int) -> list[int]:
        """Choose the windows of a text to keep, evenly spread, with the first and the last."""
        if self.max_windows is None or count <= self.max_windows:
            return list(range(count))
        last = max(1, self.max_windows - 1)
        return [place * (count - 1) // last for place in range(self.max_windows)]

    def split_documents(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[Encoded]]:
        """Tokenize texts to windows of one sequence each."""
        # tokenizers can split texts, too, but lose the end of long ones before version 0.23.3
        layout = find_layout(tokenizer)
        room, overlap = self.max_length - layout.single, self.window_overlap or 0
        if room <= overlap:
            raise ValueError(
                f"window_overlap={overlap} must be less than max_length={self.max_length} without "
                f"{layout.single} special tokens"
            )
        windows = []
        for ids in _tokenize_whole(tokenizer, list(texts))["input_ids"]:
            spans = cut_windows(len(ids), room, room - overlap)
            kept = [spans[place] for place in self.choose_windows(len(spans))]
            parts = [layout.wrap(ids[slice(*span)]) for span in kept]
            windows.append([Encoded([part], [[0] * len(part)]) for part in parts])
        return windows

    def split_questions(self, tokenizer: Tokenizer, rows: Sequence[Row]) -> list["QuestionWindow"]:
        """Tokenize questions, each with its text, to windows in the order of the questions.

        Raises:
            ValueError: If a question may leave no room for a text, or the tokenizer does not report
                the characters of tokens.
        """
        longest, stride = self.max_question_length or 64, self.doc_stride or 128
        layout = find_layout(tokenizer)
        special = sum(map(len, layout))
        if self.max_length <= longest + special:
            raise ValueError(
                f"max_length={self.max_length} leaves no room for a text next to a question of "
                f"max_question_length={longest} tokens and {special} special ones; raise "
                "max_length (384 is usual) or lower max_question_length"
            )
        if not tokenizer.is_fast:
            raise ValueError(
                f"{type(tokenizer).__name__} does not report the characters of tokens; use a "
                "fast tokenizer (tokenizer.json)"
            )
        unique = list(dict.fromkeys(chain.from_iterable(rows)))
        whole = _tokenize_whole(tokenizer, unique, return_offsets_mapping=True)
        characters = map(_trim_spans, unique, whole["offset_mapping"])
        known = dict(zip(unique, zip(whole["input_ids"], characters, strict=True), strict=True))
        windows = []
        for number, (question, text) in enumerate(rows):
            kept = known[question][0][:longest]
            head = [*layout.start, *kept, *layout.middle]
            ids, places = known[text]
            spans = cut_windows(len(ids), self.max_length - len(head) - len(layout.end), stride)
            for span, owned in zip(spans, share_tokens(spans), strict=True):
                tokens = [*head, *ids[slice(*span)], *layout.end]
                types = [0] * len(head) + [1] * (len(tokens) - len(head))
                encoded = Encoded([tokens], [types])
                windows.append(QuestionWindow(number, encoded, len(head), span, owned, places))
        return windows


def _trim_spans(text: str, spans: Iterable[Span]) -> list[Span]:
    """Take white space from the ends of tokens, of which some tokenizers write it into the next."""
    trimmed = []
    for start, end in spans:
        token = text[start:end].lstrip()
        first = end - len(token)
        trimmed.append((first, first + len(token.rstrip())))
    return trimmed


class QuestionWindow(NamedTuple):
    """A part of a text with its question, `[CLS] question [SEP] part [SEP]`, types 0 and 1."""

    question: int  # index of the question
    encoded: Encoded
    first: int  # place of the first token of the part in the sequence
    tokens: Span  # the part, by the tokens of the whole text
    owned: Span  # those of its tokens that have most context in this window
    characters: list[Span]  # start and end of each token of the whole text


def own_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer whose truncation and padding nobody else sees or sets.

    A call of a fast tokenizer stores both in it, where the call of another thread finds them. The
    copy shares the vocabulary and all other parts: it costs less than tokenizing a sentence.
    """
    inner = getattr(tokenizer, "_tokenizer", None)
    if inner is None:  # a slow one passes them on
        return tokenizer
    own = type(inner)(inner.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if (value := getattr(inner, part)) is not None:
            setattr(own, part, value)
    own.encode_special_tokens = inner.encode_special_tokens
    added = inner.get_added_tokens_decoder()
    own.add_tokens([added[number] for number in sorted(added)])
    if own.get_added_tokens_decoder() != added:  # their numbers have gaps
        own = copy.deepcopy(inner)
        own.no_truncation()
        own.no_padding()
    tokenizer = copy.copy(tokenizer)
    tokenizer._tokenizer = own
    return tokenizer


def tokenize(tokenizer: Tokenizer, rows: Sequence[Row], encoding: Encoding) -> list[Encoded]:
    """Tokenize rows with the same number of texts; the longer one of a pair is truncated first."""
    separate, max_length = encoding.pair_encoding == "separate", encoding.max_length
    # A tokenizer takes pairs as two columns.
    texts = [list(chain.from_iterable(rows))] if separate else [list(x) for x in zip(*rows)]  # noqa: B905 - checked
    options: dict[str, Any] = {"truncation": "longest_first", "max_length": max_length}
    if encoding.truncation != "head":  # a tokenizer cannot truncate the middle, and would warn here
        options = {"truncation": False, "return_special_tokens_mask": True, "verbose": False}
    options |= {"return_token_type_ids": True, "return_attention_mask": False, "padding": False}
    own = own_tokenizer(tokenizer)
    cut = _cut_texts(own, texts, max_length) if encoding.truncation == "head" else {}
    heads = [[cut.get(text, text) for text in column] for column in texts] if cut else texts
    encoded = own(*heads, **options)
    columns = [encoded[name] for name in Encoded._fields]
    for row in range(len(columns[0])) if cut else ():
        given = [column[row] for column in texts]
        if any(text in cut for text in given) and not _is_decided(encoded, row, given, cut):
            whole = own(*([text] for text in given), **options)
            for column, name in zip(columns, Encoded._fields, strict=True):
                column[row] = whole[name][0]
    for row, special in enumerate(encoded.get("special_tokens_mask", ())):
        kept = _choose_tokens(special, max_length, HEAD_SHARES[encoding.truncation])
        for column in columns:
            column[row] = [column[row][place] for place in kept]
    step = len(columns[0]) // len(rows)
    starts = range(0, len(columns[0]), step)
    return [Encoded(*(column[start : start + step] for column in columns)) for start in starts]


# A text of more than twice so many characters for each token that remains is cut before it is
# tokenized.
CUT = 8
# Parts of fast tokenizers for which the tokens before a space, between a letter or digit and what
# is no space, do not depend on what follows it.
SPLITTERS = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}
LOCAL = SPLITTERS | {
    *("BertNormalizer", "Digits", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled"),
    *("Prepend", "Punctuation", "Sequence", "Strip", "StripAccents"),
}


def _cut_texts(tokenizer: Tokenizer, columns: list[list[str]], max_length: int) -> dict[str, str]:
    """Cut long texts at a space, after more characters than usually remain of them, by text.

    A page need not be tokenized for its first tokens. `_is_decided` tells whether it was enough.
    """
    size = CUT * max_length
    long = {text for column in columns for text in column if len(text) > 2 * size}
    if not long or not _splits_at_spaces(tokenizer):
        return {}
    cut = {}
    for text in long:
        end = text.rfind(" ", 0, size)
        while end > 0 and not (text[end - 1].isalnum() and not text[end + 1].isspace()):
            end = text.rfind(" ", 0, end)
        if end > 0:
            cut[text] = text[:end]
    return cut


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer is known to read the words before a space without the rest."""
    inner = getattr(tokenizer, "_tokenizer", None)
    if inner is None or tokenizer.truncation_side != "right" or inner.pre_tokenizer is None:
        return False
    added = inner.get_added_tokens_decoder().values()
    if any(" " in token.content for token in added) or getattr(inner.model, "dropout", None):
        return False
    stack = [part for part in (inner.normalizer, inner.pre_tokenizer) if part is not None]
    parts: list[Any] = [json.loads(part.__getstate__()) for part in stack]
    names = set()
    while parts:
        part = parts.pop()
        parts += part.get("normalizers", part.get("pretokenizers", ()))
        if part.get("use_regex") is False or part.get("split") is False:
            continue
        # of XLM-RoBERTa: several spaces are one
        is_spaces = part["type"] == "Replace" and part["pattern"] == {"Regex": " {2,}"}
        names.add("Strip" if is_spaces else part["type"])
    return names <= LOCAL and not names.isdisjoint(SPLITTERS)


def _is_decided(encoded: Any, row: int, texts: Sequence[str], cut: Mapping[str, str]) -> bool:
    """Return whether the tokens of a row with cut texts are those of the whole ones.

    So if tokens were left out, of a pair those of the longer text, which alone was cut.
    """
    if len(texts) == 2 and all(text in cut for text in texts):
        return False
    full = encoded[row].overflowing
    if not full or len(texts) == 1:
        return bool(full)
    kept = Counter(encoded.sequence_ids(row))
    place = [text in cut for text in texts].index(True)
    return kept[place] > kept[1 - place]


def pair_choices(texts: Sequence[str], choices: Iterable[str]) -> list[Row]:
    """Return the pairs that are encoded for a row of choices.

    The first text is their context; a second one, a question or the start of a sentence, is put
    before every choice, as in SWAG.
    """
    context, *starts = texts
    start = "".join(f"{text} " for text in starts)
    return [(context, start + choice) for choice in choices]


def _choose_tokens(special: Sequence[int], max_length: int, head_share: float) -> list[int]:
    """Choose the tokens to keep; the longer of two texts is truncated first, as by a tokenizer."""
    places = range(len(special))
    if len(special) <= max_length:
        return list(places)
    texts = [list(run) for added, run in groupby(places, special.__getitem__) if not added]
    room = max_length - sum(special)
    longer = max(reversed(texts), key=len)  # the second one if both are equally long
    shorter_size = min(sum(map(len, texts)) - len(longer), room // 2)
    dropped: set[int] = set()
    for text in texts:
        size = room - shorter_size if text is longer else shorter_size
        head = round(head_share * size)
        dropped.update(text[head : len(text) - (size - head)])
    return [place for place in places if place not in dropped]


def _tokenize_whole(tokenizer: Tokenizer, texts: Sequence[Any], **options: bool) -> Any:
    """Tokenize texts, or lists of words, without special tokens and at their full length."""
    return own_tokenizer(tokenizer)(
        texts,
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warning of texts that are too long: they are split into windows
        **options,
    )


# Windows of long texts


def cut_windows(length: int, room: int, doc_stride: int) -> list[Span]:
    """Cut a text of `length` tokens into windows of at most `room`; an empty one has one window."""
    step = min(room, doc_stride)
    starts = range(0, max(1, length - room + step), step)
    return [(first, min(first + room, length)) for first in starts]


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
    encoded = _tokenize_whole(tokenizer, spaced, is_split_into_words=True)
    room = max_length - find_layout(tokenizer).single
    tokenized = []
    for number, words in enumerate(sentences):
        pieces: list[list[int]] = [[] for _ in words]
        places = encoded.word_ids(number)
        for token, word in zip(encoded["input_ids"][number], places, strict=True):
            pieces[word].append(token)
        tokenized.append([word[:room] or [tokenizer.unk_token_id] for word in pieces])
    return tokenized


def find_space(tokenizer: Tokenizer) -> str:
    """Return what a word that is tokenized alone needs before it to be read as within a text.

    A byte-level tokenizer writes the space before a word into its first token.
    """
    pair = _tokenize_whole(tokenizer, [["a", "a"]], is_split_into_words=True)["input_ids"]
    return " " if pair != _tokenize_whole(tokenizer, ["a a"])["input_ids"] else ""


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
