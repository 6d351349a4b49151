# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""What a model reads of texts: containers of texts, their words, and windows of long ones.

A file of tags has words, a text has none. Which rule finds the words of the file in a text is
measured on the training rows, and stored with the task.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from .cpu import is_followed
from .heads import TaskBatch, ids_of, sequence_keys
from .inference import (
    Encoded,
    Row,
    choose_tokens,
    compute_in_order,
    own_tokenizer,
    predicting,
    windows_of,
)
from .int8 import check_precision
from .packing import pool_outputs, reads

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


# Usual names of columns that hold no text.
NO_TEXTS = frozenset({"label", "labels", "target", "id", "idx", "index"})


class TextColumns(NamedTuple):
    """The columns that make the rows of a task: those of its texts, and those of its choices."""

    texts: tuple[str, ...]
    choices: tuple[str, ...] = ()

    def pick(self, row: Mapping[str, Any]) -> Any:
        """Return the row of some values by column."""
        values = [row[name] for name in self.texts]
        if len(self.choices) == 1:
            values.append(row[self.choices[0]])
        elif self.choices:
            values.append([row[name] for name in self.choices])
        return values[0] if len(values) == 1 else tuple(values)


def list_rows(given: Any, where: str, tasks: Sequence[Any] = ()) -> Any:
    """Return rows one after the other: a sequence if the container is one, else an iterable.

    Args:
        given: A sequence or an iterable of rows; an array or a column; or a frame, a dataset or a
            dictionary with a column for each text, or rows that are dictionaries.
        where: What the rows are for, in messages.
        tasks: Descriptions of the tasks; without any, rows are single texts.

    Raises:
        ValueError: If the columns are not those of the texts, or have different lengths.
    """
    if isinstance(given, str):
        return given
    names = _list_columns(given)
    if names is not None:
        chosen = _choose_columns(names, where, tasks)
        columns = {name: _to_list(given[name]) for name in (*chosen.texts, *chosen.choices)}
        single = [name for name, values in columns.items() if isinstance(values, str)]
        if single:
            raise ValueError(
                f"{where}: {single[0]!r} is one text, {columns[single[0]][:50]!r}, not a column of "
                "texts: pass a list of rows"
            )
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{where}: the columns have different lengths, {lengths}")
        count = next(iter(lengths.values()))
        return [
            chosen.pick({name: values[place] for name, values in columns.items()})
            for place in range(count)
        ]
    rows = _to_list(given)
    if not isinstance(rows, Sequence):
        return _pick_rows(rows, where, tasks)
    if any(isinstance(row, Mapping) for row in rows):
        return list(_pick_rows(rows, where, tasks))
    return rows


def _list_columns(given: Any) -> list[str] | None:
    """Return the names of the columns of a container; None if it has none."""
    if isinstance(given, Mapping):
        return list(given)
    for name in ("column_names", "columns"):  # of datasets and Arrow, and of frames
        names = getattr(given, name, None)
        if names is not None and not callable(names) and hasattr(given, "__len__"):
            return list(names)
    return None


def _to_list(given: Any) -> Any:
    """Return the values of an array or a column; other containers as they are."""
    for name in ("tolist", "to_list", "to_pylist"):
        convert = getattr(given, name, None)
        if callable(convert):
            return convert()
    return given


def _pick_rows(rows: Iterable[Any], where: str, tasks: Sequence[Any]) -> Iterable[Any]:
    """Yield rows, those that are dictionaries by their columns."""
    chosen: dict[tuple[str, ...], TextColumns] = {}
    for row in rows:
        if isinstance(row, Mapping):
            names = tuple(row)
            if names not in chosen:
                chosen[names] = _choose_columns(names, where, tasks)
            yield chosen[names].pick(row)
        else:
            yield row


def _choose_columns(names: Sequence[str], where: str, tasks: Sequence[Any]) -> TextColumns:
    """Choose the columns that tasks were trained on, or all if their number is right."""
    trained = {TextColumns(*columns) for columns in map(_trained_columns, tasks) if columns}
    present = [columns for columns in trained if {*columns.texts, *columns.choices} <= set(names)]
    counts = {count for task in tasks for count in _count_columns(task)} or {1}
    if len(present) == 1:
        return present[0]
    if len(names) not in counts or not NO_TEXTS.isdisjoint(names):
        needed = " or ".join(map(str, sorted(counts)))
        raise ValueError(
            f"{where}: the rows have the columns {', '.join(map(repr, names))}, but {needed} with "
            "the texts are needed; pass only these, in their order"
        )
    if set(names) == {"question", "context"}:
        return TextColumns(("question", "context"))
    return TextColumns(tuple(names))


def _count_columns(task: Any) -> tuple[int, ...]:
    return (2, 3) if task.offers_choices else (task.num_texts,)


def _trained_columns(task: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the columns of a task in its training file; None if rows need others."""
    keys = getattr(task, "data_keys", None) or {}
    texts = tuple(keys.get("text_columns", ()))
    choices = tuple(keys.get("choice_columns", ())) if task.offers_choices else ()
    needed = (1, 2) if task.offers_choices else _count_columns(task)
    return (
        (texts, choices) if len(texts) in needed and bool(choices) == task.offers_choices else None
    )


WindowPooling = Literal["mean", "max", "attention"]
OVERLAP, MOST_WINDOWS = 64, 16


class Windows(NamedTuple):
    """The windows of a batch; what belongs to no text has the text P."""

    texts: Tensor  # the text of each window, ascending but for windows of padding, (N,)
    num_texts: int  # P
    tokens: Tensor  # tokens of each window, special ones included, (N,)

    def pool(self, vectors: Tensor, pooling: str, scores: Tensor | None = None) -> Tensor:
        """Pool the vectors of windows, (N, D) -> (P, D).

        `max` is the maximum of each element. Otherwise a window weighs as its number of tokens
        times `exp(score)`, with `scores` of (N,), or 0: without scores this is the mean. The vector
        of a text in one window is that of the window, to the last bit.
        """
        dtype = torch.promote_types(vectors.dtype, torch.float32)
        texts = vectors.new_zeros(self.num_texts + 1, vectors.shape[1], dtype=dtype)
        if pooling == "max":
            index = self.texts.unsqueeze(1).expand_as(vectors)
            pooled = texts.scatter_reduce(0, index, vectors.to(dtype), "amax", include_self=False)
        else:
            weights = self._weigh(scores, dtype).unsqueeze(1)
            pooled = texts.index_add(0, self.texts, vectors.to(dtype) * weights)
        return pooled[: self.num_texts].to(vectors.dtype)

    def _weigh(self, scores: Tensor | None, dtype: torch.dtype) -> Tensor:
        """Return the share of each window in its text, (N,)."""
        weights = self.tokens.to(dtype)
        sums = weights.new_zeros(self.num_texts + 1)
        if scores is not None:
            scores = scores.to(dtype)
            largest = sums.scatter_reduce(
                0, self.texts, scores.detach(), "amax", include_self=False
            )
            weights = weights * (scores - largest[self.texts]).exp()
        return weights / sums.index_add(0, self.texts, weights)[self.texts]


class MinBertWindowPooling(nn.Module):
    """Pools the windows of a text; `attention` learns which ones count.

    A window weighs as its number of tokens times the exponential of a linear score of its vector. A
    new score is 0, so that `attention` starts as `mean`.
    """

    def __init__(self, hidden_size: int, pooling: str) -> None:
        super().__init__()
        self.pooling = pooling
        self.weight = nn.Parameter(torch.zeros(hidden_size)) if pooling == "attention" else None

    def forward(self, vectors: Tensor, windows: Windows) -> Tensor:
        """Pool the vectors of windows, (N, D) -> (P, D)."""
        scores = None
        if self.weight is not None:
            dtype = torch.promote_types(vectors.dtype, torch.float32)
            # not a matrix product, which mixed precision would compute in half precision
            scores = (vectors.to(dtype) * self.weight.to(dtype)).sum(dim=-1)
        return windows.pool(vectors, self.pooling, scores)


def find_windows(batch: TaskBatch) -> Windows:
    """Find the text of each window of a batch whose rows are windows, before it is arranged.

    Raises:
        ValueError: If `num_windows` does not fit the batch.
    """
    return _find_padded(batch) if batch.offsets is None else _find_packed(batch, batch.offsets)


def _find_packed(batch: TaskBatch, offsets: Tensor) -> Windows:
    tokens, given = offsets.diff(), batch.num_windows
    total = len(tokens)
    if given is None:  # each text is one window
        return Windows(torch.arange(total, device=offsets.device), total, tokens)
    counts = given.flatten()
    # elsewhere checking the values would synchronize the device
    if counts.device.type == "cpu" and not is_followed(counts) and int(counts.sum()) != total:
        raise ValueError(
            f"task {batch.name!r}: num_windows adds up to {int(counts.sum())} windows, but the "
            f"batch has {total} sequences"
        )
    texts = torch.arange(len(counts), device=counts.device)
    return Windows(texts.repeat_interleave(counts, output_size=total), len(counts), tokens)


def _find_padded(batch: TaskBatch) -> Windows:
    ids, mask = ids_of(batch.inputs), batch.inputs[1]
    if ids is None:
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    shape = ids.shape[:-1]
    whole = torch.full(shape, ids.shape[-1], device=ids.device)
    tokens = whole if mask is None else mask.ne(0).sum(dim=-1)
    has_windows = len(shape) > (1 if batch.num_sequences is None else 2)
    if batch.num_windows is not None and not has_windows:
        raise ValueError(
            f"task {batch.name!r}: num_windows counts windows on an axis of their own, but the "
            f"input has the shape {tuple(ids.shape)}"
        )
    most = shape[-1] if has_windows else 1
    count = shape.numel() // most
    texts = torch.arange(count, device=ids.device).unsqueeze(1).expand(count, most)
    if batch.num_windows is not None:
        places = torch.arange(most, device=ids.device)
        texts = texts.masked_fill(places >= batch.num_windows.reshape(-1, 1), count)
    elif has_windows:
        texts = texts.masked_fill(tokens.view(count, most) == 0, count)
    return Windows(texts.flatten(), count, tokens.flatten().clamp(min=1))


def flatten_windows(batch: TaskBatch) -> TaskBatch:
    """Make every window of a padded batch a sequence, (N, L)."""
    if batch.offsets is not None:
        return batch
    ids, mask, *others = (
        None if x is None else x.flatten(0, -3 if place == 4 else -2)
        for place, x in enumerate(batch.inputs)
    )
    if mask is not None:
        # attention of a window of padding would be 0 / 0
        first = mask[:, :1] + (mask.ne(0).sum(dim=-1, keepdim=True) == 0).to(mask.dtype)
        mask = torch.cat([first, mask[:, 1:]], dim=1)
    batch.inputs = (ids, mask, *others)
    return batch


def check_windows(batch: TaskBatch, *, has_windows: bool) -> bool:
    """Return whether a padded batch has an axis of windows, (B, W, L) or (B, S, W, L).

    Raises:
        ValueError: If there are windows, but the texts of the task have none.
    """
    if not has_windows:
        if batch.num_windows is not None:
            raise ValueError(
                f"task {batch.name!r} does not split texts into windows: leave num_windows out"
            )
        return False
    ids = ids_of(batch.inputs)
    return ids is not None and ids.dim() == (3 if batch.num_sequences is None else 4)


def text_keys_of_windows(batch: TaskBatch, windows: Windows) -> Tensor | None:
    """Hash the texts of a batch, (B, S), by the sums over their windows; None without ids."""
    ids, mask = (None if x is None else x.flatten(0, -2) for x in batch.inputs[:2])
    if ids is None:
        return None
    keys = sequence_keys(ids, mask, batch.offsets)
    sums = keys.new_zeros(windows.num_texts + 1).index_add(0, windows.texts, keys)
    return sums[:-1].unflatten(0, (-1, batch.num_sequences or 1))


def window_defaults(max_length: int | None) -> dict[str, Any]:
    """Return the window keys of a task that leaves them out."""
    overlap = OVERLAP if max_length is None else min(OVERLAP, max_length // 4)
    return {"window_overlap": overlap, "max_windows": MOST_WINDOWS, "window_pooling": "mean"}


def choose_windows(count: int, most: int | None) -> list[int]:
    """Choose at most `most` of the windows of a text, evenly spread, with the first and last."""
    if most is None or count <= most:
        return list(range(count))
    return [place * (count - 1) // max(1, most - 1) for place in range(most)]


def check_overlap(overlap: int, max_length: int) -> None:
    """Check that a token is in at most two windows."""
    if not 0 <= overlap <= max_length // 2:
        raise ValueError(
            f"window_overlap={overlap} must be from 0 to half of max_length={max_length}"
        )


# Rows that are tokenized together; each may have many windows.
ROWS = 512


class WindowPlan(NamedTuple):
    """How texts are split into windows, and these encoded and pooled."""

    max_length: int  # tokens of a window, special ones included
    overlap: int  # tokens that a window shares with the one before
    most: int | None  # windows of a text; None for all
    pooling: str  # of the states of a window
    num_layers: int
    pool: Any  # a `MinBertWindowPooling`

    def split(self, tokenizer: Any, texts: Sequence[str]) -> list[list[Encoded]]:
        """Tokenize texts to windows."""
        check_overlap(self.overlap, self.max_length)
        encoded = own_tokenizer(tokenizer)(
            list(texts),
            padding=False,
            truncation=True,
            max_length=self.max_length,
            stride=self.overlap,
            return_overflowing_tokens=True,
            return_token_type_ids=True,
            return_attention_mask=False,
        )
        windows: list[list[Encoded]] = [[] for _ in texts]
        names = ("overflow_to_sample_mapping", *Encoded._fields)
        for text, ids, types in zip(*(encoded[name] for name in names), strict=True):
            windows[text].append(Encoded([ids], [types]))
        return [[own[place] for place in choose_windows(len(own), self.most)] for own in windows]

    def encode(self, encoder: Any, batch: dict[str, Any]) -> Tensor:
        """Encode a batch of windows, (n, D)."""
        outputs = encoder(
            **batch, return_dict=True, read=reads(self.pooling), num_layers=self.num_layers
        )
        return pool_outputs(outputs, batch.get("attention_mask"), self.pooling)


def stream_documents(
    model: Any,
    rows: Iterable[Row],
    plan: WindowPlan,
    finish: Callable[[Tensor], Tensor],
    *,
    max_tokens: int | None,
    show_progress: bool | None,
    precision: str | None,
) -> Iterator[Tensor]:
    """Yield (n, K) in float32 on the CPU for some hundred rows; `finish` maps (P, D) to (n, K)."""
    tokens = choose_tokens(model, max_tokens)
    check_precision(precision)

    def run() -> Iterator[Tensor]:
        for some, bar in windows_of(rows, show_progress, ROWS):
            texts = plan.split(model.tokenizer, [text for row in some for text in row])
            encoded = [window for windows in texts for window in windows]
            with predicting(model, precision):
                vectors = compute_in_order(
                    model, encoded, tokens, lambda batch: plan.encode(model.base_model, batch)
                )
                values = finish(plan.pool(vectors, list_windows(texts, vectors.device)))
            bar.update(len(some))
            yield values.float().cpu()

    return run()


def list_windows(texts: Sequence[Sequence[Encoded]], device: torch.device) -> Windows:
    """Describe the windows of texts, text by text."""
    places = [place for place, windows in enumerate(texts) for _ in windows]
    tokens = [window.tokens for windows in texts for window in windows]
    return Windows(
        torch.tensor(places, device=device), len(texts), torch.tensor(tokens, device=device)
    )
