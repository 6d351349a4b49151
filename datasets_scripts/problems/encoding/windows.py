"""Windows of passages (Devlin et al. 2019, section 4.2; google-research/bert, ``run_squad.py``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from datasets_scripts.files.cache import progress_bars
from datasets_scripts.problems.row_format import make_features

from .sequences import tokenize_whole
from .spans import Span, cut_windows

LONG_MAP = 5_000  # questions; fewer are encoded before a progress bar is of use
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
    with progress_bars(shown=len(rows) > LONG_MAP):
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
    questions = _tokenize(tokenizer, batch["sentence1"])
    passages = _tokenize(tokenizer, list(dict.fromkeys(batch["sentence2"])))
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
                row["labels"] = _label(answer, window, len(head))
                row["answers"] = question["answers"]
            encoded.append(row)
    return {name: [row[name] for row in encoded] for name in encoded[0]}


class _Tokens(NamedTuple):
    """Tokens of a text: ids, and first and last character (exclusive), (T,)."""

    ids: list[int]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]


def _tokenize(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> dict[str, _Tokens]:
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


def _label(answer: Span | None, window: Span, shift: int) -> Span:
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
