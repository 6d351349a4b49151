"""Convert the rows that a user passes, such as lists and iterables, to datasets."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import datasets
import pyarrow as pa
from torch.utils.data import IterableDataset
from tqdm.auto import tqdm

from .rows import TextSource

# Rows of an iterable that are read if the user gives no limit; it may have no end.
MOST_ROWS = 1_000_000
# Rows that become Arrow arrays at a time.
CHUNK = 10_000


def read_rows(where: str, rows: Any, key: str, most: int | None) -> Any:
    """Convert rows to a dataset with the columns that a task needs.

    Args:
        where: Which rows they are, for errors.
        rows: The rows, a text source, or None.
        key: Argument that limits their number, for errors.
        most: Its value; None for all rows.

    Raises:
        TypeError: If they are not rows, or are a mapping of splits.
        ValueError: If a column is missing, there are no rows, or too many.
    """
    if rows is None or isinstance(rows, TextSource):
        return rows
    rows = _to_dataset(where, rows, key, most)
    if "input_ids" not in rows.column_names:
        raise ValueError(
            f"{where} has no column 'input_ids', but {', '.join(rows.column_names)}; encode its "
            "texts with the tokenizer of the model first"
        )
    if "token_type_ids" not in rows.column_names:
        zeros = [_zeros(ids) for ids in rows.with_format(None)["input_ids"]]
        rows = rows.add_column("token_type_ids", zeros)
    only_label = "label" in rows.column_names and "labels" not in rows.column_names
    return rows.rename_column("label", "labels") if only_label else rows


def _to_dataset(where: str, rows: Any, key: str, most: int | None) -> datasets.Dataset:
    """Convert rows of any kind to a dataset."""
    if isinstance(rows, datasets.Dataset):
        return rows if most is None else rows.select(range(min(most, len(rows))))
    if isinstance(rows, Mapping):
        raise TypeError(
            f"{where} is a {type(rows).__name__} of {', '.join(map(str, rows))}; give one of them"
        )
    if isinstance(rows, str) or not (_is_indexed(rows) or isinstance(rows, Iterable)):
        raise TypeError(
            f"{where} is a {type(rows).__name__}; give a datasets.Dataset, a list of rows, a torch "
            "dataset or an iterable of rows"
        )
    if _is_indexed(rows):
        total = len(rows) if most is None else min(most, len(rows))
        return _collect(where, (rows[index] for index in range(total)), None)
    features = getattr(rows, "features", None)
    return _collect(where, _read_stream(where, rows, key, most), features)


def _is_indexed(rows: Any) -> bool:
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    return has_items and not isinstance(rows, IterableDataset)


def _read_stream(where: str, rows: Iterable[Any], key: str, most: int | None) -> Iterator[Any]:
    """Read an iterable to its end or to a limit, with a progress bar."""
    with tqdm(desc=f"reading {where}", total=most, unit=" rows", disable=None) as bar:
        for number, row in enumerate(rows, start=1):
            if most is None and number > MOST_ROWS:
                raise ValueError(
                    f"{where} has more than {MOST_ROWS:,} rows, or no end, and is kept in memory; "
                    f"give {key} to read as many, or a datasets.Dataset"
                )
            yield row
            bar.update()
            if number == most:
                return


def _collect(where: str, rows: Iterable[Any], features: Any) -> datasets.Dataset:
    """Convert rows to a dataset, chunk by chunk, with types that hold the values of all chunks."""
    parts: list[datasets.Dataset] = []
    schema, start, listed = pa.schema([]), 0, _to_lists(where, rows)
    while chunk := list(islice(listed, CHUNK)):
        try:
            parts.append(datasets.Dataset.from_list(chunk, features=features))
            # whole numbers and fractions become fractions; to cast to the first types would cut
            schemas = [schema, parts[-1].data.schema.remove_metadata()]
            schema = pa.unify_schemas(schemas, promote_options="permissive")
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ValueError(
                f"{where}, rows {start} to {start + len(chunk) - 1}: columns have other types than "
                f"before ({error})"
            ) from error
        start += len(chunk)
    if not parts:
        raise ValueError(f"{where} is empty; give it rows")
    if len(parts) > 1 and features is None:
        common = datasets.Features.from_arrow_schema(schema)
        parts = [part.cast(common) for part in parts]
    return datasets.concatenate_datasets(parts)


def _to_lists(where: str, rows: Iterable[Any]) -> Iterator[dict[str, Any]]:
    """Turn the tensors and arrays of rows into lists, and check that all have the same columns."""
    columns: Any = None
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(
                f"{where}: row {number} is a {type(row).__name__}; expected columns such as "
                "{'input_ids': [...], 'labels': 1}"
            )
        columns = columns or row.keys()
        if row.keys() != columns:
            raise ValueError(
                f"{where}: row {number} has the columns {', '.join(map(str, row))}, but those "
                f"before have {', '.join(map(str, columns))}"
            )
        yield {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in row.items()
        }


def _zeros(ids: Any) -> Any:
    """Return the segment ids of single sequences: 0 for every token."""
    return [_zeros(part) for part in ids] if isinstance(ids, list) else 0
