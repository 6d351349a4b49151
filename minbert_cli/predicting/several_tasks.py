"""``minbert predict --task all``: predictions of several tasks in one table."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .texts import Source

Row = dict[str, Any]

# The name for all tasks that take the given texts.
ALL = "all"


def parse_names(task: str | None, known: Mapping[str, Any]) -> list[str] | None:
    """Return the tasks that ``--task`` names; None for one, which is predicted alone.

    ``all`` is an empty list, unless a task has this name.
    """
    if task is None or task in known:
        return None
    if task == ALL:
        return []
    names = [name.strip() for name in task.split(",")]
    return list(dict.fromkeys(names)) if len(names) > 1 else None


def choose_reader(specs: Sequence[Any], source: Source) -> Any:
    """Return the task that says how lines or the rows of a table become rows.

    Rows are pairs if all tasks take them, or if any does and a tab is there, or two columns are
    named. They are contexts with choices only if no task takes anything else.

    Raises:
        ValueError: If the tasks were trained on different columns, and none are named.
    """
    if source.is_table and not source.columns:
        trained = {tuple((spec.data_keys or {}).get("text_columns", ())) for spec in specs}
        if len(trained) > 1:
            raise ValueError(
                f"{source.name}: the tasks were trained on different columns, "
                f"{' and '.join(map(str, map(list, sorted(trained))))}; give --text_columns"
            )
    has_pairs = len(source.columns) > 1 if source.is_table else "\t" in next(source.lines(), "")
    plain = [spec for spec in specs if not spec.offers_choices] or specs
    singles = [spec for spec in plain if spec.num_texts == 1]
    others = [spec for spec in plain if spec.num_texts > 1]
    if not singles or (others and has_pairs):
        return others[0]
    return singles[0]


def describe_choice(names: Sequence[str], specs: Mapping[str, Any]) -> str:
    """State which tasks are predicted, and which are not."""
    others = [name for name in specs if name not in names]
    kinds = " or ".join(dict.fromkeys(specs[name].row_kind for name in others))
    take = "takes" if len(others) == 1 else "take"
    left_out = f"; not {', '.join(others)}, which {take} {kinds}" if others else ""
    return f"predicting {', '.join(names)}{left_out}"


def join(
    predictions: Iterator[dict[str, Any]], texts: Iterator[Row], *, nested: bool
) -> Iterator[Row]:
    """Yield a row per text: a key per task if ``nested``, else a column per value."""
    for row, columns in zip(predictions, texts, strict=True):
        if not nested:
            cells = (cell for name, found in row.items() for cell in flatten(name, found))
            yield dict(cells) | columns
            continue
        for name in columns.keys() & row.keys():
            raise ValueError(
                f"task {name!r} has the name of a column of the texts: predict it alone"
            )
        yield row | columns


def flatten(task: str, prediction: Any) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a prediction, as ``pandas.json_normalize`` names them."""
    if not isinstance(prediction, dict):
        prediction = {"labels": prediction}
    if "entities" in prediction:  # they contain what matters of the words
        prediction = {"entities": prediction["entities"]}
    for key, value in prediction.items():
        if isinstance(value, dict):
            yield from flatten(f"{task}.{key}", value)
        else:
            yield f"{task}.{key}", value


def announce(message: str) -> None:
    """Print a note that does not mix with results."""
    print(message, file=sys.stderr)
