"""What a training resumes from: the last undamaged checkpoint of a run."""

import hashlib
import json
import logging
import os
import zipfile
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers.trainer_callback import TrainerState
from transformers.trainer_pt_utils import safe_globals
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

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


def find_best_checkpoint(output_dir: str | os.PathLike[str], state: TrainerState) -> str | None:
    """Find the best checkpoint in a folder; the state has the old path if a run was moved."""
    best = Path(output_dir) / f"{PREFIX_CHECKPOINT_DIR}-{state.best_global_step}"
    return str(best) if best.is_dir() else None


def checkpoint_problem(folder: Path, world_size: int) -> str | None:
    """Describe why a run cannot be resumed from ``folder``, or return None."""
    ranks = ["rng_state.pth"]
    if world_size > 1:
        ranks = [f"rng_state_{rank}.pth" for rank in range(world_size)]
    for name in ("trainer_state.json", "optimizer.pt", "scheduler.pt", *ranks):
        if not (folder / name).is_file():
            return f"{name} is missing"
    if len(list(folder.glob("rng_state*.pth"))) != world_size:
        return f"it was not written by {world_size} process(es)"
    try:
        return (
            _cut_problem(folder)
            or _state_problem(folder)
            or _weights_problem(folder)
            or _checksum_problem(folder)
            or _pickle_problem(folder)
        )
    except OSError as error:
        return f"{Path(str(error.filename)).name} cannot be read ({error.strerror})"


def find_damaged(output_dir: str | os.PathLike[str], world_size: int) -> str | None:
    """Describe a checkpoint that was complete but is damaged, or return None."""
    for checksums in sorted(Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*/{CHECKSUMS}")):
        if (problem := checkpoint_problem(checksums.parent, world_size)) is not None:
            return f"{checksums.parent}: {problem}"
    return None


def _list_files(folder: Path, *suffixes: str) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes)


def _cut_problem(folder: Path) -> str | None:
    for path in _list_files(folder, ".pt", ".pth", ".bin"):
        # torch.save writes a zip file, whose directory is at its end
        if not zipfile.is_zipfile(path):
            return f"{path.name} is truncated"
    return None


def _pickle_problem(folder: Path) -> str | None:
    """Read the pickles without their tensors, as the Trainer will; it does not read ``*.bin``."""
    for path in _list_files(folder, ".pt", ".pth"):
        try:
            with safe_globals():
                torch.load(path, map_location="meta", weights_only=True)
        except Exception as error:
            reason = str(error).strip().partition("\n")[0]
            return f"{path.name} cannot be loaded ({reason or type(error).__name__})"
    return None


def _state_problem(folder: Path) -> str | None:
    try:
        state = TrainerState.load_from_json(str(folder / "trainer_state.json"))
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        return f"trainer_state.json cannot be read ({error})"
    has_counts = isinstance(state.global_step, int) and isinstance(state.max_steps, int)
    if not has_counts or not isinstance(state.log_history, list):
        return "trainer_state.json cannot be read (its values have other types)"
    return None


def write_checksums(folder: Path) -> None:
    """Record the SHA-256 of every file of a complete checkpoint, to recognize damage."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    sums = {path.relative_to(folder).as_posix(): _digest(path) for path in files}
    write_text(folder / CHECKSUMS, json.dumps(sums, indent=1) + "\n")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _checksum_problem(folder: Path) -> str | None:
    """Compare the files with their checksums, which are written last; a kill may prevent them."""
    if not (folder / CHECKSUMS).is_file():
        return None
    try:
        sums = read_object(folder / CHECKSUMS)
        names = [name for name, digest in sums.items() if _digest(folder / name) != digest]
    except FileNotFoundError as error:
        return f"{Path(error.filename).name} is missing"
    except ValueError:
        return f"{CHECKSUMS} cannot be read"
    return f"{names[0]} is damaged: its checksum differs" if names else None


def _weights_problem(folder: Path) -> str | None:
    names = [SAFE_WEIGHTS_NAME]
    index = folder / SAFE_WEIGHTS_INDEX_NAME
    if index.is_file():
        try:
            names = sorted(set(read_object(index)["weight_map"].values()))
        except (AttributeError, KeyError, TypeError, ValueError):
            return f"{index.name} cannot be read"
    for name in names:
        if not (folder / name).is_file():
            return f"{name} is missing"
        try:
            # checks that the size of the file matches its header
            with safe_open(folder / name, framework="pt"):
                pass
        except SafetensorError:
            return f"{name} is truncated"
    return None
