# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`encode`: vectors of texts, named as in sentence-transformers.

Shapes: N and M sentences, D size of a vector.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple, Unpack, get_args

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .configuration_minbert import MinBertConfig
from .heads import POOLINGS, MinBertEmbedding, parse_embedding
from .inference import (
    Batching,
    MinBertTokenizing,
    VectorPlan,
    VectorPredictor,
    check_container,
    compute_rows,
)
from .names import unknown
from .packing import Pooling
from .texts import HEAD_SHARES, WINDOWS, Encoding, default_overlap, own_tokenizer

logger = logging.get_logger(__name__)

# Similarities that are negated distances, and the order of their norm.
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}


class _Plan(NamedTuple):
    """How a vector is made of a sentence."""

    vectors: VectorPlan
    normalize: bool
    prompt: str  # written before every sentence
    truncate_dim: int | None  # components that are kept; None for all
    rescale: bool  # whether what is kept is scaled to length 1

    def finish(self, values: Tensor) -> Tensor:
        """Normalize and cut vectors, (N, D)."""
        values = F.normalize(values.float(), dim=-1) if self.normalize else values
        values = values[:, : self.truncate_dim]
        return F.normalize(values.float(), dim=-1) if self.rescale else values


class MinBertEmbeddingMixin(MinBertTokenizing):
    """Mixin of models that embed sentences: their vectors, and how these are compared."""

    config: MinBertConfig
    base_model: Any

    def encode(
        self,
        sentences: str | Iterable[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        truncation: str | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
        **batching: Unpack[Batching],
    ) -> Tensor:
        """Embed sentences.

        Without `task` and `pooling`, the vectors are those of the folder of sentence-transformers
        that the checkpoint was or started from (`config.sentence_embedding`), else of the first
        task of separate texts (`config.embedding_task`), else the mean. The default prompt and the
        size of such a folder apply, except with `task`, which was trained without them.

        Args:
            sentences: The sentences, or one: a list, an array, a column of a frame or a dataset, or
                any iterable.
            task: Name of a task, to use its pooling, layer and truncation; vectors of a contrastive
                task have length 1.
            pooling: `cls`, `pooler`, `mean` or `max`, instead of both.
            truncation: What remains of a sentence that is too long, as in `PooledTask`; `windows`
                share 64 tokens each. None for that of the task, or `head`.
            normalize: Whether to scale the vectors to length 1, after `truncate_dim`; None for the
                checkpoint's choice, which comes before it.
            prompt: Text before every sentence; wins over `prompt_name`.
            prompt_name: Name of one of `config.embedding.prompts`; None for that of the checkpoint.
            truncate_dim: How many components of each vector to keep; None as the checkpoint says.
            **batching: See `Batching`.

        Returns:
            Float32 vectors on the CPU, (number of sentences, D), in the order given; of one
            sentence its vector, (D,).

        Raises:
            TypeError: If an option is unknown.
            ValueError: If there is no such task, pooling or prompt, the checkpoint's own vectors
                need what minBERT does not have, a row is not a sentence, or a size is below 1.
        """
        plan = self.plan_encode(
            task, pooling, truncation, normalize, prompt, prompt_name, truncate_dim
        )
        is_one = isinstance(sentences, str)
        if not is_one:
            check_container(sentences, "encode")
        rows = [sentences] if is_one else list(sentences)
        embedder = VectorPredictor(self, "encode", plan.vectors, prompt=plan.prompt)
        computed = compute_rows(self, [embedder], rows, batching)
        windows = [plan.finish(embedder.collect()).float().cpu() for _ in computed]
        none = torch.empty(0, self.config.hidden_size)[:, : plan.truncate_dim]
        vectors = torch.cat(windows) if windows else none
        return vectors[0] if is_one else vectors

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
        from .folders import write_modules

        plan = self.plan_encode(task, pooling, None, normalize)
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
        folder = Path(save_directory)
        path = folder / "config.json"
        config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        if config.get("model_type") == self.config.model_type:
            raise ValueError(
                f"{folder} holds a minBERT checkpoint, which would be lost: name another"
            )
        encoding = vectors.encoding
        if encoding.truncation != "head":
            message = "the task keeps the %s of a long text; sentence-transformers keeps its head"
            logger.warning(message, encoding.truncation)
        tokenizer = own_tokenizer(self.tokenizer)
        length = min(max_length or encoding.max_length, self.config.longest_sequence)
        kept = {} if task is not None else asdict(self.config.embedding)
        made = {"pooling": vectors.pooling, "normalize": plan.normalize or plan.rescale}
        embedding = parse_embedding({**kept, **made, "max_length": length, "missing": None})
        # Settings in its file would take precedence over these.
        tokenizer.model_max_length = length
        self.base_model.save_as_transformers(folder, num_layers=vectors.num_layers)
        tokenizer.save_pretrained(folder)
        write_modules(folder, embedding, self.config.hidden_size)

    def plan_encode(
        self,
        task: str | None = None,
        pooling: str | None = None,
        truncation: str | None = None,
        normalize: bool | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
        truncate_dim: int | None = None,
    ) -> _Plan:
        """Decide how vectors are made."""
        config, own = self.config, self.config.embedding
        if task is not None and (pooling is not None or truncation is not None):
            raise ValueError(
                f"task {task!r} determines how its vectors are pooled, and what remains of long "
                "texts: leave pooling and truncation out"
            )
        if truncate_dim is not None and truncate_dim < 1:
            raise ValueError(f"encode: truncate_dim={truncate_dim} must be 1 or more")
        if truncation not in (None, *HEAD_SHARES, WINDOWS):
            raise ValueError(unknown("truncation", truncation, (*HEAD_SHARES, WINDOWS)))
        default, kept = own.default_prompt_name, own.truncate_dim
        if task is not None:  # trained without these
            default = kept = None
        elif pooling is None and config.sentence_embedding is None:
            task = config.embedding_task
        vectors, is_unit = self._find_vectors(task, pooling, own)
        if truncation is not None:
            length = vectors.encoding.max_length
            overlap = default_overlap(length) if truncation == WINDOWS else None
            encoding = Encoding(length, truncation=truncation, window_overlap=overlap)
            vectors = vectors._replace(encoding=encoding)
        if prompt is None:
            prompt = own.find_prompt(default if prompt_name is None else prompt_name)
        normalize, rescale = normalize is None and is_unit, bool(normalize)
        return _Plan(vectors, normalize, prompt, truncate_dim or kept, rescale)

    def _find_vectors(
        self, task: str | None, pooling: str | None, own: MinBertEmbedding
    ) -> tuple[VectorPlan, bool]:
        """Return how vectors are pooled, and whether they have length 1; `own` are the default."""
        config = self.config
        if task is not None:
            spec: Any = config.task(task)
            if spec.is_pretraining or spec.is_token_level:
                raise ValueError(f"task {task!r} is {spec.kind}, which has no vectors")
            vectors, is_unit = spec.plan_vectors(config), spec.normalizes_vectors
            is_unit = is_unit or parse_embedding(config.sentence_embedding).normalize
        elif pooling is None and own.missing:
            raise ValueError(
                f"{self.name_or_path}: its vectors need {', '.join(own.missing)}, which minBERT "
                "does not have: use sentence-transformers, or set pooling for vectors without that"
            )
        elif pooling not in (None, *get_args(Pooling)):
            raise ValueError(unknown("pooling", pooling, get_args(Pooling)))
        else:
            length = own.max_length or self.tokenizer.model_max_length
            encoding = Encoding(min(config.longest_sequence, length))
            vectors = VectorPlan(encoding, pooling or own.pooling, config.num_hidden_layers)
            is_unit = own.normalize
        if vectors.pooling == "pooler" and self.base_model.pooler is None:
            raise ValueError("pooling='pooler', but this model was made without a pooler")
        return vectors, is_unit

    def encode_query(self, sentences: str | Iterable[str], **options: Any) -> Tensor:
        """Embed the queries of a search: `encode` with the prompt of the name `query`.

        As in sentence-transformers it takes the place of the default prompt, also if it is empty.
        With `task`, there is no prompt.
        """
        return self.encode(sentences, **self._name_prompt("query", options))

    def encode_document(self, sentences: str | Iterable[str], **options: Any) -> Tensor:
        """Embed the texts that a search looks through, as `encode_query`, prompt `document`."""
        return self.encode(sentences, **self._name_prompt("document", options))

    def _name_prompt(self, name: str, options: dict[str, Any]) -> dict[str, Any]:
        """Choose a prompt, unless the options do."""
        if any(options.get(key) is not None for key in ("prompt", "prompt_name", "task")):
            return options
        prompts = self.config.embedding.prompts or {}
        others = [key for key in ("passage", "corpus") if name == "document" and key in prompts]
        if others and name not in prompts:
            message = "encode_document writes no prompt, as sentence-transformers: the checkpoint "
            message += f"has none of the name 'document'; prompt_name={others[0]!r} uses that one"
            logger.warning_once(message)
        return {**options, "prompt_name": name}

    @property
    def similarity_fn_name(self) -> str:
        """How `similarity` compares: `config.embedding.similarity`."""
        return self.config.embedding.similarity

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
        if vectors.dtype in (torch.uint8, torch.int8):
            raise ValueError(
                "vectors are 8-bit integers, which may be packed bits: unpack these, or convert "
                "numbers to float32"
            )
        if vectors.dtype != torch.float64:
            vectors = vectors.float()  # half precision has few different similarities
        is_cosine = self.similarity_fn_name == "cosine"
        return F.normalize(vectors, dim=-1) if is_cosine else vectors
