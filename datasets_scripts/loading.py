"""Load a task: read its rows, hold some out for validation, draw a part of the rest."""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import datasets
import numpy as np
from numpy.typing import NDArray

from .drawing import (
    HELD_OUT_PAIRS,
    MOST_HELD_OUT,
    choose_places,
    choose_units,
    count_repeated,
    describe_rows,
    digest_alike,
    hold_out,
    pair_rows,
    sample_rows,
)
from .hub import count_batch
from .readers import PLAIN_FORMAT, Record, is_test
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


# Tasks with labels of their own for the same texts. Shapes: N different texts, of all tasks.


def share_rows(first: TaskData, tasks: Mapping[str, TaskRows]) -> dict[str, TaskRows]:
    """Hold out and draw the same texts for all tasks.

    Args:
        first: The task whose keys say how many rows there are.
        tasks: The valid rows of each task, itself first; they need not have the same texts.

    Raises:
        ValueError: If validation rows must be held out, and a task gets none.
    """
    shared = dict(tasks)
    if "validation" not in shared[first.name].splits:
        shared = _hold_out_shared(first, shared)
    for split in shared[first.name].splits:
        part = "train" if split == "train" else "test" if is_test(split) else "eval"
        most = getattr(first, f"max_{part}_samples")
        if most is not None:
            _draw_shared(split, shared, most, f"{first.sample_seed} {split}")
    return shared


def count_texts(tasks: Mapping[str, TaskRows]) -> int:
    """Count the different texts of the training rows of all tasks."""
    units, _ = _number({name: _digest(read, "train") for name, read in tasks.items()})
    return len(units)


def _hold_out_shared(first: TaskData, tasks: Mapping[str, TaskRows]) -> dict[str, TaskRows]:
    """Make validation rows of training rows: the same texts in all tasks.

    They are drawn by the labels of the first task. Every label of the others keeps a training row.
    """
    texts = {name: _digest(read, "train") for name, read in tasks.items()}
    units, places = _number(texts)
    strata = {name: _label_units(tasks[name], own, len(units)) for name, own in places.items()}
    wanted = min(MOST_HELD_OUT, math.ceil(first.validation_share * len(units)))
    numbers = np.arange(len(units), dtype=np.uint64)
    held = choose_units(numbers, strata[first.name], wanted, f"{first.sample_seed} held out")
    for own in strata.values():
        _keep_labels(held, own)
    return {name: _move(first, name, tasks[name], held[places[name]]) for name in tasks}


def _label_units(read: TaskRows, places: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Return the stratum of each text, (N,): 0 without a label of this task."""
    strata = np.zeros(count, np.int64)
    strata[places] = 1 + read.row_format.strata(read.splits["train"])
    return strata


def _keep_labels(held: NDArray[np.bool_], strata: NDArray[np.int64]) -> None:
    """Give a text back to each label, (N,), that has none left for training."""
    for label in np.setdiff1d(strata[held], strata[~held]):
        held[np.flatnonzero(strata == label)[0]] = False


def _move(first: TaskData, name: str, read: TaskRows, held: NDArray[np.bool_]) -> TaskRows:
    """Move the rows that are held out to the validation rows."""
    if not held.any():
        raise ValueError(
            f"task {name!r}: there are no validation rows, and of the texts that are held out for "
            f"{first.name!r} and all tasks that share its rows none has a label; give "
            f"{first.name!r} a validation_file, or a larger validation_share"
        )
    rows = read.splits["train"]
    return _with_validation(
        read, rows.select(np.flatnonzero(~held)), rows.select(np.flatnonzero(held))
    )


def _with_validation(
    read: TaskRows, train: datasets.Dataset, validation: datasets.Dataset
) -> TaskRows:
    """Replace the training rows by those that are left, and those that are held out."""
    others = {split: rows for split, rows in read.splits.items() if split != "train"}
    splits = {"train": train, "validation": validation, **others}
    held_out: Facts = {"held_out_of": len(read.splits["train"])}
    return replace(read, splits=splits, facts={**read.facts, "validation": held_out})


def _draw_shared(split: str, tasks: dict[str, TaskRows], most: int, seed: str) -> None:
    """Keep the rows of at most so many texts of a split, in place."""
    texts = {name: _digest(read, split) for name, read in tasks.items()}
    units, places = _number(texts)
    drawn = choose_places(np.zeros(len(units), np.int64), most, seed)
    chosen = np.isin(np.arange(len(units)), drawn)
    for name, read in tasks.items():
        rows = read.splits[split].select(np.flatnonzero(chosen[places[name]]))
        tasks[name] = replace(read, splits={**read.splits, split: rows})


def _digest(read: TaskRows, split: str) -> NDArray[np.uint64]:
    rows = read.splits[split]
    return np.fromiter(digest_alike(rows, read.row_format.text_names), np.uint64, len(rows))


def _number(
    texts: Mapping[str, NDArray[np.uint64]],
) -> tuple[NDArray[np.uint64], dict[str, NDArray[np.int64]]]:
    """List the different texts of all tasks in their order, (N,), and their numbers by task."""
    units, first, inverse = np.unique(
        np.concatenate(list(texts.values())), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    ends = np.cumsum([len(own) for own in texts.values()])[:-1]
    numbers = np.split(rank[inverse], ends)
    return units[order], dict(zip(texts, numbers, strict=True))


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
    if data.group:
        return load_group(data.group, cache_dir)[data.name]
    read = read_rows(data, cache_dir)
    if "validation" not in read.splits:
        share, seed = data.validation_share, data.sample_seed
        parts = hold_out(data.where, read.splits["train"], read.row_format, share, seed)
        read = _with_validation(read, *parts)
    return _read_unlabeled(data, _draw(data, read), cache_dir)


def load_group(
    group: Sequence[TaskData], cache_dir: str | Path | None = None
) -> dict[str, TaskRows]:
    """Load tasks with the same texts, the sources and numbers of rows of which are the first's."""
    read = share_rows(group[0], {data.name: read_rows(data, cache_dir) for data in group})
    loaded = {}
    for data in group:
        # the rows are drawn already
        whole = replace(data, max_train_samples=None, max_eval_samples=None, max_test_samples=None)
        loaded[data.name] = _draw(whole, read[data.name])
    loaded[group[0].name].facts["train"]["shared_rows"] = count_texts(read)
    return loaded


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
