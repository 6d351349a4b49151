# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Folders of sentence-transformers: reading and writing how they make vectors.

Such a folder holds a plain BERT and a list of modules that make one vector of its states: a pooling
and perhaps a normalization. Reading supports the format of version 6 and the one before; writing
uses the latter, which all versions read.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import transformers
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from transformers.utils.hub import cached_file

from .inference_minbert import HUB_KEYS

Read = Callable[..., Any]

MODULES = "modules.json"
# Poolings of both packages, by their keys in sentence-transformers before version 6.
POOLINGS = {
    "cls": "pooling_mode_cls_token",
    "max": "pooling_mode_max_tokens",
    "mean": "pooling_mode_mean_tokens",
}
OTHER_POOLINGS = {
    "mean_sqrt_len_tokens": "pooling_mode_mean_sqrt_len_tokens",
    "weightedmean": "pooling_mode_weightedmean_tokens",
    "lasttoken": "pooling_mode_lasttoken",
}
Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]
# Keyword arguments of `from_pretrained` for downloads.
FETCHING = (*HUB_KEYS, "proxies")


@strict
@dataclass(kw_only=True)
class MinBertEmbedding:
    """How `encode` makes one vector of a sentence.

    Args:
        pooling: `cls`, `pooler`, `mean` or `max`.
        normalize: Whether vectors are scaled to length 1.
        max_length: Maximum tokens of a sentence, special ones included; None for the limit of the
            encoder and its tokenizer.
        similarity: How two vectors are compared: `cosine`, `dot`, or as the negated distance
            `euclidean` or `manhattan`.
        missing: Steps of sentence-transformers for this checkpoint that minBERT does not have.
    """

    pooling: Literal["cls", "pooler", "mean", "max"] = "mean"
    normalize: bool = False
    max_length: int | None = None
    similarity: Similarity = "cosine"
    missing: list[str] | None = None

    def validate_max_length(self) -> None:
        """Check that there is room for more than the special tokens."""
        if self.max_length is not None and self.max_length < 3:
            raise ValueError(f"max_length={self.max_length} must be 3 or more")


def parse_embedding(values: dict[str, Any] | None) -> MinBertEmbedding:
    """Check `sentence_embedding` of a configuration."""
    try:
        return MinBertEmbedding(**(values or {}))
    except StrictDataclassError as error:
        raise ValueError(f"sentence_embedding: {error.__cause__ or error}") from error
    except TypeError as error:
        known = ", ".join(MinBertEmbedding.__dataclass_fields__)
        raise ValueError(f"sentence_embedding={values}: the known keys are {known}") from error


def read_modules(checkpoint: Any, kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """Return the fields of `MinBertEmbedding` of a folder or Hub id; None if it has no modules."""
    fetching = {key: kwargs[key] for key in FETCHING if key in kwargs}
    read = partial(_read_json, checkpoint, fetching)
    modules = read(MODULES, kind=list)
    if not modules:
        return None
    fields: dict[str, Any] = {"normalize": False, "missing": []}
    for module in modules:
        _read_module(fields, read, module)
    settings = read("config_sentence_transformers.json")
    name = settings.get("similarity_fn_name") or "cosine"
    if name in get_args(Similarity):
        fields["similarity"] = name
    else:
        fields["missing"].append(f"the similarity {name!r}")
    prompt = settings.get("default_prompt_name")
    if prompt and (settings.get("prompts") or {}).get(prompt):
        fields["missing"].append(f"the prompt {prompt!r}")
    fields["missing"] = fields["missing"] or None
    return fields


def _read_json(checkpoint: Any, fetching: dict[str, Any], name: str, kind: type[Any] = dict) -> Any:
    """Read a file of a checkpoint that holds a `kind`; an empty one if it does not exist."""
    if Path(checkpoint).is_file():
        return kind()
    path = cached_file(
        checkpoint,
        name,
        **fetching,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    if path is None:
        return kind()
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{checkpoint}: {name} is not JSON ({error})") from error
    if not isinstance(values, kind):
        wanted = "an object" if kind is dict else "a list"
        raise ValueError(  # noqa: TRY004  the file is wrong, not a type in the code
            f"{checkpoint}: {name} must hold {wanted}, not {str(values)[:50]}"
        )
    return values


def _read_module(fields: dict[str, Any], read: Read, module: Any) -> None:
    path = module.get("path") or "" if isinstance(module, dict) else None
    if not isinstance(path, str) or path.startswith(("/", "\\")) or ".." in Path(path).parts:
        raise ValueError(
            f"{MODULES}: {str(module)[:80]} must be an object with the path of a folder below it"
        )
    package, _, name = str(module.get("type")).rpartition(".")
    if package.startswith("sentence_transformers.") and name in READERS:
        READERS[name](fields, read, f"{path}/" if path else "")
    else:
        fields["missing"].append(f"the module {name}")


def _read_transformer(fields: dict[str, Any], read: Read, folder: str) -> None:
    settings = read(f"{folder}sentence_bert_config.json")
    fields["max_length"] = settings.get("max_seq_length")
    if settings.get("do_lower_case"):
        fields["missing"].append("do_lower_case")


def _read_pooling(fields: dict[str, Any], read: Read, folder: str) -> None:
    settings = read(f"{folder}config.json")
    old = POOLINGS | OTHER_POOLINGS
    modes = settings.get("pooling_mode") or [name for name in old if settings.get(old[name])]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    if len(modes) == 1 and modes[0] in POOLINGS:
        fields["pooling"] = modes[0]
    else:
        fields["missing"].append(f"the pooling {' + '.join(modes)}")


def _read_normalize(fields: dict[str, Any], read: Read, folder: str) -> None:
    if read(f"{folder}config.json").get("module_input_name") == "token_embeddings":
        fields["missing"].append("the normalization of tokens")
    else:
        fields["normalize"] = True


READERS = {
    "Transformer": _read_transformer,
    "Pooling": _read_pooling,
    "Normalize": _read_normalize,
    "Dropout": lambda *_: None,  # without effect outside of training
}


def save_modules(folder: Path, model: Any) -> None:
    """Let sentence-transformers make the vectors of `encode`, if the model is made for vectors.

    That is an encoder, or a model with a task of separate texts.
    """
    config, embedding = model.config, model.config.embedding
    tasks = (config.task(name) for name in config.tasks or {})
    has_vectors = model.base_model is model or any(task.describe_embedding() for task in tasks)
    if folder.is_file() or not has_vectors:
        return
    if embedding.pooling in POOLINGS and not embedding.missing:
        folder.mkdir(parents=True, exist_ok=True)
        write_modules(folder, embedding, config.hidden_size)


def write_modules(folder: Path, embedding: MinBertEmbedding, hidden_size: int) -> None:
    """Add the module files of sentence-transformers to a folder with a BERT and its tokenizer."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [("2_Normalize", "Normalize")] if embedding.normalize else []
    names = POOLINGS | OTHER_POOLINGS
    package = "sentence_transformers.models"
    content: dict[str, Any] = {
        MODULES: [
            {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        "sentence_bert_config.json": {
            "max_seq_length": embedding.max_length,
            "do_lower_case": False,
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden_size,
            **{old: name == embedding.pooling for name, old in names.items()},
            "include_prompt": True,
        },
        "config_sentence_transformers.json": {
            "__version__": {"transformers": transformers.__version__, "pytorch": torch.__version__},
            "prompts": {},
            "default_prompt_name": None,
            "similarity_fn_name": embedding.similarity,
        },
    }
    for path, _ in modules[1:]:
        (folder / path).mkdir(exist_ok=True)
    for name, values in content.items():
        (folder / name).write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
