# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Folders that others read and write: sentence-transformers' list of modules, and the Hub.

A folder of sentence-transformers holds a plain BERT and a list of modules that make one vector of
its states: a pooling and perhaps a normalization. Reading supports the format of version 6 and the
one before; writing uses the latter, which all versions read. Where sentence-transformers does not
have what the vectors of a checkpoint need, the list has one module, which refuses to load.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, get_args

import torch
import transformers
from transformers.utils import logging

from .heads import MinBertEmbedding, Similarity, parse_embedding
from .inference import find_file, is_called_by
from .rows import ONNX_SETTINGS, EmbeddingPlan
from .texts import own_tokenizer

logger = logging.get_logger(__name__)

MODULES = "modules.json"
SETTINGS = "config_sentence_transformers.json"
# The names of one file; all but the first are those of old folders.
TRANSFORMER_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
# Files that tell sentence-transformers how vectors are made; without them it takes the mean.
FILES = (MODULES, SETTINGS, *TRANSFORMER_SETTINGS)
# Poolings by their keys in sentence-transformers before version 6: those of both packages
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
# Weights that are saved now, not others in the folder.
WEIGHTS = re.compile(r"(adapter_model|model(\.\w+)?(-\d+-of-\d+)?)\.safetensors")
INDEX, ADAPTER, WHOLE = "model.safetensors.index.json", "adapter_config.json", "model.safetensors"
# What a load would take of a model before instead of the weights that are saved now, or with them.
LEFTOVERS = {ADAPTER, "adapter_model.safetensors", "adapter_model.bin", ONNX_SETTINGS, WHOLE, INDEX}
SHARD = re.compile(r"model-\d+-of-\d+\.safetensors")
# Of a file of JSON.
Fields = dict[str, Any]


def read_modules(checkpoint: str | os.PathLike[str], kwargs: Fields) -> Fields | None:
    """Return the fields of `MinBertEmbedding` of a folder or Hub id; None if it has no modules."""
    read = partial(_read_json, checkpoint, kwargs)
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
        found = (read(f"{folder}{name}") for name in TRANSFORMER_SETTINGS)
        settings: Fields = next(filter(None, found), {})
        fields["max_length"] = settings.get("max_seq_length")
        missing += _list_unusual(settings)
    elif kind == "Pooling":
        settings = read(f"{folder}config.json")
        if not settings:
            missing.append(f"the file {folder}config.json")
        old = POOLINGS | OTHER_POOLINGS
        modes = settings.get("pooling_mode") or [x for x in old if settings.get(old[x])]
        modes = [modes] if isinstance(modes, str) else modes or ["mean"]
        fields["pools_prompt"] = settings.get("include_prompt", True) is True
        if len(modes) == 1 and modes[0] in POOLINGS:
            fields["pooling"] = modes[0]
        else:
            missing.append(f"the pooling {' + '.join(modes)}")
    elif kind == "Normalize":
        settings = read(f"{folder}config.json")
        if settings.get("module_input_name") == "token_embeddings":
            missing.append("the normalization of tokens")
        else:  # before the pooling it has nothing to normalize
            fields["normalize"] = "pools_prompt" in fields
    elif kind != "Dropout":  # which has no effect outside of training
        missing.append(f"the module {kind}")
    return kind


def _read_settings(settings: Fields, fields: Fields, missing: list[str]) -> None:
    """Add what concerns a folder as a whole."""
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
    default = settings.get("default_prompt_name")
    if default is not None and default not in ("query", "document", *prompts):
        missing.append(f"the prompt {default!r}, which is not among its prompts")
        default = None
    fields |= {"prompts": prompts or None, "default_prompt_name": default}
    fields["truncate_dim"] = settings.get("truncate_dim")


def _read_json(
    checkpoint: str | os.PathLike[str], where: Fields, name: str, kind: type[Any] = dict
) -> Any:
    """Read a file of a checkpoint that holds a `kind`; an empty one if it does not exist."""
    path = find_file(checkpoint, name, **where)
    if path is None:
        return kind()
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
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
    file = TRANSFORMER_SETTINGS[0]
    modalities = _part_of(settings, "modality_config", file)
    values = settings | _part_of(modalities, "text", file)
    # what there is since version 6, with the values that are those of versions before
    usual = {
        "transformer_task": "feature-extraction",
        "method_output_name": "last_hidden_state",
        "module_output_name": "token_embeddings",
    }
    others = (
        *("do_lower_case", "processing_kwargs", "query_length", "document_length"),
        *("tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"),
        "tokenizer_name_or_path",
    )
    return [
        f"{key}={values[key]!r} of its Transformer"
        for key, value in usual.items()
        if (values.get(key) or value) != value
    ] + [key for key in (*others, "query_expansion") if settings.get(key)]


class MinBertRefusal:
    """The module of a folder whose vectors sentence-transformers cannot make."""

    @classmethod
    def load(cls, path: str, **_: object) -> None:
        """Refuse to load."""
        raise ValueError(
            f"{path}: sentence-transformers does not have what the vectors of this checkpoint "
            "need: a pooler, windows, the end of a long text, a lower layer, or a module of "
            "another folder. Load it with MinBertForMultiTask or MinBertModel of minBERT "
            "and call encode, or write other vectors of it with "
            "save_as_sentence_transformers(folder, pooling='mean')"
        )


REFUSAL = f"folders.{MinBertRefusal.__name__}"


def save_modules(folder: Path, model: Any) -> None:
    """Let sentence-transformers make the vectors of `encode`, or refuse to if it cannot.

    A model that is not made for vectors, like a classifier, says nothing about them.
    """
    refuse_leftovers(folder, model)
    # it has written some of its files when it saves the model, and writes the others afterwards
    if folder.is_file() or is_called_by("sentence_transformers"):
        return
    config, embedding = model.config, model.config.embedding
    if embedding.missing and folder.is_dir():
        with suppress(ValueError):
            if read_modules(folder, {}) == asdict(embedding):
                return  # it describes them, which minBERT cannot write
    remove_modules(folder)
    if model.base_model is not model and not (config.sentence_embedding or config.embedding_task):
        return
    folder.mkdir(parents=True, exist_ok=True)
    is_possible = embedding.pooling in POOLINGS and not embedding.missing
    if config.vectors_task is not None:
        task = config.task(config.vectors_task)
        is_possible = task.describe_embedding() is not None and task.truncation == "head"
    if is_possible:
        write_modules(folder, embedding, config.hidden_size)
    else:
        _write(folder / MODULES, [{"idx": 0, "name": "0", "path": "", "type": REFUSAL}])


def check_folder(folder: Path, model_type: str) -> None:
    """Refuse the folder of a minBERT checkpoint, whose heads a model of another type replaces."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if config.get("model_type") == model_type:
        raise ValueError(f"{folder} holds a minBERT checkpoint, which would be lost: name another")


def refuse_leftovers(folder: Path, model: Any) -> None:
    """Refuse a folder with files of another model, which a load would take instead or as well.

    Those of a checkpoint of an earlier training are replaced.
    """
    names: tuple[str, ...] = (ADAPTER, ONNX_SETTINGS)
    if getattr(model, "_hf_peft_config_loaded", False):  # an adapter, which may lie with its base
        base = getattr(model, "_found_at", None) or model.name_or_path  # the first is absolute
        names = () if folder.resolve() == Path(base).resolve() else ("config.json",)
    for path in (folder / name for name in names):
        if path.name != "config.json" and re.fullmatch(r"checkpoint-\d+", folder.name):
            path.unlink(missing_ok=True)
        elif path.is_file():
            raise ValueError(
                f"{folder} has the {path.name} of another model, which would be loaded with this "
                "one or instead of it: save to another folder, or delete it first"
            )


def remove_modules(folder: Path) -> None:
    """Remove the files of sentence-transformers that describe the model that was there before."""
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


def finish_folder(folder: Path, variant: str | None = None) -> None:
    """Remove weights of the model before, and let others read those that were saved.

    They get the mode of the configuration: safetensors shuts out other users.
    """
    if variant is None and (folder / INDEX).is_file() and not (folder / ADAPTER).is_file():
        shards = json.loads((folder / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        # transformers has removed those of the model before; where both are, one file wins
        is_sharded = all((folder / name).is_file() for name in shards)
        (folder / (WHOLE if is_sharded else INDEX)).unlink(missing_ok=True)
    configuration = next(folder.glob("*config.json"))  # or that of an adapter
    for weights in folder.glob("*.safetensors"):
        if WEIGHTS.fullmatch(weights.name) and not weights.is_symlink():
            with suppress(OSError):  # of another user
                shutil.copymode(configuration, weights)


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
        TRANSFORMER_SETTINGS[0]: {"max_seq_length": embedding.max_length, "do_lower_case": False},
        "1_Pooling/config.json": {
            "word_embedding_dimension": hidden_size,
            **{old: name == embedding.pooling for name, old in names.items()},
            "include_prompt": embedding.pools_prompt,
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


def save_vectors(
    model: Any, folder: Path, plan: EmbeddingPlan, max_length: int | None, *, is_own: bool
) -> None:
    """Save an encoder with its vectors; see `MinBertModel.save_as_sentence_transformers`.

    Prompts and the size of vectors are those of the checkpoint where the vectors are its own.
    """
    vectors = plan.vectors
    if plan.rescale and plan.truncate_dim:
        raise ValueError(
            f"sentence-transformers cuts vectors to truncate_dim={plan.truncate_dim} after "
            "scaling them: leave normalize out, and let its encode normalize_embeddings"
        )
    if vectors.pooling not in POOLINGS or not vectors.num_layers:
        what = "the layer of the embeddings"
        what = what if vectors.pooling in POOLINGS else f"pooling={vectors.pooling!r}"
        raise ValueError(
            f"sentence-transformers does not support {what}: set pooling, one of "
            f"{', '.join(POOLINGS)}, and no task"
        )
    encoding = vectors.encoding
    if encoding.truncation != "head":
        message = "the task keeps the %s of a long text; sentence-transformers keeps its head"
        logger.warning(message, encoding.truncation)
    model.check_tokenizer()
    tokenizer = own_tokenizer(model.tokenizer)
    spaced, plain = (tokenizer(text)["input_ids"] for text in (" a ", "a"))
    if plan.strips and spaced != plain:
        message = "sentence-transformers keeps spaces at the ends of a text, which training left "
        message += "out, and this tokenizer reads them: strip your texts"
        logger.warning(message)
    length = min(max_length or encoding.max_length, model.config.longest_sequence)
    kept = asdict(model.config.embedding) if is_own else {}
    made = {"pooling": vectors.pooling, "normalize": plan.normalize or plan.rescale}
    embedding = parse_embedding({**kept, **made, "max_length": length, "missing": None})
    # Settings in its file would take precedence over these.
    tokenizer.model_max_length = length
    model.base_model.save_as_transformers(folder, num_layers=vectors.num_layers)
    tokenizer.save_pretrained(folder)
    write_modules(folder, embedding, model.config.hidden_size)


def find_leftovers(names: Iterable[str], saved: Collection[str]) -> list[str]:
    """List files of a repository that a load would take with those that are saved, or instead.

    Without weights of a whole model these are an adapter, whose base may be there.
    """
    is_whole = WHOLE in saved or INDEX in saved
    stale = LEFTOVERS.union(FILES) if is_whole else {*FILES}
    return [
        name
        for name in names
        if (name in stale or (is_whole and SHARD.fullmatch(name))) and name not in saved
    ]


def delete_leftovers(
    repo_id: str,
    saved: Collection[str],
    token: bool | str | None,
    revision: str | None,
    *,
    after: Any,
) -> None:
    """Delete what a load would take of a model before, after an upload, which may go on."""
    from huggingface_hub import HfApi

    if isinstance(after, Future):
        when = partial(delete_leftovers, repo_id, saved, token, revision, after=None)
        after.add_done_callback(lambda x: None if x.cancelled() or x.exception() else when())
        return
    api = HfApi(token=token)
    names = find_leftovers(api.list_repo_files(repo_id, revision=revision), saved)
    if names:
        message = "Delete files of the model before"
        api.delete_files(repo_id, names, revision=revision, commit_message=message)


def upload(
    folder: Path,
    repo_id: str,
    private: bool | None,
    token: bool | str | None,
    tags: list[str] | None,
    commit: Fields,
) -> str:
    """Upload the folder of a model; see `MinBertPreTrainedModel.push_to_hub`."""
    from huggingface_hub import HfApi, ModelCard

    api, revision = HfApi(token=token), commit["revision"]
    repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if revision is not None and not commit["create_pr"] and not revision.startswith("refs/pr/"):
        api.create_branch(repo, branch=revision, exist_ok=True)
    has_card = api.file_exists(repo, "README.md", revision=revision)
    if has_card:
        message = "the card of %s stays: its text and results are those of other weights"
        logger.warning(message, repo)
    if tags:
        card: Any = ModelCard("---\n{}\n---\n")
        if has_card:
            card = ModelCard.load(api.hf_hub_download(repo, "README.md", revision=revision))
        card.data.tags = list(dict.fromkeys([*(card.data.tags or []), *tags]))
        card.save(folder / "README.md")
    saved = [path.name for path in folder.iterdir()]
    names = find_leftovers(api.list_repo_files(repo, revision=revision), saved)
    return api.upload_folder(repo_id=repo, folder_path=folder, delete_patterns=names, **commit)


def _write(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
