"""Oversampling: passes over the rows of a task in which every class has its share.

No row is left out: rows of rare classes are repeated, as evenly as possible. Which rows are
repeated once more than others is a function of (seed, pass).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from modeling_minbert import unknown

BALANCED = "balanced"
Oversample = str | dict[Any, Any]

# of (seed, pass): separates these draws from the orders of rows, which use the same seed
SPAWN_KEY = (2,)


def check_oversample(value: Any) -> None:
    """Check the value of the key ``oversample`` before the labels of the rows are known."""
    if value is None or value == BALANCED:
        return
    if not isinstance(value, dict) or not value:
        raise ValueError(
            f"oversample={value!r}; expected {BALANCED!r}, or the share of each label, such as "
            "{no: 0.7, yes: 0.3}"
        )
    for label, share in value.items():
        _check_share(label, share)
    if (total := sum(map(_exact, value.values()))) != 1:
        raise ValueError(f"oversample: the shares sum up to {float(total):g}; they must be 1")


def _check_share(label: Any, share: Any) -> None:
    """Check a label, as YAML reads it, and its share."""
    if isinstance(label, bool) or label is None:
        raise ValueError(
            f"oversample: YAML reads the label {label!r} of an unquoted word; put the label in "
            "quotes"
        )
    is_number = isinstance(share, int | float) and not isinstance(share, bool)
    if not is_number or not 0 < share < 1:
        raise ValueError(
            f"oversample: {label}={share!r}; expected a share between 0 and 1 (to train without a "
            "class, remove its rows)"
        )


class ClassRows(NamedTuple):
    """How often the rows of a class occur in a pass."""

    name: str
    rows: int  # training rows
    pass_rows: int  # of a pass, with repetitions

    def describe(self, total: int) -> str:
        """Describe the class in a pass of so many rows."""
        share = f"{100 * self.pass_rows / total:.1f} %"
        return f"{self.name!r} {self.pass_rows:,} from {self.rows:,} ({share})"


@dataclass(frozen=True)
class Oversampling:
    """The rows of the passes over a task.

    Args:
        classes: Class of each row, from 0 on, (N,).
        names: Names of the K classes.
        counts: Rows of each class in a pass, (K,).
        seed: Has the seed of the run, >= 0, and the position of the task.
    """

    classes: NDArray[np.int64]
    names: tuple[str, ...]
    counts: tuple[int, ...]
    seed: tuple[int, int] = (0, 0)

    @property
    def size(self) -> int:
        """Rows of a pass."""
        return sum(self.counts)

    @property
    def most_repeats(self) -> int:
        """How often a row occurs in a pass at most."""
        sizes = np.bincount(self.classes, minlength=len(self.counts)).tolist()
        return max(-(-count // size) for count, size in zip(self.counts, sizes, strict=True))

    def draw(self, pass_index: int) -> NDArray[np.int64]:
        """List the rows of a pass, class by class, (size,)."""
        generator = np.random.default_rng(
            np.random.SeedSequence((*self.seed, pass_index), spawn_key=SPAWN_KEY)
        )
        parts = []
        for number, count in enumerate(self.counts):
            rows = np.flatnonzero(self.classes == number)
            whole, rest = divmod(count, len(rows))
            parts += [np.tile(rows, whole), generator.permutation(rows)[:rest]]
        return np.concatenate(parts)

    def describe_classes(self) -> list[ClassRows]:
        """List how often the rows of each class occur."""
        sizes = np.bincount(self.classes, minlength=len(self.counts)).tolist()
        return [ClassRows(*each) for each in zip(self.names, sizes, self.counts, strict=True)]

    def describe(self) -> str:
        """Describe a pass in one line."""
        classes = ", ".join(each.describe(self.size) for each in self.describe_classes())
        return (
            f"oversampled: a pass has {self.size:,} rows, made from {len(self.classes):,} training "
            f"rows: {classes}"
        )


@dataclass(frozen=True)
class ClassShares:
    """The classes of the rows of a task, and the share that each of them shall have of a pass.

    Args:
        where: Owner of the rows, for messages.
        classes: Class of each row, from 0 on, (N,).
        names: Names of the K classes.
        wanted: ``balanced`` for equal shares, or the share of each class by its name or number.

    Raises:
        ValueError: If a label is unknown or missing, or has no rows.
    """

    where: str
    classes: NDArray[np.int64]
    names: tuple[str, ...]
    wanted: Oversample

    def __post_init__(self) -> None:
        if (self.classes < 0).any():
            raise ValueError(f"{self.where}: oversample needs a label for every training row")
        sizes = np.bincount(self.classes, minlength=len(self.names))
        if missing := [self.names[number] for number in np.flatnonzero(sizes == 0)]:
            raise ValueError(
                f"{self.where}: oversample={self.wanted!r}, but no training row has the label "
                f"{', '.join(map(repr, missing))}; add such rows, or remove it from labels"
            )
        self._shares()

    def plan(self, seed: tuple[int, int] = (0, 0), unit: int = 1) -> Oversampling:
        """Choose the rows of a pass: as few as possible that include every row.

        Args:
            seed: The seed of the run, >= 0, and the position of the task.
            unit: Their number is a multiple of this one, which is the rows of a step: then passes
                do not begin within a step, and have whole epochs of steps.
        """
        shares = self._shares()
        sizes = np.bincount(self.classes, minlength=len(self.names)).tolist()
        least = max(Fraction(size) / share for size, share in zip(sizes, shares, strict=True))
        total = math.ceil(least / unit) * unit
        return Oversampling(self.classes, self.names, _apportion(total, shares), seed)

    def _shares(self) -> list[Fraction]:
        """Return the share of each class, (K,)."""
        if not isinstance(self.wanted, Mapping):
            return [Fraction(1, len(self.names))] * len(self.names)
        shares: dict[str, Fraction] = {}
        for label, share in self.wanted.items():
            name = self._find_name(str(label))
            if name not in self.names or name in shares:
                problem = "given twice" if name in shares else unknown("label", name, self.names)
                raise ValueError(f"{self.where}: oversample: {label!r}: {problem}")
            shares[name] = _exact(share)
        if lacking := [name for name in self.names if name not in shares]:
            raise ValueError(
                f"{self.where}: oversample has no share of {', '.join(map(repr, lacking))}; give "
                "one to every label"
            )
        return [shares[name] for name in self.names]

    def _find_name(self, label: str) -> str:
        """Return the name of a class that is given by name or number; any other label as it is."""
        numbers = {str(number): name for number, name in enumerate(self.names)}
        return label if label in self.names else numbers.get(label, label)


def _exact(share: float) -> Fraction:
    """Return the number that was written: 0.1 is a tenth, and ten of them are 1."""
    return Fraction(str(share))


def _apportion(total: int, shares: Sequence[Fraction]) -> tuple[int, ...]:
    """Divide rows by shares; those left over go to the largest remainders (Hamilton's method)."""
    exact = [total * share for share in shares]
    counts = [math.floor(each) for each in exact]
    order = sorted(range(len(shares)), key=lambda number: counts[number] - exact[number])
    for number in order[: total - sum(counts)]:
        counts[number] += 1
    return tuple(counts)
