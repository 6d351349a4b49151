"""Convert the rows that a user passes, such as lists and frames, to datasets without padding."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from torch.utils.data import IterableDataset
from tqdm.auto import tqdm

from .rows import TextSource

# What `labels` are of: the row, every token, or positions of tokens.
LabelType: TypeAlias = Literal["row", "tokens", "positions"]
# Rows of an iterable that are read if the user gives no limit; it may have no end.
MOST_ROWS = 1_000_000
# Rows that become Arrow arrays at a time.
CHUNK = 10_000
MASK = "attention_mask"
# Other names of the column of labels, which the collators of transformers know, too.
LABEL_NAMES = ("label", "label_ids")


def read_rows(where: str, rows: Any, label_type: LabelType = "row") -> Any:
    """Convert rows to a dataset with the columns that a task needs, and without padding.

    Args:
        where: Which rows they are, for errors.
        rows: The rows, a text source, or None.
        label_type: Whether a label is that of its row or of every token, or lists positions.

    Raises:
        TypeError: If they are not rows, or are a mapping of splits.
        ValueError: If a column is missing, there are no rows, or a mask is not that of paddings.
    """
    if rows is None or isinstance(rows, TextSource):
        return rows
    rows = to_dataset(where, rows)
    if "input_ids" not in rows.column_names:
        raise ValueError(
            f"{where} has no column 'input_ids', but {', '.join(rows.column_names)}; encode its "
            "texts with the tokenizer of the model first"
        )
    if "token_type_ids" not in rows.column_names:
        zeros = [_zeros(ids) for ids in rows.with_format(None)["input_ids"]]
        rows = rows.add_column("token_type_ids", zeros)
    if "labels" not in rows.column_names:
        for name in LABEL_NAMES:
            if name in rows.column_names:
                rows = rows.rename_column(name, "labels")
                break
    return _drop_padding(where, rows, label_type) if MASK in rows.column_names else rows


def _drop_padding(where: str, rows: datasets.Dataset, label_type: LabelType) -> datasets.Dataset:
    """Remove the tokens whose ``attention_mask`` is 0, with their labels, and the mask."""
    (mask_lengths, mask), (lengths, _) = (
        _flatten(where, rows, name) for name in (MASK, "input_ids")
    )
    if mask_lengths.equals(lengths) and pc.all(pc.equal(mask, 1)).as_py():
        return rows.remove_columns(MASK)
    columns = ["input_ids", "token_type_ids", *(["labels"] if label_type == "tokens" else [])]
    columns = [name for name in columns if name in rows.column_names]

    def cut(batch: dict[str, Any], numbers: list[int]) -> dict[str, Any]:
        changed: dict[str, list[Any]] = {name: [] for name in columns}
        for row, number in enumerate(numbers):
            spans = _find_spans(f"{where}, row {number}", batch["input_ids"][row], batch[MASK][row])
            if label_type == "positions" and spans[0]:
                raise ValueError(
                    f"{where}, row {number}: it begins with padding, with which the positions of "
                    "tokens in its other columns would be wrong; pad on the right, or not at all"
                )
            for name in columns:
                changed[name].append(_cut(batch[name][row], spans))
        if "length" in batch:
            changed["length"] = [_count(ids) for ids in changed["input_ids"]]
        return changed

    features = rows.features | {name: _any_length(rows.features[name]) for name in columns}
    cut_rows = rows.with_format(None).map(
        cut,
        with_indices=True,
        batched=True,
        remove_columns=MASK,
        features=datasets.Features({k: v for k, v in features.items() if k != MASK}),
        keep_in_memory=True,
        desc="remove padding",
    )
    form = rows.format
    names = [name for name in form["columns"] if name != MASK]
    return cut_rows.with_format(form["type"], names, False, **form["format_kwargs"])


def _flatten(
    where: str, rows: datasets.Dataset, name: str
) -> tuple[pa.ChunkedArray, pa.ChunkedArray]:
    """Return the length of every sequence of a column, and its numbers, one after the other."""
    column = rows.data.column(name)
    if not pa.types.is_nested(column.type):
        raise ValueError(f"{where}: {name} holds no lists, but {column.type}")
    while pa.types.is_nested(column.type.value_type):
        column = pc.list_flatten(column)
    return pc.list_value_length(column).cast(pa.int64()), pc.list_flatten(column).cast(pa.int64())


def _find_spans(where: str, ids: Any, mask: Any) -> Any:
    """Return start and end of the tokens of a sequence; a list of them for several sequences."""
    if not isinstance(mask, list) or len(mask) != len(ids):
        count = len(mask) if isinstance(mask, list) else 0
        raise ValueError(f"{where}: attention_mask has {count} entries, input_ids {len(ids)}")
    if ids and isinstance(ids[0], list):
        return [_find_spans(where, *pair) for pair in zip(ids, mask, strict=True)]
    kept = [place for place, value in enumerate(mask) if value]
    problem = ""
    if not set(mask) <= {0, 1}:
        problem = f"is {set(mask) - {0, 1}}; expected 0 or 1"
    elif not kept:
        problem = "leaves no token; leave such rows out"
    elif len(kept) <= kept[-1] - kept[0]:
        problem = "is 0 between tokens, where there is no padding; remove these tokens instead"
    if problem:
        raise ValueError(f"{where}: attention_mask {problem}")
    return kept[0], kept[-1] + 1


def _cut(values: Any, spans: Any) -> Any:
    if isinstance(spans, tuple):
        return values[slice(*spans)]
    return [_cut(*pair) for pair in zip(values, spans, strict=True)]


def _count(ids: Any) -> int:
    return sum(map(_count, ids)) if ids and isinstance(ids[0], list) else len(ids)


def _any_length(feature: Any) -> Any:
    """Return the feature of lists without their fixed lengths."""
    if isinstance(feature, datasets.List):
        return datasets.List(_any_length(feature.feature))
    return feature


def to_dataset(where: str, rows: Any, key: str | None = None, most: int | None = None) -> Any:
    """Convert rows of any kind to a dataset.

    Args:
        where: Which rows they are, for errors.
        rows: The rows, a text source, or None.
        key: Argument that limits their number, for errors; None without one.
        most: Its value; None for all rows.

    Raises:
        TypeError: If they are not rows, or are a mapping of splits.
        ValueError: If there are no rows, too many, or their columns differ.
    """
    if rows is None or isinstance(rows, TextSource):
        return rows
    if isinstance(rows, datasets.Dataset):
        return rows if most is None else rows.select(range(min(most, len(rows))))
    if hasattr(rows, "iloc"):  # a frame of pandas
        return datasets.Dataset.from_pandas(rows[:most], preserve_index=False)
    if isinstance(rows, Mapping) and "input_ids" in rows:
        return datasets.Dataset.from_dict(
            {name: _listed(column)[:most] for name, column in rows.items()}
        )
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


def _read_stream(
    where: str, rows: Iterable[Any], key: str | None, most: int | None
) -> Iterator[Any]:
    """Read an iterable to its end or to a limit, with a progress bar."""
    with tqdm(desc=f"reading {where}", total=most, unit=" rows", disable=None) as bar:
        for number, row in enumerate(rows, start=1):
            if most is None and number > MOST_ROWS:
                raise ValueError(
                    f"{where} has more than {MOST_ROWS:,} rows, or no end, and is kept in memory; "
                    f"give {key + ' to read as many, or ' if key else ''}a datasets.Dataset"
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
        yield {name: _listed(value) for name, value in row.items()}


def _listed(values: Any) -> Any:
    """Turn a tensor or an array into a list."""
    return values.tolist() if hasattr(values, "tolist") else values


def _zeros(ids: Any) -> Any:
    """Return the segment ids of single sequences: 0 for every token."""
    return [_zeros(part) for part in ids] if isinstance(ids, list) else 0
