"""Bad input, and what is said about it: recipes, flags, files, rows, checkpoints."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from tests import small_run
from tests.frozen.learning import change
from tests.frozen.outcomes import CASES, Case, Workshop, make_pretraining
from tests.problem_examples import EXAMPLES


def tell_recipes(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    for changes in CASES["recipes"]:
        folder = workshop.new("bad-recipe")
        moods = str(folder / "moods-train.tsv")
        found = {key: moods if value == "MOODS" else value for key, value in changes.items()}
        name = ", ".join(f"{key}={value!r}" for key, value in changes.items())
        yield name, refuse(workshop, folder, change(folder, found))
    for text in (
        "",
        "tasks: [",
        "- a\n",
        "tasks:\n  a: 1\n  a: 2\n",
        "\0",
        "tasks: {}\nseed: &x 1",
    ):
        path = workshop.new("bad-recipe") / "bad.yaml"
        path.write_text(text, encoding="utf-8")
        yield f"text {text!r}", tell(workshop.run("finetune", path))


def refuse(workshop: Workshop, folder: Path, recipe: dict[str, Any]) -> str:
    """Return what is said about a recipe; one that is refused leaves nothing in its folder."""
    ran = workshop.run("finetune", small_run.write_recipe(folder, recipe))
    assert ran.status == 0 or not (folder / "out").exists(), "a refused run left files"
    return tell(ran)


def tell(ran: Any) -> str:
    """Put exit status and standard error in one line."""
    shown = ran.err.strip().splitlines()
    lines = [line for line in shown if not line.startswith("precision:")]
    return f"{ran.status} {' / '.join(lines) or '(no message)'}"


def tell_flags(program: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        folder = workshop.new("bad-flags")
        words = {
            "RECIPE": small_run.write_recipe(folder, change(folder, {})),
            "MOODS": str(folder / "moods-train.tsv"),
            "RUN": str(workshop.three_tasks / "out"),
        }
        if program == "pretrain":
            words["PRETRAIN"] = small_run.write_recipe(folder, make_pretraining(folder))
        for argv in CASES["flags"][program]:
            flags = [words.get(word, word.replace("FOLDER", str(folder))) for word in argv]
            flags = [flag.replace("RECIPE", words["RECIPE"]) for flag in flags]
            yield " ".join(argv) or "(nothing)", tell(workshop.run(program, *flags))

    return case


def tell_rows(kind: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        for text in CASES["rows"][kind]:
            folder = workshop.new("bad-rows")
            task = {"problem_type": kind, "batch_size": 4, **EXAMPLES[kind].write(folder)}
            Path(task["train_file"]).write_text(text, encoding="utf-8")
            yield repr(text), refuse(workshop, folder, change(folder, {"tasks": {"own": task}}))

    return case


# What is written instead of a file, and files that are removed.
DAMAGES = {
    "config is no JSON": ("{", ["config.json"]),
    "another architecture": ('{"model_type": "gpt2"}', ["config.json"]),
    "no config": (None, ["config.json"]),
    "no weights": (None, ["model.safetensors"]),
    "no tokenizer": (None, ["tokenizer.json", "tokenizer_config.json"]),
}


def damage(name: str, folder: Path) -> None:
    for file in DAMAGES[name][1] if name in DAMAGES else ():
        if (text := DAMAGES[name][0]) is None:
            (folder / file).unlink()
        else:
            (folder / file).write_text(text, encoding="utf-8")
    path = folder / "model.safetensors"
    if name == "weights cut":
        path.write_bytes(path.read_bytes()[:-100])
    if name in ("no layer", "another class"):
        weights = load_file(path)
        if name == "no layer":
            weights = {key: value for key, value in weights.items() if ".layer.1." not in key}
        else:
            weights["heads.moods.out.weight"] = weights["heads.moods.out.weight"].new_zeros(3, 12)
        save_file(weights, path, metadata={"format": "pt"})


def tell_checkpoints(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    for name in ("no layer", "another class", "weights cut", *DAMAGES):
        folder = workshop.new("bad-checkpoint")
        checkpoint = folder / "checkpoint"
        checkpoint.mkdir()
        for path in (workshop.three_tasks / "out").glob("*"):
            if path.suffix in (".json", ".safetensors") and path.is_file():
                (checkpoint / path.name).write_bytes(path.read_bytes())
        damage(name, checkpoint)
        changes = {"model_name_or_path": str(checkpoint), "model_config": None}
        path = small_run.write_recipe(folder, change(folder, changes))
        yield f"finetune {name}", tell(workshop.run("finetune", path))
        flags = ("--task", "moods", "--precision", "float32", "a text")
        yield f"predict {name}", tell(workshop.run("predict", checkpoint, *flags))


def tell_folders(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    folder = workshop.new("bad-folder")
    path = small_run.write_recipe(folder, change(folder, {}))
    (folder / "out").mkdir()
    (folder / "out" / "thesis.txt").write_text("years of work", encoding="utf-8")
    yield "unknown files", tell(workshop.run("finetune", path))
    argv = ("finetune", workshop.three_tasks / "recipe.yaml")
    yield "another run", tell(workshop.run(*argv, "--learning_rate", "0.02"))
    flags = ("--learning_rate", "0.02", "--resume_from_checkpoint", "true")
    yield "another run resumed", tell(workshop.run(*argv, *flags))


MESSAGES: dict[str, Case] = {
    "recipes": tell_recipes,
    **{f"flags of {program}": tell_flags(program) for program in CASES["flags"]},
    **{f"rows of {kind}": tell_rows(kind) for kind in CASES["rows"]},
    "checkpoints": tell_checkpoints,
    "folders": tell_folders,
}
