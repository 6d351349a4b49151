"""Plans of rows on disk, one per pass, so that memory does not grow with the text."""

import os
import random
import shutil
import socket
import tempfile
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from datasets_scripts.files.cache import show_progress

KEPT_PASSES = 2
TYPES: dict[str, Any] = {
    "rows": np.int64,
    "starts": np.int64,
    "lengths": np.int32,
    "is_random": np.int8,
    "pieces": np.int32,
}
ROWS_IN_MEMORY = 10_000  # while a plan is written


class Piece(NamedTuple):
    """Consecutive tokens of a document."""

    document: int
    first: int  # its first token, from 0
    last: int  # its last token, exclusive


class PlannedRow(NamedTuple):
    """The content of a row."""

    pieces: Sequence[Piece]  # each followed by [SEP]
    is_random: bool = False  # whether the second piece is random


# Plans the rows of a pass, deterministically; it can be pickled.
Planner = Callable[[int], Iterator[PlannedRow]]


class Plan(NamedTuple):
    """The plan of a pass: arrays that are memory-mapped from files."""

    rows: NDArray[np.int64]  # planned row of each row, (N,); some of M may be dropped or repeated
    starts: NDArray[np.int64]  # first piece of each planned row, and the end, (M + 1,)
    lengths: NDArray[np.int32]  # tokens of each planned row, with special tokens, (M,)
    is_random: NDArray[np.int8]  # whether its second piece is random, (M,)
    pieces: NDArray[np.int32]  # document, first token and end of each piece, (P, 3)


class PlanFolder:
    """The plans of the last two passes, in a temporary folder that its process removes."""

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

    def open(self, pass_index: int) -> Plan:
        """Open the plan of a pass, after writing it if it does not exist."""
        while pass_index not in self._plans:
            plan = _map(self._folder / f"pass-{pass_index}")
            if plan is None:
                self._write(pass_index)
            else:
                kept = list(self._plans.items())[1 - KEPT_PASSES :]
                self._plans = dict([*kept, (pass_index, plan)])
        return self._plans[pass_index]

    def _make_folder(self) -> None:
        # next to the tokens: the system's temporary folder may be in memory
        place = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_plans"
        place.mkdir(parents=True, exist_ok=True)
        host = socket.gethostname()
        _remove_left_over(place, host)
        self._folder = Path(tempfile.mkdtemp(prefix=f"{host}-{os.getpid()}-", dir=place))
        weakref.finalize(self, _remove, self._folder, os.getpid())

    def _write(self, pass_index: int) -> None:
        """Write the plan of a pass, in one of several processes."""
        if not self._folder.is_dir():
            self._make_folder()
        with FileLock(self._folder / "lock"):
            if not (self._folder / f"pass-{pass_index}").is_dir():
                self._write_pass(pass_index)

    def _write_pass(self, pass_index: int) -> None:
        # written as a draft and then renamed: no other process sees an incomplete plan
        draft = Path(tempfile.mkdtemp(dir=self._folder))
        rows = show_progress(self._planner(pass_index), f"plan pass {pass_index}", self._rows)
        planned = _write_rows(draft, rows)
        wanted = self._rows or planned
        chosen = np.arange(wanted) % planned  # repeats the first ones if there are too few
        if planned > wanted:
            chosen = np.sort(draw_order(f"{self._seed} {pass_index} rows", planned)[:wanted])
        chosen.astype(TYPES["rows"]).tofile(draft / "rows")
        draft.rename(self._folder / f"pass-{pass_index}")
        for old in sorted(self._folder.glob("pass-*"), key=_find_age)[:-KEPT_PASSES]:
            shutil.rmtree(old, ignore_errors=True)


def draw_order(seed: str, count: int) -> NDArray[np.int64]:
    """Shuffle the numbers from 0 to ``count - 1``, (count,), int64."""
    rng = np.random.default_rng(random.Random(seed).getrandbits(64))
    return rng.permutation(count)


def _write_rows(folder: Path, rows: Iterator[PlannedRow]) -> int:
    """Write planned rows to files in chunks, and count them."""
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
                "lengths": 1 + sizes + counts,  # [CLS], and a [SEP] after each piece
                "is_random": np.asarray([row.is_random for row in part]),
                "pieces": pieces,
            }
            for name, column in columns.items():
                column.astype(TYPES[name]).tofile(files[name])
            planned, end = planned + len(part), end + len(pieces)
    return planned


def _map(folder: Path) -> Plan | None:
    """Map the files of a pass; None if they do not exist."""
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
    """Remove the folders of killed processes of this machine."""
    for folder in place.glob(f"{host}-*-*"):
        owner = folder.name.removeprefix(f"{host}-").split("-")[0]
        if owner.isdigit() and not _is_alive(int(owner)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # elsewhere the signal would kill it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def _remove(folder: Path, owner: int) -> None:
    """Remove a folder, but not in a fork of its owner."""
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
