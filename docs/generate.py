"""Tables of the documentation that are read from the code."""

from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError

from minbert_cli.resources import RECIPES
from modeling_minbert import TASKS
from modeling_minbert.pooled_minbert import HEADS, PooledTask
from trainers import FinetuneArguments, PretrainArguments
from trainers.problems import PROBLEMS

# Fields of a task that its data would set, for types whose losses depend on them.
DATA = {"labels": ["no", "yes"], "score_range": [0, 5]}


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
    """Tabulate the problem types with heads, losses and metrics; defaults come first."""
    rows = []
    for name, task in TASKS.items():
        metrics = code(metric.name for metric in PROBLEMS[name].metrics)
        if not issubclass(task, PooledTask):
            rows.append([f"`{name}`", "", "", "", metrics])
            continue
        for encoding, head, losses in _list_heads(task):
            rows.append([f"`{name}`", f"`{encoding}`" if encoding else "one text", head])
            rows[-1] += [code(losses), metrics]
    return table(["problem type", "texts", "head", "losses", "metrics"], rows)


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
                yield encoding, f"`{head}`", made.losses


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


TABLES = {
    "problem_types": describe_problem_types,
    "finetune_keys": lambda: describe_arguments(FinetuneArguments),
    "pretrain_keys": lambda: describe_arguments(PretrainArguments),
    "recipes": describe_recipes,
}


def write_tables(folder: Path) -> None:
    """Write every table as a file that pages include."""
    folder.mkdir(exist_ok=True)
    for name, describe in TABLES.items():
        path = folder / f"{name}.md"
        content = describe()
        if not path.exists() or path.read_text("utf-8") != content:  # keeps incremental builds
            path.write_text(content, "utf-8")
