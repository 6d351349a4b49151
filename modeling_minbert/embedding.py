# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`encode`: vectors of texts, named as in sentence-transformers.

Shapes: N and M sentences, D size of a vector.
"""

import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .configuration_minbert import MinBertConfig
from .inference import MinBertTokenizing, VectorPredictor, compute_rows
from .rows import DISTANCES, Batching, EmbeddingPlan, MinBertVectors, check_bytes


def finish(values: Tensor, plan: EmbeddingPlan) -> Tensor:
    """Normalize and cut vectors, (N, D), in float32 on the CPU."""
    values = F.normalize(values.float(), dim=-1) if plan.normalize else values
    values = values[:, : plan.truncate_dim]
    return (F.normalize(values.float(), dim=-1) if plan.rescale else values).float().cpu()


class MinBertEmbeddingMixin(MinBertTokenizing, MinBertVectors[Tensor]):
    """Mixin of models that embed sentences: their vectors, and how these are compared."""

    config: MinBertConfig

    def _embed(self, texts: list[str], plan: EmbeddingPlan, batching: Batching) -> Tensor:
        """Compute vectors of texts, (N, D), in float32 on the CPU."""
        embedder = VectorPredictor(self, "encode", plan.vectors, prompt=plan.prompt)
        computed = compute_rows(self, [embedder], texts, batching)
        windows = [finish(embedder.collect(), plan) for _ in computed]
        none = torch.empty(0, self.config.hidden_size)[:, : plan.truncate_dim]
        return torch.cat(windows) if windows else none

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
        from .vector_folders import save

        plan = self._plan(task, pooling, None, normalize)
        save(self, Path(save_directory), plan, max_length, is_own=task is None)

    def similarity(self, first: Any, second: Any) -> Tensor:
        """Compare all vectors of (N, D) with all of (M, D), tensors or arrays: (N, M), in float32.

        Raises:
            ValueError: If they are integers of 8 bits, which may be packed bits.
        """
        first, second = self._prepare(first), self._prepare(second)
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
