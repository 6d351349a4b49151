"""Load a task: read its rows, hold some out for validation, draw a part of the rest."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np

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
from .readers import PLAIN_FORMAT
from .reading import Facts, TaskRows, log_invalid_rows, make_format, read_rows, read_source
from .row_format import RowSource
from .task_data import TaskData


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
    row_format, splits = read.row_format, dict(read.splits)
    held_out_of = None
    if "validation" not in splits:
        train = splits.pop("train")
        share, seed, held_out_of = data.validation_share, data.sample_seed, len(train)
        is_held = hold_out(data.where, train, row_format, share, seed)
        splits = {
            "train": train.select(np.flatnonzero(~is_held)),
            "validation": train.select(np.flatnonzero(is_held)),
            **splits,
        }
    facts: dict[str, Facts] = {}
    for split, rows in splits.items():
        splits[split] = sample_rows(rows, data, split, row_format.class_names)
        facts[split] = describe_rows(splits[split], len(rows), row_format.class_names)
        facts[split] |= read.facts.get(split, {})
    if held_out_of is not None:
        facts["validation"]["held_out_of"] = held_out_of
    log_invalid_rows(data.where, read.bad_rows)
    for split, count in count_repeated(data.where, row_format, splits).items():
        facts[split]["training_rows"] = count
    bad_rows, unlabeled = read.bad_rows, None
    if data.unlabeled_file is not None:
        # rows of a test split may lack labels, and those of this one are not read
        file_format = data.file_format if data.files else PLAIN_FORMAT
        source = RowSource(data.unlabeled_file, "test_unlabeled", file_format)
        unread: dict[str, Any] = {"id_column": None, "label_column": None}
        unread |= {"label_columns": ()} if "label_columns" in row_format.options() else {}
        unlabeled, _, invalid = read_source(source, replace(row_format, **unread), data, cache_dir)
        if data.max_unlabeled_samples is not None:
            seed_of_draw = f"{data.sample_seed} unlabeled"
            places = np.zeros(len(unlabeled), np.int64)
            chosen = choose_places(places, data.max_unlabeled_samples, seed_of_draw)
            unlabeled = unlabeled.select(chosen)
        log_invalid_rows(data.where, invalid)
        facts["train"]["unlabeled_rows"] = len(unlabeled)
        bad_rows = [*bad_rows, *invalid]
    hashed = splits if unlabeled is None else {**splits, "unlabeled": unlabeled}
    return replace(
        read,
        splits=splits,
        bad_rows=bad_rows,
        facts=facts,
        fingerprint=_fingerprint(hashed),
        unlabeled=unlabeled,
    )


def _load_pairs(data: TaskData, loaded: TaskRows) -> TaskRows:
    """Pair the rows of a classification by their classes."""
    row_format = make_format(data)
    splits: dict[str, datasets.Dataset] = {}
    facts: dict[str, Facts] = {}
    for split, count in {"train": data.class_pairs or 0, "validation": HELD_OUT_PAIRS}.items():
        rows = pair_rows(loaded.splits[split], count, f"{data.sample_seed} {split}")
        if len(set(rows["label"][:])) < 2:
            raise ValueError(
                f"{data.where}: class_pairs: the {len(loaded.splits[split])} {split} rows make no "
                "pairs of both kinds; use more rows of each class"
            )
        splits[split] = rows
        facts[split] = describe_rows(rows, len(rows), row_format.class_names)
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
