# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Models on the Hub: what is pushed beside the weights, and the model card."""

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import (
    HfHubHTTPError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
)

# Auto class -> what the Hub calls its task: https://huggingface.co/tasks
HUB_TASKS = {
    "AutoModel": "feature-extraction",
    "AutoModelForMaskedLM": "fill-mask",
    "AutoModelForPreTraining": "fill-mask",
    "AutoModelForNextSentencePrediction": "text-classification",
    "AutoModelForSequenceClassification": "text-classification",
    "AutoModelForTokenClassification": "token-classification",
    "AutoModelForQuestionAnswering": "question-answering",
}
CARD_KEYS = ("language", "license", "tags", "datasets", "base_model", "pipeline_tag")
# What sending raises: files, the Hub's answers, and all of the client that it is built on.
ERRORS: tuple[type[Exception], ...] = (OSError, HfHubHTTPError.__bases__[0])


class MinBertSharingMixin:
    """What every model shares with others: a folder of the Hub, or one of a plain `bert`."""

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

        The card is that of the folder which the model was loaded from, else the one that is there,
        else one made from the configuration.

        Args:
            repo_id: `owner/name`, or `name` for the owner of the token.
            card: Metadata of the card: `language`, `license`, `datasets`, `tags`, `base_model` and
                `pipeline_tag`, as the Hub defines them.
            tags: More tags of the card.
            private: Whether a new repository is private.
            token: Token of the Hub; None for that of the login.
            max_shard_size: Size of a file of weights at most.
            **commit: `commit_message`, `commit_description`, `revision` and `create_pr`, as in
                `PreTrainedModel.push_to_hub`.

        Returns:
            The address of the commit.

        Raises:
            ValueError: If a key of `card` is unknown.
            OSError: If the Hub refuses, or cannot be reached; nothing on this machine changes.
        """
        message = commit.pop("commit_message", None) or f"Upload {type(self).__name__}"
        return push(
            self,
            repo_id,
            card=card,
            tags=tags,
            private=private,
            token=token,
            max_shard_size=max_shard_size,
            commit={"commit_message": message, **commit},
        )

    def save_as_bert(
        self, save_directory: str | os.PathLike[str], *, num_layers: int | None = None
    ) -> None:
        """Save a folder that transformers loads as a plain `bert`, with equal outputs.

        Args:
            save_directory: The folder; made if it is not there. The tokenizer is not written.
            num_layers: How many layers are saved, from below; None for all.
        """
        model: Any = self
        config = model.config.to_bert()
        config.num_hidden_layers = num_layers or config.num_hidden_layers
        bert = getattr(transformers, model._auto_class).from_config(config, dtype=model.dtype)
        if getattr(model, "pooler", True) is None:
            bert.pooler = None
        state = model.state_dict()
        if num_layers is not None:
            state = {name: state[name] for name in bert.state_dict()}
        bert.load_state_dict(state)
        bert.save_pretrained(save_directory)


def push(
    model: Any,
    repo_id: str,
    *,
    card: Mapping[str, Any] | None,
    tags: Sequence[str] | None,
    private: bool | None,
    token: bool | str | None,
    max_shard_size: int | str | None,
    commit: Mapping[str, Any],
) -> str:
    """Upload a model with its code, its card, and its tokenizer.

    Args:
        model: A minBERT.
        repo_id: `owner/name`, or `name` for the owner of the token.
        card: Metadata of the card, which win; keys of `CARD_KEYS`.
        tags: More tags of the card.
        private: Whether a new repository is private.
        token: Token of the Hub; None for that of the login.
        max_shard_size: Size of a file of weights at most.
        commit: What `HfApi.upload_folder` takes of the commit.

    Returns:
        The address of the commit.

    Raises:
        ValueError: If a key of `card` is unknown.
        OSError: If the Hub refuses, or cannot be reached.
    """
    if unknown := sorted(set(card or {}) - set(CARD_KEYS)):
        raise ValueError(f"card: unknown key {unknown[0]!r}; known keys: {', '.join(CARD_KEYS)}")
    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        tokenizer = _find_tokenizer(model)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)
        with _readable_errors(repo_id):
            repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            found = _find_card(model, repo, api)
            _complete_card(found, repo, card or {}, tags or ()).save(Path(folder) / "README.md")
            return api.upload_folder(repo_id=repo, folder_path=folder, **commit)


@contextmanager
def _readable_errors(repo_id: str) -> Iterator[None]:
    """Let errors name the repository and the way out."""
    try:
        yield
    except ERRORS as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, LocalTokenNotFoundError) or status == 401:
            advice = "log in with `hf auth login`, or pass token="
        elif status == 403:
            advice = "this token may not write there: name a repository of your own, or log in anew"
        elif isinstance(error, OfflineModeIsEnabled):
            advice = "unset HF_HUB_OFFLINE"
        else:
            advice = "check the network, and push again"
        said = " ".join(str(getattr(error, "server_message", None) or error).split()).rstrip(".")
        reason = f"{status} {said}" if status else said or type(error).__name__
        raise OSError(
            f"push_to_hub({repo_id!r}): {reason}; {advice}; save_pretrained(folder) keeps "
            "the model on this machine"
        ) from error


def _find_tokenizer(model: Any) -> Any:
    """Return the tokenizer that a model predicts with; None if it has none."""
    try:
        return model.tokenizer
    except (AttributeError, ValueError, OSError):
        return None


def _find_card(model: Any, repo: str, api: HfApi) -> ModelCard:
    """Take the card of the folder that a model came from, that of the Hub, or make one."""
    own = Path(model.name_or_path) / "README.md"
    if model.name_or_path and own.is_file() and _is_of(model, own.with_name("config.json")):
        return ModelCard(_point_to(repo, own.read_text(encoding="utf-8")))
    if api.file_exists(repo, "README.md"):
        return ModelCard(Path(api.hf_hub_download(repo, "README.md")).read_text(encoding="utf-8"))
    return make_card(model, repo)


def _is_of(model: Any, path: Path) -> bool:
    """Return whether a configuration is that of a minBERT with the tasks of this one."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    kind, tasks = model.config.model_type, model.config.tasks
    return config.get("model_type") == kind and (config.get("tasks") or {}) == (tasks or {})


def _point_to(repo: str, text: str) -> str:
    """Let the examples of a card load from the Hub, not from a folder of another machine."""
    text = re.sub(r'(?m)(\.from_pretrained\(|^path = |, model=)"[^"]*"', rf'\1"{repo}"', text)
    return re.sub(r"(<recipe> --model_name_or_path )[^`\n]+", rf"\1{repo}", text)


def _complete_card(
    card: ModelCard, repo: str, given: Mapping[str, Any], tags: Sequence[str]
) -> ModelCard:
    """Put what was given into the metadata of a card."""
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
    """Describe the sizes and tasks of a model, and how to load it.

    Args:
        model: A minBERT.
        repo_id: `owner/name` on the Hub.
    """
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
        "This card was made from the model alone, which knows neither. Say here what it was "
        "trained on, how, and what was measured.",
        "## Limits",
        "The model knows what its training data shows, biases included. Check it on your own text "
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
    if model._pipelines:  # the heads are those of tasks
        for name in model.config.tasks:
            task = model.config.task(name)
            if not task.is_pretraining:
                lines.append(f'model.predict("{name}", [{task.example_row}])')
    return "\n".join(["```python", *lines, "```"])
