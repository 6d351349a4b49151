"""The folder of a run: which one may be used, and what ``run.json`` records."""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import torch
from accelerate.utils import gather_object
from filelock import FileLock, Timeout
from transformers import TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from datasets_scripts.checking import keys_with
from trainers.files import named_errors, read_object, remove_leftovers, write_text
from trainers.training.resuming import checkpoint_problem, find_damaged, last_complete_checkpoint

from .arguments import FinetuneArguments

logger = logging.getLogger(__name__)

AnyPath: TypeAlias = str | os.PathLike[str]

# Files of a checkpoint that its tokens and its vectors depend on.
TOKENS = (
    *("config.json", "tokenizer*.json", "*_tokens*.json", "vocab.txt", "vocab.json", "merges.txt"),
    "*.model",
)
WEIGHTS = (
    *(*TOKENS, "*.safetensors", "pytorch_model*.bin"),
    # of sentence-transformers, with a folder for each module
    *("modules.json", "*sentence*.json", "[0-9]_*/*"),
)


def describe_settings(args: TrainingArguments, own: Mapping[str, Any]) -> dict[str, Any]:
    """Collect the arguments of the Trainer and all others as JSON values."""
    undecided = dict.fromkeys(getattr(args, "undecided", ()))  # null until the run decides
    content = {**args.to_dict(), **undecided, **own}
    # of one process with several GPUs, each of which takes a part of the batch, their number
    content["processes"] = args.world_size * max(1, args.n_gpu)
    # mappings are compared regardless of order, but the order of tasks and texts matters
    tasks = own.get("tasks") or {}
    content["task_order"] = list(tasks)
    corpora = {name: keys.get("corpus") for name, keys in tasks.items() if isinstance(keys, dict)}
    corpora[""] = own.get("corpus")
    content["corpus_order"] = {
        name: list(corpus) for name, corpus in corpora.items() if isinstance(corpus, dict)
    }
    return json.loads(json.dumps(content, default=str))


def fingerprint_start(settings: Mapping[str, Any]) -> dict[str, str]:
    """Hash the checkpoints that a run starts from, those that are local folders, by their keys."""
    hashes = {}
    for key, names in (("model_name_or_path", WEIGHTS), ("tokenizer_name_or_path", TOKENS)):
        path = settings.get(key)
        if path and Path(path).is_dir():
            hashes[key] = hash_checkpoint(Path(path), names)
    return hashes


def hash_checkpoint(folder: Path, names: Sequence[str] = WEIGHTS) -> str:
    """Hash the files of a checkpoint that its tokens and its vectors depend on."""
    digest = hashlib.sha256()
    for path in sorted(path for name in names for path in folder.glob(name) if path.is_file()):
        with path.open("rb") as file:
            digest.update(f"{path.relative_to(folder).as_posix()}\0".encode())
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


RUN_FILE = "run.json"
LOCK_FILE = "_run.lock"  # the Trainer does not push files whose name begins with an underscore
BEGIN_AGAIN = "choose another --output_dir, or delete this one if you do not need it"
# Settings that do not affect the results of a run: the options that say so, and of transformers.
FREE_SETTINGS = {
    *keys_with(FinetuneArguments, "free"),
    *("resume_from_checkpoint", "output_dir", "run_name", "save_total_limit", "local_rank"),
    *("logging_steps", "logging_first_step", "log_level", "log_level_replica", "report_to"),
    *("disable_tqdm", "push_to_hub", "hub_model_id", "hub_strategy", "hub_token"),
    *("hub_always_push", "hub_revision", "hub_private_repo"),
}


@dataclass(frozen=True)
class RunRecord:
    """What ``run.json`` says of a run: its settings, and from what it is made."""

    settings: dict[str, Any]
    finished: bool
    data: dict[str, str] = field(default_factory=dict)  # hashes by task
    commits: dict[str, str] = field(default_factory=dict)  # of its model and its data


def asks_to_resume(resume_from_checkpoint: str | None) -> bool:
    """Whether ``--resume_from_checkpoint`` is neither unset nor false."""
    return (resume_from_checkpoint or "false").lower() != "false"


def find_checkpoint(
    output_dir: AnyPath, resume_from_checkpoint: str | None, world_size: int
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


def check_output_dir(output_dir: AnyPath, settings: Mapping[str, Any], *, resume: bool) -> None:
    """Check that a run would destroy neither another one nor checkpoints that no run wrote."""
    check_same_run(output_dir, settings, resume=resume)
    # save_total_limit deletes old ones, whatever follows the hyphen
    found = [path.name for path in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*/")]
    if foreign := sorted(name for name in found if not is_checkpoint(name)):
        raise ValueError(
            f"output_dir={str(output_dir)!r} has {', '.join(foreign)}, which no run wrote and "
            "this one could delete: choose another --output_dir, or move them"
        )


def check_same_run(
    output_dir: AnyPath, settings: Mapping[str, Any], *, resume: bool = True
) -> None:
    """Check that a folder is free, or has this run, which is to ``resume``."""
    if not str(output_dir):
        raise ValueError("output_dir is empty; name a folder, as in runs/mine")
    folder, kinds = Path(output_dir), (OSError, ValueError)
    with named_errors(f"output_dir={str(output_dir)!r}", "name another folder", kinds):
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()  # fails for a name that no folder can have
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not existing.is_dir():
            raise ValueError(f"{str(existing)!r} is a file")
        if not os.access(existing, os.W_OK | os.X_OK):
            raise ValueError(f"{str(existing)!r} cannot be written")
    if is_free(folder):
        return
    run, where = read_run(folder), f"output_dir={str(folder)!r}"
    if run is None:
        raise ValueError(f"{where} has files that are not of a run: choose another --output_dir")
    if changed := find_changed(run, settings):
        verb, advice = "resumes with" if resume else "holds a run with", BEGIN_AGAIN
        if run.finished and {"num_train_epochs", "max_steps"} & {*changed}:
            advice = (
                "to train its model further, choose another --output_dir and add "
                f"--model_name_or_path {folder}; the epochs are then those that are added. To "
                f"begin again, {BEGIN_AGAIN}"
            )
        raise ValueError(f"{where} {verb} another {', '.join(changed)}: {advice}")
    if not resume:
        state = "finished: it is left as it is. To train it again"
        if not run.finished:
            state = "unfinished: add --resume_from_checkpoint true to continue"
        raise ValueError(f"{where} has this run, {state}, {BEGIN_AGAIN}")


def find_changed(run: RunRecord, settings: Mapping[str, Any]) -> list[str]:
    """List the settings that affect results and are not those of a run."""
    keys = (run.settings.keys() | settings.keys()) - FREE_SETTINGS
    return sorted(key for key in keys if run.settings.get(key) != settings.get(key))


def check_checkpoint(
    checkpoint: str, settings: Mapping[str, Any], fingerprints: Mapping[str, str] | None = None
) -> RunRecord | None:
    """Check that a checkpoint is of a run with these settings or, if they are given, data.

    Returns:
        The record of this run, if there is one.
    """
    run = read_run(Path(checkpoint).absolute().parent)
    if run is None:
        if fingerprints is None:
            logger.warning(
                "resume_from_checkpoint=%r has no %s beside it, so that neither the settings nor "
                "the data of its run can be compared with those of this one",
                *(checkpoint, RUN_FILE),
            )
        return None
    changed, kind = find_changed(run, settings), "another"
    if fingerprints is not None:
        changed, kind = find_changed_data(run, fingerprints), "other data of"
    if changed:
        raise ValueError(
            f"resume_from_checkpoint={checkpoint!r} is of a run with {kind} {', '.join(changed)}: "
            "restore what it had, or leave --resume_from_checkpoint out to begin from the start"
        )
    return run


def find_changed_data(run: RunRecord | None, fingerprints: Mapping[str, str]) -> list[str]:
    """List the data that are not those of a run, if there is one."""
    before = {} if run is None else run.data
    return sorted(name for name in before if before[name] != fingerprints.get(name))


def is_free(folder: Path) -> bool:
    """Whether a folder is empty but for files of a run that was killed at its start."""
    hidden = f".{Path(RUN_FILE).stem}-"  # write_text writes to a hidden file first
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return all(name == LOCK_FILE or name.startswith(hidden) for name in names)


def check_data(output_dir: AnyPath, fingerprints: Mapping[str, str]) -> None:
    """Check that the data of the run in the folder have not changed; hashes by task."""
    if changed := find_changed_data(read_run(output_dir), fingerprints):
        raise ValueError(
            f"output_dir={str(output_dir)!r} resumes with other data of {', '.join(changed)}: "
            f"their files have changed or gone since; restore them, {BEGIN_AGAIN}"
        )


def is_finished(output_dir: AnyPath) -> bool:
    """Whether the folder has a finished run, with results that can be read."""
    try:
        read_object(Path(output_dir, "metrics.json"))
    except (FileNotFoundError, ValueError):
        return False
    run = read_run(output_dir)
    return run is not None and run.finished


def read_settings(output_dir: AnyPath) -> dict[str, Any]:
    """Read the settings of a run."""
    run = read_run(output_dir)
    if run is None:
        raise ValueError(f"{str(output_dir)!r} is not a run; expected a folder with a {RUN_FILE}")
    return run.settings


def check_shared(output_dir: AnyPath, args: TrainingArguments) -> None:
    """Check that all processes see the folder that the first one has started a run in."""
    if args.world_size == 1:
        return
    torch.distributed.barrier()
    if not all(gather_object([(Path(output_dir) / RUN_FILE).is_file()])):
        raise ValueError(
            f"output_dir={str(output_dir)!r} is not the same folder on all machines, from which "
            "load_best_model_at_end loads; name one on a shared disk, or leave that out"
        )


@contextmanager
def sole_writer(output_dir: AnyPath) -> Iterator[None]:
    """Lock the folder against other runs until the process ends, in whatever way."""
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        held = FileLock(folder / LOCK_FILE, timeout=0).acquire()
    except Timeout:
        raise ValueError(
            f"output_dir={str(folder)!r} is being written by another process: wait for it or end "
            "it (a killed launcher can leave its workers running), or choose another --output_dir"
        ) from None
    with held:
        remove_leftovers(folder)
        yield


def start_run(
    output_dir: AnyPath,
    settings: dict[str, Any],
    data: Mapping[str, str] | None = None,
    commits: Mapping[str, str] | None = None,
) -> None:
    """Record what a run is made from, as `RunRecord` has it."""
    data, commits = dict(data or {}), dict(commits or {})
    _write_run(Path(output_dir), RunRecord(settings, finished=False, data=data, commits=commits))


def finish_run(output_dir: AnyPath) -> None:
    """Record that all results are written."""
    if (run := read_run(output_dir)) is not None:
        _write_run(Path(output_dir), replace(run, finished=True))


def delete_checkpoints(output_dir: AnyPath) -> None:
    """Delete the checkpoints of a run."""
    for path in Path(output_dir).glob(f"{PREFIX_CHECKPOINT_DIR}-*/"):
        if is_checkpoint(path.name) and not path.is_symlink():
            shutil.rmtree(path)


def is_checkpoint(name: str) -> bool:
    """Whether a folder has the name of a checkpoint of the Trainer."""
    return re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-\d+", name) is not None


def read_run(output_dir: AnyPath) -> RunRecord | None:
    """Read the record of the run in a folder; None without one that is whole."""
    try:
        content = read_object(Path(output_dir) / RUN_FILE)
    except (FileNotFoundError, ValueError):
        return None
    for name, kind in (("settings", dict), ("finished", bool)):
        if not isinstance(content.get(name), kind):
            return None
    known = {entry.name for entry in fields(RunRecord)} & content.keys()
    return RunRecord(**{name: content[name] for name in known})


def _write_run(folder: Path, run: RunRecord) -> None:
    write_text(folder / RUN_FILE, json.dumps(asdict(run), indent=2, sort_keys=True) + "\n")
