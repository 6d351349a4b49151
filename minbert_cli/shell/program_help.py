"""The help of the programs with recipes, shown before anything slow is imported."""

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence

from .flag_groups import GROUPS
from .flags import REQUIRED, Option, read_flags

USAGES = {
    "finetune": "minbert finetune [RECIPE] [--flag value ...]",
    "pretrain": "minbert pretrain [RECIPE] [--flag value ...]",
    "experiments": """minbert experiments [FILE] [--flag value ...]
       minbert experiments compare FIRST_RUN SECOND_RUN [--html PAGE]""",
}
DESCRIPTIONS = {
    "finetune": """
Fine-tune one encoder on one or several tasks. RECIPE is a YAML file or a name
that `minbert recipes` lists; the default is a sample. Flags override its keys,
also of one task, as in --tasks.sts.loss mse.""",
    "pretrain": """
Pre-train an encoder on text: masked tokens, next sentences, or both. RECIPE is
a YAML file or a name that `minbert recipes` lists; the default is a sample.
Flags override its keys, also of one text, as in --corpus.mine.train_file my.txt.""",
    "experiments": """
Run many recipes with several seeds, and tabulate them. FILE is a YAML file or a
name that `minbert recipes` lists; the default is a sample. Flags that are not
listed here are keys of the recipes, and override them in every run. Each run is
a process of its own; repeat the command to resume what was interrupted.""",
}
EXAMPLES = {
    "finetune": """
  minbert finetune                                  the built-in sample, a minute
  minbert finetune glue/cola --model_name_or_path google-bert/bert-base-uncased
  minbert finetune quickstart --tasks sst,sts --num_train_epochs 2
  accelerate launch -m minbert_cli.finetune RECIPE  on several GPUs""",
    "pretrain": """
  minbert pretrain                                  the built-in text, minutes
  minbert pretrain mlm --corpus.mine.train_file my.txt
  accelerate launch -m minbert_cli.pretrain RECIPE  on several GPUs""",
    "experiments": """
  minbert experiments                               the built-in sample
  minbert experiments report/table --dry_run        what it would do, and its time
  minbert experiments report/table --seeds 1 2 3 --num_train_epochs 2""",
}
ALL = "all"  # after ``--help``
ALL_OTHERS = "all TrainingArguments"
# What stands for a type of Python; other names are those of enumerations.
WORDS = {
    "bool": "true or false",
    "int": "number",
    "float": "number",
    "dict": "mapping",
    "list": "list",
    "list[int]": "numbers",
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
# Left out, their values depend on the device, the model or the rows.
RUN_CHOOSES = ("ProgramTrainingArguments", "FastTrainingArguments")
CHOSEN = ("head_learning_rate",)


def show_help(program: str, argv: Sequence[str]) -> bool:
    """Print the help of a program if its command line asks for it; return whether it did."""
    place = next((place for place, word in enumerate(argv) if word in ("-h", "--help")), None)
    if place is None:
        return False
    has_all = list(argv[place + 1 : place + 2]) == [ALL]
    flags = read_flags(program)
    parser = argparse.ArgumentParser(
        usage=USAGES[program],
        description=f"{DESCRIPTIONS[program].strip()}\n\nexamples:{EXAMPLES[program]}",
        epilog=None if has_all else _describe_rest(program, flags),
        formatter_class=_Formatter,
        add_help=False,
    )
    for title, names in list_groups(program, flags, has_all=has_all).items():
        group = parser.add_argument_group(title)
        for name in names:
            text = describe(name, flags[name]).replace("%", "%%")
            group.add_argument(f"--{name}", metavar=name_type(name, flags[name].kind), help=text)
    parser.print_help()
    return True


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Gives descriptions the wider column: most flags have long names."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=34)


def list_groups(
    program: str, flags: Mapping[str, Option], *, has_all: bool
) -> dict[str, Iterable[str]]:
    """Return the names of flags by the title of their group, all or only common ones."""
    groups = GROUPS[program]
    shown = {
        group.title: (*group.common, *group.more) if has_all else group.common for group in groups
    }
    others = sorted(flags.keys() - {name for names in shown.values() for name in names})
    return shown | ({ALL_OTHERS: others} if has_all and others else {})


def _describe_rest(program: str, flags: Mapping[str, Option]) -> str | None:
    shown = sum(len(group.common) for group in GROUPS[program])
    if shown == len(flags):
        return None
    return f"`minbert {program} --help {ALL}` lists {len(flags) - shown} more flags."


def describe(name: str, option: Option) -> str:
    """Return the help of a flag, with its default."""
    text = TEXTS.get(name) or " ".join(option.help.split())
    if option.default == REQUIRED:
        return f"{text} ({REQUIRED}, in the recipe or here)"
    if option.default == "None":
        is_chosen = option.owner in RUN_CHOOSES or name in CHOSEN
        if ("chosen" if is_chosen else "by default") in text:  # it says how
            return text
        return f"{text} (default: {'chosen by the run' if is_chosen else 'none'})"
    return f"{text} (default: {_name_default(option.default)})"


def _name_default(source: str) -> str:
    """Say in plain words what the source of a default means."""
    plain = {"True": "true", "False": "false", "''": "none", "list": "none"}
    made = re.fullmatch(r"lambda: \[(.*)\]", source)
    return made[1] if made else plain.get(source, source.strip("'"))


def name_type(name: str, kind: str) -> str:
    """Name the type of a flag in plain words."""
    if name in PLACES:
        return PLACES[name]
    if values := re.search(r"Literal\[('.*)\]", kind):
        return f"one of {values[1].replace(chr(39), '')}"
    parts = [part for part in kind.split(" | ") if part not in ("None", "Literal[False]")]
    words = [WORDS.get(part) or WORDS.get(part.partition("[")[0], "text") for part in parts]
    return " or ".join(dict.fromkeys(words))
