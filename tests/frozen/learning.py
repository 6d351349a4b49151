"""Runs of every problem type, losses, training methods, and a resumed run."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from modeling_minbert import MinBertForMultiTask
from tests import loss_cases
from tests.frozen.outcomes import (
    CASES,
    Case,
    Workshop,
    describe_weights,
    make_problem,
    make_three_tasks,
    read_json,
    read_log,
    read_metrics,
    read_predictions,
)
from tests.problem_examples import EXAMPLES

# Two rows for `predict`, by what a task reads.
ONE = ["the river is fine", "this song was dull, cold and bleak"]
PAIRS = [("the river is fine", "this river was dull"), ("a warm song", "the song is lovely")]
ROWS: dict[str, list[Any]] = {
    "paraphrase": PAIRS,
    "similarity": PAIRS,
    "contrastive": PAIRS,
    "question_answering": [
        ("how is it", "the river is fine and warm"),
        ("how is it", "this window was dull and the story is lovely and warm"),
    ],
}


# Problem types


def run_problem(kind: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        output = workshop.problem(kind) / "out"
        yield "metrics", read_metrics(output)
        yield "log", read_log(output)
        yield "weights", describe_weights(output)
        yield "task", read_json(output / "config.json")["tasks"]["own"]
        for name, line in read_predictions(output):
            yield f"file {name}", line
        if EXAMPLES[kind].rows is None:
            return
        rows = ROWS.get(kind, ONE)
        model = MinBertForMultiTask.from_pretrained(output)
        for number, prediction in enumerate(model.predict("own", rows)):
            yield f"predict.{number}", prediction
        argv = ("predict", output, "--task", "own", "--precision", "float32", "--device", "cpu")
        for place, row in enumerate(rows):
            for style in ("tsv", "jsonl"):
                ran = workshop.succeed(*argv, *list_texts(row), "--format", style)
                for number, line in enumerate((ran.out + ran.err).splitlines()):
                    yield f"command.{place}.{style}.{number}", line

    return case


def list_texts(row: Any) -> list[str]:
    if isinstance(row, str):
        return [row]
    return [text for part in row for text in ([part] if isinstance(part, str) else part)]


def run_pretraining(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    output = workshop.pretrained / "out"
    yield "metrics", read_metrics(output)
    yield "log", read_log(output)
    yield "weights", describe_weights(output)
    vocabulary = read_json(output / "tokenizer.json")["model"]["vocab"]
    yield "vocabulary", sorted(vocabulary, key=vocabulary.__getitem__)


PROBLEMS: dict[str, Case] = {
    **{kind: run_problem(kind) for kind in EXAMPLES},
    "pretrain": run_pretraining,
}


# Losses


def compute_loss(name: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        options = {"per_device_train_batch_size": 4, "per_device_eval_batch_size": 3}
        trainer = loss_cases.make_trainer(workshop.folder / "loss", name, **options)
        logged, weights, held_out = loss_cases.summarize(trainer)
        yield "logged", logged
        yield "held_out", held_out
        total = torch.stack([value.double().square().sum() for value in weights.values()]).sum()
        yield "weights", float(total.sqrt())

    return case


LOSSES: dict[str, Case] = {name: compute_loss(name) for name in loss_cases.CASES}


# Methods

# What training sets in the description of a task.
LEARNED = {"temperature", "threshold", "thresholds", "class_weights"}
QUICK = {"eval_strategy": "no", "save_strategy": "no", "evaluate_train": False}
METHODS: dict[str, dict[str, Any]] = CASES["methods"]
# The others are compared by the slow tests.
FAST = {"r_drop", "lora", "teacher", "calibrate"}


def apply_method(name: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        changes = METHODS[name]
        if "TEACHER" in json.dumps(changes):
            teacher = workshop.three_tasks / "out"
            changes = json.loads(json.dumps(changes).replace("TEACHER", str(teacher)))
        folder = workshop.finetune(f"method {name}", lambda path: change(path, changes))
        metrics = read_metrics(folder / "out")
        yield "validation", metrics["validation"]["metrics"]
        tasks = read_json(folder / "out" / "config.json")["tasks"]
        for task, fields in tasks.items():
            yield task, {key: fields[key] for key in sorted(LEARNED & fields.keys()) if fields[key]}
        yield "choices", metrics["choices"]
        yield "steps", metrics["steps"]
        yield "weights", describe_weights(folder / "out")

    return case


def change(folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    recipe = make_three_tasks(folder) | QUICK
    for path, value in changes.items():
        *parents, key = path.split(".")
        place: dict[str, Any] = recipe
        for parent in parents:
            place = place[parent]
        place[key] = value
        if value is None and key != "teacher":
            del place[key]
    return recipe


def resume(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    def make(folder: Path) -> dict[str, Any]:
        recipe = make_problem(folder, "classification") | {"num_train_epochs": 2}
        recipe["tasks"] |= {"scores": make_three_tasks(folder)["tasks"]["scores"]}
        return recipe | {"r_drop": 0.5}

    folder = workshop.finetune("resumed", make)
    flags = ("--output_dir", folder / "again")
    flags += ("--resume_from_checkpoint", folder / "out" / "checkpoint-3")
    workshop.succeed("finetune", folder / "recipe.yaml", *flags)
    hashes = [
        hashlib.sha256((folder / name / "model.safetensors").read_bytes()).hexdigest()
        for name in ("out", "again")
    ]
    yield "model.safetensors is the same", hashes[0] == hashes[1]
    yield "log is the same", read_json_log(folder / "out") == read_json_log(folder / "again")
    yield "weights", describe_weights(folder / "again")


def read_json_log(folder: Path) -> Any:
    """Read the log of the last step, without times."""
    log = read_json(folder / "checkpoint-6" / "trainer_state.json")["log_history"]
    return [
        {key: value for key, value in entry.items() if not key.endswith(("time", "per_second"))}
        for entry in log
    ]


METHOD_CASES: dict[str, Case] = {name: apply_method(name) for name in METHODS}
METHOD_CASES["resumed"] = resume
