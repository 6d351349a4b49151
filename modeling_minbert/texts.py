# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""How texts become tokens, in training and in predictions; words and windows are in `pieces.py`.

All functions are pure: what a call, or whoever made the tokenizer, set on it before has no effect.
"""

import copy
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:  # texts are also read where transformers is missing
    from transformers import PreTrainedTokenizerBase

Tokenizer: TypeAlias = "PreTrainedTokenizerBase"
Row = tuple[str, ...]
# Values by their names, as in files of JSON and in recipes.
Fields = Mapping[str, Any]

# Characters of scripts that write no spaces between words
HAN = "\u3005\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Kana, and the scripts of Thailand, Laos, Tibet, Myanmar and Cambodia
OTHER_SPACELESS = "\u3040-\u30ff\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff"
SPACELESS = re.compile(f"[{HAN}{OTHER_SPACELESS}]")

# Share of the kept tokens that comes from the start of a text: the paper's 128 of 510, with 382
# from the end. Source: Sun et al. 2019, How to Fine-Tune BERT for Text Classification?, 5.3.1.
HEAD_SHARES = {"head": 1.0, "tail": 0.0, "head_tail": 128 / 510}
WINDOWS, OVERLAP = "windows", 64  # the truncation that keeps all of a text
# A text of more characters for each token that may remain need not be tokenized as a whole.
LONG = 16


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
        pair_encoding: As in `PooledTask`.
        truncation: As in `PooledTask`.
        window_overlap: Tokens that a window shares with the one before; only for windows.
        max_windows: Maximum windows of a text, evenly spread over a longer one; None for all.
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


def own_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """Return a tokenizer whose truncation and padding nobody else sees or sets.

    A call of a fast tokenizer stores both in it, where the call of another thread finds them. The
    copy shares the vocabulary and all other parts: it costs less than tokenizing a sentence.
    """
    inner = getattr(tokenizer, "_tokenizer", None)
    if inner is None:  # a slow one passes them on
        return copy.copy(tokenizer)
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
    encoded: Any
    is_head = encoding.truncation == "head"
    if is_head and any(len(text) > LONG * max_length for text in chain(*texts)):
        encoded = _tokenize_heads(own, texts, options)
    else:
        encoded = own(*texts, **options)
    columns = [encoded[name] for name in Encoded._fields]
    for row, special in enumerate(encoded.get("special_tokens_mask", ())):
        kept = _choose_tokens(special, max_length, HEAD_SHARES[encoding.truncation])
        for column in columns:
            column[row] = [column[row][place] for place in kept]
    step = len(columns[0]) // len(rows)
    if not all(columns[0]):
        row, text = divmod(columns[0].index([]), step)
        raise ValueError(f"{rows[row][text]!r}: the tokenizer makes no token of it; remove it")
    starts = range(0, len(columns[0]), step)
    return [Encoded(*(column[start : start + step] for column in columns)) for start in starts]


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


def tokenize_whole(tokenizer: Tokenizer, texts: Sequence[Any], **options: bool) -> Any:
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


# Heads of long texts

# Characters for each token that may remain, to which a long text is cut.
CUT = 8
# Parts of fast tokenizers for which the tokens before a space, between a letter or digit and what
# is no space, do not depend on what follows it.
NORMALIZERS = {
    *("BertNormalizer", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Precompiled"),
    *("Prepend", "Strip", "StripAccents"),
}
SPLITTERS = {"BertPreTokenizer", "ByteLevel", "Metaspace", "Whitespace", "WhitespaceSplit"}
FURTHER = {"Digits", "Punctuation"}


def _tokenize_heads(
    tokenizer: Tokenizer, columns: Sequence[Sequence[str]], options: Fields
) -> Fields:
    """Tokenize and truncate texts, or pairs in two columns; a page is cut before it is tokenized.

    The tokens are those of the whole texts: where the rest of a text might change them, or does not
    suffice, the whole one is tokenized.

    Args:
        tokenizer: Of this call alone.
        columns: The texts, or the first and the second ones.
        options: Keyword arguments of the tokenizer, `max_length` among them.
    """
    if not _splits_at_spaces(tokenizer):
        return tokenizer(*columns, **options)
    longest = options["max_length"]
    rows = [list(row) for row in zip(*columns, strict=True)]
    heads: list[list[str]] = []
    cut: dict[int, int] = {}  # by row, the place of the text that was cut
    for number, row in enumerate(rows):
        long = [place for place, text in enumerate(row) if len(text) > LONG * longest]
        # of two long texts, the longer one in tokens decides which is truncated
        head = _cut(row[long[0]], CUT * longest) if len(long) == 1 else ""
        heads.append([head if head and place in long else text for place, text in enumerate(row)])
        cut |= {number: long[0]} if head else {}
    encoded = tokenizer(*map(list, zip(*heads, strict=True)), **options)
    open_rows = [row for row, place in cut.items() if not _is_decided(encoded, row, place)]
    if open_rows:
        texts = zip(*(rows[row] for row in open_rows), strict=True)
        for name, values in tokenizer(*map(list, texts), **options).items():
            for number, found in zip(open_rows, values, strict=True):
                encoded[name][number] = found
    return encoded


def _cut(text: str, size: int) -> str:
    """Cut a text of more than `size` characters at a space; empty if there is no fitting one."""
    end = text.rfind(" ", 0, size)
    while end > 0 and not (text[end - 1].isalnum() and not text[end + 1].isspace()):
        end = text.rfind(" ", 0, end)
    return text[: max(0, end)]


def _splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer is known to read the words before a space without the rest."""
    inner = getattr(tokenizer, "_tokenizer", None)
    if inner is None or tokenizer.truncation_side != "right":
        return False
    if inner.pre_tokenizer is None or getattr(inner.model, "dropout", None):
        return False
    for token in inner.get_added_tokens_decoder().values():
        content = token.content
        if token.normalized and inner.normalizer is not None:
            content += inner.normalizer.normalize_str(content)
        if any(letter.isspace() for letter in content):
            return False
    try:
        normalizers, splitters = map(list_parts, (inner.normalizer, inner.pre_tokenizer))
    except Exception:  # of a part that is written in Python
        return False
    return all(map(_keeps_spaces, normalizers)) and _split_first(splitters)


def _keeps_spaces(normalizer: Fields) -> bool:
    """Return whether a normalizer changes words one by one; that of XLM-RoBERTa joins spaces."""
    if normalizer["type"] == "Replace":
        is_of_spaces = normalizer["pattern"] == {"Regex": " {2,}"}
        return is_of_spaces and normalizer["content"] in (" ", "\u2581")
    return normalizer["type"] in NORMALIZERS


def _split_first(parts: Sequence[Fields]) -> bool:
    """Return whether the first pre-tokenizer splits at spaces, and others only split further."""
    if not parts:
        return False
    first, *others = (part["type"] for part in parts)
    splits = parts[0].get("use_regex", parts[0].get("split", True))
    return first in SPLITTERS and splits and SPLITTERS.union(FURTHER).issuperset(others)


def list_parts(part: Any) -> list[dict[str, Any]]:
    """List the parts of a normalizer or pre-tokenizer in their order, those of sequences too."""
    stack = [] if part is None else [json.loads(part.__getstate__())]
    parts = []
    while stack:
        first = stack.pop(0)
        if first["type"] == "Sequence":
            stack[:0] = first.get("normalizers") or first.get("pretokenizers") or []
        else:
            parts.append(first)
    return parts


def _is_decided(encoded: Any, row: int, place: int) -> bool:
    """Return whether the tokens of a row are those of the whole texts, of which one was cut.

    So if tokens were left out, of a pair those of the text that was cut, since it has more.
    """
    if not encoded[row].overflowing:
        return False
    kept = Counter(encoded[row].sequence_ids)
    return kept[place] > kept[1 - place]
