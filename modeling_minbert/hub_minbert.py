# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Models on the Hub: the files beside the weights, and the model card."""

import json
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import HfApi, ModelCard, ModelCardData, load_state_dict_from_file
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
from transformers.utils import logging

from .names_minbert import unknown
from .quantization_minbert import float_state
from .sentence_transformers_minbert import FILES, remove_modules

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
                lines.append(f"model.predict({json.dumps(name)}, [{task.example_row}])")
    return "\n".join(["```python", *lines, "```"])


def _check_card(card: dict[str, Any]) -> None:
    """Refuse metadata that a card does not have."""
    for key in card:
        if key not in CARD_KEYS:
            raise ValueError(f"card: {unknown('key', key, CARD_KEYS)}")
