"""Write a recipe for your own labeled rows.

    minbert new reviews.csv
    minbert new train.csv dev.csv test.csv --name reviews --output reviews.yaml
    minbert new pairs.tsv --text_columns question1 question2 --label_column same

It reads the rows (CSV, TSV, JSON, JSON lines, Parquet or CoNLL), guesses the columns with texts and
labels and the problem type, and says why; flags override each guess. The first file has the
training rows; others are validation or test rows by their names. Without validation rows, a tenth
of the training rows is held out.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from minbert_cli.command_line import Parser, to_location, to_path

if TYPE_CHECKING:
    from .guesses import Guess


PROGRAM = "minbert new"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
TYPES = (
    *("classification", "multi_label_classification", "ordinal", "paraphrase", "similarity"),
    *("regression", "multiple_choice", "contrastive", "token_classification"),
    "question_answering",
)
# Lines of a recipe that a problem type needs beside its task: a passage beside its question.
RUN_KEYS = {"question_answering": ("max_length: 384",)}
# Texts that YAML reads as they are.
PLAIN = re.compile(r"[A-Za-z_][\w./-]*")
WORDS_OF_YAML = ("yes", "no", "on", "off", "y", "n", "true", "false", "null")


def make_parser() -> Parser:
    """Declare the arguments."""
    parser = Parser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("data", nargs="+", type=to_location, help="files with rows, those of training first")
    add("--output", type=to_path, help="recipe to write, a new file (default: NAME.yaml)")
    add("--name", help="name of the task (default: that of the file)")
    add("--model", default=MODEL, type=to_location, help=f"checkpoint to start from ({MODEL})")
    group = parser.add_argument_group("instead of guesses")
    group.add_argument("--text_columns", nargs="+", help="one or two columns with texts")
    group.add_argument("--label_column", help="column with labels")
    group.add_argument("--problem_type", choices=TYPES, help="problem type")
    return parser


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = make_parser()
    return parser.parse_args(argv)


def list_files(paths: Sequence[str]) -> dict[str, str]:
    """Return the files by recipe key; the first has the training rows."""
    from .guesses import name_split

    files = {"train_file": paths[0]}
    for path in paths[1:]:
        key = f"{name_split(path)}_file"
        if key in files:
            raise ValueError(
                f"{path}: is it validation or test data? {files[key]!r} is the {key} already; let "
                "its name have 'dev' or 'test', or add it to the recipe"
            )
        files[key] = path
    return files


def make_name(path: str) -> str:
    """Make the name of a task from that of a file."""
    stem = re.sub(r"[^A-Za-z0-9_]+", "_", Path(path).name.split(".")[0]).strip("_")
    generic = stem.lower() in ("train", "training", "data", "rows")
    name = Path(path).absolute().parent.name if generic else stem
    name = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")
    return name if re.match("[A-Za-z]", name) else f"task_{name}".strip("_")


def format_recipe(
    name: str, files: Mapping[str, str], guess: "Guess", model: str, command: str
) -> str:
    """Write the recipe with its reasons as comments."""
    keys = {"problem_type": guess.problem_type, **files, **guess.keys}
    title = guess.problem_type.replace("_", " ").capitalize()
    lines = [
        f"# {title} of {Path(files['train_file']).name!r}.",
        f"# Written by: {' '.join(command.split())}",
        *(f"# {reason}" for reason in guess.reasons),
        *(f"# Please check: {doubt}" for doubt in guess.doubts),
        "tasks:",
        f"  {name}:",
        *(f"    {key}: {format_value(value)}" for key, value in keys.items()),
        *RUN_KEYS.get(guess.problem_type, ()),
        f"model_name_or_path: {format_value(model)}",
        f"output_dir: {format_value(f'runs/{name}')}",
    ]
    return "\n".join(lines) + "\n"


def format_value(value: Any) -> str:
    """Write a value as YAML."""
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    is_plain = isinstance(value, str) and PLAIN.fullmatch(value)
    if is_plain and value.lower() not in WORDS_OF_YAML:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def check_output(path: Path) -> None:
    """Refuse to replace a file."""
    if path.exists():
        raise ValueError(f"{str(path)!r} exists; name another file with --output")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"the folder {str(path.parent)!r} does not exist; make it first")


def write_recipe(args: argparse.Namespace, argv: Sequence[str]) -> None:
    """Guess, write the recipe, and say what comes next."""
    from datasets_scripts import TaskData

    from .guesses import check_suffix, guess_task

    for path in args.data:
        check_suffix(path)
    files = list_files(args.data)
    name = args.name or make_name(files["train_file"])
    output = args.output or Path(f"{name}.yaml")
    check_output(output)
    guess = guess_task(files["train_file"], vars(args))
    # the loader refuses what it cannot read
    TaskData.from_recipe(name, {"problem_type": guess.problem_type, **files, **guess.keys})
    command = shlex.join(["minbert", "new", *argv])
    text = format_recipe(name, files, guess, args.model, command)
    with output.open("x", encoding="utf-8") as file:
        file.write(text)
    print(f"{output}: {guess.problem_type}, {', '.join(guess.keys.get('text_columns', ()))}")
    print(*(f"  {reason}" for reason in guess.reasons), sep="\n")
    print(*(f"  please check: {doubt}\n" for doubt in guess.doubts), sep="", end="")
    print(f"next: minbert check {output}, then minbert finetune {output}")


def main(argv: Sequence[str] | None = None) -> None:
    """Write a recipe; errors of the user are one line each."""
    argv = sys.argv[1:] if argv is None else argv
    args = parse(argv)
    # imported here, so that --help does not wait for torch
    from trainers import readable_errors

    with readable_errors(PROGRAM):
        write_recipe(args, argv)
