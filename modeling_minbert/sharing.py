# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Sharing of models: on the Hub, or as a plain `bert`."""

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers.utils import logging

logger = logging.get_logger(__name__)


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
        Otherwise a card on the Hub stays, with a warning, and a new repository gets none.

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
        from huggingface_hub import HfApi

        from .folders import FILES

        model: Any = self
        commit = {"commit_message": f"Upload {type(self).__name__}", **commit}
        api = HfApi(token=token)
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder, max_shard_size=max_shard_size)
            repo = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            card = find_card(model, repo)
            if card is not None:
                (Path(folder) / "README.md").write_text(card, encoding="utf-8")
            elif api.file_exists(repo, "README.md"):
                message = "the card of %s stays: its text and results are those of other weights"
                logger.warning(message, repo)
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
        from .folders import remove_modules

        model: Any = self
        config = model.config.to_bert()
        config.num_hidden_layers = num_layers or config.num_hidden_layers
        bert = getattr(transformers, model._auto_class).from_config(config, dtype=model.dtype)
        if getattr(model, "pooler", True) is None:
            bert.pooler = None
        state = dict(model.state_dict())
        for name in [name for name in state if name.endswith(".weight_scale")]:  # of int8
            weight, scale = name.removesuffix("_scale"), state.pop(name)
            state[weight] = state[weight].float() * scale.unsqueeze(1)
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
    from huggingface_hub import load_state_dict_from_file

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
