"""``report.json``: what the report of a run needs beside ``metrics.json``."""

import json
import math
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import datasets
import torch

from trainers.data.dataset import Rows, TaskDataset
from trainers.data.rows import describe_labels
from trainers.files import write_text
from trainers.problems.base import Problem
from trainers.training.multitask import MultiTaskTrainer

from .plots.curves import task_curves
from .wording import count

EVIDENCE_FILE = "report.json"


def write_evidence(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Any],
    texts: Mapping[str, datasets.Dataset] | None = None,
    examples: int = 20,
) -> None:
    """Write ``report.json``; ``examples`` errors of each task quote its ``texts``, if given."""
    history = trainer.state.log_history
    content = {
        "problem_types": {name: task.problem_type for name, task in trainer.tasks.items()},
        "curves": {
            task: task_curves(history, problem) for task, problem in trainer.problems.items()
        },
        "evaluated_step": _evaluated_step(trainer),
        "train_seconds": next(
            (entry["train_runtime"] for entry in reversed(history) if "train_runtime" in entry),
            None,
        ),
        **_describe_shares(trainer),
        "shared_rows": _describe_shared_rows(trainer),
        "oversampling": _describe_oversampling(trainer),
        "splits": {
            task: {split: len(rows) for split, rows in splits.items()}
            for task, splits in encoded.items()
        },
        "environment": describe_environment(trainer.args),
        "analyses": {
            task: _analyse(
                trainer.problems[task],
                found,
                encoded[task][split],
                (texts or {}).get(task),
                examples,
            )
            | trainer.problems[task].describe_calibration(
                _held_out(trainer, encoded, outputs, task)
            )
            for (task, split), found in outputs.items()
            if split == "validation" and trainer.problems[task].is_labelled(encoded[task][split])
        },
    }
    write_text(Path(str(trainer.args.output_dir)) / EVIDENCE_FILE, json.dumps(content) + "\n")


def _analyse(
    problem: Problem[Any], outputs: Any, rows: Any, texts: datasets.Dataset | None, examples: int
) -> dict[str, Any]:
    """Analyse the labelled rows of a split."""
    labelled = problem.find_labelled(outputs)
    if labelled is None:
        return problem.analyse(outputs, rows, texts, examples)
    kept = problem.keep_rows(outputs, labelled)
    texts = None if texts is None else texts.select(labelled)
    return problem.analyse(kept, rows.select(labelled), texts, examples)


def _held_out(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Any],
    task: str,
) -> dict[str, Any]:
    """Return the outputs of the labelled splits of a task that it was not trained on."""
    return {
        split: found
        for (name, split), found in outputs.items()
        if name == task
        and split != "train"
        and trainer.problems[task].is_labelled(encoded[task][split])
    }


def describe_environment(args: Any) -> dict[str, str]:
    """Describe the date, the machine and the software of a run, but no person."""
    precision = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": name_device(args.device),
        "processes": str(args.world_size),
        "precision": precision,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
    }


def name_device(device: torch.device) -> str:
    """Return the name of a GPU, or the kind of processor and its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{device.type} ({platform.machine()}, {count(torch.get_num_threads(), 'thread')})"


def _evaluated_step(trainer: MultiTaskTrainer) -> int:
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    return int(best or trainer.state.global_step)


def _describe_oversampling(trainer: MultiTaskTrainer) -> dict[str, list[dict[str, Any]]]:
    """Describe the rows of each class in a pass over the tasks whose rows are repeated."""
    sampler = trainer.train_sampler
    plans = {} if sampler is None else sampler.oversampling
    return {
        task: [one._asdict() for one in plan.describe_classes()] for task, plan in plans.items()
    }


def _describe_shared_rows(trainer: MultiTaskTrainer) -> list[str]:
    """Say which tasks learn from the rows of another one, a sentence for each of these."""
    dataset = trainer.train_dataset
    groups = dataset.shared if isinstance(dataset, TaskDataset) else {}
    return [f"{owner}: {describe_labels(labels)}" for owner, labels in groups.items()]


def _describe_shares(trainer: MultiTaskTrainer) -> dict[str, Any]:
    """Describe each task's share of an epoch, or of the whole run if epochs differ."""
    sampler = trainer.train_sampler
    if sampler is None:
        return {"shares": {}}
    epochs = trainer.state.epoch or 0.0
    whole, name = None, "an epoch"
    if sampler.is_drawn and epochs >= 1 and math.isclose(epochs, round(epochs)):
        whole = round(epochs)
        name = "the only epoch" if whole == 1 else f"all {whole} epochs"
    elif sampler.is_drawn:
        name = f"epoch {sampler.epoch + 1} if it were whole"
    shares = sampler.shares(whole)
    return {"shares": {task: share._asdict() for task, share in shares.items()}, "shares_of": name}
