"""Convert the rows that a user passes, such as lists and frames, to datasets without padding."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from torch.utils.data import IterableDataset

from .rows import LABELS, FlatRows, TextSource

# What `labels` are of: the row, every token, or positions of tokens.
LabelType: TypeAlias = Literal["row", "tokens", "positions"]
MASK = "attention_mask"
# Other names of the column of labels, which the collators of transformers know, too.
LABEL_NAMES = ("label", "label_ids")


def read_rows(where: str, rows: Any, label_type: LabelType = "row") -> Any:
    """Convert rows to a dataset with the columns that a task needs, and without padding.

    Args:
        where: Which rows they are, for errors.
        rows: A dataset, a list of rows, a frame of pandas, the columns that a tokenizer returns, a
            torch dataset, a text source, or None.
        label_type: Whether a label is that of its row or of every token, or lists positions.

    Raises:
        TypeError: If they are not rows, or are a mapping of splits.
        ValueError: If a column is missing or has values of another type, there are no rows, they
            have a transform, or a mask is not that of paddings.
    """
    if rows is None or isinstance(rows, TextSource):
        return rows
    rows = _to_dataset(where, rows)
    if "input_ids" not in rows.column_names:
        raise ValueError(
            f"{where} has no column 'input_ids', but {', '.join(rows.column_names)}; encode its "
            "texts with the tokenizer of the model first"
        )
    if rows.format["type"] == "custom":
        raise ValueError(f"{where} has a transform; compute its columns with map instead")
    if "token_type_ids" not in rows.column_names:
        zeros = [_zeros(ids) for ids in rows.with_format(None)["input_ids"]]
        rows = rows.add_column("token_type_ids", zeros)
    if LABELS not in rows.column_names:
        for name in LABEL_NAMES:
            if name in rows.column_names:
                rows = rows.rename_column(name, LABELS)
                break
    rows = _cast_lists(rows, label_type)
    if MASK in rows.column_names:
        rows = _drop_padding(where, rows, label_type)
    if len(rows):
        try:
            FlatRows(rows)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
    return rows


def _cast_lists(rows: datasets.Dataset, label_type: LabelType) -> datasets.Dataset:
    """Make the length of lists a part of their type for labels of rows, and of these alone."""
    of_tokens = {"input_ids", "token_type_ids", MASK, *([LABELS] if label_type == "tokens" else [])}
    for name in sorted(of_tokens & rows.features.keys()):
        feature = _any_length(rows.features[name])
        rows = rows if feature == rows.features[name] else rows.cast_column(name, feature)
    labels: Any = rows.features.get(LABELS)
    if label_type != "tokens" and isinstance(labels, datasets.List) and labels.length < 0:
        lengths = pc.unique(pc.list_value_length(rows.data.column(LABELS))).to_pylist()
        if len(lengths) == 1 and lengths[0] is not None:
            fixed: Any = datasets.List(labels.feature, length=lengths[0])
            rows = rows.cast_column(LABELS, fixed)
    return rows


def _any_length(feature: Any) -> Any:
    """Return the feature of lists without their fixed lengths."""
    if isinstance(feature, datasets.List):
        return datasets.List(_any_length(feature.feature))
    return feature


def _drop_padding(where: str, rows: datasets.Dataset, label_type: LabelType) -> datasets.Dataset:
    """Remove the tokens whose ``attention_mask`` is 0, with their labels, and the mask."""
    if _masks_nothing(where, rows):
        return rows.remove_columns(MASK)
    columns = ["input_ids", "token_type_ids", *([LABELS] if label_type == "tokens" else [])]
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

    cut_rows = rows.with_format(None).map(
        cut,
        with_indices=True,
        batched=True,
        remove_columns=MASK,
        features=datasets.Features({k: v for k, v in rows.features.items() if k != MASK}),
        keep_in_memory=True,
        desc="remove padding",
    )
    form = rows.format
    names = [name for name in form["columns"] if name != MASK]
    return cut_rows.with_format(form["type"], names, False, **form["format_kwargs"])


def _masks_nothing(where: str, rows: datasets.Dataset) -> bool:
    """Whether the mask is 1 for every token, which is known without leaving Arrow."""
    flat = []
    for name in (MASK, "input_ids"):
        column = rows.data.column(name)
        if not pa.types.is_nested(column.type):
            raise ValueError(f"{where}: {name} holds no lists, but {column.type}")
        while pa.types.is_nested(column.type.value_type):
            column = pc.list_flatten(column)
        flat.append(column)
    lengths = [pc.list_value_length(column).cast(pa.int64()) for column in flat]
    is_aligned: bool = lengths[0].equals(lengths[1])
    return is_aligned and pc.all(pc.equal(pc.list_flatten(flat[0]), 1)).as_py()


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


def _zeros(ids: Any) -> Any:
    """Return the segment ids of single sequences: 0 for every token."""
    return [_zeros(part) for part in ids] if isinstance(ids, list) else 0


def _to_dataset(where: str, rows: Any) -> datasets.Dataset:
    if isinstance(rows, datasets.Dataset):
        return rows
    if hasattr(rows, "iloc"):  # a frame of pandas
        return datasets.Dataset.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Mapping):
        if "input_ids" not in rows:
            raise TypeError(
                f"{where} is a {type(rows).__name__} of {', '.join(map(str, rows))}; give one of "
                "them"
            )
        return datasets.Dataset.from_dict({name: _listed(rows[name]) for name in rows})
    has_items = hasattr(rows, "__len__") and hasattr(rows, "__getitem__")
    if isinstance(rows, str | IterableDataset) or not has_items:
        raise TypeError(
            f"{where} is a {type(rows).__name__}; give a datasets.Dataset, a list of rows, or a "
            "torch dataset with a length: list(rows) reads what can be iterated over"
        )
    listed: list[dict[str, Any]] = []
    for number in range(len(rows)):
        row = rows[number]
        if not isinstance(row, Mapping):
            raise TypeError(
                f"{where}: row {number} is a {type(row).__name__}; expected columns such as "
                "{'input_ids': [...], 'labels': 1}"
            )
        if listed and row.keys() != listed[0].keys():
            raise ValueError(
                f"{where}: row {number} has the columns {', '.join(map(str, row))}, but those "
                f"before have {', '.join(map(str, listed[0]))}"
            )
        listed.append({name: _listed(value) for name, value in row.items()})
    if not listed:
        raise ValueError(f"{where} is empty; give it rows")
    try:
        return datasets.Dataset.from_list(listed)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"{where}: a column has values of several types ({error})") from error


def _listed(values: Any) -> Any:
    """Turn a tensor or an array into a list."""
    return values.tolist() if hasattr(values, "tolist") else values
