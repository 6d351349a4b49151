"""Help of the commands, printed without importing torch."""

import argparse
import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

# Module, imported only when needed, and help of each subcommand.
COMMANDS = {
    "finetune": ("minbert_cli.finetune", "fine-tune one encoder on one or several tasks"),
    "pretrain": ("minbert_cli.pretrain", "pre-train an encoder on text"),
    "predict": ("minbert_cli.predict", "predict, embed, search and group texts"),
    "embeddings": ("minbert_cli.embeddings", "evaluate sentence embeddings"),
    "export": ("minbert_cli.export", "export a checkpoint: BERT, ONNX, a Space, ..."),
    "experiments": ("minbert_cli.experiments.program", "run many recipes and tabulate them"),
    "new": ("minbert_cli.new", "write a recipe for your own labeled rows"),
    "check": (
        "minbert_cli.check",
        "check recipe, data and model without training",
    ),
    "recipes": ("minbert_cli.recipes", "list, print or copy the packaged recipes"),
}


class Group(NamedTuple):
    """Flags of one purpose."""

    title: str
    common: tuple[str, ...]  # in `--help`
    more: tuple[str, ...] = ()  # only in `--help all`


MODEL = ("model_name_or_path", "data_dir", "max_length")
MORE_MODEL = ("revision", "model_config")
TRAINING = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "max_steps")
MORE_TRAINING = (
    *("gradient_accumulation_steps", "max_tokens_per_batch", "warmup_steps", "weight_decay"),
    *("lr_scheduler_type", "label_smoothing_factor", "bf16", "fp16", "data_seed"),
)
EVALUATION = (
    *("eval_strategy", "eval_steps", "metric_for_best_model", "early_stopping_patience"),
    "save_total_limit",
)
MORE_EVALUATION = (
    *("per_device_eval_batch_size", "save_strategy", "save_steps", "load_best_model_at_end"),
    *("evaluate_train", "logging_steps", "logging_nan_inf_filter"),
)
OUTPUT = (
    *("output_dir", "overwrite_output_dir", "resume_from_checkpoint"),
    *("push_to_hub", "hub_model_id", "verbose"),
)

GROUPS = {
    "finetune": (
        Group("model and data", ("tasks", *MODEL), MORE_MODEL),
        Group(
            "training",
            (*TRAINING, "seed", "use_cpu"),
            (
                *("head_learning_rate", *MORE_TRAINING, "steps_per_epoch"),
                *("task_sampling", "sampling_temperature", "sampling_cap", "sampling_weights"),
            ),
        ),
        Group("evaluation and saving", EVALUATION, MORE_EVALUATION),
        Group(
            "methods",
            (
                *("freeze_encoder", "lora", "layerwise_lr_decay", "weight_averaging", "r_drop"),
                *("smart", "gradient_surgery", "teacher"),
            ),
            (
                *("freeze_layers", "averaging_decay"),
                *("distillation_alpha", "distillation_temperature", "calibrate"),
            ),
        ),
        Group("output", OUTPUT, ("report_examples", "card")),
    ),
    "pretrain": (
        Group(
            "model and data",
            ("corpus", *MODEL, "model_size", "train_tokenizer", "tokenizer_name_or_path"),
            (
                *(*MORE_MODEL, "vocab_size", "cased", "dropout", "packing", "short_seq_prob"),
                *("balanced_pairs", "preprocessing_num_workers"),
            ),
        ),
        Group("training", (*TRAINING, "seed", "use_cpu"), MORE_TRAINING),
        Group("evaluation and saving", EVALUATION, (*MORE_EVALUATION, "max_eval_samples")),
        Group(
            "methods",
            ("objective", "mlm_probability", "whole_word_mask"),
            ("mask_replace_prob", "random_replace_prob"),
        ),
        Group("output", (*OUTPUT, "finetune"), ("card",)),
    ),
    "experiments": (
        Group("runs", ("rows", "base", "overrides", "seeds", "processes")),
        Group(
            "output",
            ("output_dir", "overwrite_output_dir", "keep_checkpoints"),
        ),
        Group("before a campaign", ("dry_run",)),
        Group("compare", ("resamples", "seed", "html")),
    ),
}


ROOT = Path(__file__).resolve().parents[1]
# The dataclasses of arguments of each program.
ARGUMENTS = {
    "finetune": ("FinetuneArguments", "ProgramTrainingArguments"),
    "pretrain": ("PretrainArguments", "ProgramTrainingArguments"),
    "experiments": ("ExperimentArguments", "ComparisonArguments"),
}
SOURCES = (
    "minbert_cli/arguments.py",
    "minbert_cli/experiments/compare.py",
    "minbert_cli/experiments/plan.py",
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
listed here are those of `minbert finetune`, and go to every run. Each run is
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
  minbert experiments report/table --dry_run        what it would do
  minbert experiments report/table --seeds 1 2 3 --num_train_epochs 2""",
}
ALL = "all"  # after ``--help``
ALL_OTHERS = "all TrainingArguments"
# What stands for a type of Python; other names are those of enumerations.
WORDS = {
    "bool": "true or false",
    "int": "number",
    "float": "number",
    # names of checked types
    "Annotated": "number",
    "Count": "number",
    "Part": "number",
    "BelowOne": "number",
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
