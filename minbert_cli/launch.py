"""The processes of a run, and smoke tests: what a run does before it reads anything."""

import hashlib
import logging
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import datasets
import torch
import transformers
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainingArguments

from datasets_scripts import TaskData
from datasets_scripts.checking import keys_with
from trainers import TaskTraining

Made = TypeVar("Made")


def speak_once(args: TrainingArguments) -> None:
    """Silence logs and progress bars of all processes but the first."""
    level = logging.WARNING if args.process_index == 0 else logging.ERROR
    logging.basicConfig(format="%(levelname)s: %(message)s", level=level)
    logging.getLogger("huggingface_hub").propagate = False  # it has a handler of its own
    if args.process_index != 0:
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()


def name_launcher() -> str:
    """Name the process that started this one, and starts it again if it fails, on this machine.

    A hash: the name of the machine is nobody's business where results are published.
    """
    name = f"{socket.gethostname()} {os.getppid()}"
    return hashlib.sha256(name.encode()).hexdigest()[:16]


def was_restarted(args: TrainingArguments) -> bool:
    """Whether ``torchrun --max-restarts`` has started the processes again after a failure.

    Each machine counts its own failures, so all processes are asked.
    """
    own = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return own if args.world_size == 1 else any(gather_object([own]))


def share(args: TrainingArguments, make: Callable[[], Made]) -> Made:
    """Make an object on the first process, and return it on all of them."""
    if args.world_size == 1:
        return make()
    return broadcast_object_list([make() if args.process_index == 0 else None])[0]


def use_all_cores(args: TrainingArguments) -> None:
    """Use all cores if there is no accelerator: ``accelerate launch`` sets OMP_NUM_THREADS to 1."""
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ  # the launcher always sets it
    if args.device.type == "cpu" and launched and os.environ.get("OMP_NUM_THREADS") == "1":
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        allowed = getattr(os, "sched_getaffinity", None)  # Linux only
        cores = len(allowed(0)) if allowed else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // processes))


TRAINING_ROWS = 64  # of each task
HELD_OUT_ROWS = 32  # of each task and held-out set
DOCUMENTS = 64  # of each text
MOST_STEPS = 20
SUFFIX = "-smoke"
# Keys of a task that depend on how many rows each class has: few rows may lack one.
BY_CLASS = (*keys_with(TaskData, "by_class"), *keys_with(TaskTraining, "by_class"))
WEIGHTS = ("class_weights", "pos_weight")  # if they are balanced


def smoke_folder(output_dir: str | os.PathLike[str]) -> str:
    """Return the folder of the smoke test of a run or of experiments; empty if there is none."""
    return f"{os.path.normpath(output_dir)}{SUFFIX}" if str(output_dir) else ""


def shrink(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of a recipe that its smoke test changes, without the folder.

    Every task is trained, and there are two evaluations if there are any.
    """
    tasks = recipe.get("tasks")
    names = tasks if isinstance(tasks, Mapping) else ()
    steps = _least(recipe.get("max_steps"), min(MOST_STEPS, max(4, 2 * len(names))))
    half = max(1, steps // 2)
    changes: dict[str, Any] = {
        "max_steps": steps,
        "logging_steps": 1,
        "eval_steps": half,
        "save_steps": half,
        "eval_delay": 0,
        "push_to_hub": False,
        "report_to": "none",
        "resume_from_checkpoint": None,
    }
    for key in ("eval_strategy", "save_strategy"):
        if recipe.get(key) == "epoch":
            changes[key] = "steps"
    if names:
        changes["tasks"] = {name: _shrink_task(keys) for name, keys in dict(names).items()}
    if "corpus" in recipe:
        changes |= _shrink_text(recipe)
    return changes


def _shrink_task(keys: Any) -> Any:
    if not isinstance(keys, Mapping):
        return keys  # refused later
    if "corpus" in keys:
        return {**keys, **_shrink_text(keys)}
    kept = {
        key: value
        for key, value in keys.items()
        if key not in BY_CLASS and not (key in WEIGHTS and value == "balanced")
    }
    most = dict.fromkeys(("max_eval_samples", "max_test_samples"), HELD_OUT_ROWS)
    most["max_train_samples"] = TRAINING_ROWS
    if kept.get("unlabeled_file") is not None:
        most["max_unlabeled_samples"] = TRAINING_ROWS
    return kept | {key: _least(kept.get(key), limit) for key, limit in most.items()}


def _shrink_text(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed keys of a task that learns from text."""
    changes: dict[str, Any] = {
        "max_eval_samples": _least(keys.get("max_eval_samples"), HELD_OUT_ROWS)
    }
    if isinstance(corpora := keys["corpus"], Mapping):
        changes["corpus"] = {name: _shrink_corpus(corpus) for name, corpus in corpora.items()}
    return changes


def _shrink_corpus(keys: Any) -> Any:
    if not isinstance(keys, Mapping):
        return keys  # refused later
    return {**keys, "max_documents": _least(keys.get("max_documents"), DOCUMENTS)}


def _least(given: Any, limit: int) -> Any:
    """Return the smaller number; none and -1 mean no limit, and what is wrong is kept."""
    if given in (None, -1):
        return limit
    return min(given, limit) if type(given) is int else given


def describe_skipped(folder: str | os.PathLike[str]) -> str:
    """Say what a smoke test that passed has left out."""
    return (
        f"smoke test passed; its files are in {Path(folder)}. Skipped: rows beyond "
        f"{TRAINING_ROWS} for training and {HELD_OUT_ROWS} for each evaluation of a task, "
        f"documents beyond {DOCUMENTS} of a text, most of the steps, uploads and logging services. "
        f"{str(Path(folder)).removesuffix(SUFFIX)} was not touched. The scores mean nothing."
    )
