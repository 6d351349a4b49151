"""Help of the programs whose flags are keys of recipes.

`--help` must not wait for torch, which the dataclasses of the flags need. So it shows the common
flags as ``help.json`` describes them, which ``python -m minbert_cli.help`` writes by the
dataclasses; `--help all` reads these themselves.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

FILE = Path(__file__).with_suffix(".json")
ALL = "all"  # after ``--help``


@dataclass(frozen=True)
class Page:
    """The help of a program: how it is called, what it does, and its common flags by purpose."""

    usage: str
    text: str
    groups: dict[str, tuple[str, ...]]


MODEL = ("model_name_or_path", "data_dir", "max_length")
TRAINING = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "max_steps")
EVALUATION = (
    *("eval_strategy", "eval_steps", "metric_for_best_model", "early_stopping_patience"),
    "save_total_limit",
)
OUTPUT = (
    *("output_dir", "overwrite_output_dir", "resume_from_checkpoint"),
    *("push_to_hub", "hub_model_id", "verbose"),
)
PAGES = {
    "finetune": Page(
        "minbert finetune [RECIPE] [--flag value ...]",
        """\
Fine-tune one encoder on one or several tasks. RECIPE is a YAML file or a name
that `minbert recipes` lists; the default is a sample. Flags override its keys,
also of one task, as in --tasks.sts.loss mse.

examples:
  minbert finetune                                  the built-in sample, a minute
  minbert finetune glue/cola --model_name_or_path google-bert/bert-base-uncased
  minbert finetune quickstart --tasks sst,sts --num_train_epochs 2
  accelerate launch -m minbert_cli.finetune RECIPE  on several GPUs""",
        {
            "model and data": ("tasks", *MODEL),
            "training": (*TRAINING, "seed", "use_cpu"),
            "evaluation and saving": EVALUATION,
            "methods": (
                *("freeze_encoder", "lora", "layerwise_lr_decay", "weight_averaging", "r_drop"),
                *("smart", "gradient_surgery", "teacher"),
            ),
            "output": OUTPUT,
        },
    ),
    "pretrain": Page(
        "minbert pretrain [RECIPE] [--flag value ...]",
        """\
Pre-train an encoder on text: masked tokens, next sentences, or both. RECIPE is
a YAML file or a name that `minbert recipes` lists; the default is a sample.
Flags override its keys, also of one text, as in --corpus.mine.train_file my.txt.

examples:
  minbert pretrain                                  the built-in text, minutes
  minbert pretrain mlm --corpus.mine.train_file my.txt
  accelerate launch -m minbert_cli.pretrain RECIPE  on several GPUs""",
        {
            "model and data": (
                *("corpus", *MODEL, "model_size", "train_tokenizer", "tokenizer_name_or_path"),
            ),
            "training": (*TRAINING, "seed", "use_cpu"),
            "evaluation and saving": EVALUATION,
            "methods": ("objective", "mlm_probability", "whole_word_mask"),
            "output": OUTPUT,
        },
    ),
    "experiments": Page(
        """minbert experiments [FILE] [--flag value ...]
       minbert experiments compare FIRST_RUN SECOND_RUN""",
        """\
Run many recipes with several seeds, and tabulate them. FILE is a YAML file or a
name that `minbert recipes` lists; the default is a sample. Flags that are not
listed here are those of `minbert finetune`, and go to every run. Each run is
a process of its own; repeat the command to resume what was interrupted.

examples:
  minbert experiments                               the built-in sample
  minbert experiments report/table --dry_run        what it would do
  minbert experiments report/table --seeds 1 2 3 --num_train_epochs 2""",
        {
            "runs": ("rows", "base", "overrides", "seeds"),
            "output": ("output_dir", "overwrite_output_dir", "keep_checkpoints"),
            "before a campaign": ("dry_run",),
        },
    ),
}
# What stands for a type of Python; other types are texts.
WORDS = {
    bool: "true or false",
    int: "number",
    float: "number",
    dict: "mapping",
    list: "list",
}
PLACES = {
    "model_name_or_path": "name or path",
    "tokenizer_name_or_path": "name or path",
    "base": "name or path",
    "data_dir": "folder",
    "output_dir": "folder",
    "resume_from_checkpoint": "true or folder",
    "hub_model_id": "owner/name",
    "tasks": "names or mapping",
    "corpus": "names or mapping",
    "rows": "names or mapping",
    "seeds": "numbers",
}
# Instead of long or misleading texts of transformers.
TEXTS = {
    "max_steps": "Optimizer steps, instead of num_train_epochs.",
    "seed": "Random seed.",
    "use_cpu": "Train on the CPU even if there is a GPU.",
    "output_dir": "Folder of the run.",
    "resume_from_checkpoint": "Continue an interrupted run: true for its last checkpoint.",
    "push_to_hub": "Upload the model to the Hub.",
    "hub_model_id": "Repository on the Hub; by default named as output_dir.",
    "gradient_accumulation_steps": "Batches of an optimizer step.",
    "data_seed": "Random seed of the order of rows; by default seed.",
}


def show_help(program: str, argv: Sequence[str]) -> None:
    """Print the help of a program: its common flags, or all of them after ``--help all``."""
    page, has_all = PAGES[program], argv[-1] == ALL
    flags, groups = json.loads(FILE.read_text(encoding="utf-8"))[program], page.groups
    if has_all:
        flags = list_flags(program)
        groups = page.groups | list_others(program, flags)
    parser = argparse.ArgumentParser(
        usage=page.usage,
        description=page.text,
        epilog=None if has_all else f"`minbert {program} --help {ALL}` lists all flags.",
        # most flags have long names
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=34
        ),
        add_help=False,
    )
    for title, names in groups.items():
        group = parser.add_argument_group(title)
        for name in names:
            kind, text = flags[name]
            group.add_argument(f"--{name}", metavar=kind, help=text.replace("%", "%%"))
    parser.print_help()


def list_flags(program: str) -> dict[str, list[str]]:
    """Return the type and the meaning of every flag of a program."""
    from datasets_scripts.checking import key_types

    flags: dict[str, list[str]] = {}
    for kind in load_kinds(program):
        types = key_types(kind)
        for entry in fields(kind):
            if entry.name in types:
                words = [name_type(entry.name, types[entry.name]), describe(entry)]
                flags.setdefault(entry.name, words)
    return flags


def list_others(program: str, flags: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Return the names of the flags that are not common: our own, and those of transformers."""
    own = {
        name
        for kind in load_kinds(program)
        for base in kind.__mro__
        if base.__module__.startswith(("minbert_cli.", "trainers."))
        for name in base.__annotations__
    }
    common = {name for names in PAGES[program].groups.values() for name in names}
    groups = {
        "more flags": tuple(sorted((flags.keys() & own) - common)),
        "all TrainingArguments": tuple(sorted(flags.keys() - own - common)),
    }
    return {title: names for title, names in groups.items() if names}


def load_kinds(program: str) -> tuple[Any, ...]:
    """Import the dataclasses of the flags of a program."""
    if program == "experiments":
        from minbert_cli.experiments.plan import ExperimentArguments

        return (ExperimentArguments,)
    from minbert_cli.arguments import KINDS

    return KINDS[program]


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
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, bool):
        shown = str(default).lower()
    elif isinstance(default, list):
        shown = ", ".join(map(str, default))
    else:
        shown = str(default or "none") if not isinstance(default, int | float) else str(default)
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
    """Write the file of the common flags."""
    content = {}
    for program, page in PAGES.items():
        flags = list_flags(program)
        content[program] = {name: flags[name] for names in page.groups.values() for name in names}
    FILE.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
