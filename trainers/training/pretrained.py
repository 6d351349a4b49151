"""Strict loading of checkpoints: missing and mismatched weights are errors."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils._validators import validate_repo_id
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel
from transformers.utils import CONFIG_NAME

from modeling_minbert import suggest
from trainers.errors import CHECKPOINT_ERRORS, named_errors
from trainers.files import read_object

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
