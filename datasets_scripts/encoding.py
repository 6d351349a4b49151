"""Rows as tokens: sentences, choices, tagged words, and windows of long texts."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain, groupby, islice, pairwise
from typing import Any, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from modeling_minbert import unknown

from .hub import count_batch, progress_bars
from .row_format import make_features

# Spans


Span = tuple[int, int]


def cut_windows(length: int, room: int, doc_stride: int) -> list[Span]:
    """Cut a text every ``doc_stride`` tokens: first and last (exclusive) of each window."""
    step = min(room, doc_stride)
    starts = range(0, max(1, length - room + step), step)
    return [(first, min(first + room, length)) for first in starts]


# Sentences


LONG_MAP = 20_000  # rows; fewer are encoded before a progress bar is of use
# Share of the kept tokens that comes from the start of a text: the paper's 128 of 510, with 382
# from the end. Source: Sun et al. 2019, How to Fine-Tune BERT for Text Classification?, 5.3.1.
HEAD_SHARES = {"head": 1.0, "tail": 0.0, "head_tail": 128 / 510}

WINDOWS = "windows"  # the truncation that keeps all of a text

Columns = dict[str, list[Any]]


def encode_rows(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    pair_encoding: str | None,
    max_length: int,
    truncation: str = "head",
    label_type: str | datasets.List = "int64",
    is_contrastive: bool = False,
    window_overlap: int | None = None,
    max_windows: int | None = None,
) -> datasets.Dataset:
    """Tokenize sentences; padding and masks are left to the collator.

    Args:
        rows: Rows with id, sentence1, optionally sentence2 and sentence3, and label (if labeled).
        tokenizer: Tokenizer of the model.
        pair_encoding: ``joint`` puts both sentences into one sequence, ``separate`` makes each a
            sequence; None for single sentences.
        max_length: Maximum tokens of a sequence, including special tokens.
        truncation: Part of a long text to keep: its ``head``, its ``tail``, or both, as
            ``head_tail``: a quarter of the tokens from the start, 128 of 510, and the rest from
            the end (Sun et al. 2019, section 5.3.1). The longer text of a joint pair is truncated
            first. Or ``windows``: each text becomes one or more sequences; see `DocumentWindows`.
        label_type: Type of the labels, as the loss needs it.
        is_contrastive: Whether each text, including a single one, is a sequence.
        window_overlap: Tokens that a window shares with the one before; only for windows.
        max_windows: Maximum windows of a text; only for windows.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each sequence if they are separate),
        length (in tokens, of the longest sequence) and labels (if labeled); for windows as
        `DocumentWindows` returns them.

    Raises:
        ValueError: If ``pair_encoding`` does not fit the rows, or ``truncation`` is unknown.
    """
    _check_pair_encoding(rows, pair_encoding, is_contrastive=is_contrastive)
    known = (*HEAD_SHARES, WINDOWS)
    if truncation not in known:
        raise ValueError(unknown("truncation", truncation, known))
    if truncation == WINDOWS:
        if pair_encoding == "joint":
            raise ValueError("truncation='windows' needs each text of a pair as a sequence")
        windows = DocumentWindows(max_length, window_overlap or 0, max_windows)
        encode = partial(windows.encode, tokenizer=tokenizer)
        encode([[""]])  # see `make_tokenize`
    else:
        tokenize = make_tokenize(tokenizer, max_length, truncation)
        encode = partial(_encode_texts, is_separate=pair_encoding == "separate", tokenize=tokenize)
    with progress_bars(shown=len(rows) > LONG_MAP):
        return rows.map(
            _encode,
            batched=True,
            batch_size=count_batch(rows),
            fn_kwargs={"encode": encode},
            remove_columns=[name for name in rows.column_names if name != "id"],
            features=make_features(
                id="string",
                **_token_features(pair_encoding, truncation),
                length="int32",
                **({"labels": label_type} if "label" in rows.column_names else {}),
            ),
            desc="encode",
        )


def _token_features(pair_encoding: str | None, truncation: str) -> dict[str, list[Any]]:
    """Return the types of the columns of tokens."""
    has_windows = truncation == WINDOWS
    types: dict[str, list[Any]] = {"input_ids": ["int32"], "token_type_ids": ["int8"]}
    if pair_encoding == "separate" or has_windows:
        types = {name: [kind] for name, kind in types.items()}
    return types | ({"num_windows": ["int32"]} if has_windows else {})


def make_tokenize(
    tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: str
) -> Callable[[list[list[str]]], Columns]:
    """Return a function that tokenizes a column of texts, or two as pairs; see `encode_rows`."""
    if truncation not in HEAD_SHARES:
        raise ValueError(unknown("truncation", truncation, HEAD_SHARES))
    tokenize = partial(_tokenize, tokenizer=tokenizer, max_length=max_length, truncation=truncation)
    # The first call sets the tokenizer's truncation. Made here, the state of the tokenizer and
    # with it the name of the cached result are the same in every run.
    tokenize([[""]])
    return tokenize


def _check_pair_encoding(
    rows: datasets.Dataset, given: str | None, *, is_contrastive: bool
) -> None:
    """Reject an encoding of pairs that does not fit the rows."""
    allowed: tuple[str | None, ...]
    if is_contrastive:
        kind, allowed = "of a contrastive task", ("separate",)
    elif "sentence2" in rows.column_names:
        kind, allowed = "pairs", ("joint", "separate")
    else:
        kind, allowed = "single sentences", (None,)
    if given in allowed:
        return
    remedy = "remove it" if None in allowed else f"allowed: {', '.join(map(repr, allowed))}"
    raise ValueError(f"pair_encoding={given!r}, but the rows are {kind}; {remedy}")


def choose_tokens(special: Sequence[int], max_length: int, head_share: float) -> list[int]:
    """Choose the tokens to keep, as positions; ``special``, (T,), is 1 for added tokens."""
    # The longer of two texts loses tokens first, as with ``truncation="longest_first"``.
    places = range(len(special))
    if len(special) <= max_length:
        return list(places)
    texts = [list(run) for added, run in groupby(places, special.__getitem__) if not added]
    room = max_length - sum(special)
    longer = max(reversed(texts), key=len)  # the second one, if both have the same length
    shorter_size = min(sum(map(len, texts)) - len(longer), room // 2)
    dropped: set[int] = set()
    for text in texts:
        size = room - shorter_size if text is longer else shorter_size
        head = round(head_share * size)
        dropped.update(text[head : len(text) - (size - head)])
    return [place for place in places if place not in dropped]


def _encode(batch: Columns, *, encode: Callable[[list[list[str]]], Columns]) -> Columns:
    texts = [batch[name] for name in ("sentence1", "sentence2", "sentence3") if name in batch]
    return encode(texts) | ({"labels": batch["label"]} if "label" in batch else {})


def _encode_texts(
    texts: list[list[str]], *, is_separate: bool, tokenize: Callable[[list[list[str]]], Columns]
) -> Columns:
    """Tokenize columns of texts, and measure the rows."""
    if is_separate:
        columns = [tokenize([column]) for column in texts]
        encoded: Columns = {
            key: [list(row) for row in zip(*(column[key] for column in columns), strict=True)]
            for key in columns[0]
        }
        encoded["length"] = [max(map(len, row)) for row in encoded["input_ids"]]
    else:
        encoded = tokenize(texts)
        encoded["length"] = [len(ids) for ids in encoded["input_ids"]]
    return encoded


def _tokenize(
    texts: list[list[str]], *, tokenizer: PreTrainedTokenizerBase, max_length: int, truncation: str
) -> Columns:
    """Tokenize a column of texts, or two of them as pairs."""
    is_own = truncation != "head"  # tokenizers can only keep heads
    # Padding and truncation are explicit: a tokenizer.json can contain its own.
    encoded = tokenizer(
        *texts,
        padding=False,
        truncation=False if is_own else "longest_first",
        max_length=None if is_own else max_length,
        return_attention_mask=False,
        return_token_type_ids=True,
        return_special_tokens_mask=is_own,
        verbose=not is_own,  # no warning about sequences that are too long
    )
    columns = {name: encoded[name] for name in ("input_ids", "token_type_ids")}
    if is_own:
        for row, special in enumerate(encoded["special_tokens_mask"]):
            kept = choose_tokens(special, max_length, HEAD_SHARES[truncation])
            for column in columns.values():
                column[row] = [column[row][place] for place in kept]
    return columns


def tokenize_whole(tokenizer: PreTrainedTokenizerBase, texts: list[Any], **options: bool) -> Any:
    """Tokenize texts, or lists of words, without special tokens and at their full length."""
    # Padding and truncation are explicit: a tokenizer.json can contain its own.
    return tokenizer(
        texts,
        add_special_tokens=False,
        padding=False,
        truncation=False,
        return_attention_mask=False,
        return_token_type_ids=False,
        verbose=False,  # no warning about long texts: they are split into windows
        **options,
    )


# Windows of long texts


TextWindow = tuple[list[int], list[int]]  # token ids and token types
ENCODED_NAMES = ("input_ids", "token_type_ids", "num_windows", "length")


@dataclass(frozen=True)
class DocumentWindows:
    """How texts are split into windows.

    Args:
        max_length: Maximum tokens of a window, including special tokens.
        overlap: Tokens that a window shares with the one before.
        most: Maximum windows of a text; of a longer one as many are evenly spread. None for all.

    Raises:
        ValueError: If a token would be in more than two windows, or a text in none.
    """

    max_length: int
    overlap: int
    most: int | None

    def __post_init__(self) -> None:
        if not 0 <= self.overlap <= self.max_length // 2:
            raise ValueError(
                f"window_overlap={self.overlap} must be from 0 to half of "
                f"max_length={self.max_length}"
            )
        if self.most is not None and self.most < 1:
            raise ValueError(f"max_windows={self.most} must be at least 1")

    def choose(self, count: int) -> list[int]:
        """Choose the windows of a text to keep, evenly spread, with the first and the last."""
        if self.most is None or count <= self.most:
            return list(range(count))
        return [place * (count - 1) // max(1, self.most - 1) for place in range(self.most)]

    def encode(
        self, texts: list[list[str]], tokenizer: PreTrainedTokenizerBase
    ) -> dict[str, list[Any]]:
        """Tokenize columns of texts.

        Returns:
            A list for each row: ``input_ids`` and ``token_type_ids`` of its windows, text by text,
            ``num_windows`` of each text, and ``length``, the tokens of all windows.
        """
        columns = [self._split(column, tokenizer) for column in texts]
        rows = [_join_texts(row) for row in zip(*columns, strict=True)]
        return {name: [row[name] for row in rows] for name in ENCODED_NAMES}

    def _split(
        self, texts: list[str], tokenizer: PreTrainedTokenizerBase
    ) -> list[list[TextWindow]]:
        """Tokenize texts to windows."""
        encoded = tokenizer(
            texts,
            padding=False,
            truncation=True,
            max_length=self.max_length,
            stride=self.overlap,
            return_overflowing_tokens=True,
            return_attention_mask=False,
            return_token_type_ids=True,
        )
        windows: list[list[TextWindow]] = [[] for _ in texts]
        names = ("overflow_to_sample_mapping", "input_ids", "token_type_ids")
        for text, ids, types in zip(*(encoded[name] for name in names), strict=True):
            windows[text].append((ids, types))
        return [[own[place] for place in self.choose(len(own))] for own in windows]

    def count_cut(self, lengths: Iterable[int], special: int) -> int:
        """Count the tokens that are in no kept window, of texts with these ``special`` ones."""
        return sum(self._count_cut(int(length) - special, special) for length in lengths)

    def _count_cut(self, length: int, special: int) -> int:
        room = self.max_length - special
        windows: list[Span] = cut_windows(length, room, room - self.overlap)
        is_kept = np.zeros(length, dtype=bool)
        for place in self.choose(len(windows)):
            is_kept[slice(*windows[place])] = True
        return int(length - is_kept.sum())


def _join_texts(texts: Sequence[list[TextWindow]]) -> dict[str, Any]:
    """Put the windows of the texts of a row one after the other."""
    windows = list(chain.from_iterable(texts))
    return {
        "input_ids": [ids for ids, _ in windows],
        "token_type_ids": [types for _, types in windows],
        "num_windows": [len(own) for own in texts],
        "length": sum(len(ids) for ids, _ in windows),
    }


# Choices


def encode_choices(
    rows: datasets.Dataset,
    tokenizer: PreTrainedTokenizerBase,
    *,
    num_choices: int,
    max_length: int,
    truncation: str = "head",
    pair_encoding: str | None = "joint",
) -> datasets.Dataset:
    """Tokenize the pairs of a context and each of its choices.

    Args:
        rows: Rows with id, sentence1, optionally sentence2, choices, and label (if labeled).
        tokenizer: Tokenizer of the model.
        num_choices: Sequences of a row. A missing one is a single token of padding.
        max_length: Maximum tokens of a sequence, including special tokens.
        truncation: As in `encode_rows`.
        pair_encoding: ``joint``; there is no other one.

    Returns:
        Rows with id, input_ids and token_type_ids (a list for each choice), length (in tokens, of
        the longest sequence) and labels (if labeled).

    Raises:
        ValueError: If ``pair_encoding`` or ``truncation`` is unknown, or a row has more choices.
    """
    if pair_encoding != "joint":
        raise ValueError(f"pair_encoding={pair_encoding!r}: choices are encoded as 'joint' alone")
    settings = {
        "tokenize": make_tokenize(tokenizer, max_length, truncation),
        "num_choices": num_choices,
        "padding": tokenizer.pad_token_id or 0,
    }
    with progress_bars(shown=len(rows) > LONG_MAP):
        return rows.map(
            _encode_choices,
            batched=True,
            batch_size=count_batch(rows),
            fn_kwargs=settings,
            remove_columns=[name for name in rows.column_names if name != "id"],
            features=make_features(
                id="string",
                input_ids=[["int32"]],
                token_type_ids=[["int8"]],
                length="int32",
                **({"labels": "int64"} if "label" in rows.column_names else {}),
            ),
            desc="encode",
        )


def _encode_choices(
    batch: Columns,
    *,
    tokenize: Callable[[list[list[str]]], Columns],
    num_choices: int,
    padding: int,
) -> Columns:
    sizes = list(map(len, batch["choices"]))
    if max(sizes) > num_choices:
        raise ValueError(f"a row has {max(sizes)} choices, but the task takes {num_choices}")
    contexts, choices = _pair_up(batch)
    encoded: Columns = {}
    for name, sequences in tokenize([contexts, choices]).items():
        rest, filler = iter(sequences), [padding if name == "input_ids" else 0]
        encoded[name] = [[*islice(rest, size), *[filler] * (num_choices - size)] for size in sizes]
    encoded["length"] = [max(map(len, row)) for row in encoded["input_ids"]]
    return encoded | ({"labels": batch["label"]} if "label" in batch else {})


def _pair_up(batch: Columns) -> tuple[list[str], list[str]]:
    """Return the first and the second text of every sequence."""
    contexts: list[str] = []
    texts: list[str] = []
    for place, choices in enumerate(batch["choices"]):
        start = f"{batch['sentence2'][place]} " if "sentence2" in batch else ""
        contexts += [batch["sentence1"][place]] * len(choices)
        texts += [start + choice for choice in choices]
    return contexts, texts


# Questions


LONG_QUESTIONS = 5_000  # questions; fewer are encoded before a progress bar is of use
BATCH = 200  # questions tokenized together, so that a shared passage is tokenized once
# weight of the length of a window in the context of its tokens, as in google-research/bert
LENGTH_WEIGHT = 0.01


@dataclass(frozen=True)
class WindowSizes:
    """Sizes of questions and windows.

    Args:
        max_length: Maximum tokens of a row, including special tokens.
        max_question_length: Maximum tokens of a question, which is truncated.
        doc_stride: Tokens from the start of a window to the start of the next one: a step, as in
            google-research/bert, not the overlap that tokenizers call ``stride``.

    Raises:
        ValueError: If a size is below 1, or a question may leave no room for a passage.
    """

    max_length: int
    max_question_length: int = 64
    doc_stride: int = 128

    def __post_init__(self) -> None:
        for name in ("max_question_length", "doc_stride"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)} must be at least 1")
        if self.max_length < self.max_question_length + 4:
            raise ValueError(
                f"max_length={self.max_length} leaves no room for a passage next to a question of "
                f"max_question_length={self.max_question_length} tokens and three special ones; "
                "raise max_length (384 is usual) or lower max_question_length"
            )


def encode_questions(
    rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, sizes: WindowSizes
) -> datasets.Dataset:
    """Encode questions as ``[CLS] question [SEP] window [SEP]``, one row for each window.

    Args:
        rows: Questions with id, sentence1, sentence2 (the passage) and, if labeled, label, answers
            and answer_starts.
        tokenizer: The fast tokenizer of the model.
        sizes: Sizes of questions and windows.

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
        ValueError: If the tokenizer does not report the characters of tokens.
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not report the characters of tokens; use a "
            "fast tokenizer (tokenizer.json)"
        )
    with progress_bars(shown=len(rows) > LONG_QUESTIONS):
        return rows.map(
            _encode_batch,
            batched=True,
            batch_size=BATCH,
            fn_kwargs={"tokenizer": tokenizer, "sizes": sizes},
            remove_columns=rows.column_names,
            features=_make_features(is_labeled="label" in rows.column_names),
            desc="encode",
        )


def share_tokens(windows: Sequence[Span]) -> list[Span]:
    """Assign each token to the first window with the highest min(left, right) + 0.01 * length."""
    # Both terms change in steps of one, so comparing neighboring windows is enough.
    cuts = [0]
    for left, right in pairwise(windows):
        both = np.arange(right[0], left[1])
        prefers_right = _context(both, right) > _context(both, left)
        cut = both[prefers_right.argmax()] if prefers_right.any() else left[1]
        cuts.append(max(cuts[-1], int(cut)))
    return list(pairwise([*cuts, windows[-1][1]]))


def _context(tokens: NDArray[np.int64], window: Span) -> NDArray[np.float64]:
    first, end = window
    nearest: NDArray[np.float64] = np.minimum(tokens - first, end - 1 - tokens)
    return nearest + LENGTH_WEIGHT * (end - first)


def _make_features(*, is_labeled: bool) -> datasets.Features:
    labels = {"labels": datasets.List(datasets.Value("int32"), length=2), "answers": ["string"]}
    return make_features(
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
        **(labels if is_labeled else {}),
    )


def _encode_batch(
    batch: Mapping[str, list[Any]], tokenizer: PreTrainedTokenizerBase, sizes: WindowSizes
) -> dict[str, list[Any]]:
    questions = _tokenize_texts(tokenizer, batch["sentence1"])
    passages = _tokenize_texts(tokenizer, list(dict.fromkeys(batch["sentence2"])))
    encoded: list[dict[str, Any]] = []
    for values in zip(*batch.values(), strict=True):
        question = dict(zip(batch, values, strict=True))
        text = question["sentence2"]
        ids = questions[question["sentence1"]].ids[: sizes.max_question_length]
        head = [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]
        room = sizes.max_length - len(head) - 1
        windows = cut_windows(len(passages[text].ids), room, sizes.doc_stride)
        answer = _find_tokens(passages[text], question) if "label" in batch else None
        for window, owned in zip(windows, share_tokens(windows), strict=True):
            row = _make_row(head, text, passages[text], window, tokenizer.sep_token_id)
            row |= {"id": question["id"], "owned": [token - window[0] for token in owned]}
            if "label" in batch:
                row["labels"] = _label_answer(answer, window, len(head))
                row["answers"] = question["answers"]
            encoded.append(row)
    return {name: [row[name] for row in encoded] for name in encoded[0]}


class _Tokens(NamedTuple):
    """Tokens of a text: ids, and first and last character (exclusive), (T,)."""

    ids: list[int]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def _tokenize_texts(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> dict[str, _Tokens]:
    encoded = tokenize_whole(tokenizer, texts, return_offsets_mapping=True)
    tokens = {}
    for text, ids, offsets in zip(
        texts, encoded["input_ids"], encoded["offset_mapping"], strict=True
    ):
        starts, ends = np.asarray(offsets, dtype=np.int64).reshape(-1, 2).T
        tokens[text] = _Tokens(ids, starts, ends)
    return tokens


def _find_tokens(passage: _Tokens, question: Mapping[str, Any]) -> Span | None:
    """Return first and last token of the shortest span that covers the first answer."""
    if not question["answers"]:
        return None
    text, place = question["answers"][0], question["answer_starts"][0]
    start = place + len(text) - len(text.lstrip())
    end = place + len(text.rstrip())
    first = int(np.searchsorted(passage.ends, start, side="right"))
    last = int(np.searchsorted(passage.starts, end, side="left")) - 1
    # no token: the tokenizer drops all characters of the answer
    return (first, last) if first <= last else None


def _label_answer(answer: Span | None, window: Span, shift: int) -> Span:
    """Return the positions of an answer in a row, or [CLS] unless the window contains it."""
    if answer is None or answer[0] < window[0] or answer[1] >= window[1]:
        return (0, 0)
    return (answer[0] - window[0] + shift, answer[1] - window[0] + shift)


def _make_row(
    head: list[int], text: str, passage: _Tokens, window: Span, sep_token_id: int
) -> dict[str, Any]:
    inside = slice(*window)
    ids = [*head, *passage.ids[inside], sep_token_id]
    starts, ends = passage.starts[inside], passage.ends[inside]
    origin, end = (int(starts[0]), int(ends[-1])) if len(starts) else (0, 0)
    return {
        "input_ids": ids,
        "token_type_ids": [0] * len(head) + [1] * (len(ids) - len(head)),
        "length": len(ids),
        "passage": text[origin:end],
        "passage_start": origin,
        "first_token": len(head),
        "token_starts": starts - origin,
        "token_ends": ends - origin,
    }


# Tagged words


# of a token without a label, and of a word with an unknown tag
IGNORED_LABEL, UNKNOWN_LABEL = -100, -1
TOKENIZED_SENTENCES = 1000

Pieces = list[list[int]]


class WordWindow(NamedTuple):
    """A part of a sentence, with labels for some of its words."""

    start: int  # first word
    end: int  # last word, exclusive
    first: int  # first labeled word
    last: int  # last labeled word, exclusive


def cut_word_windows(sizes: Sequence[int], room: int) -> list[WordWindow]:
    """Split a sentence, given the tokens of each word, into windows that overlap by about half."""
    # A word is labeled in the window with most context (Devlin et al. 2019, for answers).
    ends = [0, *accumulate(sizes)]
    if ends[-1] <= room:
        return [WordWindow(0, len(sizes), 0, len(sizes))]
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
        WordWindow(*span, owners.index(number), owners.index(number) + owners.count(number))
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
    pieces = list(_tokenize_words(rows, tokenizer, room))
    tags = rows["tags"][:] if "tags" in rows.column_names else None
    documents = rows["document"][:]
    names, words = rows["id"][:], rows["words"][:]
    encoded: list[dict[str, Any]] = []
    for number, sentence in enumerate(pieces):
        known = [UNKNOWN_LABEL] * len(sentence) if tags is None else tags[number]
        for window in cut_word_windows([len(word) for word in sentence], room):
            ids, labels = _label_pieces(sentence, known, window)
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


def _tokenize_words(
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


def _label_pieces(
    pieces: Pieces, tags: Sequence[int], window: WordWindow
) -> tuple[list[int], list[int]]:
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
