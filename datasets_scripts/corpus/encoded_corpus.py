"""Tokenize corpora, report what cannot be used, and hold documents out."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase

from datasets_scripts.tasks.invalid_rows import (
    InvalidRow,
    check_invalid_fraction,
    log_invalid_rows,
)

from .corpus_data import CorpusData
from .documents import find_lines, warn_of_language
from .sources import Source, find_all_sources, held_out
from .text_builder import build_tokens, describe_tokenizer
from .tokenized import (
    Selection,
    TokenizedDocuments,
    count_sentences,
    find_digests,
    find_equal,
    fingerprint,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EncodedCorpus:
    """Corpora as tokens.

    Args:
        splits: The documents that are learnt from, ``train``, and those that are held out,
            ``validation``.
        bad_rows: Documents that cannot be used.
        empty_documents: How many documents had no token.
        repeated_documents: How many training documents were left out because they equal one that is
            held out, white space aside.
        fingerprint: What the documents are and how they are split into sentences; another text has
            another one.
    """

    splits: dict[str, TokenizedDocuments]
    bad_rows: list[InvalidRow]
    empty_documents: int
    repeated_documents: int
    fingerprint: str

    @property
    def problems(self) -> list[str]:
        """Say what was left out, and why."""
        counts = {
            "documents without a token": self.empty_documents,
            "training documents that equal held-out ones": self.repeated_documents,
        }
        return [
            *map(str, self.bad_rows),
            *(f"{count} {what}" for what, count in counts.items() if count),
        ]


def encode_corpus(
    corpora: Sequence[CorpusData],
    tokenizer: PreTrainedTokenizerBase,
    *,
    num_proc: int | None = None,
    cache_dir: str | Path | None = None,
) -> EncodedCorpus:
    """Tokenize corpora, or take their tokens from the cache.

    What is held out is not learnt: a training document that equals one of them, in any of the
    corpora, is left out. One is warned of it.

    Args:
        corpora: The corpora, from ``CorpusData.from_recipe``; their documents follow one another.
        tokenizer: Tokenizer of the model.
        num_proc: Processes; None takes one for small texts, else as many as there are cores.
        cache_dir: Folder for the tokens; None takes the one of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks the column, has too many unusable
            documents, if a split has none at all, or if a file is learnt from and held out.
        OSError: If there is no such file or dataset.
    """
    cache = None if cache_dir is None else str(cache_dir)
    settings = describe_tokenizer(tokenizer)
    found = []
    for data, sources in zip(corpora, find_all_sources(corpora, cache), strict=True):
        if data.sentences == "split":
            warn_of_language(data.where, data.language)
        share = 0.0 if "validation" in sources else data.validation_share
        for split, source in sources.items():
            dataset = build_tokens(data, source, settings, num_proc, cache)
            bad_rows = _find_bad_rows(data, source, dataset)
            found.append(_deal(dataset, split, share if split == "train" else 0.0, bad_rows))
    names = ", ".join(repr(data.name) for data in corpora)
    repeated = _leave_out_repeated(found)
    if repeated:
        logger.warning(
            "corpus %s: left out %d training documents that equal held-out ones", names, repeated
        )
    splits = {split: _join_parts(found, split) for split in ("train", "validation")}
    _check_splits(corpora, splits, repeated)
    return EncodedCorpus(
        splits,
        bad_rows=[row for part in found for row in part.bad_rows],
        empty_documents=sum(part.empty for part in found),
        repeated_documents=repeated,
        fingerprint=" ".join(fingerprint(part.dataset) for part in found),
    )


@dataclass(frozen=True)
class _Part:
    """A tokenized source.

    Args:
        split: Its split.
        dataset: Its documents, also those that cannot be used.
        selections: Which of them belong to its split, and which are held out.
        empty: How many have no token.
        bad_rows: Those that cannot be used.
    """

    split: str
    dataset: datasets.Dataset
    selections: dict[str, Selection]
    empty: int
    bad_rows: list[InvalidRow]


def _deal(dataset: datasets.Dataset, split: str, share: float, bad_rows: list[InvalidRow]) -> _Part:
    """Deal the documents of a source to the splits."""
    total = len(dataset)
    unusable = np.flatnonzero(count_sentences(dataset) == 0)
    held = np.fromiter(takewhile(lambda number: number < total, held_out(share)), np.int64)
    selections = {split: Selection(total, np.union1d(unusable, held), is_inverted=True)}
    if share:
        selections["validation"] = Selection(total, np.setdiff1d(held, unusable), is_inverted=False)
    return _Part(split, dataset, selections, len(unusable) - len(bad_rows), bad_rows)


def _leave_out_repeated(parts: list[_Part]) -> int:
    """Take the training documents that equal held-out ones out of their parts, and count them."""
    digests = [
        find_digests(part.dataset, part.selections["validation"].rows())
        for part in parts
        if "validation" in part.selections
    ]
    held = np.unique(np.concatenate([np.empty(0, np.uint64), *digests]))
    repeated = 0
    for part in parts:
        if part.split == "train":
            before = part.selections["train"].numbers
            left_out = np.union1d(before, find_equal(part.dataset, held))
            part.selections["train"] = Selection(len(part.dataset), left_out, is_inverted=True)
            repeated += len(left_out) - len(before)
    return repeated


def _join_parts(parts: list[_Part], split: str) -> TokenizedDocuments:
    chosen = [(part.dataset, part.selections[split]) for part in parts if split in part.selections]
    empty = sum(part.empty for part in parts if part.split == split)
    return TokenizedDocuments(chosen, split, empty)


def _check_splits(
    corpora: Sequence[CorpusData], splits: dict[str, TokenizedDocuments], repeated: int
) -> None:
    names = ", ".join(repr(data.name) for data in corpora)
    total = len(splits["train"])
    if not total:
        equal = f", since {repeated} equal held-out ones" if repeated else ""
        raise ValueError(f"corpus {names}: no document is left to learn from{equal}; add documents")
    if not len(splits["validation"]):
        shares = ", ".join(f"{data.validation_share:g}" for data in corpora)
        advice = "check what the key 'documents' takes for one (blank_line, file or line)"
        if total > 1:
            advice += f", or raise validation_share={shares} to {1 / total:.2g} or more"
        raise ValueError(
            f"corpus {names}: no document of {total} is held out; give validation_file, or {advice}"
        )


def _find_bad_rows(data: CorpusData, source: Source, dataset: datasets.Dataset) -> list[InvalidRow]:
    """List the documents that cannot be used, with their lines.

    Raises:
        ValueError: If there are too many of them.
    """
    numbers = np.flatnonzero(dataset.data.column("problem").is_valid())
    rows = dataset.select_columns(["file", "position", "problem"]).select(numbers)
    bad_rows = []
    for file, group in groupby(rows, key=lambda row: str(row["file"])):
        found = list(group)
        lines = [row["position"] for row in found]
        if data.train_file is not None:
            lines = find_lines(file, lines)
        bad_rows += [
            InvalidRow(file, line, row["problem"]) for line, row in zip(lines, found, strict=True)
        ]
    check_invalid_fraction(source.name, bad_rows, len(dataset), data.max_invalid_fraction)
    log_invalid_rows(data.where, bad_rows)
    return bad_rows
