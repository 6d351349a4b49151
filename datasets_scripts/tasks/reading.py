"""Read the rows of a task, and skip the invalid ones."""

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import NamedTuple

import datasets

from datasets_scripts.files.characters import check_twins
from datasets_scripts.files.hub import read_hub
from datasets_scripts.files.readers import check_file
from datasets_scripts.problems import ROW_FORMATS, RowFormat
from datasets_scripts.problems.row_format import RowSource
from datasets_scripts.problems.sentences import UNDECIDED
from datasets_scripts.samples import read_sample

from .building import build_rows
from .invalid_rows import InvalidRow, check_invalid_fraction
from .task_data import TaskData


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
