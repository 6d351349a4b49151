"""Hold out training rows of a task that has no validation rows."""

import math
import random
from collections.abc import Sequence

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.problems.row_format import RowFormat

from .repeated_rows import digest_alike, digest_rows

MOST_HELD_OUT = 10_000  # more make evaluations slow and metrics hardly more precise


def hold_out(
    where: str, rows: datasets.Dataset, row_format: RowFormat, share: float, seed: int
) -> tuple[datasets.Dataset, datasets.Dataset]:
    """Split rows into training and validation rows, both in their order.

    Rows are drawn by label, and those with equal texts, or about one passage, stay together; texts
    are equal if many models cannot tell them apart, see `digest_alike`. The draw depends on the
    rows and ``seed`` alone, so that runs with other seeds are comparable.

    Args:
        where: Owner of the rows, for messages.
        rows: The valid training rows.
        row_format: Their format.
        share: Share of the rows to hold out, at most `MOST_HELD_OUT`, in (0, 1).
        seed: Seed of the draw.

    Raises:
        ValueError: If no row can be held out.
    """
    wanted = min(MOST_HELD_OUT, math.ceil(share * len(rows)))
    units = _number_units(rows, row_format.unit_columns(rows))
    held = choose_units(units, row_format.strata(rows), wanted, f"{seed} held out")
    # a sentence of a held-out document may also be in others
    texts = np.fromiter(digest_alike(rows, row_format.text_names), np.uint64, len(rows))
    held &= ~np.isin(texts, texts[~held])
    if not held.any():
        raise ValueError(
            f"{where}: there are no validation rows, and none of its {len(rows)} training rows can "
            "be held out, since rows with equal texts stay together and every label needs a "
            "training row; give validation_file, or more rows"
        )
    return rows.select(np.flatnonzero(~held)), rows.select(np.flatnonzero(held))


def choose_units(
    units: NDArray[np.uint64], strata: NDArray[np.int64], wanted: int, seed: str
) -> NDArray[np.bool_]:
    """Choose about ``wanted`` rows at random, in whole units and evenly from all strata.

    Args:
        units: Number of the unit of each row, (N,).
        strata: Number of the stratum of each row, (N,); that of its first row counts for a unit.
        wanted: Number of rows to choose. If every unit has more rows, the smallest one is chosen.
        seed: Seed of the draw.

    Returns:
        Whether a row is chosen, (N,). Of every stratum one unit is left.
    """
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    _, first, unit_of_row, sizes = np.unique(
        units, return_index=True, return_inverse=True, return_counts=True
    )
    stratum = strata[first]
    left = np.bincount(stratum)
    room = _share_out(np.bincount(strata), wanted, rng)
    order = rng.permutation(len(sizes))
    chosen = np.zeros(len(sizes), np.bool_)
    for unit in order:
        own = stratum[unit]
        if sizes[unit] <= room[own] and left[own] > 1:
            chosen[unit] = True
            room[own] -= sizes[unit]
            left[own] -= 1
    others = [unit for unit in order if left[stratum[unit]] > 1]
    if others and not chosen.any():
        chosen[min(others, key=sizes.__getitem__)] = True
    return chosen[unit_of_row]


def _share_out(
    sizes: NDArray[np.int64], wanted: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """Divide a number in proportion to sizes, (S,), by the largest remainders."""
    exact = np.round(wanted * sizes / sizes.sum(), 9)
    shares = exact.astype(np.int64)
    order = np.lexsort((rng.random(len(sizes)), shares - exact))
    shares[order[: wanted - shares.sum()]] += 1
    return shares


def _number_units(rows: datasets.Dataset, columns: Sequence[str]) -> NDArray[np.uint64]:
    """Return a number for each row, (N,), the same for rows that models may not tell apart.

    It is the hash of the first of these rows, so that the draw of rows that all differ does not
    depend on what else is considered equal.
    """
    alike = np.fromiter(digest_alike(rows, columns), np.uint64, len(rows))
    _, first, inverse = np.unique(alike, return_index=True, return_inverse=True)
    return np.fromiter(digest_rows(rows, columns), np.uint64, len(rows))[first[inverse]]
