# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Vectors of sentences: poolings, `encode`, and saving for sentence-transformers.

Shapes: N sequences, L tokens of a sequence, D hidden size.
"""

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .configuration_minbert import MinBertConfig
from .inference_minbert import Encoded, MinBertTokenizing, Row, check_rows, stream, tokenize
from .pooling_minbert import pool_outputs, reads
from .sentence_transformers_minbert import POOLINGS, parse_embedding, write_modules

logger = logging.get_logger(__name__)


class _Plan(NamedTuple):
    """How a vector is made of a sentence: settings, and what turns a pooled state into it."""

    pooling: str
    num_layers: int
    normalize: bool
    max_length: int
    truncation: str
    project: Callable[[Tensor], Tensor] | None


class MinBertEmbeddingMixin(MinBertTokenizing):
    """What models that embed sentences share: `encode`, and saving for others."""

    config: MinBertConfig
    base_model: Any

    def encode(
        self,
        sentences: Sequence[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Tensor:
        """Embed sentences.

        Without `task` and `pooling`, `config.sentence_embedding` decides, which a folder of
        sentence-transformers fills in; its default is the mean.

        Args:
            sentences: The sentences.
            task: Name of the task whose vectors are wanted: its pooling, layer and truncation, and
                the projection that it keeps; those of a contrastive task have length 1.
            pooling: `cls`, `pooler`, `mean` or `max`, instead of both.
            normalize: Whether to scale the vectors to length 1; None for what the checkpoint says.
            max_tokens_per_batch: Tokens that are computed together; None for what suits the device.
            show_progress: Whether to show a progress bar; None shows it for long lists.

        Returns:
            Float32 vectors on the CPU, (number of sentences, D), in the order given.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: If there is no such task or pooling, the checkpoint's own vectors need what
                minBERT does not have, or a row is not a sentence.
        """
        plan = self._plan(task, pooling, normalize)
        rows = list(check_rows(sentences, "encode", 1))
        options = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        vectors = list(self._encode(rows, plan, **options))
        return torch.cat(vectors) if vectors else torch.empty(0, self.config.hidden_size)

    def encode_stream(
        self,
        sentences: Iterable[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
    ) -> Iterator[Tensor]:
        """Embed more sentences than fit into memory; see `encode`.

        Args:
            sentences: Any iterable; it is read some thousand sentences ahead of what is taken.
            task: Name of the task whose vectors are wanted.
            pooling: `cls`, `pooler`, `mean` or `max`.
            normalize: Whether to scale the vectors to length 1; None for what the checkpoint says.
            max_tokens_per_batch: Tokens that are computed together; None for what suits the device.
            show_progress: Whether to show a progress bar; None shows it unless the list is short.

        Yields:
            Float32 vectors on the CPU, (n, D) for some thousand sentences, in the order given.

        Raises:
            TypeError: If `sentences` is one string.
            ValueError: As in `encode`.
        """
        plan = self._plan(task, pooling, normalize)
        rows = check_rows(sentences, "encode", 1)
        options = {"max_tokens": max_tokens_per_batch, "show_progress": show_progress}
        return self._encode(rows, plan, **options)

    def save_as_sentence_transformers(
        self,
        save_directory: str | os.PathLike[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        normalize: bool | None = None,
        max_length: int | None = None,
    ) -> None:
        """Save a folder that `SentenceTransformer(folder)` opens and that gives equal vectors.

        The encoder is a plain `bert`, so that no remote code is needed, and there are no prompts;
        layers above the one that is pooled are left out. Heads have no place there.

        Args:
            save_directory: The folder; made if it is not there. The tokenizer is written, too.
            task: As in `encode`.
            pooling: `cls`, `mean` or `max`, as in `encode`.
            normalize: As in `encode`.
            max_length: Tokens of a sentence at most; None for as many as `encode` takes.

        Raises:
            ValueError: If sentence-transformers has no such vectors, or the folder holds a minBERT
                checkpoint, whose heads would be lost. Nothing is written then.
        """
        plan = self._plan(task, pooling, normalize)
        if plan.pooling not in POOLINGS or plan.project is not None or not plan.num_layers:
            what = f"pooling={plan.pooling!r}"
            if plan.pooling in POOLINGS:
                what = "a projection" if plan.project else "the layer of the embeddings"
            raise ValueError(
                f"sentence-transformers cannot be told of {what}: give pooling, one of "
                f"{', '.join(POOLINGS)}, and no task"
            )
        folder = Path(save_directory)
        _check_folder(folder)
        if plan.truncation != "head":
            logger.warning(
                "task %r keeps the %s of a long text; sentence-transformers keeps its head",
                task,
                plan.truncation,
            )
        tokenizer = copy.deepcopy(self.tokenizer)
        length = min(max_length or plan.max_length, self.config.max_position_embeddings)
        embedding = parse_embedding(
            {"pooling": plan.pooling, "normalize": plan.normalize, "max_length": length}
        )
        # What a file may have baked in would win over what is said here.
        tokenizer.model_max_length = length
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.backend_tokenizer.no_truncation()
        self.base_model.save_as_bert(folder, num_layers=plan.num_layers)
        tokenizer.save_pretrained(folder)
        write_modules(folder, embedding, self.config.hidden_size)

    def _plan(self, task: str | None, pooling: str | None, normalize: bool | None) -> _Plan:
        """Decide how vectors are made."""
        if task is None:
            plan = self._plan_without_task(pooling, normalize)
        elif pooling is not None:
            raise ValueError(
                f"task {task!r} determines how its vectors are pooled: leave pooling out"
            )
        else:
            plan = self._plan_of_task(task, normalize)
        if plan.pooling not in (*POOLINGS, "pooler"):
            raise ValueError(f"pooling={pooling!r} must be one of cls, pooler, mean, max")
        if plan.pooling == "pooler" and self.base_model.pooler is None:
            raise ValueError("pooling='pooler', but this model was made without a pooler")
        return plan

    def _plan_of_task(self, task: str, normalize: bool | None) -> _Plan:
        spec: Any = self.config.task(task)
        project = self._projection(task)
        layers = spec.count_layers(self.config.num_hidden_layers)
        scaled = normalize
        if scaled is None:
            known = parse_embedding(self.config.sentence_embedding)
            scaled = known.normalize or spec.normalizes_vectors
        length = self.config.max_position_embeddings
        return _Plan(spec.pooling, layers, scaled, length, spec.truncation, project)

    def _plan_without_task(self, pooling: str | None, normalize: bool | None) -> _Plan:
        known = parse_embedding(self.config.sentence_embedding)
        if pooling is None and known.missing:
            raise ValueError(
                f"{self.name_or_path}: its vectors need {', '.join(known.missing)}, which minBERT "
                "does not have: use sentence-transformers, or give pooling for vectors without that"
            )
        longest = self.config.max_position_embeddings
        length = min(longest, known.max_length or longest, self.tokenizer.model_max_length)
        scaled = known.normalize if normalize is None else normalize
        layers = self.config.num_hidden_layers
        return _Plan(pooling or known.pooling, layers, scaled, length, "head", None)

    def _projection(self, task: str) -> Callable[[Tensor], Tensor] | None:
        """Find what a task does with a pooled state before vectors are compared.

        Raises:
            ValueError: If it is a task of pre-training or of tokens, or the weights are missing.
        """
        spec: Any = self.config.task(task)
        if spec.is_pretraining or spec.is_token_level:
            raise ValueError(f"task {task!r} is a {spec.problem_type}, which has no vectors")
        if not spec.keeps_projection:
            return None
        heads: Any = getattr(self, "heads", None)
        if heads is None:
            raise ValueError(
                f"task {task!r} projects its vectors, and the projection is in its head: load the "
                "checkpoint with MinBertForMultiTask"
            )
        embed: Callable[[Tensor], Tensor] = heads[task].embed
        return embed

    def _encode(self, rows: Iterable[Row], plan: _Plan, **options: Any) -> Iterator[Tensor]:
        encoder: Any = self.base_model

        def compute(batch: dict[str, Any]) -> Tensor:
            outputs = encoder(
                **batch, return_dict=True, read=reads(plan.pooling), num_layers=plan.num_layers
            )
            vectors = pool_outputs(outputs, batch.get("attention_mask"), plan.pooling)
            vectors = vectors if plan.project is None else plan.project(vectors)
            return F.normalize(vectors.float(), dim=-1) if plan.normalize else vectors

        model: Any = self
        encode = self._tokenize(
            separate=False, truncation=plan.truncation, max_length=plan.max_length
        )
        return stream(model, rows, encode, compute, **options)

    def _tokenize(
        self, *, separate: bool, truncation: str, max_length: int | None = None
    ) -> Callable[[Sequence[Row]], list[Encoded]]:
        """Bind what tokenizes rows."""
        return partial(
            tokenize,
            self.tokenizer,
            separate=separate,
            max_length=max_length or self.config.max_position_embeddings,
            truncation=truncation,
        )


def _check_folder(folder: Path) -> None:
    """Refuse a folder with a checkpoint of minBERT, whose weights would be overwritten."""
    path = folder / "config.json"
    if (
        path.is_file()
        and json.loads(path.read_text(encoding="utf-8")).get("model_type") == "minbert"
    ):
        raise ValueError(f"{folder} holds a minBERT checkpoint, which would be lost: name another")


__all__ = ["MinBertEmbeddingMixin"]
