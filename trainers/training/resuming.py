"""What a training resumes from: the last undamaged checkpoint of a run."""

import hashlib
import json
import logging
import os
from pathlib import Path

import torch
from transformers.trainer_callback import TrainerState
from transformers.trainer_pt_utils import safe_globals
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trainers.files import read_object, write_text

logger = logging.getLogger(__name__)

CHECKSUMS = "checksums.json"


def last_complete_checkpoint(output_dir: str | os.PathLike[str], world_size: int) -> str | None:
    """Find the newest checkpoint from which a run can be resumed.

    The Trainer writes weights, optimizer, scheduler, random states and finally its own state
    directly to the checkpoint folder, so a killed run may leave an incomplete one. Such folders are
    skipped with a warning that names the problem.

    Args:
        output_dir: Folder of the run.
        world_size: Number of processes of the resumed run; each needs its random state.

    Returns:
        Path of the checkpoint, or None if there is none.
    """
    prefix = f"{PREFIX_CHECKPOINT_DIR}-"
    folders = [
        folder
        for folder in Path(output_dir).glob(f"{prefix}*")
        if folder.is_dir() and folder.name.removeprefix(prefix).isdigit()
    ]
    for folder in sorted(folders, key=lambda path: -int(path.name.removeprefix(prefix))):
        problem = checkpoint_problem(folder, world_size)
        if problem is None:
            return str(folder)
        logger.warning("skipping %s: %s", folder, problem)
    return None


def checkpoint_problem(folder: Path, world_size: int) -> str | None:
    """Describe why a run cannot be resumed from ``folder``, or return None."""
    if (problem := find_missing(folder, world_size)) is not None:
        return problem
    # pickles that cannot be read, without their tensors and, as the Trainer will, code
    for path in sorted((*folder.glob("*.pt"), *folder.glob("*.pth"))):
        try:
            with safe_globals():
                torch.load(path, map_location="meta", weights_only=True)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            return f"{path.name} cannot be loaded ({reason or type(error).__name__})"
    return None


def find_missing(folder: Path, world_size: int) -> str | None:
    """Describe a file of a checkpoint that is missing or has changed, or return None.

    The state of the Trainer is written after all other files, and their checksums at last, which a
    kill may prevent.
    """
    if not folder.is_dir():
        return "there is no such folder"
    ranks = ["rng_state.pth"]
    if world_size > 1:
        ranks = [f"rng_state_{rank}.pth" for rank in range(world_size)]
    names = ["trainer_state.json", "optimizer.pt", "scheduler.pt", *ranks]
    if (folder / "optimizer.bin").is_file() or any(folder.glob("optimizer_*/")):  # of FSDP
        names.remove("optimizer.pt")
    elif any(folder.glob("global_step*/")):  # of DeepSpeed, which may have its own schedule
        names = ["trainer_state.json", *ranks]
    for name in names:
        if not (folder / name).is_file():
            return f"{name} is missing"
    if len(list(folder.glob("rng_state*.pth"))) != world_size:
        return f"it was not written by {world_size} process(es)"
    return _find_damage(folder)


def _find_damage(folder: Path) -> str | None:
    """Describe a damaged state of the Trainer, or a file whose checksum differs."""
    try:
        state = TrainerState.load_from_json(str(folder / "trainer_state.json"))
        if not all(isinstance(step, int) for step in (state.global_step, state.max_steps)):
            return "trainer_state.json cannot be read (its values have other types)"
        sums = read_object(folder / CHECKSUMS) if (folder / CHECKSUMS).is_file() else {}
        damaged = [name for name, digest in sums.items() if _digest(folder / name) != digest]
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except OSError as error:
        return f"{Path(str(error.filename)).name} cannot be read ({error.strerror})"
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        name = CHECKSUMS if CHECKSUMS in str(error) else "trainer_state.json"
        return f"{name} cannot be read ({error})"
    return f"{damaged[0]} is damaged: its checksum differs" if damaged else None


def find_damaged(output_dir: str | os.PathLike[str], world_size: int) -> str | None:
    """Describe a checkpoint that was complete but is damaged, or return None."""
    for checksums in sorted(Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{CHECKSUMS}")):
        if (problem := checkpoint_problem(checksums.parent, world_size)) is not None:
            return f"{checksums.parent}: {problem}"
    return None


def write_checksums(folder: Path) -> None:
    """Record the SHA-256 of every file of a complete checkpoint, to recognize damage."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    sums = {path.relative_to(folder).as_posix(): _digest(path) for path in files}
    write_text(folder / CHECKSUMS, json.dumps(sums, indent=1) + "\n")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
