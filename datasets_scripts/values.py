"""Check the values of a recipe and convert them to the types of their fields."""

import ast
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from modeling_minbert import unknown

from .readers import DELIMITERS, MAX_SHOWN

Converter = Callable[[str, Any], Any]

# A list, tuple or set of texts or integers. Texts without a comma between them are none: Python
# would join them, and NumPy writes lists so.
ITEM = r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|-?(?:0|[1-9]\d*))"""
ITEMS = rf"\s*(?:{ITEM}\s*(?:,\s*{ITEM}\s*)*,?\s*)?"
LIST = re.compile(rf"\[{ITEMS}\]|\((?=\s*['\"]){ITEMS}\)|\{{(?=\s*['\"]){ITEMS}\}}")


def convert_keys(
    owner: str, mapping: Mapping[str, Any], converters: Mapping[str, Converter]
) -> dict[str, Any]:
    """Convert the values of a recipe, text by default; keys without a value are left out."""
    return {
        key: converters.get(key, to_text)(f"{owner}: {key}={value!r}", value)
        for key, value in mapping.items()
        if value is not None
    }


def to_text(where: str, value: Any) -> str:
    """Check a text or a path."""
    if isinstance(value, str | Path) and str(value):
        return str(value)
    raise ValueError(f"{where}: expected text; quote it if YAML reads it as something else")


def check_revision(where: str, revision: str | None, hub_id: str | None) -> None:
    """Reject a revision of rows that are not on the Hub."""
    if revision is not None and (hub_id is None or Path(hub_id).is_dir()):
        raise ValueError(
            f"{where}: revision={revision!r} has no effect on local data, only on a dataset of the "
            "Hub; remove it"
        )


def to_fraction(where: str, value: Any) -> float:
    """Check a number in [0, 1]."""
    if not is_number(value) or not 0 <= value <= 1:
        raise ValueError(f"{where}: expected a fraction in [0, 1], such as 0.01")
    return float(value)


def to_share(where: str, value: Any) -> float:
    """Check a share of rows or documents to hold out, in [0, 1)."""
    if not is_number(value) or not 0 <= value < 1:
        raise ValueError(f"{where}: expected a fraction in [0, 1), such as 0.05")
    return float(value)


def to_columns(where: str, value: Any) -> tuple[str, ...]:
    """Check a name or a list of names."""
    return to_names(where, (value,) if isinstance(value, str) else value)


def to_names(where: str, value: Any) -> tuple[str, ...]:
    """Check a list of distinct names."""
    is_list = isinstance(value, list | tuple) and value
    # YAML reads a bare `yes` or `no` as a boolean, which would become the label "True".
    if not is_list or any(
        isinstance(item, bool) or not isinstance(item, str | int) for item in value
    ):
        raise ValueError(
            f"{where}: expected a list of names; put names such as 'yes' and 'no' in quotes"
        )
    names = tuple(str(item) for item in value)
    if len(set(names)) < len(names):
        raise ValueError(f"{where}: duplicate name; give each name once")
    return names


def to_paths(where: str, value: Any) -> dict[str, str]:
    """Check a mapping from names to paths."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{where}: expected names and paths, as in {{validation_hard: my.tsv}}")
    return {split: to_text(f"{where}: {split}", path) for split, path in value.items()}


def to_column(where: str, value: Any) -> str:
    """Check the name or the number of a column."""
    is_integer = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_integer else to_text(where, value)


def to_switch(where: str, value: Any) -> bool:
    """Check a boolean."""
    if not isinstance(value, bool):
        raise ValueError(f"{where}: expected true or false")  # noqa: TRY004  (a user's value)
    return value


def read_list(text: str) -> list[str | int] | None:
    """Read a list that was written as text by JSON or Python; None if a text is no list.

    Raises:
        ValueError: If it begins and ends as a list, but is not written as these do.
    """
    text = text.strip()
    if LIST.fullmatch(text):
        value = ast.literal_eval(text)
        return [value] if isinstance(value, str) else list(value)
    if text[:1] == "[" and text[-1:] == "]":
        raise ValueError(
            f"{text[:MAX_SHOWN]!r} is no list that can be read; write it as JSON, as in "
            '["first", "second"]'
        )
    return None


def is_list(text: str) -> bool:
    """Return whether a text is a list, or looks like one."""
    try:
        return read_list(text) is not None
    except ValueError:
        return True


def to_delimiter(where: str, value: Any) -> str:
    """Check what separates the columns of a file: a character, or its name."""
    text = value if isinstance(value, str) else ""
    named = {name: mark for mark, name in DELIMITERS.items()} | {"\\t": "\t"}
    delimiter = named.get(text, text)
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise ValueError(f"{where}: expected one character, or {', '.join(DELIMITERS.values())}")
    return delimiter


def to_choice(*choices: str) -> Callable[[str, Any], str]:
    """Return a check for one of some texts."""

    def convert(where: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{where}: {unknown('value', value, choices)}")
        return str(value)

    return convert


def to_range(where: str, value: Any) -> tuple[float, float]:
    """Check a list of two ascending numbers."""
    is_pair = isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value))
    if not is_pair or not value[0] < value[1]:
        raise ValueError(f"{where}: expected two numbers [low, high] with low < high")
    return float(value[0]), float(value[1])


def to_count(where: str, value: Any, least: int = 1) -> int:
    """Check an integer."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{where}: expected an integer of at least {least}")
    return value


def to_samples_per_class(where: str, value: Any) -> int | str:
    """Check a count or ``balanced``."""
    if value == "balanced":
        return str(value)
    try:
        return to_count(where, value)
    except ValueError as error:
        raise ValueError(f"{error}, or 'balanced'") from None


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number and not a boolean."""
    is_numeric = isinstance(value, int | float) and not isinstance(value, bool)
    return is_numeric and math.isfinite(value)
