"""The life of a run: its folder, its settings, and errors that a user can act on."""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError

from .checkpoints import checkpoint_problem, last_complete_checkpoint
from .files import write_text

RUN_FILE = "run.json"
# Settings that do not change what a run computes.
FREE_SETTINGS = {
    "resume_from_checkpoint",
    "overwrite_output_dir",
    "output_dir",
    "logging_steps",
    "logging_first_step",
    "disable_tqdm",
    "report_to",
    "run_name",
    "log_level",
    "log_level_replica",
    "push_to_hub",
    "hub_model_id",
    "hub_strategy",
    "hub_token",
    "hub_private_repo",
    "save_total_limit",
    "local_rank",
}


@contextmanager
def readable_errors(program: str) -> Iterator[None]:
    """Turn errors about what a user gave into one line on stderr and exit status 2.

    To be wrapped around what reads and checks a user's input, not around training: an error there
    is a bug, and its traceback is wanted.

    Args:
        program: Name that begins the line.
    """
    try:
        yield
    except (ValueError, OSError, StrictDataclassError, SafetensorError) as error:
        cause = error.__cause__ if isinstance(error, StrictDataclassError) else None
        rank = os.environ.get("RANK", "0")
        where = program if rank == "0" else f"{program} (rank {rank})"
        print(f"{where}: error: {cause or error}", file=sys.stderr)  # noqa: T201  the message
        raise SystemExit(2) from None


def find_checkpoint(
    output_dir: str | os.PathLike[str],
    resume_from_checkpoint: str | None,
    world_size: int,
) -> str | None:
    """Find the checkpoint that ``--resume_from_checkpoint`` means.

    Args:
        output_dir: Folder of the run.
        resume_from_checkpoint: None or "false" for none, "true" for the last whole checkpoint of
            the run (none, if the run was stopped before its first), else a folder.
        world_size: Number of processes of this run.

    Raises:
        FileNotFoundError: If the folder that was named is not there.
        ValueError: If it does not hold a whole checkpoint of `world_size` processes.
    """
    asked = (resume_from_checkpoint or "false").lower()
    if asked == "false":
        return None
    if asked == "true":
        return last_complete_checkpoint(output_dir, world_size)
    folder = Path(str(resume_from_checkpoint))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"resume_from_checkpoint={str(folder)!r} is no folder; give a checkpoint, or 'true' "
            f"for the last one in {str(output_dir)!r}"
        )
    if (problem := checkpoint_problem(folder, world_size)) is not None:
        raise ValueError(f"resume_from_checkpoint={str(folder)!r} cannot be used: {problem}")
    return str(folder)


def check_output_dir(
    output_dir: str | os.PathLike[str],
    settings: Mapping[str, Any],
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Refuse a folder where a run would destroy another one.

    A new or empty folder is free, and so is one that a finished run with equal settings left: the
    new one will be equal to it.

    Args:
        output_dir: Folder of the run.
        settings: What the run is made from, as JSON can hold it.
        resume: Whether the run in the folder is to go on.
        overwrite: Whether what is there may be overwritten.

    Raises:
        ValueError: If the folder holds another run, an unfinished one, or files of no run at all.
    """
    folder = Path(output_dir)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"output_dir={str(folder)!r} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not overwrite:
        _check_same_run(folder, settings, resume=resume)


def start_run(
    output_dir: str | os.PathLike[str], settings: Mapping[str, Any], *, resume: bool
) -> None:
    """Take the folder: note the settings, and without `resume` drop the checkpoints of before."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    _write_run(folder, settings, finished=False)
    if not resume:
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint)


def finish_run(output_dir: str | os.PathLike[str]) -> None:
    """Note in ``run.json`` that everything is written."""
    run = _read_run(Path(output_dir)) or {}
    _write_run(Path(output_dir), run.get("settings", {}), finished=True)


def _check_same_run(folder: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
    way_out = "choose another --output_dir, or add --overwrite_output_dir"
    run = _read_run(folder)
    if run is None:
        raise ValueError(f"output_dir={str(folder)!r} holds files that are no run: {way_out}")
    before, now = _fixed(run["settings"]), _fixed(settings)
    changed = sorted(key for key in before | now if before.get(key) != now.get(key))
    if changed:
        verb = "resumes with" if resume else "holds a run with"
        raise ValueError(
            f"output_dir={str(folder)!r} {verb} another {', '.join(changed)}: {way_out}"
        )
    if not run["finished"] and not resume:
        raise ValueError(
            f"output_dir={str(folder)!r} holds this run, unfinished: add --resume_from_checkpoint "
            f"true to go on, {way_out}"
        )


def _fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in FREE_SETTINGS}


def _read_run(folder: Path) -> dict[str, Any] | None:
    try:
        run = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return run if isinstance(run, dict) and {"settings", "finished"} <= run.keys() else None


def _write_run(folder: Path, settings: Mapping[str, Any], *, finished: bool) -> None:
    content = {"finished": finished, "settings": settings}
    write_text(folder / RUN_FILE, json.dumps(content, indent=2, sort_keys=True) + "\n")
