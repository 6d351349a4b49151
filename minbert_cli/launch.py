"""The processes of a run: what it does before it reads anything."""

import hashlib
import logging
import os
import socket
from collections.abc import Callable
from typing import TypeVar

import datasets
import torch
import transformers
from accelerate.utils import broadcast_object_list, gather_object
from transformers import TrainingArguments

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
