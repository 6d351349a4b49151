"""Tables of the documentation that are read from the code."""

import contextlib
import io
import os
from collections.abc import Iterable, Iterator
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from datasets_scripts.catalog import DATASETS
from minbert_cli.__main__ import app, main
from minbert_cli.arguments import FinetuneArguments
from minbert_cli.recipes import RECIPES
from minbert_cli.text_tasks import PretrainArguments
from modeling_minbert import TASKS
from modeling_minbert.pooled import HEADS, PooledTask
from trainers.problems import PROBLEMS

# Fields of a task that its data would set, for types whose losses depend on them.
DATA = {
    "labels": ["no", "yes"],
    "score_range": [0, 5],
    "outputs": ["a"],
    "classes": [["no", "yes"]],
}


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Format a table in Markdown; a line break in a cell becomes a space."""
    titles = list(titles)
    lines = [titles, ["---"] * len(titles), *map(list, rows)]
    cells = [[" ".join(cell.replace("|", "\\|").split()) for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in cells) + "\n"


def code(names: Iterable[Any]) -> str:
    """Join names, each as code."""
    return ", ".join(f"`{name}`" for name in names)


def describe_problem_types() -> str:
    """Tabulate heads and losses of the problem types that have a choice; defaults come first."""
    rows: dict[tuple[str, ...], list[str]] = {}
    for name, task in TASKS.items():
        for encoding, head, losses in _list_heads(task) if issubclass(task, PooledTask) else ():
            texts = f"pairs, `{encoding}`" if encoding else "one text"
            rows.setdefault((f"`{name}`", texts, code(losses)), []).append(head)
    lines = (
        [name, texts, ", ".join(heads), losses] for (name, texts, losses), heads in rows.items()
    )
    return table(["problem type", "texts", "head", "losses"], lines)


def _list_heads(task: type[PooledTask]) -> Iterator[tuple[str | None, str, tuple[str, ...]]]:
    """List pair encodings, heads and losses that a problem type accepts."""
    names = {field.name for field in fields(task)}
    data = {name: value for name, value in DATA.items() if name in names}
    for encoding, heads in HEADS.items():
        for head in heads:
            try:
                made = task(pair_encoding=encoding, head=head, **data)
            except StrictDataclassError:
                continue
            if made.pair_encoding == encoding:
                others = (loss for loss in made.losses if loss != made.loss)
                yield encoding, f"`{head}`", (str(made.loss), *others)


def describe_arguments(arguments: type[Any]) -> str:
    """Tabulate the recipe keys of a program that are its own."""
    rows = []
    for field in fields(arguments):
        text = str(field.metadata.get("help", ""))
        rows.append([f"`{field.name}`", text, _describe_default(field.default)])
    return table(["key", "meaning", "default"], sorted(rows))


def _describe_default(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"`{value}`" if isinstance(value, (str, int, float)) else ""


def describe_recipes() -> str:
    """Tabulate the recipes that come with the package, by their first lines."""
    paths = sorted(RECIPES.rglob("*.yaml"), key=lambda path: (len(path.parts), path))
    rows = []
    for path in paths:
        name = path.relative_to(RECIPES).with_suffix("").as_posix()
        rows.append([f"`{name}`", path.read_text("utf-8").splitlines()[0].lstrip("# ")])
    return table(["recipe", "what it does"], rows)


def describe_datasets() -> str:
    """Tabulate the built-in datasets with their official files."""
    rows = []
    for name, row in DATASETS.items():
        files = code(names[0] for names in row.files.values()) or "made by the package"
        hub = f"`{row.hub_id.partition(':')[0]}`" if row.hub_id else ""
        rows.append([f"`{name}`", f"`{row.problem_type}`", files, hub])
    return table(["dataset", "problem type", "files in `data_dir`", "on the Hub"], rows)


def describe_metrics() -> str:
    """Tabulate the metrics of the problem types."""
    rows = (
        [f"`{name}`", code(m.name for m in problem.metrics)] for name, problem in PROBLEMS.items()
    )
    return table(["problem type", "metrics"], rows)


def read_help(command: str) -> str:
    """Return what ``minbert COMMAND --help`` prints, 88 columns wide."""
    columns = os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "90"
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            main([command, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return printed.getvalue()


TABLES = {
    "problem_types.md": describe_problem_types,
    "datasets.md": describe_datasets,
    "metrics.md": describe_metrics,
    "finetune_keys.md": lambda: describe_arguments(FinetuneArguments),
    "pretrain_keys.md": lambda: describe_arguments(PretrainArguments),
    "recipes.md": describe_recipes,
    **{
        f"help_{command.name}.txt": partial(read_help, str(command.name))
        for command in app.registered_commands
    },
}


def write_tables(folder: Path) -> None:
    """Write every table as a file that pages include."""
    folder.mkdir(exist_ok=True)
    for name, describe in TABLES.items():
        path = folder / name
        content = describe()
        if not path.exists() or path.read_text("utf-8") != content:  # keeps incremental builds
            path.write_text(content, "utf-8")
