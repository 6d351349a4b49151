"""Command lines: flags of the programs without recipes, and the help of those with recipes.

The help is read from the sources of the arguments. Importing `TrainingArguments` takes seconds,
since it imports torch; reading its source does not.
"""

import argparse
import ast
import math
import os
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

ROOT = Path(__file__).resolve().parents[1]
# Module and dataclasses of arguments of each program.
PROGRAMS = {
    "finetune": ("finetune.py", ("FinetuneArguments", "ProgramTrainingArguments")),
    "pretrain": ("pretrain.py", ("PretrainArguments", "ProgramTrainingArguments")),
    "experiments": (
        "experiments/program.py",
        ("ExperimentArguments", "ComparisonArguments"),
    ),
}
SOURCES = (
    "minbert_cli/experiments/compare.py",
    "minbert_cli/experiments/experiment_arguments.py",
    "trainers/data/task_sampling.py",
    "trainers/methods/method_arguments.py",
    "trainers/runs/arguments.py",
    "trainers/runs/program_arguments.py",
    "trainers/runs/text_arguments.py",
)
DEFAULTS = ("default", "default_factory")  # keywords of ``dataclasses.field``


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as those of the programs with recipes."""

    def error(self, message: str) -> NoReturn:
        """Print the message, and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {message}; see {self.prog} --help\n")

    def refuse(self, mistakes: Mapping[str, Any]) -> None:
        """Print the first message whose mistake was made, if any, and exit with status 2."""
        for message, is_made in mistakes.items():
            if is_made:
                self.error(message)


def expand_path(path: str) -> str:
    """Expand ``~`` and environment variables in a path, a Hub id or the name of a recipe."""
    return os.path.expandvars(os.path.expanduser(path))  # noqa: PTH111  Path would change an id


def to_location(text: str) -> str:
    """Convert a path or a Hub id."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty; give a path")
    return expand_path(text)


def to_path(text: str) -> Path:
    """Convert a path."""
    return Path(to_location(text))


def to_count(text: str) -> int:
    """Convert a whole number from 1."""
    if not text.isdecimal() or not 1 <= int(text[:10]) <= 10**9:
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number from 1 to 10**9")
    return int(text)


def to_number(text: str) -> float:
    """Convert a finite number."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a finite number")
    return value


class Option(NamedTuple):
    """A flag, as the field of a dataclass declares it."""

    kind: str
    default: str
    help: str


def show_help(command: str, argv: Sequence[str]) -> bool:
    """Print the help of a program if its command line asks for it; return whether it did."""
    if {"-h", "--help"}.isdisjoint(argv):
        return False
    file, classes = PROGRAMS[command]
    module = ast.parse((ROOT / "minbert_cli" / file).read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(
        usage=f"minbert {command} [RECIPE] [--flag value ...]",
        description=ast.get_docstring(module),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    known: set[str] = set()
    for name in classes:
        group = parser.add_argument_group(f"flags and recipe keys ({name})")
        for flag, option in read_options(name).items():
            if flag not in known:
                text = f"{option.help} (default: {option.default})".replace("%", "%%")
                group.add_argument(f"--{flag}", metavar=option.kind, help=text)
            known.add(flag)
    parser.print_help()
    return True


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
            options[ast.unparse(node.target)] = _read_field(
                ast.unparse(node.annotation), node.value
            )
    return options


def _read_field(kind: str, call: ast.Call) -> Option:
    """Read ``option(default, help)`` or ``field(default=..., metadata={"help": ...})``."""
    if call.args:
        return Option(kind, ast.unparse(call.args[0]), ast.literal_eval(call.args[1]))
    given: dict[str | None, ast.expr] = {keyword.arg: keyword.value for keyword in call.keywords}
    defaults = [ast.unparse(given[name]) for name in DEFAULTS if name in given]
    return Option(kind, defaults[0] if defaults else "none, required", _read_help(given))


def _read_help(given: Mapping[str | None, ast.expr]) -> str:
    """Join the strings of ``metadata={"help": ...}``, which may be in parts."""
    metadata = given.get("metadata")
    if not isinstance(metadata, ast.Dict):
        return ""
    pairs = zip(metadata.keys, metadata.values, strict=True)
    texts = [text for key, text in pairs if key is not None and ast.unparse(key) == "'help'"]
    words = [word for text in texts for word in ast.walk(text)]
    return "".join(str(word.value) for word in words if isinstance(word, ast.Constant))
