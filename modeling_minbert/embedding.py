# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`encode`: vectors of texts, named as in sentence-transformers, and the tokenizer of a model.

Shapes: N and M sentences, D size of a vector.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .inference import (
    HUB_KEYS,
    Embedder,
    Where,
    check_vocabulary,
    check_weights,
    choose_tokens,
    compute_rows,
    find_file,
    is_called_by,
    is_known,
    load_tokenizer,
    predicting,
)
from .rows import DISTANCES, EmbeddingPlan, Job, MinBertVectors, check_bytes, warn_once
from .texts import own_tokenizer

logger = logging.get_logger(__name__)


def find_place(path: str | os.PathLike[str]) -> str:
    """Return where a folder is, also after `os.chdir`; others, such as a Hub id, stay."""
    name = os.fspath(path)
    return str(Path(name).absolute()) if name and Path(name).is_dir() else name


class MinBertEmbeddingMixin(MinBertVectors[Tensor]):
    """Mixin of models that take texts: their tokenizer, and the vectors of sentences."""

    config: Any
    name_or_path: str
    _tokenizer: PreTrainedTokenizerBase | None = None
    _fitting: object = None  # the tokenizer, its length and the vocabulary that were compared
    # Where the tokenizer is, and keyword arguments that locate it: revision, subfolder, ...
    _found_at: str | None = None
    _found_by: ClassVar[Where] = {}
    # Size of the vocabulary when the model was loaded, and with it that of its tokenizer.
    _loaded_vocabulary = 0
    _loaded_sizes: tuple[int, int] | None = None
    _compute_rows = compute_rows

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: Any, *args: Any, **kwargs: Any) -> Self:
        """Load a checkpoint; see `PreTrainedModel.from_pretrained`.

        The tokenizer is loaded later, with the same `revision`, `subfolder`, ...

        Raises:
            ValueError: If a weight is NaN or infinite.
        """
        found_by = {name: kwargs[name] for name in HUB_KEYS if kwargs.get(name) is not None}
        found_by.pop("token", None)  # a secret: the model may be pickled
        parent: Any = super()
        loaded: Any = parent.from_pretrained(pretrained_model_name_or_path, *args, **kwargs)
        model = loaded[0] if isinstance(loaded, tuple) else loaded
        path = pretrained_model_name_or_path
        check_weights(model, path)
        for part in {model, model.base_model}:  # an encoder may be used without its heads
            part._found_by, part._found_at = found_by, find_place(model.name_or_path)
            part._loaded_vocabulary = model.config.vocab_size
        if getattr(model, "_hf_peft_config_loaded", False):
            # of a folder with an adapter, transformers has read the base that it names
            from .folders import read_modules

            if (modules := read_modules(path, found_by)) is not None:
                model.config.sentence_embedding = modules
            elif find_file(path, "modules.json", **found_by) is not None:  # which refuses to load
                missing = {"missing": ["a task, which only the merged model has"]}
                model.config.sentence_embedding = missing
            if find_file(path, "tokenizer_config.json", **found_by) is not None:
                model._found_at = find_place(path)
        if model.config.sentence_embedding is None and not Path(path or ".").exists():
            model._guesses_pooling = not is_known(path, "modules.json", **found_by)
        if missing := model.config.embedding.missing:
            message = "%s: its vectors need %s, which minBERT does not have: encode will refuse"
            logger.warning(message, path, ", ".join(missing))
        if is_called_by("sentence_transformers"):
            # without a tokenizer, it would read unknown tokens only
            with suppress(OSError):  # of a private repository
                _ = model.tokenizer
        return loaded

    def save_pretrained(
        self,
        save_directory: str | os.PathLike[str],
        is_main_process: bool = True,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        """Save weights, configuration and code, and the tokenizer if there is one."""
        parent: Any = super()
        parent.save_pretrained(save_directory, is_main_process, *args, **kwargs)
        known = self._tokenizer or self._found_at or self.name_or_path
        if not known or not getattr(self, "should_save_on_this_rank", bool)(is_main_process):
            return  # a new model has none
        try:
            tokenizer = self.tokenizer
            # one that is there may have the tokens that this one lacks
            has_other = Path(save_directory, "tokenizer_config.json").is_file()
            self.check_tokenizer(replaces_other=has_other)
        except (OSError, ValueError) as error:
            warn_once(f"the tokenizer is not saved with the model: {error}")
            return
        own, longest = own_tokenizer(tokenizer), self.config.longest_sequence
        own.model_max_length = min(own.model_max_length, longest)  # for who reads no more
        own.save_pretrained(save_directory)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer of texts, from the checkpoint or assigned.

        Raises:
            ValueError: If none was assigned and the checkpoint has none.
        """
        if self._tokenizer is None:
            path = self._found_at or self.name_or_path
            self._tokenizer = load_tokenizer(path, self.config, self._found_by)
            vocabulary = self._loaded_vocabulary or self.config.vocab_size
            self._loaded_sizes = vocabulary, len(self._tokenizer)
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer, self._loaded_sizes = tokenizer, None

    def check_tokenizer(self, *, replaces_other: bool = False) -> None:
        """Check that the tokenizer fits the model; tokens may be added to both at any time.

        Raises:
            ValueError: If it has tokens for which the model has no embedding; if it
                replaces another one, also if others may have been added to that.
        """
        tokenizer = self.tokenizer
        sizes = self.config.vocab_size, len(tokenizer)
        if (fitting := (id(tokenizer), *sizes)) == self._fitting and not replaces_other:
            return
        check_vocabulary(tokenizer, self.config, self.name_or_path)
        known = self._loaded_sizes
        if known is not None and known[0] != sizes[0] and known[1] == sizes[1]:
            message = (
                f"vocab_size has changed from {known[0]} to {sizes[0]}, and no token was added to "
                "the tokenizer of this model; if they were added to another one, assign it: "
                "model.tokenizer = tokenizer"
            )
            if replaces_other:
                raise ValueError(message)
            logger.warning(message)
        self._fitting = fitting

    def __dir__(self) -> list[str]:
        # torch.jit.trace reads all attributes, and reading the tokenizer would load it
        return [name for name in super().__dir__() if name != "tokenizer"]

    def compute(self, jobs: Sequence[Job], max_tokens: int | None = None) -> None:
        """Compute the rows of jobs together; afterwards `describe` of each returns its results.

        Args:
            jobs: What `start` and `start_vectors` returned, of any number of calls.
            max_tokens: Tokens of a batch at most; None for a default of the device.
        """
        from .joined import compute_jobs

        model: Any = self
        with predicting(model, None):
            compute_jobs(model, jobs, max_tokens or choose_tokens(model))

    def _embedder(self, plan: EmbeddingPlan) -> Embedder:
        self.check_tokenizer()
        return Embedder(self, plan)

    def _join(self, vectors: Sequence[Tensor], size: int) -> Tensor:
        return torch.cat([torch.empty(0, size), *vectors])

    def save_as_sentence_transformers(
        self,
        save_directory: str | os.PathLike[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
    ) -> None:
        """Save a folder that `SentenceTransformer(folder)` loads, with the same vectors.

        The encoder is one of transformers, of the type `config.encoder_type`, which needs no remote
        code; layers above the pooled one and heads are left out, and with `task` the prompts and
        the size of the checkpoint's vectors.

        Args:
            save_directory: The folder, created if necessary; the tokenizer is also saved.
            task: As in `encode`.
            pooling: `cls`, `mean` or `max`, as in `encode`.
            normalize: As in `encode`.
            max_length: Maximum tokens of a sentence; None for the limit of `encode`.

        Raises:
            ValueError: If sentence-transformers has no such vectors, or the folder holds a minBERT
                checkpoint, whose heads would be lost. Nothing is written then.
        """
        from .folders import save_vectors

        plan = self._plan(task, pooling, None, normalize)
        save_vectors(self, Path(save_directory), plan, max_length, is_own=task is None)

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Compare all vectors of (N, D) with all of (M, D), tensors or arrays: (N, M).

        That is in float32, or in float64 if one of them is.

        Raises:
            ValueError: If they are integers of 8 bits, which may be packed bits.
        """
        first, second = self._prepare(first), self._prepare(second)
        dtype = torch.promote_types(first.dtype, second.dtype)
        first, second = first.to(dtype), second.to(dtype)
        if (order := DISTANCES.get(self.similarity_fn_name)) is not None:
            # by default, distances of near vectors would be rounded
            mode = "donot_use_mm_for_euclid_dist"
            return -torch.cdist(first, second, p=order, compute_mode=mode)
        with torch.autocast(first.device.type, enabled=False):
            return first @ second.T

    def _prepare(self, vectors: Any) -> Tensor:
        """Make vectors (N, D), of length 1 for cosines; one vector becomes one row."""
        if isinstance(vectors, list | tuple):
            vectors = torch.stack([torch.as_tensor(each) for each in vectors])
        vectors = torch.atleast_2d(torch.as_tensor(vectors))
        check_bytes(vectors.dtype)
        if vectors.dtype != torch.float64:
            vectors = vectors.float()  # half precision has few different similarities
        is_cosine = self.similarity_fn_name == "cosine"
        return F.normalize(vectors, dim=-1) if is_cosine else vectors
