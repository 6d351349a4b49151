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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
import transformers
from huggingface_hub import HfApi, ModelCard, ModelCardData, load_state_dict_from_file
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    StrictDataclassError,
)
from transformers.utils import logging
from transformers.utils.hub import cached_file

from .inference import HUB_KEYS, is_called_by
from .int8 import float_state
from .names import unknown

Read = Callable[..., Any]

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
        include_prompt: Whether the tokens of a prompt are pooled, too.
        truncate_dim: Number of components of a vector that are kept; None for all.
        missing: Steps of sentence-transformers for this checkpoint that minBERT does not have.
    """

    pooling: Literal["cls", "pooler", "mean", "max"] = "mean"
    normalize: bool = False
    max_length: int | None = None
    similarity: Similarity = "cosine"
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    include_prompt: bool = True
    truncate_dim: int | None = None
    missing: list[str] | None = None

    def validate_max_length(self) -> None:
        """Check that there is room for more than the special tokens."""
        if self.max_length is not None and self.max_length < 3:
            raise ValueError(f"max_length={self.max_length} must be 3 or more")

    def validate_truncate_dim(self) -> None:
        """Check that a vector has components."""
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ValueError(f"truncate_dim={self.truncate_dim} must be 1 or more")

    def validate_prompts(self) -> None:
        """Check that there is a default prompt if it has a name."""
        self.find_prompt(self.default_prompt_name)

    def find_prompt(self, name: str | None) -> str:
        """Return a prompt; that of `query` and `document` may be empty, and so is that of None."""
        known = {"query": "", "document": "", **(self.prompts or {})}
        if name is not None and name not in known:
            raise ValueError(unknown("prompt_name", name, known))
        return "" if name is None else known[name]


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
    if not modules or _type_of(modules[0]) == REFUSAL:
        return None
    missing: list[str] = []
    fields: dict[str, Any] = {"missing": missing}
    for module in modules:
        _read_module(fields, read, module)
    if not missing and not any(_type_of(module).endswith(".Pooling") for module in modules):
        missing.append("vectors without a pooling")
    _read_settings(fields, read(SETTINGS))
    fields["missing"] = missing or None
    return asdict(parse_embedding(fields))


def _read_settings(fields: dict[str, Any], settings: dict[str, Any]) -> None:
    """Read what concerns a folder as a whole."""
    name = settings.get("similarity_fn_name") or "cosine"
    if name in get_args(Similarity):
        fields["similarity"] = name
    else:
        fields["missing"].append(f"the similarity {name!r}")
    # it writes these two names with empty prompts if there are none
    prompts = {
        key: text or ""
        for key, text in _part_of(settings, "prompts", SETTINGS).items()
        if text or key not in ("query", "document")
    }
    fields["prompts"] = prompts or None
    fields["truncate_dim"] = settings.get("truncate_dim")
    default = settings.get("default_prompt_name")
    if default is None or default in ("query", "document", *prompts):
        fields["default_prompt_name"] = default
    else:
        fields["missing"].append(f"the prompt {default!r}, which is not among its prompts")


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
    package, _, name = _type_of(module).rpartition(".")
    if package.startswith("sentence_transformers.") and name in READERS:
        READERS[name](fields, read, f"{path}/" if path else "")
    else:
        fields["missing"].append(f"the module {name}")


def _part_of(settings: dict[str, Any], key: str, file: str) -> dict[str, Any]:
    """Return an object within settings; empty if there is none."""
    part = settings.get(key) or {}
    if not isinstance(part, dict):
        raise ValueError(  # noqa: TRY004  the file is wrong, not a type in the code
            f"{file}: {key} must be an object, not {str(part)[:50]}"
        )
    return part


def _type_of(module: Any) -> str:
    return str(module.get("type")) if isinstance(module, dict) else ""


def _read_transformer(fields: dict[str, Any], read: Read, folder: str) -> None:
    settings = read(f"{folder}{TRANSFORMER_SETTINGS}")
    fields["max_length"] = settings.get("max_seq_length")
    modalities = _part_of(settings, "modality_config", TRANSFORMER_SETTINGS)
    text = _part_of(modalities, "text", TRANSFORMER_SETTINGS)
    # what there is since version 6, with the values that are those of versions before
    usual = {
        "transformer_task": "feature-extraction",
        "method_output_name": "last_hidden_state",
        "module_output_name": "token_embeddings",
    }
    for key, value in usual.items():
        given = (settings | text).get(key) or value
        if given != value:
            fields["missing"].append(f"{key}={given!r} of its Transformer")
    others = ("do_lower_case", "processing_kwargs", "query_length", "document_length")
    for key in (*others, "query_expansion"):
        if settings.get(key):
            fields["missing"].append(key)


def _read_pooling(fields: dict[str, Any], read: Read, folder: str) -> None:
    settings = read(f"{folder}config.json")
    old = POOLINGS | OTHER_POOLINGS
    modes = settings.get("pooling_mode") or [name for name in old if settings.get(old[name])]
    modes = [modes] if isinstance(modes, str) else modes or ["mean"]
    fields["include_prompt"] = settings.get("include_prompt", True)
    if modes == ["cls"] and not fields["include_prompt"]:
        fields["missing"].append("include_prompt=false with the pooling cls")
    elif len(modes) == 1 and modes[0] in POOLINGS:
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


class MinBertRefusal:
    """The module of a folder whose vectors sentence-transformers cannot make."""

    @classmethod
    def load(cls, path: str, **_: Any) -> None:
        """Refuse to load.

        Raises:
            ValueError: In any case.
        """
        raise ValueError(
            f"{path}: sentence-transformers does not have what the vectors of this checkpoint "
            "need: a pooler, a projection, windows, the end of a long text, a lower layer, or a "
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
    if config.sentence_embedding and _is_described(folder, embedding):
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


def _is_described(folder: Path, embedding: MinBertEmbedding) -> bool:
    """Return whether the files of a folder describe these vectors."""
    if not folder.is_dir():
        return False
    try:
        return read_modules(folder, {}) == asdict(embedding)
    except ValueError:
        return False


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
    content: dict[str, Any] = {
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
            "include_prompt": embedding.include_prompt,
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


def _write(path: Path, values: Any) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


logger = logging.get_logger(__name__)

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
CARD_KEYS = ("language", "license", "tags", "datasets", "base_model", "pipeline_tag")
# Errors of an upload: of files, of the Hub, and of its HTTP client.
ERRORS: tuple[type[Exception], ...] = (OSError, HfHubHTTPError.__bases__[0])


class MinBertSharingMixin:
    """Sharing of models: on the Hub, or as a plain `bert`."""

    def push_to_hub(
        self,
        repo_id: str,
        *,
        card: dict[str, Any] | None = None,
        tags: list[str] | None = None,
        private: bool | None = None,
        token: bool | str | None = None,
        max_shard_size: int | str | None = "50GB",
        **commit: Any,
    ) -> str:
        """Upload weights, configuration, code, the tokenizer of `predict`, and a card.

        The card comes from the folder from which the model was loaded, if it has these weights,
        else from the Hub, without results in its metadata, else it is made from the configuration.

        Args:
            repo_id: `owner/name`, or `name` for the owner of the token.
            card: Metadata of the card, which take precedence: `language`, `license`, `datasets`,
                `tags`, `base_model` and `pipeline_tag`, as the Hub defines them.
            tags: More tags of the card.
            private: Whether a new repository is private.
            token: Token of the Hub; None for the token of the login.
            max_shard_size: Maximum size of a file of weights.
            **commit: `commit_message`, `commit_description`, `revision` and `create_pr`, as in
                `PreTrainedModel.push_to_hub`.

        Returns:
            The address of the commit.

        Raises:
            ValueError: If a key of `card` is unknown.
            OSError: If the Hub refuses or cannot be reached; nothing on this machine changes.
        """
        message = commit.pop("commit_message", None) or f"Upload {type(self).__name__}"
        _check_card(card or {})
        model: Any = self
        api = HfApi(token=token)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, max_shard_size=max_shard_size)
            tokenizer = None
            with suppress(AttributeError, ValueError, OSError):  # not all models have one
                tokenizer = model.tokenizer
            if tokenizer is not None:
                tokenizer.save_pretrained(folder)
            with _readable_errors(repo_id):
                repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
                new = _complete_card(_find_card(model, repo, api), repo, card or {}, tags or ())
                new.save(Path(folder) / "README.md")
                # what is there of a model before would tell how vectors of this one are made
                options = {"commit_message": message, "delete_patterns": [*FILES], **commit}
                return api.upload_folder(repo_id=repo, folder_path=folder, **options)

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


@contextmanager
def _readable_errors(repo_id: str) -> Iterator[None]:
    """Let errors name the repository and the remedy."""
    try:
        yield
    except ERRORS as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, LocalTokenNotFoundError) or status == 401:
            advice = "log in with `hf auth login`, or pass token="
        elif status == 403:
            advice = "this token may not write there: use a repository of your own or another login"
        elif isinstance(error, OfflineModeIsEnabled):
            advice = "unset HF_HUB_OFFLINE"
        else:
            advice = "check the network, and push again"
        text = " ".join(str(getattr(error, "server_message", None) or error).split()).rstrip(".")
        reason = f"{status} {text}" if status else text or type(error).__name__
        raise OSError(
            f"push_to_hub({repo_id!r}): {reason}; {advice}; save_pretrained(folder) keeps "
            "the model on this machine"
        ) from error


def _find_card(model: Any, repo: str, api: HfApi) -> ModelCard:
    """Return the card in the folder the model came from, the one on the Hub, or a new one."""
    own = Path(model.name_or_path) / "README.md"
    if model.name_or_path and own.is_file() and _is_of(model, own.with_name("config.json")):
        if _has_weights_of(model, own.parent):
            names = {model.name_or_path, str(own.parent.resolve())}
            return ModelCard(_point_to(repo, own.read_text(encoding="utf-8"), names))
        logger.warning("%s describes other weights than those that are pushed: not taken", own)
    if not api.file_exists(repo, "README.md"):
        return make_card(model, repo)
    card = ModelCard(Path(api.hf_hub_download(repo, "README.md")).read_text(encoding="utf-8"))
    data: Any = card.data
    if data.eval_results:
        data.eval_results = None
        logger.warning(
            "the card of %s stays, without the results in its metadata, which are those of the "
            "weights before: check its text, too",
            repo,
        )
    return card


def _is_of(model: Any, path: Path) -> bool:
    """Return whether a file configures a minBERT with the tasks of this model."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    kind, tasks = model.config.model_type, model.config.tasks
    return config.get("model_type") == kind and (config.get("tasks") or {}) == (tasks or {})


def _has_weights_of(model: Any, folder: Path) -> bool:
    """Return whether a model has the weights in a folder, apart from their precision."""
    state = model.state_dict()
    stored: dict[str, Any] = {}
    for file in folder.glob("*.safetensors"):
        stored |= load_state_dict_from_file(file)
    return bool(stored) and all(
        name in state and torch.equal(values.to(state[name].dtype), state[name].cpu())
        for name, values in stored.items()
    )


def _point_to(repo: str, text: str, names: Collection[str]) -> str:
    """Let the examples of a card load its model from the Hub, not from a folder or another id.

    The model is what `names` contains, what the examples of our cards call `path`, and what has
    the title of the card as its last part; other models keep their ids.
    """
    string = r'"((?:[^"\\\n]|\\.)*)"'
    path = rf"(?m)^path = {string}(?=\n.*\.from_pretrained\(path)"
    title = re.search(r"(?m)^# (.+)$", text)
    own = {*names, *re.findall(path, text)}

    def point(match: re.Match[str]) -> str:
        before, name = match.groups()
        is_own = name in own or (title is not None and name.rpartition("/")[2] == title[1].strip())
        return f'{before}"{repo}"' if is_own else match[0]

    text = re.sub(path, f'path = "{repo}"', text)
    return re.sub(rf"(\.from_pretrained\(|\bmodel=){string}", point, text)


def _complete_card(
    card: ModelCard, repo: str, given: Mapping[str, Any], tags: Sequence[str]
) -> ModelCard:
    """Add the given metadata to a card."""
    data: Any = card.data
    for name, value in given.items():
        setattr(data, name, value)
    before = [data.tags] if isinstance(data.tags, str) else data.tags or []
    data.tags = list(dict.fromkeys([*before, "minbert", *tags]))
    data.library_name = data.library_name or "transformers"
    if data.eval_results:
        data.model_name = repo.rpartition("/")[2]
    return card


def make_card(model: Any, repo_id: str) -> ModelCard:
    """Describe the sizes and tasks of a model, and how to load it."""
    start = model.name_or_path
    data = ModelCardData(
        library_name="transformers",
        pipeline_tag=HUB_TASKS[model._auto_class],
        base_model=start if start and not Path(start).exists() else None,
    )
    config = model.config
    parts = [
        f"---\n{data.to_yaml()}\n---\n\n# {repo_id.rpartition('/')[2]}",
        f"A {type(model).__name__}: {config.num_hidden_layers} layers of width "
        f"{config.hidden_size}, {model.num_parameters():,} parameters, sequences of up to "
        f"{config.max_position_embeddings} tokens.",
        "## Use",
        _describe_use(model, repo_id),
        "## Training and evaluation",
        "This card was generated from the model alone. Describe here its training data, its "
        "training procedure, and its evaluation.",
        "## Limits",
        "The model reflects its training data, including biases. Evaluate it on your own text "
        "before you rely on it.",
    ]
    return ModelCard("\n\n".join(parts) + "\n")


def _describe_use(model: Any, repo_id: str) -> str:
    auto_class = model._auto_class
    lines = [
        f"from transformers import {auto_class}, AutoTokenizer",
        "",
        f'tokenizer = AutoTokenizer.from_pretrained("{repo_id}")',
        f'model = {auto_class}.from_pretrained("{repo_id}", trust_remote_code=True)',
    ]
    if model._pipelines:  # the heads belong to tasks
        for name in model.config.tasks:
            task = model.config.task(name)
            if not task.is_pretraining:
                lines.append(f"model.predict({json.dumps(name)}, [{task.example_row!r}])")
    return "\n".join(["```python", *lines, "```"])


def _check_card(card: dict[str, Any]) -> None:
    """Refuse metadata that a card does not have."""
    for key in card:
        if key not in CARD_KEYS:
            raise ValueError(f"card: {unknown('key', key, CARD_KEYS)}")
