# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Rows of any container: lists, arrays, columns, frames, and dictionaries of columns or values."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# Usual names of columns that hold no text.
NO_TEXTS = frozenset({"label", "labels", "target", "id", "idx", "index"})


class TextColumns(NamedTuple):
    """The columns that make the rows of a task: those of its texts, and those of its choices."""

    texts: tuple[str, ...]
    choices: tuple[str, ...] = ()

    def pick(self, row: Mapping[str, Any]) -> Any:
        """Return the row of some values by column."""
        values = [row[name] for name in self.texts]
        if len(self.choices) == 1:
            values.append(row[self.choices[0]])
        elif self.choices:
            values.append([row[name] for name in self.choices])
        return values[0] if len(values) == 1 else tuple(values)


def list_rows(given: Any, where: str, tasks: Sequence[Any] = ()) -> Any:
    """Return rows one after the other: a sequence if the container is one, else an iterable.

    Args:
        given: A sequence or an iterable of rows; an array or a column; or a frame, a dataset or a
            dictionary with a column for each text, or rows that are dictionaries.
        where: What the rows are for, in messages.
        tasks: Descriptions of the tasks; without any, rows are single texts.

    Raises:
        ValueError: If the columns are not those of the texts, or have different lengths.
    """
    if isinstance(given, str):
        return given
    names = _list_columns(given)
    if names is not None:
        chosen = _choose_columns(names, where, tasks)
        columns = {name: _to_list(given[name]) for name in (*chosen.texts, *chosen.choices)}
        single = [name for name, values in columns.items() if isinstance(values, str)]
        if single:
            raise ValueError(
                f"{where}: {single[0]!r} is one text, {columns[single[0]][:50]!r}, not a column of "
                "texts: pass a list of rows"
            )
        lengths = {name: len(values) for name, values in columns.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"{where}: the columns have different lengths, {lengths}")
        count = next(iter(lengths.values()))
        return [
            chosen.pick({name: values[place] for name, values in columns.items()})
            for place in range(count)
        ]
    rows = _to_list(given)
    if not isinstance(rows, Sequence):
        return _pick_rows(rows, where, tasks)
    if any(isinstance(row, Mapping) for row in rows):
        return list(_pick_rows(rows, where, tasks))
    return rows


def _list_columns(given: Any) -> list[str] | None:
    """Return the names of the columns of a container; None if it has none."""
    if isinstance(given, Mapping):
        return list(given)
    for name in ("column_names", "columns"):  # of datasets and Arrow, and of frames
        names = getattr(given, name, None)
        if names is not None and not callable(names) and hasattr(given, "__len__"):
            return list(names)
    return None


def _to_list(given: Any) -> Any:
    """Return the values of an array or a column; other containers as they are."""
    for name in ("tolist", "to_list", "to_pylist"):
        convert = getattr(given, name, None)
        if callable(convert):
            return convert()
    return given


def _pick_rows(rows: Iterable[Any], where: str, tasks: Sequence[Any]) -> Iterable[Any]:
    """Yield rows, those that are dictionaries by their columns."""
    chosen: dict[tuple[str, ...], TextColumns] = {}
    for row in rows:
        if isinstance(row, Mapping):
            names = tuple(row)
            if names not in chosen:
                chosen[names] = _choose_columns(names, where, tasks)
            yield chosen[names].pick(row)
        else:
            yield row


def _choose_columns(names: Sequence[str], where: str, tasks: Sequence[Any]) -> TextColumns:
    """Choose the columns that tasks were trained on, or all if their number is right."""
    trained = {TextColumns(*columns) for columns in map(_trained_columns, tasks) if columns}
    present = [columns for columns in trained if {*columns.texts, *columns.choices} <= set(names)]
    counts = {count for task in tasks for count in _count_columns(task)} or {1}
    if len(present) == 1:
        return present[0]
    if len(names) not in counts or not NO_TEXTS.isdisjoint(names):
        needed = " or ".join(map(str, sorted(counts)))
        raise ValueError(
            f"{where}: the rows have the columns {', '.join(map(repr, names))}, but {needed} with "
            "the texts are needed; pass only these, in their order"
        )
    if set(names) == {"question", "context"}:
        return TextColumns(("question", "context"))
    return TextColumns(tuple(names))


def _count_columns(task: Any) -> tuple[int, ...]:
    return (2, 3) if task.offers_choices else (task.num_texts,)


def _trained_columns(task: Any) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return the columns of a task in its training file; None if rows need others."""
    keys = getattr(task, "data_keys", None) or {}
    texts = tuple(keys.get("text_columns", ()))
    choices = tuple(keys.get("choice_columns", ())) if task.offers_choices else ()
    needed = (1, 2) if task.offers_choices else _count_columns(task)
    return (
        (texts, choices) if len(texts) in needed and bool(choices) == task.offers_choices else None
    )
