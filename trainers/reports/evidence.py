"""What a report needs of a run beside ``metrics.json``, in one file that outlives the run."""

import json
import math
import platform
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch

from trainers.data.task_dataset import Rows
from trainers.files import write_text
from trainers.metrics.answers import QUESTION_ANSWERING
from trainers.metrics.tagging import Tagged, analyse_tags
from trainers.training.checks import has_labels
from trainers.training.multitask import MultiTaskTrainer

from .analysis import analyse, find_errors
from .answer_analysis import analyse_answers
from .curves import task_curves
from .results import Outputs

EVIDENCE_FILE = "report.json"
# A page with whole books in it would be no page.
MOST_CHARACTERS = 2000


def write_evidence(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    outputs: Mapping[tuple[str, str], Outputs],
    texts: Mapping[str, datasets.Dataset] | None = None,
    examples: int = 20,
) -> None:
    """Write ``report.json`` to the output folder.

    Args:
        trainer: The trainer, for its history.
        encoded: By task and split, the encoded rows.
        outputs: By task and split, what the model said of them.
        texts: The validation rows of tasks with labels, in the order of ``encoded``: ``id``,
            ``sentence1`` and for pairs ``sentence2``.
        examples: Number of the worst errors of a task whose texts are written down.
    """
    history = trainer.state.log_history
    content = {
        "problem_types": trainer.problem_types,
        "curves": {
            task: task_curves(history, task, kind, trainer.metrics.get(task, ()))
            for task, kind in trainer.problem_types.items()
        },
        "evaluated_step": _evaluated_step(trainer),
        "train_seconds": next(
            (entry["train_runtime"] for entry in reversed(history) if "train_runtime" in entry),
            None,
        ),
        **_describe_shares(trainer),
        "splits": {
            task: {split: len(rows) for split, rows in splits.items()}
            for task, splits in encoded.items()
        },
        "environment": describe_environment(trainer.args),
        "analyses": {
            task: _analyse_task(trainer, task, encoded, found, (texts or {}).get(task), examples)
            for (task, split), found in outputs.items()
            if split == "validation" and has_labels(encoded[task][split])
        },
    }
    write_text(Path(str(trainer.args.output_dir)) / EVIDENCE_FILE, json.dumps(content) + "\n")


def describe_environment(args: Any) -> dict[str, str]:
    """Say when and on what a run was made; nothing of who made it.

    Args:
        args: Arguments of the Trainer.
    """
    device = args.device
    name = (
        torch.cuda.get_device_name(device)
        if device.type == "cuda"
        else f"{device.type} ({platform.machine()}, {torch.get_num_threads()} threads)"
    )
    precision = "bfloat16" if args.bf16 else "float16" if args.fp16 else "float32"
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "device": name,
        "processes": str(args.world_size),
        "precision": precision,
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.release()}",
    }


def _evaluated_step(trainer: MultiTaskTrainer) -> int:
    """Find the step whose weights were evaluated."""
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    return int(best or trainer.state.global_step)


def _describe_shares(trainer: MultiTaskTrainer) -> dict[str, Any]:
    """Say how much of an epoch was a task's, or of the run, where every epoch has other shares."""
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
    return {
        "shares": {task: share._asdict() for task, share in shares.items()},
        "shares_of": name,
    }


def _analyse_task(
    trainer: MultiTaskTrainer,
    task: str,
    encoded: Mapping[str, Mapping[str, Rows]],
    found: Outputs,
    texts: datasets.Dataset | None,
    examples: int,
) -> dict[str, Any]:
    kind, rows = trainer.problem_types[task], encoded[task]["validation"]
    if kind == QUESTION_ANSWERING:
        return _analyse_questions(rows, found, texts, examples)
    model = trainer.accelerator.unwrap_model(trainer.model)
    head: Mapping[str, Any] = (model.config.tasks or {}).get(task, {})
    if isinstance(found.logits, Tagged):
        return analyse_tags(found.logits, head["labels"], rows, examples)
    names = head.get("labels") or ()
    values = (kind, found.logits, found.predictions, np.asarray(found.labels))
    analysis = analyse(*values, names=names, score_range=head.get("score_range"))
    ids: Any = rows
    errors = find_errors(*values, examples)
    analysis["errors"] = [
        {
            "id": str(ids[row]["id"]),
            "texts": [] if texts is None else _read_texts(texts[row]),
            "label": _show(kind, values[3][row], names),
            "prediction": _show(kind, values[2][row], names),
            "size": size,
        }
        for row, size in errors
    ]
    return analysis


def _analyse_questions(
    windows: Any, found: Outputs, texts: datasets.Dataset | None, examples: int
) -> dict[str, Any]:
    """Sum up the answers to questions, with the texts of the worst."""
    right = dict(zip(windows["id"][:], windows["answers"][:], strict=True))
    analysis = analyse_answers(found.predictions, right, examples)
    ids = [] if texts is None else texts["id"][:]
    for error in analysis["errors"]:
        error["texts"] = [] if texts is None else _read_texts(texts[ids.index(error["id"])])
    return analysis


def _show(kind: str, value: Any, names: Any) -> str:
    if kind == "similarity":
        return f"{float(value):.2f}"
    return str(names[int(value)]) if int(value) < len(names) else str(int(value))


def _read_texts(row: Mapping[str, Any]) -> list[str]:
    texts = [row[name] for name in ("sentence1", "sentence2") if name in row]
    return [
        text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + " […]" for text in texts
    ]
