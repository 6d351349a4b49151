"""Plans of rows on disk, one for each pass, so that memory does not grow with the text."""

import os
import random
import shutil
import socket
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import datasets
import numpy as np
from datasets.utils import tqdm
from filelock import FileLock
from numpy.typing import NDArray

KEPT_PASSES = 2
TYPES: dict[str, Any] = {
    "rows": np.int64,
    "starts": np.int64,
    "lengths": np.int32,
    "is_random": np.int8,
    "pieces": np.int32,
}
ROWS_IN_MEMORY = 10_000  # while a plan is written
SILENT_SECONDS = 5  # before a progress bar


class Piece(NamedTuple):
    """Tokens of a document that follow one another.

    Args:
        document: The document.
        first: Its first token, from 0.
        last: The token after its last one.
    """

    document: int
    first: int
    last: int


class PlannedRow(NamedTuple):
    """What a row is made of.

    Args:
        pieces: Parts of documents, each followed by [SEP].
        is_random: Whether the second one does not follow the first; False if nobody asks.
    """

    pieces: Sequence[Piece]
    is_random: bool = False


class Planner(Protocol):
    """Plans the rows of every pass; the same number gives the same rows."""

    def plan(self, number: int) -> Iterator[PlannedRow]:
        """Plan the rows of a pass."""


class Plan(NamedTuple):
    """The plan of a pass: arrays that are mapped from files.

    Args:
        rows: The planned row of each row, (N,), int64; of M planned ones, some may be left out or
            stand twice.
        starts: Number of the first piece of each planned row, and the end, (M + 1,), int64.
        lengths: Tokens of each planned row, special ones included, (M,), int32.
        is_random: Whether its second piece does not follow the first, (M,), int8.
        pieces: Document, first token and end of each piece, (P, 3), int32.
    """

    rows: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int32]
    is_random: NDArray[np.int8]
    pieces: NDArray[np.int32]


class PlanFolder:
    """The plans of the last two passes that were asked for, in a folder of their own.

    The folder belongs to the process that made it, and goes with the object. A pickled copy, such
    as that of a worker, reads the same files, and plans anew what is gone.

    Args:
        planner: Plans the rows of a pass; at least one.
        seed: Seed of the choice of what is left out of a pass that has too many rows.
    """

    def __init__(self, planner: Planner, seed: int) -> None:
        self._planner = planner
        self._seed = seed
        self._rows: int | None = None
        self._plans: dict[int, Plan] = {}
        self._make_folder()
        self._rows = len(self.open(0).rows)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_plans": {}}

    def __len__(self) -> int:
        return self._rows or 0

    def open(self, number: int) -> Plan:
        """Open the plan of a pass; it is written first if it is not there."""
        while number not in self._plans:
            plan = _map(self._folder / f"pass-{number}")
            if plan is None:
                self._write(number)
            else:
                kept = list(self._plans.items())[1 - KEPT_PASSES :]
                self._plans = dict([*kept, (number, plan)])
        return self._plans[number]

    def _make_folder(self) -> None:
        # beside the tokens: a folder of temporary files may be in memory
        place = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_plans"
        place.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname()
        _remove_left_over(place, host)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{host}-{os.getpid()}-", dir=place))
        weakref.finalize(self, _remove, self._folder, os.getpid())

    def _write(self, number: int) -> None:
        """Write the plan of a pass; of several processes that need it, one does."""
        if not self._folder.is_dir():
            self._make_folder()
        with FileLock(self._folder / "lock"):
            if not (self._folder / f"pass-{number}").is_dir():
                self._write_pass(number)

    def _write_pass(self, number: int) -> None:
        # Written beside its place and then renamed: no other process ever sees a half of it.
        draft = Path(tempfile.mkdtemp(dir=self._folder))
        rows = tqdm(
            self._planner.plan(number),
            desc=f"plan pass {number}",
            total=self._rows,
            unit=" rows",
            delay=SILENT_SECONDS,
        )
        planned = _write_rows(draft, iter(rows))
        wanted = self._rows or planned
        chosen = np.arange(wanted) % planned  # of too few, the first ones twice
        if planned > wanted:
            chosen = np.sort(draw_order(f"{self._seed} {number} rows", planned)[:wanted])
        chosen.astype(TYPES["rows"]).tofile(draft / "rows")
        draft.rename(self._folder / f"pass-{number}")
        for old in sorted(self._folder.glob("pass-*"), key=_find_age)[:-KEPT_PASSES]:
            shutil.rmtree(old, ignore_errors=True)


def draw_order(seed: str, count: int) -> NDArray[np.int64]:
    """Shuffle the numbers from 0 to ``count - 1``, in eight bytes each."""
    rng = np.random.default_rng(random.Random(seed).getrandbits(64))
    return rng.permutation(count)


def _write_rows(folder: Path, rows: Iterator[PlannedRow]) -> int:
    """Write planned rows to files, some thousands at a time, and count them."""
    names = ("starts", "lengths", "is_random", "pieces")
    planned = end = 0
    with ExitStack() as stack:
        files = {name: stack.enter_context((folder / name).open("wb")) for name in names}
        np.zeros(1, TYPES["starts"]).tofile(files["starts"])
        while part := list(islice(rows, ROWS_IN_MEMORY)):
            pieces = np.asarray([piece for row in part for piece in row.pieces])
            counts = np.asarray([len(row.pieces) for row in part])
            ends = np.cumsum(counts)
            sizes = np.add.reduceat(pieces[:, 2] - pieces[:, 1], ends - counts)
            columns = {
                "starts": end + ends,
                "lengths": 1 + sizes + counts,  # [CLS], and a [SEP] behind each piece
                "is_random": np.asarray([row.is_random for row in part]),
                "pieces": pieces,
            }
            for name, column in columns.items():
                column.astype(TYPES[name]).tofile(files[name])
            planned, end = planned + len(part), end + len(pieces)
    return planned


def _map(folder: Path) -> Plan | None:
    """Map the files of a pass; None if they are not there."""
    try:
        columns = {name: np.memmap(folder / name, dtype, mode="r") for name, dtype in TYPES.items()}
    except FileNotFoundError:
        return None
    return Plan(**columns | {"pieces": columns["pieces"].reshape(-1, 3)})


def _find_age(folder: Path) -> int:
    try:
        return folder.stat().st_mtime_ns
    except FileNotFoundError:  # another process removed it
        return 0


def _remove_left_over(place: Path, host: str) -> None:
    """Remove the folders of processes of this machine that were killed."""
    for folder in place.glob(f"{host}-*-*"):
        owner = folder.name.removeprefix(f"{host}-").split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere the signal would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # that of another user
        return True
    return True


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder, but not in a process that was forked from its owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
