"""Load a task: read its rows, hold some out for validation, draw a part of the rest."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import datasets
import numpy as np
from numpy.typing import NDArray

from .drawing import (
    HELD_OUT_PAIRS,
    choose_places,
    count_repeated,
    describe_rows,
    hold_out,
    pair_rows,
    sample_rows,
)
from .hub import count_batch
from .readers import PLAIN_FORMAT, Record
from .reading import (
    Facts,
    TaskRows,
    build_rows,
    find_valid,
    log_invalid_rows,
    make_format,
    read_rows,
)
from .row_format import RowFormat, RowSource
from .task_data import TaskData

# Rows without labels


SPLIT = "test_unlabeled"  # rows of a test split may lack their labels


@dataclass(frozen=True)
class TextsOf(RowSource):
    """Rows of which only the texts are read."""

    def read(self, row_format: RowFormat) -> Iterator[Record]:
        """Read the records without their labels."""
        for record in super().read(row_format):
            texts = {name: record.values.get(name) for name in row_format.text_columns}
            yield replace(record, values=texts if record.values else {})


def _read_unlabeled(data: TaskData, loaded: TaskRows, cache_dir: str | Path | None) -> TaskRows:
    """Add the training rows without labels, or some of them, to the rows of a task."""
    if data.unlabeled_file is None:
        return loaded
    row_format = replace(loaded.row_format, id_column=None)
    file_format = data.file_format if data.files else PLAIN_FORMAT
    source = TextsOf(data.unlabeled_file, SPLIT, file_format)
    built = build_rows(source, row_format, cache_dir)
    rows, _, invalid = find_valid(data, row_format, source, built)
    if data.max_unlabeled_samples is not None:
        seed = f"{data.sample_seed} unlabeled"
        rows = rows.select(
            choose_places(np.zeros(len(rows), np.int64), data.max_unlabeled_samples, seed)
        )
    log_invalid_rows(data.where, invalid)
    loaded.facts["train"]["unlabeled_rows"] = len(rows)
    return replace(
        loaded,
        unlabeled=rows,
        fingerprint=_fingerprint({**loaded.splits, "unlabeled": rows}),
        bad_rows=[*loaded.bad_rows, *invalid],
    )


def _hold_out(rows: TaskRows, is_held: NDArray[np.bool_]) -> TaskRows:
    """Make validation rows of some training rows."""
    train = rows.splits["train"]
    splits = {
        "train": train.select(np.flatnonzero(~is_held)),
        "validation": train.select(np.flatnonzero(is_held)),
    }
    others = {split: part for split, part in rows.splits.items() if split != "train"}
    facts: dict[str, Facts] = {**rows.facts, "validation": {"held_out_of": len(train)}}
    return replace(rows, splits={**splits, **others}, facts=facts)


# Tasks


def load_task(data: TaskData, cache_dir: str | Path | None = None) -> TaskRows:
    """Load the rows of a task from its files, the Hub, or the built-in sample.

    Args:
        data: Description of the rows, from ``TaskData.from_recipe``.
        cache_dir: Folder for the built rows; None uses the cache of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks a column, or has too many invalid
            rows, or a class has no rows although its size determines the others'.
        OSError: If a file is missing or the Hub cannot be reached.
    """
    if data.class_rows is not None:
        return _load_pairs(data, load_task(data.class_rows, cache_dir))
    read = read_rows(data, cache_dir)
    if "validation" not in read.splits:
        share, seed = data.validation_share, data.sample_seed
        rows = read.splits["train"]
        read = _hold_out(read, hold_out(data.where, rows, read.row_format, share, seed))
    return _read_unlabeled(data, _draw(data, read), cache_dir)


def _draw(data: TaskData, read: TaskRows) -> TaskRows:
    """Draw the rows of all splits, and describe them."""
    row_format = read.row_format
    splits: dict[str, datasets.Dataset] = {}
    facts: dict[str, Facts] = {}
    for split, rows in read.splits.items():
        drawn = sample_rows(rows, data, split, row_format.class_names)
        counts = dict(read.facts[split])
        held_out_of = counts.pop("held_out_of", None)
        facts[split] = {
            **describe_rows(drawn, len(rows), row_format.class_names),
            **counts,
            **row_format.count(f"{data.where}: {split}", rows, drawn),
        }
        if held_out_of is not None:
            facts[split]["held_out_of"] = held_out_of
        splits[split] = drawn.remove_columns(list(row_format.helper_columns))
    log_invalid_rows(data.where, read.bad_rows)
    for split, repeated in count_repeated(data.where, row_format, splits).items():
        facts[split] |= repeated
    return replace(read, splits=splits, facts=facts, fingerprint=_fingerprint(splits))


def _load_pairs(data: TaskData, loaded: TaskRows) -> TaskRows:
    """Pair the rows of a classification by their classes."""
    counts = {"train": int(data.class_pairs or 0), "validation": HELD_OUT_PAIRS}
    splits = {
        split: pair_rows(loaded.splits[split], count, f"{data.sample_seed} {split}")
        for split, count in counts.items()
    }
    row_format = make_format(data)
    facts: dict[str, Facts] = {
        split: {**describe_rows(rows, len(rows), row_format.class_names)}
        for split, rows in splits.items()
    }
    for split, rows in splits.items():
        if len(set(rows["label"][:])) < 2:
            raise ValueError(
                f"{data.where}: class_pairs: the {len(loaded.splits[split])} {split} rows make no "
                "pairs of both kinds; use more rows of each class"
            )
    return replace(
        loaded,
        row_format=row_format,
        splits=splits,
        facts=facts,
        fingerprint=_fingerprint(splits),
    )


def _fingerprint(splits: dict[str, datasets.Dataset]) -> str:
    """Hash the rows: the fingerprints of `datasets` depend on the date of a file."""
    digest = hashlib.blake2b(digest_size=16)
    for split, rows in splits.items():
        digest.update(split.encode())
        for batch in rows.iter(count_batch(rows)):
            digest.update("".join(map(repr, zip(*batch.values(), strict=True))).encode())
    return digest.hexdigest()
