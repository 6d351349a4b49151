"""Held-out rows that are also training rows: their metrics are those of rows that were learned."""

import logging
from collections.abc import Iterator, Mapping, Sequence

import datasets

from datasets_scripts.files.cache import count_batch, digest_text
from datasets_scripts.problems.row_format import RowFormat

logger = logging.getLogger(__name__)

LARGEST_SHARE = 0.1  # of the rows; official datasets share some short or common texts


def count_repeated(
    where: str, row_format: RowFormat, splits: Mapping[str, datasets.Dataset]
) -> dict[str, int]:
    """Count the held-out rows by split whose texts are those of a training row, and warn of many.

    Labels and white space are not compared.

    Args:
        where: Owner of the rows, for messages.
        row_format: Their format.
        splits: Rows by split.
    """
    learned = set(digest_rows(splits["train"], row_format.text_names))
    counts = {}
    for split, rows in splits.items():
        if split == "train":
            continue
        counts[split] = count = sum(
            row in learned for row in digest_rows(rows, row_format.text_names)
        )
        if count > LARGEST_SHARE * len(rows):
            logger.warning(
                "%s: %d of %d %s rows (%.0f %%) are also training rows, so their metrics do not "
                "measure how the model does on new rows; use other rows",
                where,
                count,
                len(rows),
                split,
                100 * count / len(rows),
            )
    return counts


def digest_rows(rows: datasets.Dataset, columns: Sequence[str]) -> Iterator[int]:
    """Hash some columns of every row, such as its texts."""
    for batch in rows.select_columns(list(columns)).iter(count_batch(rows)):
        for texts in zip(*batch.values(), strict=True):
            words = [" ".join(text) if isinstance(text, list) else str(text) for text in texts]
            yield digest_text("\0".join(words))
