"""Tokenizers, encoders and configurations of checkpoints."""

import json
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError, StrictDataclassError
from huggingface_hub.utils._validators import validate_repo_id
from transformers import AutoTokenizer, PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.modeling_utils import load_state_dict
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import (
    CONFIG_NAME,
    SAFE_WEIGHTS_INDEX_NAME,
    SAFE_WEIGHTS_NAME,
    WEIGHTS_INDEX_NAME,
    WEIGHTS_NAME,
)
from transformers.utils.hub import cached_file

from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel, suggest, unknown
from modeling_minbert.heads import Pretrained
from modeling_minbert.inference import check_vocabulary, read_tokenizer
from modeling_minbert.rows import ONNX_SETTINGS
from trainers import named_errors, reason_of
from trainers.files import CHECKPOINT_ERRORS, read_object

if TYPE_CHECKING:  # predicting does not load what training needs
    from minbert_cli.arguments import RunArguments

logger = logging.getLogger(__name__)

# Files of a checkpoint that hold a JSON object.
JSON_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "model.safetensors.index.json",
)
MIN_TOKENS = 3  # special tokens of a row, which leave no room for text
ROW_LENGTH = 128  # tokens of a row by default


def load_pretrained(
    loader: type[Any],
    path: str,
    *,
    flag: str = "model_name_or_path",
    replaceable: Sequence[str] = (),
    revision: str | None = None,
    **kwargs: Any,
) -> Any:
    """Load a model, configuration or tokenizer, with one-line errors.

    ``from_pretrained`` of a model only warns about missing weights; here they are an error, but for
    those whose names begin with a ``replaceable`` prefix. ``flag`` is that of the user, for errors.

    Raises:
        ValueError: If the checkpoint cannot be read, or weights are missing or mismatched.
    """
    kwargs["revision"] = revision or "main"
    where = f"{flag}={path!r}"
    try:
        validate_repo_id(path)
        is_hub_id = not Path(path).exists()
    except HFValidationError:
        is_hub_id = False
    of_hub = " is not a folder and cannot be loaded from the Hub"
    # the library of fast tokenizers raises Exception itself
    kinds = CHECKPOINT_ERRORS if issubclass(loader, PreTrainedModel) else (Exception,)
    what = where + (of_hub if is_hub_id else " cannot be loaded")
    with named_errors(what, _find_other(path), kinds):
        _check_files(loader, Path(path), is_hub_id=is_hub_id)
        if issubclass(loader, AutoTokenizer):
            return _load_tokenizer(path, **kwargs)
        if not issubclass(loader, PreTrainedModel):
            return loader.from_pretrained(path, **kwargs)
        options: Any = {"output_loading_info": True, "ignore_mismatched_sizes": True}
        # whatever its configuration says
        loaded: Any = loader.from_pretrained(path, return_dict=True, **options, **kwargs)
    model, info = loaded
    if mismatched := sorted(info["mismatched_keys"]):
        name, shape, needed = mismatched[0]
        head = "its labels, or its kind of head, are others: give the task another name"
        raise ValueError(
            f"{where} has {name} of shape {tuple(shape)}, but the model needs {tuple(needed)}; "
            + (head if name.startswith("heads.") else "see its config.json")
        )
    if lost := [key for key in info["missing_keys"] if not key.startswith(tuple(replaceable))]:
        raise ValueError(f"{where} has no weights for {len(lost)} tensors, such as {min(lost)}")
    if new := sorted(key for key in info["missing_keys"] if key.startswith("cls.")):
        # heads of tasks and poolers are expected to be new
        logger.warning("%s has no pre-training head: %s and so on are new", where, new[0])
    return model


def _find_other(path: str) -> str:
    """Advise what to give instead of a path that cannot be loaded."""
    folder = Path(path)
    if last := folder.is_dir() and get_last_checkpoint(path):
        return f"if its run has not finished, resume it, or give its last checkpoint {last}"
    if folder.exists():
        return "give another checkpoint"
    others = sorted(str(file.parent) for file in folder.parent.glob(f"*/{CONFIG_NAME}"))
    return (
        "give the folder or the Hub id of a checkpoint, such as google-bert/bert-base-uncased; "
        f"an id needs the network the first time{suggest(path, others) if others else ''}"
    )


def _check_files(loader: type[Any], folder: Path, *, is_hub_id: bool) -> None:
    """Check the JSON files of a folder, if there is one; an id of the Hub has none."""
    if not folder.exists() and not is_hub_id:
        raise FileNotFoundError("there is no such folder")
    is_model = issubclass(loader, PreTrainedModel | PreTrainedConfig)
    if is_model and folder.is_dir() and not (folder / CONFIG_NAME).is_file():
        raise FileNotFoundError(f"it has no {CONFIG_NAME}")
    for name in JSON_FILES:
        if (folder / name).is_file():
            read_object(folder / name)
    for weights in folder.glob("model*.safetensors") if is_model else ():
        weights.open("rb").close()  # of a file that it may not read, safetensors says there is none


def _load_tokenizer(path: str, **kwargs: Any) -> Any:
    """Load a tokenizer without running code of the checkpoint; by default transformers asks."""
    needs_code = "its tokenizer has code of its own (auto_map in tokenizer_config.json)"
    try:
        tokenizer: Any = read_tokenizer(path, **kwargs)
    except ValueError as error:
        if "trust_remote_code" not in str(error):
            raise
        raise ValueError(f"{needs_code}, which is not run") from None
    # another class, which transformers takes then, may give other tokens
    if "auto_map" in tokenizer.init_kwargs:
        raise ValueError(f"{needs_code}, which is not run")
    return tokenizer


def load_tokenizer(
    path: str, flag: str = "model_name_or_path", revision: str | None = None
) -> PreTrainedTokenizerBase:
    """Load a fast tokenizer without padding and truncation; ``flag`` is for messages."""
    tokenizer = load_pretrained(AutoTokenizer, path, flag=flag, revision=revision)
    # Without files, AutoTokenizer returns a tokenizer with special tokens only.
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise ValueError(f"{flag}={path!r} has no tokenizer; add its tokenizer.json or vocab.txt")
    if not tokenizer.is_fast:
        raise ValueError(
            f"{flag}={path!r}: {type(tokenizer).__name__} is written in Python, and does not say "
            "which characters its tokens have; add a tokenizer.json, or take another checkpoint"
        )
    longest: Any = tokenizer.model_max_length
    if not isinstance(longest, int | float) or not longest > MIN_TOKENS:
        raise ValueError(
            f"{flag}={path!r}: tokenizer_config.json has model_max_length={longest!r}; expected a "
            f"number above {MIN_TOKENS}"
        )
    # Checkpoints of sentence-transformers store both in tokenizer.json.
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.backend_tokenizer.no_truncation()
    return tokenizer


def find_commit(path: str | None, revision: str | None) -> str | None:
    """Return the commit of a model on the Hub that has been loaded; None for a local folder."""
    if path is None or Path(path).exists():
        return None
    file = try_to_load_from_cache(path, CONFIG_NAME, revision=revision)
    return Path(file).parent.name if isinstance(file, str) else None


def load_encoder(
    path: str, device: str | None, flag: str = "checkpoint"
) -> MinBertModel | MinBertForMultiTask:
    """Load an encoder with its task heads, if any; the default device is CUDA if available."""
    if (Path(path) / ONNX_SETTINGS).is_file():
        raise ValueError(f"{flag}={path!r} is an ONNX export, which minbert.load runs in Python")
    config = load_pretrained(MinBertConfig, path, flag=flag)
    # The configuration of an encoder that was saved alone still lists the tasks.
    saved = (config.architectures or [MinBertForMultiTask.__name__])[0]
    has_heads = bool(config.tasks) and saved == MinBertForMultiTask.__name__
    kind = MinBertForMultiTask if has_heads else MinBertModel
    # Many plain encoders come without a pooler, which embedding does not need.
    replaceable = () if has_heads else ("pooler.",)
    model: Any = load_pretrained(kind, path, flag=flag, replaceable=replaceable)
    model.tokenizer = load_tokenizer(path, flag)
    check_vocabulary(model.tokenizer, model.config, f"{flag}={path!r}")
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        # a device such as meta takes a model, but computes nothing
        torch.ones(1, device=device).item()
        return model.to(device).eval()
    except (AssertionError, RuntimeError) as error:  # torch has no error class for this
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={device!r} cannot be used: {reason}; try --device cpu") from None


def set_precision(model: Any, precision: str) -> None:
    """Set the precision of predictions; if it is chosen here, print which one and why."""
    model.set_precision(precision, fixed_weights=True)  # no program changes them
    if precision != "auto":
        return
    encoder, device = model.base_model, model.device.type
    if encoder.is_int8:
        line = "int8, as the weights"
    elif encoder.precision == "float32":
        line = f"float32, as this {device} is not faster in bfloat16"
    else:
        line = f"{encoder.precision}, fast on this {device} (--precision float32 for exact results)"
    print(f"precision: {line}", file=sys.stderr)


def new_config(sizes: Mapping[str, Any] | None, **changes: Any) -> MinBertConfig:
    """Create the configuration of a new model from ``model_config`` of the recipe and changes."""
    given = {**(sizes or {}), **changes}
    known = {entry.name for entry in fields(MinBertConfig)}
    for key in given:
        if key not in known:
            raise ValueError(f"model_config: {unknown('key', key, sorted(known))}")
    try:
        MinBertConfig(**(sizes or {}))
    except StrictDataclassError as error:
        raise ValueError(f"model_config: {reason_of(error)}") from None
    return MinBertConfig(**given)


def load_config(arguments: "RunArguments", sizes: Mapping[str, Any] | None) -> MinBertConfig:
    """Load the configuration of the checkpoint of a run, or create that of a new model."""
    path = arguments.model_name_or_path
    if path is None:
        return new_config(sizes)
    config: MinBertConfig = load_pretrained(MinBertConfig, path, revision=arguments.revision)
    if getattr(config, "quantization_config", None) is not None:
        raise ValueError(
            f"model_name_or_path={path!r} has quantized weights, which cannot be trained: give the "
            "checkpoint that it was made from"
        )
    return config


def describe_pretrained(
    path: str | None, revision: str | None, config: MinBertConfig
) -> Pretrained:
    """Describe the weights of a checkpoint, of which ``config`` is the configuration."""
    if path is None:
        return Pretrained()
    tasks = [config.task(name) for name in config.tasks or {}]
    if config.sentence_embedding is not None or any(task.describe_embedding() for task in tasks):
        return Pretrained(config.embedding.pooling)
    if tasks:  # the pooler of other tasks has stayed as it was
        return Pretrained(
            None, any(task.uses_pooler or task.predicts_next_sentence for task in tasks)
        )
    where = f"model_name_or_path={path!r} cannot be loaded"
    with named_errors(where, "give another checkpoint", CHECKPOINT_ERRORS):
        return Pretrained(None, has_weights(path, "pooler.dense.weight", revision))


def has_weights(path: str, part: str, revision: str | None = None) -> bool:
    """Return whether a checkpoint has weights with a part of a name, as minBERT names them."""
    from modeling_minbert.families import rename

    return any(part in rename(name) for name in list_weights(path, revision))


def list_weights(path: str, revision: str | None = None) -> list[str]:
    """List the names of the weights of a checkpoint, without loading them."""
    options: Any = {"revision": revision, "_raise_exceptions_for_missing_entries": False}
    for file in (SAFE_WEIGHTS_NAME, SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_NAME, WEIGHTS_INDEX_NAME):
        found = cached_file(path, file, **options)
        if found is None:
            continue
        if file in (SAFE_WEIGHTS_INDEX_NAME, WEIGHTS_INDEX_NAME):
            return list(json.loads(Path(found).read_text(encoding="utf-8"))["weight_map"])
        return list(load_state_dict(found, map_location="meta"))
    return []


def fit_together(model: Any, tokenizer: PreTrainedTokenizerBase, path: str | None) -> None:
    """Check that model and tokenizer match; limit the tokenizer to the positions of the model."""
    tokenizer.model_max_length = min(tokenizer.model_max_length, model.config.longest_sequence)
    where = "the new model" if path is None else f"model_name_or_path={path!r}"
    check_vocabulary(tokenizer, model.config, where)


def choose_length(arguments: "RunArguments", config: MinBertConfig | None) -> int:
    """Return the maximum tokens of a row, by default what fits into a model, if it is known."""
    if arguments.max_length is not None:
        return arguments.max_length
    return ROW_LENGTH if config is None else min(ROW_LENGTH, config.longest_sequence)


def check_row_length(config: MinBertConfig, max_length: int, *, has_pairs: bool) -> None:
    """Check that rows of this length, some of them pairs of segments, fit into a model."""
    if has_pairs and config.encoder_type == "bert" and config.type_vocab_size < 2:
        raise ValueError(
            f"type_vocab_size={config.type_vocab_size} of the model has no second segment, which "
            "pairs need: 2"
        )
    positions = config.longest_sequence
    if not 8 <= max_length <= positions:
        raise ValueError(
            f"max_length={max_length} must be from 8 to the {positions} positions of the model"
        )
