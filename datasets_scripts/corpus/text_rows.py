"""Rows of text for pretraining: different in every pass, equal in every process."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from modeling_minbert import unknown

from .full_sentences import plan_sentences
from .pairs import plan_all_pairs
from .plans import PlanFolder, Planner
from .tokenized import TokenizedDocuments

logger = logging.getLogger(__name__)

MANY_RANDOM = 0.8  # share of random pairs that causes a warning
PACKINGS = ("segment_pairs", "full_sentences", "doc_sentences")


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows of a text, with [CLS] before and [SEP] after each piece.

    The content of a row depends only on the seed, the pass and its number. Every pass has as many
    rows as the first one: surplus rows are dropped, and missing ones are filled by repeating the
    first ones.
    """

    documents: TokenizedDocuments
    plans: PlanFolder
    has_pairs: bool
    special_ids: tuple[int, int]  # [CLS], [SEP]
    room: int  # tokens of a row without special ones

    def __len__(self) -> int:
        return len(self.plans)

    def count_tokens(self, number: int) -> NDArray[np.int64]:
        """Count the tokens of every row in pass ``number``, including special tokens, (N,)."""
        plan = self.plans.open(number)
        return plan.lengths[plan.rows].astype(np.int64)

    def read(self, number: int, rows: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Read some rows of pass ``number``.

        Args:
            number: The pass, from 0.
            rows: Numbers of the rows, (B,).

        Returns:
            ``lengths`` (B,); ``input_ids`` and ``token_type_ids`` of all rows, concatenated and
            including special tokens, (T,); and for segment pairs ``next_sentence_label`` (B,), 0
            if B follows A and 1 if it is random.
        """
        plan = self.plans.open(number)
        planned = plan.rows[rows]
        lengths = plan.lengths[planned].astype(np.int64)
        ids = np.empty(lengths.sum(), np.int64)
        types = np.zeros_like(ids)
        cls, sep = self.special_ids
        end = 0
        for row in planned.tolist():
            ids[end] = cls
            end += 1
            pieces = plan.pieces[plan.starts[row] : plan.starts[row + 1]].tolist()
            for place, (document, first, last) in enumerate(pieces):
                start, end = end, end + last - first
                ids[start:end] = self.documents.tokens(document, first, last)
                ids[end] = sep
                end += 1
                types[start:end] = place if self.has_pairs else 0
        columns = {"lengths": lengths, "input_ids": ids, "token_type_ids": types}
        if self.has_pairs:
            columns["next_sentence_label"] = plan.is_random[planned].astype(np.int64)
        return columns

    def describe(self) -> dict[str, int | float]:
        """Count documents, sentences and tokens, and the rows of the first pass."""
        sentences, tokens, cut = self.documents.count(self.room)
        facts: dict[str, int | float] = {
            "documents": len(self.documents),
            "empty_documents": self.documents.empty,
            "sentences": sentences,
            "cut_sentences": cut,
            "tokens": tokens,
            "rows": len(self),
        }
        if self.has_pairs:
            plan = self.plans.open(0)
            facts["random_share"] = float(plan.is_random[plan.rows].mean())
        return facts


def make_text_rows(
    documents: TokenizedDocuments,
    tokenizer: PreTrainedTokenizerBase,
    *,
    packing: str,
    max_length: int,
    seed: int,
    short_seq_prob: float = 0.1,
    balanced_pairs: bool = False,
    name: str,
) -> TextRows:
    """Make rows of the documents of a split.

    Args:
        documents: The documents, from `encode_corpus`.
        tokenizer: The tokenizer of their tokens.
        packing: ``segment_pairs`` (two segments, the second of which follows the first or is
            random), ``full_sentences`` (a row is filled with sentences, across documents) or
            ``doc_sentences`` (the same within one document).
        max_length: Maximum tokens of a row, including special tokens.
        seed: Seed of all draws.
        short_seq_prob: Share of the documents of a pass whose pairs have a random length.
        balanced_pairs: Whether half of the pairs are random; else more are, since a single sentence
            can only be paired with a random one.
        name: Name of the corpus, for messages.

    Raises:
        ValueError: If a setting is unknown or out of range, or pairs are made of one document.
    """
    _check_settings(name, packing, max_length, short_seq_prob)
    has_pairs = packing == "segment_pairs"
    if has_pairs and len(documents) < 2:
        held_out = "give validation_file or a larger validation_share, "
        raise ValueError(
            f"{name}: {len(documents)} document in split {documents.split!r}, but next sentences "
            "need two, since a random one is of another document; "
            f"{held_out if documents.split == 'validation' else ''}add documents, check what the "
            "key 'documents' takes for one (blank_line, file or line), or learn masked tokens alone"
        )
    special_ids = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    if None in special_ids:
        raise ValueError(
            f"{name}: the tokenizer has no [CLS] or no [SEP]; use that of a BERT model"
        )
    room = max_length - (3 if has_pairs else 2)  # special tokens
    common: dict[str, Any] = {"documents": documents, "max_tokens": room, "seed": seed}
    planner: Planner = partial(plan_sentences, is_across=packing == "full_sentences", **common)
    if has_pairs:
        planner = partial(
            plan_all_pairs, short_seq_prob=short_seq_prob, is_balanced=balanced_pairs, **common
        )
    rows = TextRows(documents, PlanFolder(planner, seed), has_pairs, special_ids, room)
    if has_pairs:
        _check_share(rows.describe(), name, balanced_pairs=balanced_pairs)
    return rows


def _check_settings(name: str, packing: str, max_length: int, short_seq_prob: float) -> None:
    if packing not in PACKINGS:
        raise ValueError(f"{name}: {unknown('packing', packing, PACKINGS)}")
    shortest = 5 if packing == "segment_pairs" else 3  # special tokens, and one of each part
    if max_length < shortest:
        raise ValueError(f"{name}: max_length={max_length}; {packing} needs {shortest} or more")
    if not 0 <= short_seq_prob <= 1:
        raise ValueError(f"{name}: short_seq_prob={short_seq_prob} must be in [0, 1]")


def _check_share(facts: Mapping[str, int | float], name: str, *, balanced_pairs: bool) -> None:
    """Reject pairs that are useless for training, and warn about poor ones."""
    share, rows = facts["random_share"], facts["rows"]
    advice = (
        "most documents have one sentence, which only a random one can follow; check the keys "
        "'documents' and 'sentences', or train masked_lm only"
    )
    if facts["sentences"] == facts["documents"]:
        raise ValueError(f"{name}: all {rows} pairs are random: {advice}")
    if balanced_pairs and share > 0.55 + 2 / math.sqrt(rows):
        raise ValueError(
            f"{name}: balanced_pairs=True, but {share:.0%} of the pairs are random: {advice}"
        )
    if share > MANY_RANDOM + 1 / math.sqrt(rows):
        logger.warning("%s: %.0f%% of the pairs are random: %s", name, 100 * share, advice)
