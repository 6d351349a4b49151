"""``minbert new``: a recipe for your own labeled rows."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from minbert_cli.command_line import to_location, to_path

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
# Texts that YAML reads as they are.
PLAIN = re.compile(r"(?!(?i:yes|no|on|off|y|n|true|false|null)$)[A-Za-z_][\w./-]*")


def make_name(path: str) -> str:
    """Make the name of a task from that of a file, or of its folder if it says nothing."""
    stem = Path(path).name.split(".")[0]
    if stem.lower() in ("train", "training", "data", "rows"):
        stem = Path(path).absolute().parent.name
    name = re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_")
    return name if re.match("[A-Za-z]", name) else f"task_{name}".strip("_")


def find_splits(paths: Sequence[str]) -> dict[str, str]:
    """Tell by their names which files have validation and test rows; the first has others."""
    files = {"train_file": paths[0]}
    for path in paths[1:]:
        words = {"validation": ("valid", "dev"), "test": ("test",), "train": ("",)}
        stem = Path(path).name.lower()
        split = next(key for key in words if any(word in stem for word in words[key]))
        if f"{split}_file" in files:
            raise ValueError(
                f"{path}: is it validation or test data? {files[f'{split}_file']!r} is the "
                f"{split}_file already; let its name have 'dev' or 'test', or add it to the "
                "recipe"
            )
        files[f"{split}_file"] = path
    return files


def format_value(value: object) -> str:
    """Write a value as YAML, in one line."""
    if isinstance(value, list):
        return f"[{', '.join(map(format_value, value))}]"
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def new(
    data: Annotated[
        list[str],
        typer.Argument(parser=to_location, help="files with rows, those of training first"),
    ],
    output: Annotated[
        Path | None,
        typer.Option(parser=to_path, help="recipe to write, a new file; by default NAME.yaml"),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="name of the task; by default that of the file")
    ] = None,
    model: Annotated[
        str, typer.Option(parser=to_location, help="checkpoint to start from")
    ] = MODEL,
    text_columns: Annotated[
        str | None,
        typer.Option("--text_columns", help="one or two columns with texts, with a comma between"),
    ] = None,
    label_column: Annotated[
        str | None, typer.Option("--label_column", help="column with labels")
    ] = None,
    problem_type: Annotated[
        str | None, typer.Option("--problem_type", help="problem type, as in ordinal")
    ] = None,
) -> None:
    """Write a recipe for your own labeled rows.

    \b
    minbert new reviews.csv
    minbert new train.csv dev.csv test.csv --name reviews --output reviews.yaml
    minbert new pairs.tsv --text_columns question1,question2 --label_column same

    It reads the rows (CSV, TSV, JSON, JSON lines, Parquet or CoNLL), guesses the columns with texts
    and labels and the problem type, and says why; flags override each guess. The first file has the
    training rows; others are validation or test rows by their names. Without validation rows, a
    tenth of the training rows is held out.
    """  # noqa: D301  \b keeps the lines of a paragraph
    # imported here, so that --help does not wait for torch
    from datasets_scripts import TaskData
    from trainers import readable_errors

    from .guesses import guess_task

    with readable_errors("minbert new"):
        files = find_splits(data)
        name = name or make_name(data[0])
        output = output or Path(f"{name}.yaml")
        if output.exists():
            raise ValueError(f"{str(output)!r} exists; name another file with --output")
        if not output.absolute().parent.is_dir():
            raise ValueError(f"the folder {str(output.parent)!r} does not exist; make it first")
        texts = text_columns.split(",") if text_columns else None
        guess = guess_task(data[0], texts, label_column, problem_type)
        keys: dict[str, Any] = {"problem_type": guess.problem_type, **files, **guess.keys}
        TaskData.from_recipe(name, keys)  # refuses what cannot be loaded
        run: dict[str, Any] = {"model_name_or_path": model, "output_dir": f"runs/{name}"}
        if guess.problem_type == "question_answering":
            run = {"max_length": 384, **run}  # a passage beside its question
        title = guess.problem_type.replace("_", " ").capitalize()
        lines = [
            f"# {title} of {Path(data[0]).name!r}.",
            *(f"# {reason}" for reason in guess.reasons),
            *(f"# Please check: {doubt}" for doubt in guess.doubts),
            "tasks:",
            f"  {name}:",
            *(f"    {key}: {format_value(value)}" for key, value in keys.items()),
            *(f"{key}: {format_value(value)}" for key, value in run.items()),
        ]
        with output.open("x", encoding="utf-8") as file:  # never over another file
            file.write("\n".join(lines) + "\n")
    print(f"{output}: {guess.problem_type}, {', '.join(guess.keys.get('text_columns', ()))}")
    print(*(f"  {reason}" for reason in guess.reasons), sep="\n")
    print(*(f"  please check: {doubt}\n" for doubt in guess.doubts), sep="", end="")
    print(f"next: minbert check {output}, then minbert finetune {output}")
