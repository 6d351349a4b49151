"""Help, keys of recipes, and files of runs and exports."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from safetensors import safe_open

from tests import small_run
from tests.frozen.outcomes import (
    Case,
    Workshop,
    hide_times,
    list_files,
    make_three_tasks,
    name_lines,
    read_json,
)
from tests.problem_examples import EXAMPLES

COMMANDS = ("finetune", "pretrain", "predict", "export", "new", "check", "recipes")
TRAINING = ("finetune", "pretrain")


def join_entries(text: str) -> Iterator[str]:
    entry: list[str] = []
    indent = 0
    for line in [*text.splitlines(), ""]:
        depth = len(line) - len(line.lstrip())
        if entry and (not line.strip() or depth <= indent):
            yield " ".join(" ".join(entry).split())
            entry = []
        if depth == 0 and line.endswith(":"):  # a heading
            yield line
        elif line.strip():
            indent = indent if entry else depth
            entry.append(line.strip())


def show_help(command: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        text = workshop.succeed(*command.split(), "--help").out
        text = re.sub(r"lists \d+ more", "lists more", text)
        yield from name_lines(join_entries(text))

    return case


def list_keys(program: str) -> Case:
    """Make a case of the keys of a recipe, with kinds, help and defaults.

    Those that only transformers documents differ between its versions and are left out.
    """

    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        text = workshop.succeed(program, "--help", "all").out.partition("all TrainingArgum")[0]
        for entry in join_entries(text[text.index("\nmodel and data:") :]):
            key = re.match(r"--(\w+) (.*)", entry)
            yield (key[1], key[2]) if key else (f"group {entry}", "group")

    return case


def list_settings(program: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        text = workshop.succeed(program, "--help", "all").out.partition("all TrainingArgum")[0]
        folder = workshop.three_tasks if program == "finetune" else workshop.pretrained
        settings = read_json(folder / "out" / "run.json")["settings"]
        for key in re.findall(r"^  --(\w+)", text, re.MULTILINE):
            yield key, settings.get(key, "(not among the settings)")

    return case


def list_task_keys(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    for kind in EXAMPLES:
        folder = workshop.new(f"keys-{kind}")
        recipe = make_three_tasks(folder)
        recipe["tasks"] = {"own": {"problem_type": kind, "zzz": 1, **EXAMPLES[kind].write(folder)}}
        line = workshop.run("finetune", small_run.write_recipe(folder, recipe)).err.strip()
        for key in re.findall(r"\w+", line.partition("known: ")[2]):
            yield f"{kind}.{key}", "known"
        yield f"{kind}.message", line.partition("known: ")[0]


HELP: dict[str, Case] = {"minbert": show_help(""), **{name: show_help(name) for name in COMMANDS}}
KEYS: dict[str, Case] = {
    **{name: list_keys(name) for name in TRAINING},
    **{f"settings-{name}": list_settings(name) for name in TRAINING},
    "tasks": list_task_keys,
}


# Files


def list_run(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    folder = workshop.three_tasks
    yield from ((path, "file") for path in list_files(folder / "out"))
    yield "has its code", (folder / "out" / "modeling_minbert.py").is_file()
    yield from list_printed(folder)


def list_pretraining(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    folder = workshop.pretrained
    yield from ((path, "file") for path in list_files(folder / "out"))
    yield from list_printed(folder)


def list_printed(folder: Path) -> Iterator[tuple[str, Any]]:
    for name in ("out", "err", "warnings"):
        text = hide_times((folder / f"{name}.txt").read_text(encoding="utf-8"))
        yield from ((f"{name} {key}", line) for key, line in name_lines(text.splitlines()))


def export(name: str, *flags: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        output = workshop.new(f"export-{name}") / "export"
        argv = ("export", workshop.three_tasks / "out", *flags, "--output_dir", output)
        yield "printed", workshop.succeed(*argv).out
        yield from ((path, "file") for path in list_files(output))
        if name in ("transformers", "int8"):
            yield from describe_tensors(output).items()
        for path in sorted(output.rglob("*.json")):
            if path.name in ("config.json", "modules.json", "config_sentence_transformers.json"):
                yield f"json {path.relative_to(output).as_posix()}", describe_config(path)

    return case


def describe_tensors(folder: Path) -> dict[str, str]:
    """Return types and shapes of tensors by their names."""
    with safe_open(folder / "model.safetensors", "pt") as file:
        slices = {name: file.get_slice(name) for name in sorted(file.keys())}
        return {
            f"tensor {name}": f"{x.get_dtype()} {list(x.get_shape())}" for name, x in slices.items()
        }


def describe_config(path: Path) -> Any:
    """Read a configuration, without versions and the modules of its code."""
    content = read_json(path)
    if isinstance(content, dict):
        for name in ("auto_map", "transformers_version", "__version__"):
            content.pop(name, None)
    return content


def list_checkpoint(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    folder = workshop.three_tasks / "out"
    yield from describe_tensors(folder).items()
    yield "config", describe_config(folder / "config.json")
    yield "tokenizer", read_json(folder / "tokenizer_config.json")


def check(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    for name, folder in (("finetune", workshop.three_tasks), ("pretrain", workshop.pretrained)):
        argv = ("check", folder / "recipe.yaml", "--output_dir", folder / "other")
        lines = workshop.succeed(*argv).out.splitlines()
        yield from ((f"{name} {key}", line) for key, line in name_lines(lines))


def new(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    files = {kind: workshop.problem(kind) for kind in EXAMPLES if EXAMPLES[kind].rows}
    for kind, folder in files.items():
        recipe = yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))
        data = recipe["tasks"]["own"]["train_file"]
        output = workshop.new(f"new-{kind}") / "own.yaml"
        ran = workshop.run("new", data, "--output", output)
        yield f"{kind}.printed", f"{ran.status} {ran.out}{ran.err}"
        text = output.read_text(encoding="utf-8") if output.exists() else ""
        lines = workshop.hide_paths(text).splitlines()
        yield from ((f"{kind} {key}", line) for key, line in name_lines(lines))


def list_recipes(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    yield from name_lines(join_entries(workshop.succeed("recipes").out))


FILES: dict[str, Case] = {
    "finetune": list_run,
    "pretrain": list_pretraining,
    "checkpoint": list_checkpoint,
    "transformers": export("transformers", "--format", "transformers"),
    "sentence-transformers": export(
        "sbert", "--format", "sentence-transformers", "--task", "scores"
    ),
    "int8": export("int8", "--format", "minbert", "--precision", "int8"),
    "check": check,
    "new": new,
    "recipes": list_recipes,
}
