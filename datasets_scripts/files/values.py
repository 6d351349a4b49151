"""Convert the values of a recipe to the types that `TaskData` and `CorpusData` hold."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from datasets_scripts.problems.tag_schemes import SCHEMES


def convert_value(owner: str, key: str, value: Any) -> Any:
    """Bring a value of a recipe into the type of its field.

    Args:
        owner: Whose value it is, for the message: ``task 'sst'``.
        key: Its key.
        value: As YAML read it.

    Raises:
        ValueError: If it is of another kind; the message names the owner, the key and the value.
    """
    return CONVERTERS.get(key, _convert_text)(f"{owner}: {key}={value!r}", value)


def _convert_text(where: str, value: Any) -> str:
    if isinstance(value, str | Path) and str(value):
        return str(value)
    raise ValueError(f"{where}: text is needed; quote it if YAML reads it as something else")


def _convert_share(where: str, value: Any) -> float:
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{where}: a share of rows in [0, 1] is needed, such as 0.01")
    return float(value)


def _convert_columns(where: str, value: Any) -> tuple[str, ...]:
    return _convert_names(where, (value,) if isinstance(value, str) else value)


def _convert_names(where: str, value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, list | tuple) and value
    # YAML reads a bare `yes` or `no` as a boolean, which would become the label "True".
    if not is_list or any(
        isinstance(item, bool) or not isinstance(item, str | int) for item in value
    ):
        raise ValueError(
            f"{where}: a list of names is needed; put names such as 'yes' and 'no' in quotes"
        )
    names = tuple(str(item) for item in value)
    if len(set(names)) < len(names):
        raise ValueError(f"{where}: a name stands twice; each must be given once")
    return names


def _convert_paths(where: str, value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where}: names and paths are needed, as in {{validation_hard: my.tsv}}")
    return {split: _convert_text(f"{where}: {split}", path) for split, path in value.items()}


def _convert_column(where: str, value: Any) -> str:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else _convert_text(where, value)


def _convert_scheme(where: str, value: Any) -> str:
    if value not in SCHEMES:
        raise ValueError(f"{where}: one of {', '.join(SCHEMES)} is needed")
    return str(value)


def _convert_switch(where: str, value: Any) -> bool:
    if not isinstance(value, bool):
        problem = f"{where}: true or false is needed"
        raise ValueError(problem)  # noqa: TRY004  the value of a user is wrong
    return value


def _convert_range(where: str, value: Any) -> tuple[float, float]:
    is_pair = isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))
    if not is_pair or not value[0] < value[1]:
        raise ValueError(f"{where}: two numbers [low, high] with low < high are needed")
    return float(value[0]), float(value[1])


def to_count(where: str, value: Any, least: int = 1) -> int:
    """Check a whole number.

    Args:
        where: Whose value it is, for the message.
        value: As YAML read it.
        least: The lowest that is allowed.

    Raises:
        ValueError: If it is none, or too low.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{where}: a whole number from {least} on is needed")
    return value


def _convert_rows_per_class(where: str, value: Any) -> int | str:
    if value == "balanced":
        return str(value)
    try:
        return to_count(where, value)
    except ValueError as error:
        raise ValueError(f"{error}, or 'balanced'") from None


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number, which a boolean is not."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and math.isfinite(value)


CONVERTERS: dict[str, Callable[[str, Any], Any]] = {
    "label_column": _convert_column,
    "scheme": _convert_scheme,
    "document_context": _convert_switch,
    "text_columns": _convert_columns,
    "labels": _convert_names,
    "score_range": _convert_range,
    "metric": _convert_columns,
    "extra_files": _convert_paths,
    "max_bad_rows": _convert_share,
    "max_train_rows": to_count,
    "max_validation_rows": to_count,
    "max_train_rows_per_class": _convert_rows_per_class,
    "max_validation_rows_per_class": _convert_rows_per_class,
    "sample_seed": partial(to_count, least=0),
}
