# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""All problem types by name.

A new one needs a line in `load_types`, one in `ProblemType`, and its rows and its metrics in
`datasets_scripts` and `trainers`; CONTRIBUTING.md lists all places.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from huggingface_hub.errors import StrictDataclassError

from .heads import MinBertHeads, MinBertTask, ProblemType, remember
from .names import suggest, unknown
from .texts import Fields

Kind = TypeVar("Kind")


def load_types(name: str) -> dict[str, tuple[type[MinBertTask], Any]]:
    """Import the module of a problem type: the tasks and the heads that are in it, by type.

    Tasks of pre-training share the heads of the model, and have none.

    Raises:
        KeyError: If there is no such type.
    """
    match name:
        case "classification" | "regression":
            from .pooled import TYPES
        case "multi_output_classification":
            from .multi_output import TYPES
        case "multi_label_classification" | "paraphrase" | "similarity" | "contrastive":
            from .scores import TYPES
        case "token_classification":
            from .tokens import TYPES
        case "question_answering":
            from .questions import TYPES
        case "masked_lm" | "next_sentence" | "pretraining":
            from .pretraining import TYPES
        case _:
            raise KeyError(name)
    return TYPES


class LazyTypes(Mapping[str, type[Kind]]):
    """A class for each problem type, by name; a look-up imports the module of the class."""

    def __init__(self, names: Collection[str], load: Callable[[str], type[Kind]]) -> None:
        self.names, self.load = names, load

    def __getitem__(self, name: str) -> type[Kind]:
        return self.load(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: object) -> bool:
        return name in self.names


TASKS = LazyTypes[MinBertTask](get_args(ProblemType), lambda name: load_types(name)[name][0])


def check_name(name: str) -> str:
    """Return the name of a task, or refuse it."""
    # The heads are attributes of their container, and must not hide its own ("get", "train").
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,99}", name) or hasattr(MinBertHeads(), name):
        raise ValueError(
            f"task name {name!r} must consist of up to 100 letters, digits, '_' and '-', begin "
            "with a letter and not be an attribute of a torch module: choose another name"
        )
    return name


@remember
def parse_task(name: str, values: Fields) -> MinBertTask:
    """Build a task from its fields; the message of a ValueError names it."""
    check_name(name)
    kind = values.get("problem_type")
    if kind is None:
        raise ValueError(f"task {name!r}: problem_type is missing; use one of {', '.join(TASKS)}")
    if kind not in TASKS:
        raise ValueError(f"task {name!r}: {unknown('problem_type', kind, TASKS)}")
    _check_fields(name, kind, values)
    try:
        return TASKS[kind](**values)
    except StrictDataclassError as error:
        raise ValueError(f"task {name!r}: {error.__cause__ or error}") from error


def parse_tasks(values: Mapping[str, Fields] | None) -> dict[str, MinBertTask]:
    """Build tasks from their fields, by name; see `parse_task`."""
    tasks: Any = values or {}
    if not isinstance(tasks, Mapping) or not all(isinstance(x, Mapping) for x in tasks.values()):
        raise ValueError(
            f"tasks must map names to the fields of tasks, as in tasks={{'own': {{'problem_type': "
            f"'regression'}}}}, not {str(values)[:50]}"
        )
    return {name: parse_task(name, fields) for name, fields in tasks.items()}


def _check_fields(name: str, kind: str, values: Fields) -> None:
    """Refuse keys that the type does not have, and texts that are no choice of their field."""
    names = [field.name for field in fields(TASKS[kind])]
    hints = get_type_hints(TASKS[kind])
    for key, value in values.items():
        if key not in names:
            owners = [
                each
                for each, task in TASKS.items()
                if key in [field.name for field in fields(task)]
            ]
            hint = f" (it is for {', '.join(owners)} tasks)" if owners else ""
            raise ValueError(
                f"task {name!r}: a {kind} task has no key {key!r}{hint}{suggest(key, names)}"
            )
        # a text must be one of the choices of its field
        options = get_args(hints[key]) if get_origin(hints[key]) is not Literal else (hints[key],)
        literals = [option for option in options if get_origin(option) is Literal]
        choices = [choice for option in literals for choice in get_args(option)]
        if isinstance(value, str) and choices and str not in options and value not in choices:
            raise ValueError(f"task {name!r}: {unknown(key, value, choices)}")
