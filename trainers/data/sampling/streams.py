"""Endless streams of the rows of a task, also with every class in its share.

Oversampling leaves no row out: rows of rare classes are repeated, as evenly as possible. Which rows
are repeated once more than others is a function of (seed, pass).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
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


# Global batches that are sorted by length together: enough for little padding, few enough to keep
# the order random.
GROUP_BATCHES = 50

# Rows of a step, (ranks, rows of a rank); row r of pass p of a task with N rows is r + p * N. A
# pass has every row once, or with oversampling some rows several times.
Step = NDArray[np.int64]
# A count for every row, (N,), or a function from the pass index to these counts.
Counts = Sequence[int] | NDArray[np.int64] | Callable[[int], NDArray[np.int64]]


def counts_of(counts: Counts, pass_index: int) -> NDArray[np.int64]:
    """Return the counts of a pass, (N,)."""
    given: Any = counts
    return np.asarray(given(pass_index) if callable(given) else given)


class RowStream:
    """Steps with ``batch_size`` rows per rank, always full: one may have rows of two passes.

    ``seed`` has the seed of the run, >= 0, and the position of the task.

    Attributes:
        size: Rows of a pass.
        stride: Rows of the task, without repetitions.
        batch: Description of the batch size, such as ``2 x 32``.
        pass_steps: Steps of one pass over the rows.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        *,
        num_replicas: int,
        seed: tuple[int, int],
        lengths: Counts | None,
        oversampling: Oversampling | None = None,
    ) -> None:
        self.stride = size
        self.size = size if oversampling is None else oversampling.size
        self._oversampling = oversampling
        self.batch = f"{num_replicas} x {batch_size}"
        self._ranks = num_replicas
        self._rows = num_replicas * batch_size
        self.pass_steps = self.size / self._rows
        self._seed = seed
        self._lengths = lengths

    def read(self, first: int) -> Iterator[Step]:
        """Yield the steps from step ``first`` of training on, without end."""
        pass_index, offset = divmod(first * self._rows, self.size)
        rows = self._order(pass_index)[offset:]
        while True:
            while len(rows) < self._rows:
                pass_index += 1
                rows = np.concatenate([rows, self._order(pass_index)])
            yield rows[: self._rows].reshape(self._ranks, -1)
            rows = rows[self._rows :]

    def count_rows(self, first: int, steps: int) -> int:
        """Count the rows of ``steps`` steps from step ``first`` on, over all ranks."""
        return steps * self._rows

    def count_step_rows(self) -> NDArray[np.int64]:
        """Count the rows of every step of the first pass, over all ranks, (steps,)."""
        return np.full(math.ceil(self.pass_steps), self._rows)

    def _order(self, pass_index: int) -> NDArray[np.int64]:
        generator = np.random.default_rng((*self._seed, pass_index))
        order = permute_rows(self.size, self._oversampling, pass_index, generator)
        if self._lengths is not None:
            # these rows complete the last batch of the previous pass; then every cut is a batch
            head = min(self.size, -pass_index * self.size % self._rows)
            lengths = counts_of(self._lengths, pass_index)
            order = group_by_length(order, lengths, self._rows, head, generator)
        return order + pass_index * self.stride


def permute_rows(
    size: int,
    oversampling: Oversampling | None,
    pass_index: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Draw the order of the rows of a pass, (size,)."""
    order = generator.permutation(size)
    return order if oversampling is None else oversampling.draw(pass_index)[order]


def group_by_length(
    order: NDArray[np.int64],
    lengths: NDArray[np.int64],
    batch: int,
    head: int,
    generator: np.random.Generator,
) -> NDArray[np.int64]:
    """Reorder a permutation, (N,), so that the rows of a batch have similar lengths.

    The first ``head`` rows, before the first whole batch, stay; an incomplete batch comes last.
    """
    body = order[head:]
    group = GROUP_BATCHES * batch
    chunks: list[NDArray[np.int64]] = []
    for first in range(0, len(body), group):
        rows = body[first : first + group]
        rows = rows[np.argsort(-lengths[rows], kind="stable")]
        chunks += [rows[start : start + batch] for start in range(0, len(rows), batch)]
    rest = [chunks.pop()] if len(body) % batch else []
    shuffled = [chunks[position] for position in generator.permutation(len(chunks))]
    return np.concatenate([order[:head], *shuffled, *rest])
