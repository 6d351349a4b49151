"""The folder of a run: which one may be used, and what ``run.json`` records."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from filelock import FileLock, Timeout
from transformers import TrainingArguments

from trainers.errors import named_errors
from trainers.files import read_object, remove_leftovers, write_text
from trainers.training.resuming import (
    checkpoint_problem,
    find_damaged,
    last_complete_checkpoint,
)

from .run_facts import digest_code

RUN_FILE = "run.json"
# The Trainer does not push files whose name begins with an underscore.
LOCK_FILE = "_run.lock"
# Results of a run beside its weights; the last folder is that of a chained fine-tuning.
OLD_FOLDERS = ("checkpoint-*", "predictions", "label_issues", "glue", "finetuned")
OLD_FILES = ("README.md", "metrics.json", "history.png", "report.json", "report.html")
# Settings that do not affect the results of a run.
FREE_SETTINGS = {
    "resume_from_checkpoint",
    "overwrite_output_dir",
    "output_dir",
    "logging_steps",
    "logging_first_step",
    "disable_tqdm",
    "verbose",
    "report_to",
    "run_name",
    "log_level",
    "log_level_replica",
    "push_to_hub",
    "hub_model_id",
    "hub_strategy",
    "hub_token",
    "hub_always_push",
    "hub_revision",
    "hub_private_repo",
    "save_total_limit",
    "local_rank",
    "preprocessing_num_workers",
    "finetune",
    "evaluate_train",
    "report_examples",
    "card",
}


def asks_to_resume(resume_from_checkpoint: str | None) -> bool:
    """Whether ``--resume_from_checkpoint`` is neither unset nor false."""
    return (resume_from_checkpoint or "false").lower() != "false"


def find_checkpoint(
    output_dir: str | os.PathLike[str],
    resume_from_checkpoint: str | None,
    world_size: int,
) -> str | None:
    """Resolve ``--resume_from_checkpoint``: None, "false", a folder, or "true".

    "true" means the last complete checkpoint, or none if the run was stopped before the first. If
    there were some, but all are damaged, that is a ValueError.
    """
    if not asks_to_resume(resume_from_checkpoint):
        return None
    if str(resume_from_checkpoint).lower() == "true":
        last = last_complete_checkpoint(output_dir, world_size)
        if last is None and (damaged := find_damaged(output_dir, world_size)):
            raise ValueError(
                f"no checkpoint of output_dir={str(output_dir)!r} can be used: {damaged}; restore "
                "it, or delete it to start from the beginning"
            )
        return last
    folder = Path(str(resume_from_checkpoint))
    if not folder.is_dir():
        raise FileNotFoundError(
            f"resume_from_checkpoint={str(folder)!r} is not a folder; give a checkpoint, or 'true' "
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
    """Check that a run would not destroy another one.

    An empty folder is free, and so is that of a finished run with equal settings.
    """
    folder = Path(output_dir)
    if not str(output_dir):
        raise ValueError("output_dir is empty; name a folder, as in runs/mine")
    with named_errors(
        f"output_dir={str(output_dir)!r}", "name another folder", (OSError, ValueError)
    ):
        _check_writable(folder)
    if not is_free(folder) and not overwrite:
        _check_same_run(folder, settings, resume=resume)


def _check_writable(folder: Path) -> None:
    """Check that a folder can be written, or be made in the first of its parents that exists."""
    with suppress(FileNotFoundError, NotADirectoryError):
        folder.lstat()  # fails for a name that no folder can have
    existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"{str(existing)!r} is a file")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise ValueError(f"{str(existing)!r} cannot be written")


def is_free(folder: Path) -> bool:
    """Whether a folder is empty but for files of a run that was killed at its start."""
    # write_text writes to a hidden file first
    hidden = f".{Path(RUN_FILE).stem}-"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return all(name == LOCK_FILE or name.startswith(hidden) for name in names)


def check_data(
    output_dir: str | os.PathLike[str],
    fingerprints: Mapping[str, str],
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Check that the data of the run in the folder have not changed; hashes by task."""
    run = None if overwrite else _read_run(Path(output_dir))
    before = {} if run is None else run.get("data", {})
    if changed := sorted(name for name in before if before[name] != fingerprints.get(name)):
        verb = "resumes with" if resume else "holds a run with"
        raise ValueError(
            f"output_dir={str(output_dir)!r} {verb} other data of {', '.join(changed)}: their "
            "files have changed since; restore them, choose another --output_dir, or add "
            "--overwrite_output_dir"
        )


def is_finished(output_dir: str | os.PathLike[str]) -> bool:
    """Whether the folder has a finished run."""
    return (_read_run(Path(output_dir)) or {}).get("finished") is True


def check_shared(output_dir: str | os.PathLike[str], args: TrainingArguments) -> None:
    """Check that all processes see the folder that the first one has started a run in."""
    if args.world_size == 1:
        return
    torch.distributed.barrier()
    if not all(gather_object([(Path(output_dir) / RUN_FILE).is_file()])):
        raise ValueError(
            f"output_dir={str(output_dir)!r} is not the same folder on all machines, from which "
            "load_best_model_at_end loads; name one on a shared disk, or leave that out"
        )


def is_started_by(output_dir: str | os.PathLike[str], launcher: str) -> bool:
    """Whether the folder has a run that this launcher has started before, finished or not."""
    run = _read_run(Path(output_dir))
    return run is not None and run.get("launcher") == launcher


def read_settings(output_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the settings of a run."""
    run = _read_run(Path(output_dir))
    if run is None:
        raise ValueError(f"{str(output_dir)!r} is not a run; expected a folder with a {RUN_FILE}")
    return run["settings"]


def is_smoke_test(output_dir: str | os.PathLike[str]) -> bool:
    """Return whether a folder has a smoke test, which the next one may replace."""
    run = _read_run(Path(output_dir))
    return run is not None and run["settings"].get("smoke_test") is True


def read_fingerprints(output_dir: str | os.PathLike[str]) -> dict[str, str]:
    """Read the hashes of the data of a run; empty if there is no run."""
    return (_read_run(Path(output_dir)) or {}).get("data", {})


def read_code(output_dir: str | os.PathLike[str]) -> tuple[float, str | None]:
    """Read when a run was written (0 if there is none) and the hash of its code, if recorded."""
    folder = Path(output_dir)
    run = _read_run(folder)
    return (0.0, None) if run is None else ((folder / RUN_FILE).stat().st_mtime, run.get("code"))


def _name_code(before: Mapping[str, Any] | None) -> str:
    """Return the hash of this code, after those of earlier parts of a resumed run."""
    code = digest_code()
    if before is None:
        return code
    earlier = before.get("code") or "not noted"
    return earlier if code in earlier.split(", ") else f"{earlier}, {code}"


@contextmanager
def sole_writer(output_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Lock the folder against other runs until the process ends, in whatever way."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        held = lock.acquire()
    except Timeout:
        raise ValueError(
            f"output_dir={str(folder)!r} is being written by another process: wait for it or end "
            "it (a killed launcher can leave its workers running), or choose another --output_dir"
        ) from None
    with held:
        remove_leftovers(folder)
        yield


def start_run(
    output_dir: str | os.PathLike[str],
    settings: Mapping[str, Any],
    fingerprints: Mapping[str, str] | None = None,
    commits: Mapping[str, str] | None = None,
    launcher: str | None = None,
    *,
    resume: bool,
) -> None:
    """Record what a run is made from, and delete the results of an earlier run unless resuming.

    Args:
        output_dir: Folder of the run.
        settings: Its settings.
        fingerprints: Hashes of its data, by task.
        commits: Commits of its model and its data on the Hub.
        launcher: The process that started it; see ``is_started_by``.
        resume: Whether it continues an earlier one.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    code = _name_code(_read_run(folder) if resume else None)
    data, commits = fingerprints or {}, commits or {}
    content = {"settings": settings, "data": data, "code": code, "commits": commits}
    if not resume:
        _delete_results(folder)
    _write_run(folder, content | ({"launcher": launcher} if launcher else {}), finished=False)


def _delete_results(folder: Path) -> None:
    # first, so that a partly deleted run is never resumed
    (folder / RUN_FILE).unlink(missing_ok=True)
    for old in (path for name in OLD_FOLDERS for path in folder.glob(name)):
        if old.is_dir():
            shutil.rmtree(old)
    for name in OLD_FILES:
        (folder / name).unlink(missing_ok=True)


def finish_run(output_dir: str | os.PathLike[str]) -> None:
    """Record that all results are written."""
    run = _read_run(Path(output_dir)) or {"settings": {}}
    _write_run(Path(output_dir), run, finished=True)


def _check_same_run(folder: Path, settings: Mapping[str, Any], *, resume: bool) -> None:
    advice = "choose another --output_dir, or add --overwrite_output_dir"
    run = _read_run(folder)
    if run is None:
        raise ValueError(f"output_dir={str(folder)!r} has files that are not of a run: {advice}")
    before, now = _fixed(run["settings"]), _fixed(settings)
    changed = sorted(key for key in before | now if before.get(key) != now.get(key))
    if changed:
        verb = "resumes with" if resume else "holds a run with"
        raise ValueError(
            f"output_dir={str(folder)!r} {verb} another {', '.join(changed)}: {advice}"
        )
    if not run["finished"] and not resume:
        raise ValueError(
            f"output_dir={str(folder)!r} has this run, unfinished: add --resume_from_checkpoint "
            f"true to continue, {advice}"
        )


def _fixed(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in FREE_SETTINGS}


def _read_run(folder: Path) -> dict[str, Any] | None:
    try:
        run = read_object(folder / RUN_FILE)
    except (FileNotFoundError, ValueError):
        return None
    is_whole = isinstance(run.get("settings"), dict) and isinstance(run.get("finished"), bool)
    return run if is_whole else None


def _write_run(folder: Path, run: Mapping[str, Any], *, finished: bool) -> None:
    content = {**run, "finished": finished}
    write_text(folder / RUN_FILE, json.dumps(content, indent=2, sort_keys=True) + "\n")
