"""Help of the programs whose flags are keys of recipes.

`--help` must not wait for torch, which the dataclasses of the flags need. So ``help.json`` has it:
usage, text and the names of the common flags are written by hand, and their types and meanings by
``python -m minbert_cli.help``, from the dataclasses. `--help all` reads these themselves.
"""

import argparse
import json
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from minbert_cli import recipes

FILE = Path(__file__).with_suffix(".json")
ALL = "all"  # after ``--help``
# What stands for a type of Python; other types are texts.
WORDS = {bool: "true or false", int: "number", float: "number", dict: "mapping", list: "list"}
PLACES = {
    **dict.fromkeys(("model_name_or_path", "tokenizer_name_or_path", "base"), "name or path"),
    **dict.fromkeys(("data_dir", "output_dir"), "folder"),
    "resume_from_checkpoint": "true or folder",
    "hub_model_id": "owner/name",
    **dict.fromkeys(("tasks", "corpus", "rows"), "names or mapping"),
    "seeds": "numbers",
}
# Instead of long or misleading texts of transformers.
TEXTS = {
    "max_steps": "Optimizer steps, instead of num_train_epochs.",
    "seed": "Random seed.",
    "use_cpu": "Train on the CPU even if there is a GPU.",
    "output_dir": "Folder of the run.",
    "push_to_hub": "Upload the model to the Hub.",
    "hub_model_id": "Repository on the Hub; by default named as output_dir.",
    "gradient_accumulation_steps": "Batches of an optimizer step.",
    "data_seed": "Random seed of the order of rows; by default seed.",
}


def show_help(program: str, argv: Sequence[str]) -> None:
    """Print the help of a program: its common flags, or all of them after ``--help all``."""
    page, has_all = json.loads(FILE.read_text(encoding="utf-8"))[program], argv[-1] == ALL
    groups: dict[str, dict[str, list[str]]] = page["groups"]
    if has_all:  # also those that are not common: our own, and those of transformers
        own = {
            name
            for kind in load_kinds(program)
            for base in kind.__mro__
            if base.__module__.startswith(("minbert_cli.", "trainers."))
            for name in base.__annotations__
        }
        common = {name for flags in groups.values() for name in flags}
        groups |= {"more flags": {}, "all TrainingArguments": {}}
        for name, words in sorted(list_flags(program).items()):
            if name not in common:
                groups["more flags" if name in own else "all TrainingArguments"][name] = words
    parser = argparse.ArgumentParser(
        usage="\n".join(page["usage"]),
        description="\n".join(page["text"]),
        epilog=None if has_all else f"`minbert {program} --help {ALL}` lists all flags.",
        # most flags have long names
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=34
        ),
        add_help=False,
    )
    for title, flags in groups.items():
        group = parser.add_argument_group(title)
        for name, (kind, text) in flags.items():
            group.add_argument(f"--{name}", metavar=kind, help=text.replace("%", "%%"))
    parser.print_help()


def load_kinds(program: str) -> tuple[type, ...]:
    """Import the dataclasses of the flags of a program."""
    if program == "experiments":
        from minbert_cli.experiment_plan import ExperimentArguments

        return (ExperimentArguments,)
    return recipes.load_kinds(program)


def list_flags(program: str) -> dict[str, list[str]]:
    """Return the type and the meaning of every flag of a program."""
    from datasets_scripts.checking import key_types

    flags: dict[str, list[str]] = {}
    for kind in load_kinds(program):
        types, entries = key_types(kind), {entry.name: entry for entry in fields(kind)}
        for name in entries.keys() & types.keys() - flags.keys():
            flags[name] = [name_type(name, types[name]), describe(entries[name])]
    return flags


def describe(entry: "Field[Any]") -> str:
    """Return the help of a flag, with its default."""
    text = TEXTS.get(entry.name) or " ".join(entry.metadata.get("help", "").split())
    default = entry.default
    if entry.default_factory is not MISSING:
        default = entry.default_factory()
    if default is MISSING:
        return f"{text} (required, in the recipe or here)"
    if default is None and "by default" in text:
        return text
    if isinstance(default, int | float):  # true and false, too
        shown = str(default).lower()
    elif isinstance(default, list):
        shown = ", ".join(map(str, default))
    else:
        shown = str(default or "none")
    return f"{text} (default: {shown or 'none'})"


def name_type(name: str, kind: Any) -> str:
    """Name the type of a flag in plain words."""
    if name in PLACES:
        return PLACES[name]
    from .recipe import list_members

    words = []
    for member in list_members(kind):
        if get_origin(member) is Literal:
            words += [f"one of {', '.join(map(str, get_args(member)))}"]
        elif member is not type(None):
            words.append(WORDS.get(get_origin(member) or member, "text"))
    return " or ".join(dict.fromkeys(words))


def write() -> None:
    """Write the types and the meanings of the common flags into the file."""
    content = json.loads(FILE.read_text(encoding="utf-8"))
    for program, page in content.items():
        declared = list_flags(program)
        for flags in page["groups"].values():
            flags.update({name: declared[name] for name in flags})
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
