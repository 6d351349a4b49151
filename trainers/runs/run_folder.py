"""The life of a run: its settings, its folder, and who of its processes speaks."""

import hashlib
import json
import logging
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import torch
import transformers
from filelock import FileLock, Timeout
from transformers import TrainingArguments

from trainers.files import write_text
from trainers.training.checkpoints import checkpoint_problem, last_complete_checkpoint

RUN_FILE = "run.json"
# The code that computes a run.
PACKAGES = ("datasets_scripts", "minbert_cli", "modeling_minbert", "trainers")
# The Trainer does not push what begins with an underscore.
LOCK_FILE = "_run.lock"
# What a run leaves in its folder, beside its weights; the last is that of a chain.
OLD_FOLDERS = ("checkpoint-*", "predictions", "glue", "finetuned")
OLD_FILES = ("README.md", "metrics.json", "history.png", "report.json", "report.html")
# What a checkpoint is made of, but for files that say where they were loaded from.
WEIGHTS = ("*.safetensors", "pytorch_model*.bin", "config.json", "tokenizer.json", "vocab.txt")
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


def speak_once(args: TrainingArguments) -> None:
    """Silence logs and progress bars of all processes but the first one."""
    level = logging.WARNING if args.process_index == 0 else logging.ERROR
    logging.basicConfig(format="%(levelname)s: %(message)s", level=level)
    logging.getLogger("huggingface_hub").propagate = False  # it prints by itself
    if args.process_index != 0:
        datasets.disable_progress_bars()
        transformers.utils.logging.disable_progress_bar()
        transformers.utils.logging.set_verbosity_error()


def use_all_cores(args: TrainingArguments) -> None:
    """Compute on all cores where there is no accelerator.

    ``accelerate launch`` sets OMP_NUM_THREADS to 1 unless it is told otherwise, and one process
    then leaves the other cores idle. Its ``--num_cpu_threads_per_process`` above 1 stays as it is.
    """
    launched = "ACCELERATE_MIXED_PRECISION" in os.environ  # the launcher always sets it
    if args.device.type == "cpu" and launched and os.environ.get("OMP_NUM_THREADS") == "1":
        processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        allowed = getattr(os, "sched_getaffinity", None)  # Linux only
        cores = len(allowed(0)) if allowed else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // processes))


def describe_settings(args: TrainingArguments, own: Mapping[str, Any]) -> dict[str, Any]:
    """Collect what a run is made from, as JSON can hold it.

    Args:
        args: Arguments of the Trainer.
        own: All other arguments.
    """
    content = {**args.to_dict(), **own, "processes": args.world_size}
    # mappings are compared without their order, but the order of tasks and of texts counts
    tasks = own.get("tasks") or {}
    content["task_order"] = list(tasks)
    corpora = {name: keys.get("corpus") for name, keys in tasks.items() if isinstance(keys, dict)}
    corpora[""] = own.get("corpus")
    content["corpus_order"] = {name: list(found) for name, found in corpora.items() if found}
    settings: dict[str, Any] = json.loads(json.dumps(content, default=str))
    return settings


def describe_command(module: str, argv: Sequence[str]) -> str:
    """Return the command that repeats a run of a program's module, without the Hub's token."""
    shown = [re.sub(r"^(--hub[_-]token=).*", r"\1<HUB_TOKEN>", word) for word in argv]
    for index, word in enumerate(argv[:-1]):
        if word in ("--hub_token", "--hub-token"):
            shown[index + 1] = "<HUB_TOKEN>"
    return shlex.join(["accelerate", "launch", "-m", module, *shown])


def describe_recipe(path: str | os.PathLike[str]) -> str:
    """Read a recipe as others may see it: without the token of the Hub."""
    text = Path(path).read_text(encoding="utf-8")
    return re.sub(r"(?m)^(\s*hub_token\s*:).*", r"\1 <HUB_TOKEN>", text)


def asks_to_resume(resume_from_checkpoint: str | None) -> bool:
    """Say whether ``--resume_from_checkpoint`` asks for anything."""
    return (resume_from_checkpoint or "false").lower() != "false"


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
    if not asks_to_resume(resume_from_checkpoint):
        return None
    if str(resume_from_checkpoint).lower() == "true":
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
    if not is_free(folder) and not overwrite:
        _check_same_run(folder, settings, resume=resume)


def is_free(folder: Path) -> bool:
    """Say whether nothing is in a folder, or what a run leaves that was killed at its start."""
    # write_text begins with a hidden file
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
    """Refuse a folder whose run has the same settings, but read something else in the same place.

    Args:
        output_dir: Folder of the run.
        fingerprints: What tells the data of each task from any other.
        resume: Whether the run in the folder is to go on.
        overwrite: Whether what is there may be overwritten.

    Raises:
        ValueError: If the data of a task are not those of the run in the folder.
    """
    run = None if overwrite else _read_run(Path(output_dir))
    before = {} if run is None else run.get("data", {})  # not noted by older versions
    if changed := sorted(name for name in before if before[name] != fingerprints.get(name)):
        verb = "resumes with" if resume else "holds a run with"
        raise ValueError(
            f"output_dir={str(output_dir)!r} {verb} other data of {', '.join(changed)}, which "
            "changed where they are read: put back what was there, choose another --output_dir, "
            "or add --overwrite_output_dir"
        )


def is_finished(output_dir: str | os.PathLike[str]) -> bool:
    """Say whether a run in the folder has written everything."""
    run = _read_run(Path(output_dir))
    return run is not None and run["finished"] is True


def read_settings(output_dir: str | os.PathLike[str]) -> dict[str, Any]:
    """Read what a run was made from.

    Raises:
        ValueError: If there is no run in the folder.
    """
    run = _read_run(Path(output_dir))
    if run is None:
        raise ValueError(f"{str(output_dir)!r} is no run; expected a folder with a {RUN_FILE}")
    settings: dict[str, Any] = run["settings"]
    return settings


def read_fingerprints(output_dir: str | os.PathLike[str]) -> dict[str, str]:
    """Read what tells the data of each task of a run from any other; nothing if not noted."""
    found: dict[str, str] = (_read_run(Path(output_dir)) or {}).get("data", {})
    return found


def read_code(output_dir: str | os.PathLike[str]) -> tuple[float, str | None]:
    """Read when a run was written and by which code, None if that was not noted or is no run."""
    folder = Path(output_dir)
    run = _read_run(folder)
    return (0.0, None) if run is None else ((folder / RUN_FILE).stat().st_mtime, run.get("code"))


def digest_code() -> str:
    """Tell this code from any other: a hash of its sources."""
    root = Path(__file__).resolve().parents[2]
    paths = [path for name in PACKAGES for path in (root / name).rglob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def fingerprint_start(model_name_or_path: str | None) -> dict[str, str]:
    """Tell a local checkpoint to begin with from any other, by its files.

    Args:
        model_name_or_path: A folder, a name on the Hub, or None.

    Returns:
        Its hash under ``model_name_or_path``; nothing if it is no local checkpoint.
    """
    folder = Path(model_name_or_path or "")
    if not model_name_or_path or not folder.is_dir():
        return {}
    digest = hashlib.sha256()
    for path in sorted(path for name in WEIGHTS for path in folder.glob(name)):
        with path.open("rb") as file:
            digest.update(f"{path.name}\0".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return {"model_name_or_path": digest.hexdigest()[:16]}


def _name_code(before: Mapping[str, Any] | None) -> str:
    """Name this code, and before it all others that a run which is resumed was made by."""
    code = digest_code()
    if before is None:
        return code
    noted = before.get("code") or "not noted"
    return noted if code in noted.split(", ") else f"{noted}, {code}"


@contextmanager
def sole_writer(output_dir: str | os.PathLike[str]) -> Iterator[None]:
    """Keep other runs out of the folder; the lock goes with the process, however that ends.

    Raises:
        ValueError: If another process writes there, such as a worker that outlived its launcher.
    """
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
        yield


def start_run(
    output_dir: str | os.PathLike[str],
    settings: Mapping[str, Any],
    fingerprints: Mapping[str, str] | None = None,
    *,
    resume: bool,
) -> None:
    """Note settings, data and code, and without `resume` drop the checkpoints of before.

    What was found before is dropped, too: it would pass for that of this run.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    run = _read_run(folder) if resume else None
    content = {"settings": settings, "data": fingerprints or {}, "code": _name_code(run)}
    if not resume:
        # until all is gone, what is left is of no run: nobody goes on from another one's checkpoint
        (folder / RUN_FILE).unlink(missing_ok=True)
        for old in (path for name in OLD_FOLDERS for path in folder.glob(name)):
            if old.is_dir():
                shutil.rmtree(old)
        for name in OLD_FILES:
            (folder / name).unlink(missing_ok=True)
    _write_run(folder, content, finished=False)


def finish_run(output_dir: str | os.PathLike[str]) -> None:
    """Note in ``run.json`` that everything is written."""
    _write_run(Path(output_dir), _read_run(Path(output_dir)) or {"settings": {}}, finished=True)


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


def _write_run(folder: Path, run: Mapping[str, Any], *, finished: bool) -> None:
    content = {**run, "finished": finished}
    write_text(folder / RUN_FILE, json.dumps(content, indent=2, sort_keys=True) + "\n")
