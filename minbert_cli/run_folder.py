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

import modeling_minbert
from datasets_scripts.checking import keys_with
from trainers.files import named_errors, read_object, remove_leftovers, write_text
from trainers.training.resuming import checkpoint_problem, find_damaged, last_complete_checkpoint

from .arguments import FinetuneArguments
from .command_line import expand_path

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
    content = {**args.to_dict(), **undecided, **own, "processes": args.world_size}
    # mappings are compared regardless of order, but the order of tasks and texts matters
    tasks = own.get("tasks") or {}
    content["task_order"] = list(tasks)
    corpora = {name: keys.get("corpus") for name, keys in tasks.items() if isinstance(keys, dict)}
    corpora[""] = own.get("corpus")
    content["corpus_order"] = {name: list(corpus) for name, corpus in corpora.items() if corpus}
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
# The Trainer does not push files whose name begins with an underscore.
LOCK_FILE = "_run.lock"
# Everything else that a run may write to its folder, but for the files of logging services.
RESULT_FOLDERS = ("predictions", "1_Pooling", "2_Normalize")
RESULT_FILES = (
    *("README.md", "metrics.json", "report.json", "report.html"),
    *("config.json", "training_args.bin", "model*.safetensors", "model.safetensors.index.json"),
    *(path.name for path in Path(modeling_minbert.__file__).parent.glob("*.py")),
    *("tokenizer*.json", "special_tokens_map.json", "added_tokens.json", "vocab.*"),
    *("modules.json", "sentence_bert_config.json", "config_sentence_transformers.json"),
)
SHOWN = 6  # names of files in a message
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
    """What ``run.json`` says of a run: its settings, from what it is made, and what it wrote."""

    settings: dict[str, Any]
    finished: bool
    data: dict[str, str] = field(default_factory=dict)  # hashes by task
    commits: dict[str, str] = field(default_factory=dict)
    files: list[str] = field(default_factory=list)  # of a finished run


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


def check_output_dir(
    output_dir: AnyPath, settings: Mapping[str, Any], *, resume: bool, overwrite: bool
) -> None:
    """Check that a run would destroy neither another one nor files that no run wrote.

    ``overwrite`` allows to replace another run, and nothing else.
    """
    _check_writable(output_dir)
    folder = Path(output_dir)
    if is_free(folder):
        return
    run = read_run(folder)
    own = set() if run is None else _list_own(folder, run)
    foreign = sorted(_list_results(folder) - own)
    if foreign:
        more = f" and {len(foreign) - SHOWN} more" * (len(foreign) > SHOWN)
        raise ValueError(
            f"output_dir={str(folder)!r} has {', '.join(foreign[:SHOWN])}{more}, which no run "
            "wrote and this one would replace or delete: choose another --output_dir, or move them"
        )
    replaced = {folder.resolve() / name for name in own}
    for key, value in () if resume else list_inputs(settings):
        path = Path(expand_path(value)).resolve()
        if path == folder.resolve() or not replaced.isdisjoint((path, *path.parents)):
            is_start = key == "model_name_or_path"
            what = "the model that the run starts from" if is_start else "what the run reads"
            raise ValueError(
                f"output_dir={str(folder)!r} has {what}, {key}={value!r}, and would replace it: "
                "choose another --output_dir"
            )
    if not overwrite:
        check_same_run(output_dir, settings, resume=resume)


def list_inputs(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each model and file that a run reads."""
    for key, value in settings.items():
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):  # tasks, texts, teachers
                yield from list_inputs(part)
            elif isinstance(part, str) and key.endswith(("_file", "path", "teacher")):  # or a,b
                yield from ((key, name.strip()) for name in (part, *part.split(",")))


def check_same_run(
    output_dir: AnyPath, settings: Mapping[str, Any], *, resume: bool = True
) -> None:
    """Check that a folder is free, or has this run, which is to ``resume``."""
    _check_writable(output_dir)
    folder = Path(output_dir)
    if is_free(folder):
        return
    run, where = read_run(folder), f"output_dir={str(folder)!r}"
    advice = "choose another --output_dir, or add --overwrite_output_dir"
    deletes = f"{advice}, which deletes it"
    if run is None:
        raise ValueError(f"{where} has files that are not of a run: {advice}")
    if not run.settings:
        raise ValueError(f"{where} has the rest of a run that was being replaced: {advice}")
    if changed := find_changed(run, settings):
        verb = "resumes with" if resume else "holds a run with"
        if run.finished and {"num_train_epochs", "max_steps"} & {*changed}:
            deletes = (
                "to train its model further and keep it, choose another --output_dir and add "
                f"--model_name_or_path {folder}; the epochs are then those that are added. To "
                "begin again, add --overwrite_output_dir, which deletes it"
            )
        raise ValueError(f"{where} {verb} another {', '.join(changed)}: {deletes}")
    if not resume:
        state = "finished: it is left as it is. To train it again"
        if not run.finished:
            state = "unfinished: add --resume_from_checkpoint true to continue"
        raise ValueError(f"{where} has this run, {state}, {deletes}")


def find_changed(run: RunRecord | None, settings: Mapping[str, Any]) -> list[str]:
    """List the settings that affect results and are not those of a run, if there is one."""
    if run is None:
        return []
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
    if run is None or not run.settings:
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


def _check_writable(output_dir: AnyPath) -> None:
    """Check that a folder can be written, or be made in the first of its parents that exists."""
    if not str(output_dir):
        raise ValueError("output_dir is empty; name a folder, as in runs/mine")
    folder = Path(output_dir)
    where, kinds = f"output_dir={str(output_dir)!r}", (OSError, ValueError)
    with named_errors(where, "name another folder", kinds):
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
    output_dir: AnyPath, fingerprints: Mapping[str, str], *, resume: bool, overwrite: bool
) -> None:
    """Check that the data of the run in the folder have not changed; hashes by task."""
    run = None if overwrite else read_run(output_dir)
    if changed := find_changed_data(run, fingerprints):
        verb = "resumes with" if resume else "holds a run with"
        raise ValueError(
            f"output_dir={str(output_dir)!r} {verb} other data of {', '.join(changed)}: their "
            "files have changed or gone since; restore them, choose another --output_dir, or add "
            "--overwrite_output_dir"
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
    output_dir: AnyPath,
    settings: dict[str, Any],
    fingerprints: Mapping[str, str] | None = None,
    commits: Mapping[str, str] | None = None,
    *,
    resume: bool,
) -> None:
    """Record what a run is made from, and delete the results of an earlier run unless resuming.

    ``fingerprints`` are hashes of its data by task, ``commits`` those of its model and its data.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    before = read_run(folder)
    if not resume and before is not None:
        # a partly deleted run is never resumed, but can be deleted again
        _write_run(folder, replace(before, settings={}))
        for name in _list_own(folder, before):
            _delete(folder / name)
    data, commits = dict(fingerprints or {}), dict(commits or {})
    _write_run(folder, RunRecord(settings, finished=False, data=data, commits=commits))


def finish_run(output_dir: AnyPath) -> None:
    """Record that all results are written, and which files they are."""
    folder = Path(output_dir)
    run = read_run(folder) or RunRecord({}, finished=False)
    files = sorted(_list_own(folder, run))
    _write_run(folder, replace(run, files=files, finished=True))


def delete_checkpoints(output_dir: AnyPath) -> None:
    """Delete the checkpoints that a run wrote."""
    folder = Path(output_dir)
    run = read_run(folder)
    for name in () if run is None else _list_own(folder, run):
        if is_checkpoint(name):
            _delete(folder / name)


def _delete(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def is_checkpoint(name: str) -> bool:
    """Whether a folder has the name of a checkpoint of the Trainer."""
    return re.fullmatch(rf"{PREFIX_CHECKPOINT_DIR}-\d+", name) is not None


def _list_results(folder: Path) -> set[str]:
    """List what has the name of a result: files, and checkpoints as a whole."""
    found = {path for pattern in RESULT_FILES for path in folder.glob(pattern)}
    # the Trainer deletes old ones, whatever follows the hyphen
    found |= {*folder.glob(f"{PREFIX_CHECKPOINT_DIR}-*/")}
    for name in RESULT_FOLDERS:
        found |= {path for path in (folder / name).rglob("*") if not path.is_dir()}
    return {path.relative_to(folder).as_posix() for path in found}


def _list_own(folder: Path, run: RunRecord) -> set[str]:
    """List the results of a run; if it is unfinished, all that a run may have written."""
    results = _list_results(folder)
    if run.finished:
        return results & {*run.files}
    prefix = f"{PREFIX_CHECKPOINT_DIR}-"
    return {name for name in results if not name.startswith(prefix) or is_checkpoint(name)}


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
