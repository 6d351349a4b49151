"""The one checker of user input: keys and values of recipes against the fields of dataclasses.

The type of a field says what its values are, and metadata what the key is for::

    validation_share: Share = option(0.1)
    max_train_samples: Count | None = option(None, built_in=True)

A type is one of Python's, or ``Annotated`` with a function that returns the value as the field has
it, or raises a ValueError that says what is expected.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, field, fields
from enum import Enum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from modeling_minbert import suggest, unknown

from .readers import DELIMITERS

Check = Callable[[Any], Any]

INNER = {"inner": True}  # of a field that is no key of a recipe
PLAIN = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "keys and values, as in {key: value}",
    type(None): "null",
}


def option(
    default: Any = MISSING, description: str = "", *, built_in: bool = False, free: bool = False
) -> Any:
    """Return the field of a key of a recipe, with all that other parts must know about the key.

    Args:
        default: Its default; without one the key is required.
        description: What ``--help`` shows.
        built_in: Whether a task with a built-in dataset may have it.
        free: Whether it does not change the results of a run.
    """
    metadata = {"help": description, "built_in": built_in, "free": free}
    # what is false is left out: argparse, as transformers uses it, knows nothing but help
    given = {name: value for name, value in metadata.items() if value}
    return field(default=default, metadata=given)


def keys_with(kind: type, name: str) -> tuple[str, ...]:
    """Return the keys of a dataclass whose metadata has a name."""
    return tuple(entry.name for entry in fields(kind) if name in entry.metadata)


def key_types(kind: type) -> Mapping[str, Any]:
    """Return the types of the keys of a dataclass."""
    hints = get_type_hints(kind, include_extras=True)
    types = {
        entry.name: hints[entry.name]
        for entry in fields(kind)
        if entry.init and not entry.metadata.get("inner")
    }
    for entry in fields(kind):
        if choices := entry.metadata.get("choices"):  # as transformers declares them
            types[entry.name] = Literal[tuple(choices)]
            if entry.default is None:
                types[entry.name] |= None
    return types


def required_keys(kind: type) -> set[str]:
    """Return the keys of a dataclass that have no default."""
    has_none = (entry for entry in fields(kind) if entry.default is MISSING and entry.init)
    return {entry.name for entry in has_none if entry.default_factory is MISSING}


def check_keys(
    where: str, keys: Any, *kinds: type | Mapping[str, Any]
) -> tuple[dict[str, Any], ...]:
    """Check the keys and the values of a section of a recipe, and split them by what they set.

    A null stands for the default of a key that has no null.

    Args:
        where: The section, for messages.
        keys: The section, as parsed from YAML.
        kinds: Dataclasses, whose fields are keys; or the types of keys, `Any` for values that are
            checked later. Several may have a key, which has the type of the last one.

    Returns:
        The keys of each kind, with the values as their types have them.

    Raises:
        ValueError: Names the section, the key, its value, and what is expected.
    """
    if not isinstance(keys, Mapping):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{where}: expected {PLAIN[dict]}, got {keys!r}"
        )
    parts = [key_types(kind) if isinstance(kind, type) else kind for kind in kinds]
    known = {name: kind for part in parts for name, kind in part.items()}
    values = {}
    for name, value in keys.items():
        if name not in known:
            raise ValueError(f"{where}: {unknown('key', name, known)}")
        kind = known[name]
        if value is not None or kind is Any or type(None) in get_args(kind):  # else its default
            values[name] = check_value(where, name, value, kind)
    return tuple({name: values[name] for name in values if name in part} for part in parts)


def check_value(where: str, name: str, value: object, kind: Any) -> Any:
    """Return a value as its type has it; errors as of ``check_keys``."""
    try:
        return convert(value, kind)
    except ValueError as error:
        prefix = f"{where}: " if where else ""
        raise ValueError(f"{prefix}{name}={value!r}; {error}") from None


@contextmanager
def errors_of(where: str) -> Iterator[None]:
    """Name the owner of values in errors about them."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def check_fields(options: object) -> None:
    """Check the values of a dataclass that was made in Python, as those of a recipe."""
    for name, kind in key_types(type(options)).items():
        check_value("", name, getattr(options, name), kind)


def convert(value: object, kind: Any) -> Any:
    """Return a value of YAML as a type has it.

    Raises:
        ValueError: Says what is expected, as the end of a sentence.
    """
    origin, arguments = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return value
    if origin is Annotated:
        return arguments[1](value)
    if origin in (Union, UnionType):
        return _convert_to_any(value, arguments)
    if choices := _list_choices(kind):
        # to Python, 1 is True
        if (type(value), value) in [(type(choice), choice) for choice in choices]:
            return value
        raise ValueError(suggest(value, choices).removeprefix("; "))
    # also a number in the place of a text, such as the name of a run
    if origin in (float, str) and type(value) in (int, float):
        return origin(value)
    # a boolean is an integer to Python
    if not isinstance(value, origin) or (isinstance(value, bool) and origin is not bool):
        raise ValueError(f"expected {PLAIN.get(origin, getattr(origin, '__name__', origin))}")
    if origin is list and arguments:
        return [check_value("", "item", item, arguments[0]) for item in value]
    return value


def _convert_to_any(value: object, kinds: tuple[Any, ...]) -> Any:
    """Return a value as the first of several types that has it."""
    if any(isinstance(kind, type) and issubclass(kind, Enum) for kind in kinds):
        kinds = tuple(kind for kind in kinds if kind is not str)  # which is the name of a member
    errors = {}
    for kind in kinds:
        try:
            return convert(value, kind)
        except ValueError as error:
            errors[kind] = str(error)
    null = errors.pop(type(None), None)
    if len(errors) == 1:
        (message,) = errors.values()
    else:
        choices = {kind: " or ".join(map(repr, _list_choices(kind))) for kind in errors}
        parts = (choices[kind] or error.removeprefix("expected ") for kind, error in errors.items())
        message = f"expected {', or '.join(parts)}"
    is_short = message.startswith("expected") and ";" not in message
    raise ValueError(f"{message}, or null" if null and is_short else message)


def _list_choices(kind: Any) -> tuple[Any, ...]:
    """Return the only values of a type; none if there are many."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return tuple(member.value for member in kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite number and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def whole_number(least: int, most: int | None = None) -> Check:
    """Return a check for a whole number in a range."""
    limit = f"of at least {least}" if most is None else f"from {least} to {most:,}"

    def check(value: object) -> int:
        if type(value) is not int or value < least or (most is not None and value > most):
            raise ValueError(f"expected a whole number {limit}")
        return value

    return check


def number(expected: str, fits: Callable[[float], bool]) -> Check:
    """Return a check for a finite number with a property, which ``expected`` describes."""

    def check(value: object) -> float:
        if not is_number(value) or not fits(value):
            raise ValueError(f"expected {expected}")
        return float(value)

    return check


def to_text(value: object) -> str:
    """Check a text or a path."""
    if isinstance(value, str | Path) and str(value):
        return str(value)
    raise ValueError("expected text; quote it if YAML reads it as something else")


def to_column(value: object) -> str:
    """Check the name or the number of a column."""
    return str(value) if type(value) is int else to_text(value)


def to_names(value: object) -> tuple[str, ...]:
    """Check a list of distinct names."""
    items = value if isinstance(value, list | tuple) else ()
    # YAML reads a bare `true` as a boolean, which would become the label "True"
    if not items or any(isinstance(x, bool) or not isinstance(x, str | int) for x in items):
        raise ValueError("expected a list of names; put names such as 'yes' and 'no' in quotes")
    names = tuple(map(str, items))
    if len(set(names)) < len(names):
        raise ValueError("duplicate name; give each name once")
    return names


def to_columns(value: object) -> tuple[str, ...]:
    """Check a name or a list of names."""
    return to_names((value,) if isinstance(value, str) else value)


def to_range(value: object) -> tuple[float, float]:
    """Check a list of two ascending numbers."""
    low, high = value if isinstance(value, list | tuple) and len(value) == 2 else (None, None)
    if not is_number(low) or not is_number(high) or not low < high:
        raise ValueError("expected two numbers [low, high] with low < high")
    return float(low), float(high)


def to_delimiter(value: object) -> str:
    """Check what separates the columns of a file: a character, or its name."""
    text = value if isinstance(value, str) else ""
    named = {name: mark for mark, name in DELIMITERS.items()} | {"\\t": "\t"}
    delimiter = named.get(text, text)
    if len(delimiter) != 1 or delimiter in '\r\n"':
        raise ValueError(f"expected one character, or {', '.join(DELIMITERS.values())}")
    return delimiter


Text = Annotated[str, to_text]
Column = Annotated[str, to_column]
Delimiter = Annotated[str, to_delimiter]
ScoreRange = Annotated[tuple[float, float], to_range]
Names = Annotated[tuple[str, ...], to_names]
Columns = Annotated[tuple[str, ...], to_columns]
Count = Annotated[int, whole_number(1)]
Seed = Annotated[int, whole_number(0)]
CountByClass = Count | Literal["balanced"]
Positive = Annotated[float, number("a number > 0", lambda x: x > 0)]
NotNegative = Annotated[float, number("a number >= 0", lambda x: x >= 0)]
Part = Annotated[float, number("a number from 0 to 1", lambda x: 0 <= x <= 1)]
Fraction = Annotated[float, number("a fraction in [0, 1], such as 0.01", lambda x: 0 <= x <= 1)]
Share = Annotated[float, number("a fraction in [0, 1), such as 0.05", lambda x: 0 <= x < 1)]


def check_revision(where: str, revision: str | None, hub_id: str | None) -> None:
    """Reject a revision of rows that are not on the Hub."""
    if revision is not None and (hub_id is None or Path(hub_id).is_dir()):
        raise ValueError(
            f"{where}: revision={revision!r} has no effect on local data, only on a dataset of the "
            "Hub; remove it"
        )
