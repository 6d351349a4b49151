# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Folders that others read: sentence-transformers' list of modules, the Hub, and plain BERT.

A folder of sentence-transformers holds a plain BERT and a list of modules that make one vector of
its states: a pooling and perhaps a normalization. Reading supports the format of version 6 and the
one before; writing uses the latter, which all versions read. Where sentence-transformers does not
have what the vectors of a checkpoint need, the list has one module, which refuses to load.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import transformers
from huggingface_hub import HfApi, ModelCardData, load_state_dict_from_file
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import (
    StrictDataclassError,
)
from transformers.utils import logging
from transformers.utils.hub import cached_file

from .inference import HUB_KEYS, is_called_by
from .int8 import float_state
from .names import unknown

logger = logging.get_logger(__name__)

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER_SETTINGS = "sentence_bert_config.json"
# Files that tell sentence-transformers how vectors are made; without them it takes the mean.
FILES = (MODULES, SETTINGS, TRANSFORMER_SETTINGS)
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
# Of a file of JSON.
Fields = dict[str, Any]
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
        prompts: Texts that may be written before a sentence, by name. `encode_query` uses that of
            the name `query`, `encode_document` that of `document`.
        default_prompt_name: Name of the prompt that `encode` uses; None for no prompt.
        truncate_dim: Number of components of a vector that are kept; None for all.
        missing: Steps of sentence-transformers for this checkpoint that minBERT does not have.
    """

    pooling: Literal["cls", "pooler", "mean", "max"] = "mean"
    normalize: bool = False
    max_length: int | None = None
    similarity: Similarity = "cosine"
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    missing: list[str] | None = None

    def validate_values(self) -> None:
        """Check the sizes, and that there is a default prompt if it has a name."""
        if self.max_length is not None and self.max_length < 3:
            raise ValueError(f"max_length={self.max_length} must be 3 or more")
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ValueError(f"truncate_dim={self.truncate_dim} must be 1 or more")
        self.find_prompt(self.default_prompt_name)

    def find_prompt(self, name: str | None) -> str:
        """Return a prompt; that of `query` and `document` may be empty, and so is that of None."""
        known = {"query": "", "document": "", **(self.prompts or {})}
        if name is not None and name not in known:
            raise ValueError(unknown("prompt_name", name, known))
        return "" if name is None else known[name]


def parse_embedding(values: Fields | None) -> MinBertEmbedding:
    """Check `sentence_embedding` of a configuration."""
    try:
        return MinBertEmbedding(**(values or {}))
    except StrictDataclassError as error:
        raise ValueError(f"sentence_embedding: {error.__cause__ or error}") from error
    except TypeError as error:
        known = ", ".join(MinBertEmbedding.__dataclass_fields__)
        raise ValueError(f"sentence_embedding={values}: the known keys are {known}") from error


def read_modules(checkpoint: str | os.PathLike[str], kwargs: Fields) -> Fields | None:
    """Return the fields of `MinBertEmbedding` of a folder or Hub id; None if it has no modules."""
    fetching = {key: kwargs[key] for key in FETCHING if key in kwargs}
    read = partial(_read_json, checkpoint, fetching)
    modules = read(MODULES, kind=list)
    for module in modules:
        path = module.get("path") or "" if isinstance(module, dict) else None
        if not isinstance(path, str) or path.startswith(("/", "\\")) or ".." in Path(path).parts:
            raise ValueError(
                f"{MODULES}: {str(module)[:80]} must be an object whose path is a folder below it"
            )
    if not modules or modules[0].get("type") == REFUSAL:
        return None
    missing: list[str] = []
    fields: Fields = {}
    kinds = [_read_module(module, read, fields, missing) for module in modules]
    if not missing and "Pooling" not in kinds:
        missing.append("vectors without a pooling")
    _read_settings(read(SETTINGS), fields, missing)
    fields["missing"] = missing or None
    return asdict(parse_embedding(fields))


def _read_module(
    module: Fields, read: Callable[..., Any], fields: Fields, missing: list[str]
) -> str:
    """Add what a module does to the fields, or to what is missing; returns its kind."""
    package, _, kind = str(module.get("type")).rpartition(".")
    folder = f"{module['path']}/" if module.get("path") else ""
    if not package.startswith("sentence_transformers."):
        missing.append(f"the module {kind}")
    elif kind == "Transformer":
        settings = read(f"{folder}{TRANSFORMER_SETTINGS}")
        fields["max_length"] = settings.get("max_seq_length")
        missing += _list_unusual(settings)
    elif kind == "Pooling":
        settings = read(f"{folder}config.json")
        old = POOLINGS | OTHER_POOLINGS
        modes = settings.get("pooling_mode") or [x for x in old if settings.get(old[x])]
        modes = [modes] if isinstance(modes, str) else modes or ["mean"]
        fields["include_prompt"] = settings.get("include_prompt", True) is True
        if len(modes) == 1 and modes[0] in POOLINGS:
            fields["pooling"] = modes[0]
        else:
            missing.append(f"the pooling {' + '.join(modes)}")
    elif kind == "Normalize":
        settings = read(f"{folder}config.json")
        if settings.get("module_input_name") == "token_embeddings":
            missing.append("the normalization of tokens")
        else:
            fields["normalize"] = True
    elif kind != "Dropout":  # which has no effect outside of training
        missing.append(f"the module {kind}")
    return kind


def _read_settings(settings: Fields, fields: Fields, missing: list[str]) -> None:
    """Add what concerns a folder as a whole."""
    pools_prompt = fields.pop("include_prompt", True)
    name = settings.get("similarity_fn_name") or "cosine"
    if name in get_args(Similarity):
        fields["similarity"] = name
    else:
        missing.append(f"the similarity {name!r}")
    # it writes these two names with empty prompts if there are none
    prompts = {
        key: text or ""
        for key, text in _part_of(settings, "prompts", SETTINGS).items()
        if text or key not in ("query", "document")
    }
    if prompts and not pools_prompt:
        missing.append("prompts that are not pooled (include_prompt)")
    default = settings.get("default_prompt_name")
    if default is not None and default not in ("query", "document", *prompts):
        missing.append(f"the prompt {default!r}, which is not among its prompts")
        default = None
    fields |= {"prompts": prompts or None, "default_prompt_name": default}
    fields["truncate_dim"] = settings.get("truncate_dim")


def _read_json(
    checkpoint: str | os.PathLike[str], fetching: Fields, name: str, kind: type[Any] = dict
) -> Any:
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


def _part_of(settings: Fields, key: str, file: str) -> Fields:
    """Return an object within settings; empty if there is none."""
    part = settings.get(key) or {}
    if not isinstance(part, dict):
        raise ValueError(  # noqa: TRY004  the file is wrong, not a type in the code
            f"{file}: {key} must be an object, not {str(part)[:50]}"
        )
    return part


def _list_unusual(settings: Fields) -> list[str]:
    """Return the settings of a Transformer that minBERT does not have."""
    modalities = _part_of(settings, "modality_config", TRANSFORMER_SETTINGS)
    values = settings | _part_of(modalities, "text", TRANSFORMER_SETTINGS)
    # what there is since version 6, with the values that are those of versions before
    usual = {
        "transformer_task": "feature-extraction",
        "method_output_name": "last_hidden_state",
        "module_output_name": "token_embeddings",
    }
    others = ("do_lower_case", "processing_kwargs", "query_length", "document_length")
    return [
        f"{key}={values[key]!r} of its Transformer"
        for key, value in usual.items()
        if (values.get(key) or value) != value
    ] + [key for key in (*others, "query_expansion") if settings.get(key)]


class MinBertRefusal:
    """The module of a folder whose vectors sentence-transformers cannot make."""

    @classmethod
    def load(cls, path: str, **_: object) -> None:
        """Refuse to load.

        Raises:
            ValueError: In any case.
        """
        raise ValueError(
            f"{path}: sentence-transformers does not have what the vectors of this checkpoint "
            "need: a pooler, windows, the end of a long text, a lower layer, or a "
            "module of another folder. Load it with MinBertForMultiTask or MinBertModel of minBERT "
            "and call encode, or write other vectors of it with "
            "save_as_sentence_transformers(folder, pooling='mean')"
        )


REFUSAL = f"sharing.{MinBertRefusal.__name__}"


def save_modules(folder: Path, model: Any) -> None:
    """Let sentence-transformers make the vectors of `encode`, or refuse to if it cannot.

    A model that is not made for vectors, like a classifier, says nothing about them.
    """
    # it has written some of its files when it saves the model, and writes the others afterwards
    if folder.is_file() or is_called_by("sentence_transformers"):
        return
    config, embedding = model.config, model.config.embedding
    if config.sentence_embedding and folder.is_dir():
        with suppress(ValueError):
            if read_modules(folder, {}) == asdict(embedding):
                return  # maybe with a module that minBERT does not have
    remove_modules(folder)
    if model.base_model is not model and not (config.sentence_embedding or config.embedding_task):
        return
    folder.mkdir(parents=True, exist_ok=True)
    is_possible = embedding.pooling in POOLINGS and not embedding.missing
    if config.embedding_task and not config.sentence_embedding:
        task = config.task(config.embedding_task)
        is_possible = task.describe_embedding() is not None and task.truncation == "head"
    if is_possible:
        write_modules(folder, embedding, config.hidden_size)
    else:
        _write(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": REFUSAL}])


def remove_modules(folder: Path) -> None:
    """Remove the files of sentence-transformers that describe the model that was there before."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def write_modules(folder: Path, embedding: MinBertEmbedding, hidden_size: int) -> None:
    """Add the module files of sentence-transformers to a folder with a BERT and its tokenizer."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    modules += [("2_Normalize", "Normalize")] if embedding.normalize else []
    names = POOLINGS | OTHER_POOLINGS
    package = "sentence_transformers.models"
    content: dict[str, object] = {
        MODULES: [
            {"idx": index, "name": str(index), "path": path, "type": f"{package}.{kind}"}
            for index, (path, kind) in enumerate(modules)
        ],
        TRANSFORMER_SETTINGS: {
            "max_seq_length": embedding.max_length,
            "do_lower_case": False,
        },
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden_size,
            **{old: name == embedding.pooling for name, old in names.items()},
            "include_prompt": True,
        },
        SETTINGS: {
            "__version__": {"transformers": transformers.__version__, "pytorch": torch.__version__},
            "prompts": embedding.prompts or {},
            "default_prompt_name": embedding.default_prompt_name,
            "similarity_fn_name": embedding.similarity,
            "truncate_dim": embedding.truncate_dim,
        },
    }
    for path, _ in modules[1:]:
        (folder / path).mkdir(exist_ok=True)
    for name, values in content.items():
        _write(folder / name, values)


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


# Auto class -> name of its task on the Hub: https://huggingface.co/tasks
HUB_TASKS = {
    "AutoModel": "feature-extraction",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForPreTraining": "fill-mask",
    "AutoModelForNextSentencePrediction": "text-classification",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
    "AutoModelForMultipleChoice": "multiple-choice",
}


class MinBertSharingMixin:
    """Sharing of models: on the Hub, or as a plain `bert`."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        private: bool | None = None,
        token: bool | str | None = None,
        max_shard_size: int | str | None = "50GB",
        **commit: Any,
    ) -> str:
        """Upload weights, configuration, code, the tokenizer of `predict`, and a card.

        The card is that of the folder from which the model was loaded, if it has these weights.
        Otherwise a card on the Hub stays, with a warning, and a new repository gets a short one.

        Args:
            repo_id: `owner/name`, or `name` for the owner of the token.
            private: Whether a new repository is private.
            token: Token of the Hub; None for the token of the login.
            max_shard_size: Maximum size of a file of weights.
            **commit: `commit_message`, `commit_description`, `revision` and `create_pr`, as in
                `PreTrainedModel.push_to_hub`.

        Returns:
            The address of the commit.

        Raises:
            OSError: If the Hub refuses or cannot be reached; nothing on this machine changes.
        """
        model: Any = self
        commit = {"commit_message": f"Upload {type(self).__name__}", **commit}
        api = HfApi(token=token)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, max_shard_size=max_shard_size)
            repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            card = find_card(model, repo)
            if card is None and api.file_exists(repo, "README.md"):
                message = "the card of %s stays: its text and results are those of other weights"
                logger.warning(message, repo)
            else:
                card = make_card(model, repo) if card is None else card
                (Path(folder) / "README.md").write_text(card, encoding="utf-8")
            # what is there of a model before would tell how vectors of this one are made
            return api.upload_folder(
                repo_id=repo, folder_path=folder, delete_patterns=[*FILES], **commit
            )

    def save_as_bert(
        self, save_directory: str | os.PathLike[str], *, num_layers: int | None = None
    ) -> None:
        """Save a folder that transformers loads as a plain `bert`, with equal outputs.

        Args:
            save_directory: The folder, created if necessary. The tokenizer is not saved.
            num_layers: Number of layers to save, from the bottom; None for all.
        """
        model: Any = self
        config = model.config.to_bert()
        config.num_hidden_layers = num_layers or config.num_hidden_layers
        bert = getattr(transformers, model._auto_class).from_config(config, dtype=model.dtype)
        if getattr(model, "pooler", True) is None:
            bert.pooler = None
        state = float_state(model)
        if num_layers is not None:
            state = {name: state[name] for name in bert.state_dict()}
        bert.load_state_dict(state)
        remove_modules(Path(save_directory))
        bert.save_pretrained(save_directory)


def find_card(model: Any, repo: str) -> str | None:
    """Return the card in the folder a model came from, if it describes the weights of the model.

    The example of our cards, which calls a model's folder `path`, then loads it from `repo`.
    """
    file = Path(model.name_or_path) / "README.md"
    if not model.name_or_path or not file.is_file():
        return None
    state, stored = model.state_dict(), dict[str, torch.Tensor]()
    for weights in file.parent.glob("*.safetensors"):
        stored |= load_state_dict_from_file(weights)
    if not stored or not all(  # apart from their precision
        name in state and torch.equal(values.to(state[name].dtype), state[name].cpu())
        for name, values in stored.items()
    ):
        logger.warning("%s describes other weights than those that are pushed: not taken", file)
        return None
    text = file.read_text(encoding="utf-8")
    return re.sub(r'(?m)^path = ".*"$(?=\n.*\.from_pretrained\(path)', f'path = "{repo}"', text)


def make_card(model: Any, repo_id: str) -> str:
    """Write a card that says how to load a model."""
    start, auto_class = model.name_or_path, model._auto_class
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=HUB_TASKS[auto_class],
        base_model=start if start and not Path(start).exists() else None,
        tags=["minbert"],
    )
    load = f'{auto_class}.from_pretrained("{repo_id}", trust_remote_code=True)'
    lines = ["```python", f"from transformers import {auto_class}", "", f"model = {load}"]
    names = model.config.tasks or () if hasattr(model, "predict") else ()
    for name in names:
        task = model.config.task(name)
        if not task.is_pretraining:
            lines.append(f"model.predict({json.dumps(name)}, [{task.example_row!r}])")
    return "\n".join(
        [
            f"---\n{data.to_yaml()}\n---\n\n# {repo_id.rpartition('/')[2]}\n",
            f"A {type(model).__name__} with {model.num_parameters():,} parameters. This card was "
            "generated from the model alone: describe here its data, training and evaluation.\n",
            *lines,
            "```\n",
        ]
    )
