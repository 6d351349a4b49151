"""Flags of the programs with recipes, read from the sources of their dataclasses.

Importing `TrainingArguments` takes seconds, since it imports torch; reading its source does not.
"""

import ast
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
# The dataclasses of arguments of each program.
ARGUMENTS = {
    "finetune": ("FinetuneArguments", "ProgramTrainingArguments"),
    "pretrain": ("PretrainArguments", "ProgramTrainingArguments"),
    "experiments": ("ExperimentArguments", "ComparisonArguments"),
}
SOURCES = (
    "minbert_cli/arguments.py",
    "minbert_cli/experiments/compare.py",
    "minbert_cli/experiments/experiment_arguments.py",
    "trainers/arguments.py",
    "trainers/data/sampling/task_sampling.py",
    "trainers/methods/distillation.py",
    "trainers/methods/method_arguments.py",
)
DEFAULTS = ("default", "default_factory")  # keywords of ``dataclasses.field``
REQUIRED = "required"


class Option(NamedTuple):
    """A flag, as the field of a dataclass declares it."""

    kind: str  # the annotation
    default: str  # its source, or ``required``
    help: str
    owner: str  # the dataclass


def read_flags(program: str) -> dict[str, Option]:
    """Return the flags of a program with recipes, by name."""
    options: dict[str, Option] = {}
    for name in ARGUMENTS[program]:
        options = read_options(name) | options
    return options


def read_options(name: str) -> dict[str, Option]:
    """Return the fields of a dataclass of arguments and of its base classes, by name."""
    transformers = find_spec("transformers")
    folders = [] if transformers is None else transformers.submodule_search_locations or []
    paths = [ROOT / path for path in SOURCES]
    paths += [Path(folder) / "training_args.py" for folder in folders]
    nodes = [node for path in paths for node in ast.parse(path.read_text(encoding="utf-8")).body]
    return _read_class({node.name: node for node in nodes if isinstance(node, ast.ClassDef)}, name)


def _read_class(classes: Mapping[str, ast.ClassDef], name: str) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for base in reversed(classes[name].bases):
        if isinstance(base, ast.Name) and base.id in classes:
            options |= _read_class(classes, base.id)
    for node in classes[name].body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
            kind = ast.unparse(node.annotation)
            options[ast.unparse(node.target)] = _read_field(kind, node.value, name)
    return options


def _read_field(kind: str, call: ast.Call, owner: str) -> Option:
    """Read ``option(default, help)`` or ``field(default=..., metadata={"help": ...})``."""
    if call.args:
        return Option(kind, ast.unparse(call.args[0]), ast.literal_eval(call.args[1]), owner)
    given: dict[str | None, ast.expr] = {keyword.arg: keyword.value for keyword in call.keywords}
    defaults = [ast.unparse(given[name]) for name in DEFAULTS if name in given]
    return Option(kind, defaults[0] if defaults else REQUIRED, _read_help(given), owner)


def _read_help(given: Mapping[str | None, ast.expr]) -> str:
    """Join the strings of ``metadata={"help": ...}``, which may be in parts."""
    metadata = given.get("metadata")
    if not isinstance(metadata, ast.Dict):
        return ""
    pairs = zip(metadata.keys, metadata.values, strict=True)
    texts = [text for key, text in pairs if key is not None and ast.unparse(key) == "'help'"]
    words = [word for text in texts for word in ast.walk(text)]
    return "".join(str(word.value) for word in words if isinstance(word, ast.Constant))
