"""Read the rows of a task, and skip the invalid ones."""

import hashlib
import logging
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import pyarrow as pa

from .formats import ROW_FORMATS
from .hub import MOST_CHARACTERS, MOST_ROWS, hash_sources, read_hub, show_progress
from .readers import check_file, check_twins
from .row_format import Row, RowFormat, RowSource
from .samples import read_sample
from .sentence_formats import UNDECIDED
from .task_data import TaskData

# Invalid rows


logger = logging.getLogger(__name__)

MAX_ROWS_LISTED = 20
MAX_ROWS_IN_ERROR = 3
MOST_LETTERS = 300  # of a reason, which may quote a value of any length


@dataclass(frozen=True)
class InvalidRow:
    """A row that cannot be used.

    Args:
        file: Path of the file, or ``hub_id:split``.
        line: First line of the row, from 1 (in Parquet and on the Hub: its row).
        reason: What is wrong with it; the end of a long reason is cut.
    """

    file: str
    line: int
    reason: str

    def __post_init__(self) -> None:
        if len(self.reason) > MOST_LETTERS:
            object.__setattr__(self, "reason", f"{self.reason[: MOST_LETTERS - 3]}...")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"

    def describe(self, *, quotes: bool) -> str:
        """Return its place, and if values may be quoted the reason."""
        hidden = "see the log of the run for the reason"
        return f"{self.file}:{self.line}: {self.reason if quotes else hidden}"


def check_invalid_fraction(
    file: str, invalid: list[InvalidRow], num_rows: int, max_invalid_fraction: float
) -> None:
    """Reject rows if too many, or all of them, are invalid."""
    if len(invalid) < num_rows and len(invalid) <= max_invalid_fraction * num_rows:
        return
    shown = "; ".join(
        f"line {row.line}: {row.reason}" if row.file == file else str(row)
        for row in invalid[:MAX_ROWS_IN_ERROR]
    )
    raise ValueError(
        f"{file}: {len(invalid)} of {num_rows} rows are invalid, but max_invalid_fraction="
        f"{max_invalid_fraction:g} allows {int(max_invalid_fraction * num_rows)}; the first are: "
        f"{shown}; correct the file or raise max_invalid_fraction"
    )


def log_invalid_rows(owner: str, invalid: list[InvalidRow]) -> None:
    """Warn about skipped rows: the first ones and their number."""
    for row in invalid[:MAX_ROWS_LISTED]:
        logger.warning("%s", row)
    if len(invalid) > MAX_ROWS_LISTED:
        logger.warning("... and %d more", len(invalid) - MAX_ROWS_LISTED)
    if invalid:
        logger.warning("%s: skipped %d invalid rows", owner, len(invalid))


# Rows on disk


def build_rows(
    source: RowSource, row_format: RowFormat, cache_dir: str | Path | None
) -> datasets.Dataset:
    """Build the rows of a split, invalid ones marked, mapped from a temporary file."""
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "minbert_rows"
    folder.mkdir(parents=True, exist_ok=True)
    records = show_progress(source.read(row_format), f"read {source.split}")
    rows = (
        row_format.to_row(record, number, source.split) for number, record in enumerate(records)
    )
    schema = row_format.features.arrow_schema
    digest = hashlib.sha256(hash_sources().encode())
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        try:
            with pa.ipc.new_stream(file, schema) as writer:
                for block in _split_rows(rows, digest):
                    writer.write_table(pa.Table.from_pylist(block, schema))
            file.flush()
            table = datasets.table.MemoryMappedTable.from_file(file.name)
        finally:
            with suppress(PermissionError):  # Windows keeps a file in use
                Path(file.name).unlink()
    return datasets.Dataset(table, fingerprint=digest.hexdigest()[:32])


def _split_rows(rows: Iterable[Row], digest: Any) -> Iterator[list[Row]]:
    """Split rows into blocks that fit into memory, and hash them."""
    block: list[Row] = []
    size = 0
    for row in rows:
        text = repr(row)
        digest.update(text.encode())
        block.append(row)
        size += len(text)
        if len(block) == MOST_ROWS or size >= MOST_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


# Splits


class ValidRows(NamedTuple):
    """The valid rows of a split, and what was skipped."""

    rows: datasets.Dataset
    num_undecided: int = 0
    invalid: Sequence[InvalidRow] = ()


class TaskRows(NamedTuple):
    """The valid rows of a task by split, and their format."""

    row_format: RowFormat
    found: dict[str, ValidRows]
    commit: str | None = None  # of a dataset on the Hub
    held_out_of: int | None = None  # rows among which validation rows were held out


def read_rows(data: TaskData, cache_dir: str | Path | None) -> TaskRows:
    """Read all splits of a task."""
    row_format = make_format(data)
    sources, commit = _find_sources(data, row_format, cache_dir)
    row_format = row_format.resolve(data.where, sources)
    check_twins(f"{data.where}: the labels", row_format.label_names or ())
    found: dict[str, ValidRows] = {}
    for split, source in sources.items():
        rows = build_rows(source, row_format, cache_dir)
        found[split] = find_valid(data, row_format, source, rows)
    return TaskRows(row_format, found, commit)


def make_format(data: TaskData) -> RowFormat:
    """Make the format of the rows of a task."""
    kind = ROW_FORMATS[str(data.problem_type)]
    keys = {field.name for field in fields(kind)} & {field.name for field in fields(data)}
    given = {key: getattr(data, key) for key in keys} | data.options
    given |= {"text_columns": data.text_columns or (), "undecided": data.built_in.undecided}
    given["skips_unlabelled"] = data.skips_unlabelled
    return kind(**given)


def check_files(data: TaskData) -> None:
    """Check that the files of a task exist, are not empty, and have a known suffix."""
    unlabeled = [] if data.unlabeled_file is None else [data.unlabeled_file]
    for path in [*data.files.values(), *unlabeled]:
        check_file(path, ROW_FORMATS[str(data.problem_type)].file_suffixes)


def _find_sources(
    data: TaskData, row_format: RowFormat, cache_dir: str | Path | None
) -> tuple[dict[str, RowSource], str | None]:
    """Return the source of each split, and the commit of a dataset on the Hub."""
    if data.files:
        check_files(data)
        file_format = data.file_format
        files = data.files.items()
        return {split: RowSource(path, split, file_format) for split, path in files}, None
    if data.hub_id is None:
        samples = read_sample(str(data.dataset))
        splits = {split: datasets.Dataset.from_list(rows) for split, rows in samples.items()}
        commit = None
    else:
        splits, commit = read_hub(
            data.where,
            data.hub_id,
            row_format.required_columns,
            needed_splits=("train",) if data.validation_share else ("train", "validation"),
            extra_tests=data.built_in.hub_tests,
            cache_dir=cache_dir,
            revision=data.revision,
        )
    name = data.hub_id or data.dataset
    sources = {
        split: RowSource(f"{name}:{split}", split, rows=rows) for split, rows in splits.items()
    }
    return sources, commit


def find_valid(
    data: TaskData, row_format: RowFormat, source: RowSource, rows: datasets.Dataset
) -> ValidRows:
    """Keep the valid rows of a split."""
    checked = row_format.check_split(rows, source.name, source.split)
    decided, undecided = _drop_undecided(checked)
    valid, invalid = _drop_invalid(decided, row_format, source.name, data.max_invalid_fraction)
    return ValidRows(valid, undecided, invalid)


def _drop_undecided(rows: datasets.Dataset) -> tuple[datasets.Dataset, int]:
    """Skip the rows on which the annotators did not agree, and count them."""
    kept = [place for place, problem in enumerate(rows["problem"][:]) if problem != UNDECIDED]
    missing = len(rows) - len(kept)
    return (rows.select(kept) if missing else rows), missing


def _drop_invalid(
    rows: datasets.Dataset, row_format: RowFormat, source: str, max_invalid_fraction: float
) -> tuple[datasets.Dataset, list[InvalidRow]]:
    """Split rows into valid and invalid ones; only a whole test split may have no labels."""
    label = row_format.label_name
    table = rows.select_columns([label, "line", "problem"]).with_format("arrow")[:]
    problems: list[str] = table["problem"].to_pylist()
    unlabeled: list[bool] = table[label].is_null().to_pylist()
    both = list(zip(unlabeled, problems, strict=True))
    is_unlabeled = all(missing for missing, problem in both if not problem)
    if not is_unlabeled:
        unusable = "no label, though other rows have one"
        problems = [problem or (unusable if missing else "") for missing, problem in both]
    lines = zip(table["line"].to_pylist(), problems, strict=True)
    invalid = [InvalidRow(source, line, problem) for line, problem in lines if problem]
    check_invalid_fraction(source, invalid, len(problems), max_invalid_fraction)
    if invalid:
        rows = rows.select([place for place, problem in enumerate(problems) if not problem])
    return rows.remove_columns(["line", "problem", *([label] if is_unlabeled else [])]), invalid
