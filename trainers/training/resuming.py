"""What a training starts from: the last undamaged checkpoint of a run, or pretrained weights."""

import hashlib
import json
import logging
import os
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from safetensors import SafetensorError, safe_open
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.trainer_callback import TrainerState
from transformers.trainer_pt_utils import safe_globals
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR
from transformers.utils import CONFIG_NAME, SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME

from modeling_minbert import suggest
from trainers.files import CHECKPOINT_ERRORS, named_errors, read_object, write_text

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


logger = logging.getLogger(__name__)

# Files of a checkpoint that hold a JSON object.
JSON_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "model.safetensors.index.json",
)


def load_pretrained(
    loader: type[Any],
    path: str,
    *,
    flag: str = "model_name_or_path",
    replaceable: Sequence[str] = (),
    **kwargs: Any,
) -> Any:
    """Load a model, configuration or tokenizer, with one-line errors.

    ``from_pretrained`` of a model only warns about missing weights; here they are an error.

    Args:
        loader: Class with ``from_pretrained``.
        path: Folder or Hub id.
        flag: Flag of the user, for errors.
        replaceable: Name prefixes of weights that may be missing and are then initialized.
        **kwargs: Arguments of ``from_pretrained``.

    Raises:
        ValueError: If the checkpoint cannot be read, or weights are missing or mismatched.
    """
    where = f"{flag}={path!r}"
    failed = (
        " is not a folder and cannot be loaded from the Hub"
        if _is_hub_id(path)
        else (" cannot be loaded")
    )
    advice = (
        "give the folder or the Hub id of a 'bert' or 'minbert' checkpoint; an id needs the "
        f"network the first time{_suggest_folders(path)}"
    )
    # the library of fast tokenizers raises Exception itself
    kinds = CHECKPOINT_ERRORS if issubclass(loader, PreTrainedModel) else (Exception,)
    with named_errors(where + failed, advice, kinds):
        _check_files(loader, path)
        if issubclass(loader, AutoTokenizer):
            return _load_tokenizer(path, **kwargs)
        if not issubclass(loader, PreTrainedModel):
            return loader.from_pretrained(path, **kwargs)
        loaded: Any = loader.from_pretrained(
            path, output_loading_info=True, ignore_mismatched_sizes=True, **kwargs
        )
    model, info = loaded
    _check_weights(where, info, tuple(replaceable))
    if new := sorted(key for key in info["missing_keys"] if key.startswith("cls.")):
        # heads of tasks and poolers are expected to be new
        logger.warning("%s has no pre-training head: %s and so on are new", where, new[0])
    return model


def _load_tokenizer(path: str, **kwargs: Any) -> Any:
    """Load a tokenizer without running code of the checkpoint; by default transformers asks."""
    needs_code = "its tokenizer has code of its own (auto_map in tokenizer_config.json)"
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(path, trust_remote_code=False, **kwargs)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(f"{needs_code}, which is not run") from None
    # another class, which transformers takes then, may give other tokens
    if "auto_map" in tokenizer.init_kwargs:
        raise ValueError(f"{needs_code}, which is not run")
    return tokenizer


def _is_hub_id(path: str) -> bool:
    try:
        validate_repo_id(path)
    except HFValidationError:
        return False
    return not Path(path).exists()


def _suggest_folders(path: str) -> str:
    """Return the end of a message about a folder that does not exist, if others are beside it."""
    folder = Path(path)
    checkpoints = sorted(str(file.parent) for file in folder.parent.glob(f"*/{CONFIG_NAME}"))
    return suggest(path, checkpoints) if checkpoints and not folder.exists() else ""


def _check_files(loader: type[Any], path: str) -> None:
    """Check the JSON files of a folder, if there is one; an id of the Hub has none."""
    folder = Path(path)
    if not folder.exists() and not _is_hub_id(path):
        raise FileNotFoundError("there is no such folder")
    is_model = issubclass(loader, PreTrainedModel | PreTrainedConfig)
    if is_model and folder.is_dir() and not (folder / CONFIG_NAME).is_file():
        raise FileNotFoundError(f"it has no {CONFIG_NAME}")
    for name in JSON_FILES:
        if (folder / name).is_file():
            read_object(folder / name)


def _check_weights(where: str, info: Mapping[str, Any], replaceable: tuple[str, ...]) -> None:
    """Check that no weight has another shape, and that only replaceable ones are missing."""
    if mismatched := sorted(info["mismatched_keys"]):
        name, shape, needed = mismatched[0]
        raise ValueError(
            f"{where} has {name} of shape {tuple(shape)}, but the model needs {tuple(needed)}; "
            + ("give the task another name" if name.startswith("heads.") else "see its config.json")
        )
    if lost := [key for key in info["missing_keys"] if not key.startswith(replaceable)]:
        raise ValueError(f"{where} has no weights for {len(lost)} tensors, such as {min(lost)}")
