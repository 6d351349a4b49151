"""Tokenize corpora, report invalid documents, and hold documents out."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, groupby, takewhile
from pathlib import Path

import datasets
import numpy as np
from transformers import PreTrainedTokenizerBase

from datasets_scripts.tasks.invalid_rows import InvalidRow, check_invalid_fraction, log_invalid_rows

from .corpus_data import CorpusData
from .documents import find_lines, warn_of_language
from .passages import split_documents
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
        splits: The training documents, ``train``, and the held-out ones, ``validation``.
        bad_rows: Invalid documents, which were skipped.
        empty_documents: Number of documents without a token.
        repeated_documents: Number of training documents that were skipped because they equal a
            held-out one, up to white space.
        fingerprint: Hash of the documents and their sentences.
        commits: Commits of the corpora on the Hub, by name.
        notes: What a reader should know of the splits, a sentence each.
    """

    splits: dict[str, TokenizedDocuments]
    bad_rows: list[InvalidRow]
    empty_documents: int
    repeated_documents: int
    fingerprint: str
    commits: dict[str, str]
    notes: list[str]

    @property
    def problems(self) -> list[str]:
        """What was skipped, and why."""
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
    """Tokenize corpora, or load their tokens from the cache.

    Training documents that equal a held-out one, in any of the corpora, are skipped with a warning.

    Args:
        corpora: The corpora, from ``CorpusData.from_recipe``, in order.
        tokenizer: Tokenizer of the model.
        num_proc: Processes; None uses one for small texts, else all cores.
        cache_dir: Folder for the tokens; None uses the cache of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks the column, or has too many invalid
            documents, a split is empty, or a file is used for training and held out.
        OSError: If a file or a dataset does not exist.
    """
    settings = describe_tokenizer(tokenizer)
    parts: list[_Part] = []
    commits: dict[str, str] = {}
    for data, sources in zip(corpora, find_all_sources(corpora, cache_dir), strict=True):
        if (commit := sources["train"].commit) is not None:
            commits[data.name] = commit
        parts += _tokenize_sources(data, sources, settings, num_proc, cache_dir)
    names = ", ".join(repr(data.name) for data in corpora)
    parts, notes = _hold_out_passages(parts)
    repeated = _drop_repeated(parts)
    if repeated:
        logger.warning(
            "corpus %s: skipped %d training documents that equal held-out ones", names, repeated
        )
    splits = {split: _join_parts(parts, split) for split in ("train", "validation")}
    _check_splits(corpora, names, splits, repeated)
    return EncodedCorpus(
        splits,
        bad_rows=list(chain.from_iterable(part.bad_rows for part in parts)),
        empty_documents=sum(part.empty for part in parts),
        repeated_documents=repeated,
        fingerprint=" ".join(fingerprint(part.dataset) for part in parts),
        commits=commits,
        notes=notes,
    )


@dataclass(frozen=True)
class _Part:
    """A tokenized source."""

    split: str
    dataset: datasets.Dataset  # its documents, including invalid ones
    selections: dict[str, Selection]  # documents of its split, and those held out from it
    empty: int  # documents without a token
    bad_rows: list[InvalidRow]
    share: float  # of its documents that is held out


def _tokenize_sources(
    data: CorpusData,
    sources: dict[str, Source],
    settings: str,
    num_proc: int | None,
    cache_dir: str | Path | None,
) -> list[_Part]:
    if data.sentences == "split":
        warn_of_language(data.where, data.language)
    share = 0.0 if "validation" in sources else data.validation_share
    parts = []
    for split, source in sources.items():
        dataset = build_tokens(data, source, settings, num_proc, cache_dir)
        parts.append(_split_source(dataset, split, share, _find_invalid(data, source, dataset)))
    return parts


def _split_source(
    dataset: datasets.Dataset, split: str, share: float, bad_rows: list[InvalidRow]
) -> _Part:
    """Assign the documents of a source to the splits."""
    total = len(dataset)
    without = np.flatnonzero(count_sentences(dataset) == 0)
    held = np.fromiter(takewhile(lambda number: number < total, held_out(share)), np.int64)
    selections = {split: Selection(total, np.union1d(without, held), is_inverted=True)}
    if share:
        selections["validation"] = Selection(total, np.setdiff1d(held, without), is_inverted=False)
    return _Part(split, dataset, selections, len(without) - len(bad_rows), bad_rows, share)


def _hold_out_passages(parts: list[_Part]) -> tuple[list[_Part], list[str]]:
    """Hold out passages if the documents are too few to hold whole ones out, and say so."""
    held = sum(
        len(part.selections["validation"]) for part in parts if "validation" in part.selections
    )
    documents = sum(len(part.selections["train"]) for part in parts if part.share)
    if held or not documents:
        return parts, []
    split = [
        _split_source(
            split_documents(part.dataset, part.share), part.split, part.share, part.bad_rows
        )
        if part.share
        else part
        for part in parts
    ]
    held = sum(len(part.selections["validation"]) for part in split if part.share)
    total = held + sum(len(part.selections["train"]) for part in split if part.share)
    if not held:  # too few sentences, too
        return parts, []
    note = (
        f"validation: {held:,} of the {total:,} passages of consecutive sentences that the text "
        f"was split into, chosen at random, since whole documents are too few ({documents:,})"
    )
    return split, [note]


def _drop_repeated(parts: list[_Part]) -> int:
    """Drop the training documents that equal held-out ones, and count them."""
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
            dropped = np.union1d(before, find_equal(part.dataset, held))
            part.selections["train"] = Selection(len(part.dataset), dropped, is_inverted=True)
            repeated += len(dropped) - len(before)
    return repeated


def _join_parts(parts: list[_Part], split: str) -> TokenizedDocuments:
    chosen = [(part.dataset, part.selections[split]) for part in parts if split in part.selections]
    empty = sum(part.empty for part in parts if part.split == split)
    return TokenizedDocuments(chosen, split, empty)


def _check_splits(
    corpora: Sequence[CorpusData], names: str, splits: dict[str, TokenizedDocuments], repeated: int
) -> None:
    total = len(splits["train"])
    if not total:
        equal = f", since {repeated} equal held-out ones" if repeated else ""
        raise ValueError(f"corpus {names}: no training document is left{equal}; add documents")
    if not len(splits["validation"]):
        shares = ", ".join(f"{data.validation_share:g}" for data in corpora)
        advice = "check the unit of a document, the key 'documents' (blank_line, file or line)"
        if total > 1:
            advice += f", or raise validation_share={shares} to {1 / total:.2g} or more"
        raise ValueError(
            f"corpus {names}: no document of {total} is held out; give validation_file, or {advice}"
        )


def _find_invalid(data: CorpusData, source: Source, dataset: datasets.Dataset) -> list[InvalidRow]:
    """List the invalid documents with their lines."""
    numbers = np.flatnonzero(dataset.data.column("problem").is_valid())
    rows = dataset.select_columns(["file", "position", "problem"]).select(numbers)
    bad_rows = []
    for file, group in groupby(rows, key=lambda row: str(row["file"])):
        documents = list(group)
        lines = [row["position"] for row in documents]
        if data.train_file is not None:
            lines = find_lines(file, lines)
        bad_rows += [
            InvalidRow(file, line, row["problem"])
            for line, row in zip(lines, documents, strict=True)
        ]
    check_invalid_fraction(source.name, bad_rows, len(dataset), data.max_invalid_fraction)
    log_invalid_rows(data.where, bad_rows)
    return bad_rows
