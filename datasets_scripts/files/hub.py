"""Rows of a dataset on the Hub, or of a local folder that is laid out like one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
from datasets.exceptions import DatasetsError

from datasets_scripts.catalog import DATASETS
from datasets_scripts.problems.texts import infer_labels
from datasets_scripts.tasks.task_data import TaskData, is_test

from .builders import Format
from .progress import progress_bars
from .readers import Record

# Names that datasets on the Hub use for our splits, the first one found wins.
SPLIT_NAMES = {
    "train": ("train",),
    "validation": ("validation", "dev", "valid", "validation_matched"),
    "test": ("test", "test_matched"),
    "validation_mismatched": ("validation_mismatched",),
    "test_mismatched": ("test_mismatched",),
}
NEEDED_SPLITS = ("train", "validation")
LONG_MAP = 50_000  # rows


def read_hub(data: TaskData, cache_dir: str | None) -> datasets.DatasetDict:
    """Fetch the splits of a task from the Hub, its columns unchanged.

    Raises:
        ValueError: If the dataset has no such configuration, or lacks a split or a column.
        OSError: If the dataset does not exist or cannot be reached.
    """
    path, config = split_hub_id(str(data.hub_id))
    where = f"task {data.name!r}: dataset {data.hub_id!r}"
    with readable_hub(where):
        found = datasets.load_dataset(path, config, cache_dir=cache_dir)
    splits = datasets.DatasetDict()
    for split, names in SPLIT_NAMES.items():
        name = next((name for name in names if name in found), None)
        if name is not None:
            splits[split] = _check_columns(where, name, found[name], data)
        elif split in NEEDED_SPLITS:
            raise ValueError(f"{where} has no split {split!r}; its splits: {', '.join(found)}")
    known = DATASETS.get(data.dataset or "")
    for split, hub_id in ({} if known is None else known.hub_tests).items():
        path, config = split_hub_id(hub_id)
        where = f"task {data.name!r}: dataset {hub_id!r}"
        with readable_hub(where):
            rows = datasets.load_dataset(path, config, split="test", cache_dir=cache_dir)
        splits[split] = _check_columns(where, "test", rows, data)
    return splits


def find_hub_labels(data: TaskData, splits: datasets.DatasetDict) -> tuple[str, ...]:
    """Take the class names from the dataset's features, else from its training rows."""
    feature = splits["train"].features[data.label_column]
    if isinstance(feature, datasets.ClassLabel):
        return tuple(feature.names)
    return infer_labels(splits["train"].unique(data.label_column))


def convert_hub_rows(splits: datasets.DatasetDict, row_format: Format) -> datasets.DatasetDict:
    """Convert the rows of the Hub to rows with known columns; bad rows are kept and marked."""
    converted = datasets.DatasetDict()
    for split, rows in splits.items():
        with progress_bars(shown=len(rows) > LONG_MAP):
            converted[split] = rows.map(
                _convert_row,
                with_indices=True,
                remove_columns=rows.column_names,
                features=row_format.features,
                fn_kwargs={
                    "row_format": row_format,
                    "split": split,
                    "names": _find_class_names(rows, row_format),
                },
            )
    return converted


@contextmanager
def readable_hub(where: str) -> Iterator[None]:
    """Turn what goes wrong with a dataset of the Hub into one line that a user can act on.

    Args:
        where: The dataset, and who wants it.

    Raises:
        ValueError: If it has no such configuration, or cannot be parsed.
        OSError: If it does not exist or cannot be reached.
    """
    try:
        yield
    except OSError as error:
        raise OSError(
            f"{where} cannot be fetched from the Hub ({error}); check the name and the network, "
            "or read local files: data_dir for a built-in dataset, else train_file and "
            "validation_file"
        ) from error
    # Unknown configurations, loading scripts, files that cannot be parsed.
    except (ValueError, RuntimeError, DatasetsError) as error:
        raise ValueError(f"{where} cannot be read ({error}); check its page on the Hub") from error


def split_hub_id(hub_id: str) -> tuple[str, str | None]:
    """Part ``owner/name:config``; a local folder has no configuration."""
    if Path(hub_id).is_dir():
        return hub_id, None
    path, _, config = hub_id.partition(":")
    return path, config or None


def _check_columns(
    where: str, split: str, rows: datasets.Dataset, data: TaskData
) -> datasets.Dataset:
    label = () if is_test(split) or data.label_column is None else (data.label_column,)
    ids = () if data.id_column is None else (data.id_column,)
    needed = (*(data.text_columns or ()), *label, *ids)
    if missing := [column for column in needed if column not in rows.column_names]:
        raise ValueError(
            f"{where}: split {split!r} has no column {missing}; its columns: {rows.column_names}"
        )
    return rows


def _find_class_names(rows: datasets.Dataset, row_format: Format) -> list[str] | None:
    """Names to put in place of class numbers, where the task speaks of these names."""
    feature = rows.features.get(row_format.label_column)
    if not isinstance(feature, datasets.ClassLabel) or row_format.labels is None:
        return None
    return list(feature.names) if set(feature.names) == set(row_format.labels) else None


def _convert_row(
    values: dict[str, Any],
    number: int,
    row_format: Format,
    split: str,
    names: list[str] | None,
) -> dict[str, Any]:
    label = values.get(row_format.label_column or "")
    if (
        names is not None
        and row_format.label_column
        and isinstance(label, int)
        and 0 <= label < len(names)
    ):
        values = {**values, row_format.label_column: names[label]}
    return row_format.to_row(Record(number + 1, values), number, split)
