# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""What the evaluators of sentence-transformers, and tools like them, expect of a model of vectors.

Shapes: N and M sentences, D size of a vector.
"""

from collections.abc import Sequence
from typing import Any, TypedDict

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .configuration_minbert import MinBertConfig

logger = logging.get_logger(__name__)


class EncodeOptions(TypedDict, total=False):
    """Keyword arguments of `encode` that mean what they mean in sentence-transformers.

    `device` is that of the model; `output_value` has one value.
    """

    prompt: str | None  # written before every sentence; wins over `prompt_name`
    prompt_name: str | None  # of `config.embedding.prompts`; None for that of the checkpoint
    batch_size: int  # a batch has at most the tokens of so many of the longest sentences
    show_progress_bar: bool | None
    convert_to_tensor: bool | None  # to one tensor, which is the default
    convert_to_numpy: bool | None  # to one array; if false, a list of tensors
    normalize_embeddings: bool  # scale the vectors to length 1, after `truncate_dim`
    truncate_dim: int | None  # the first components of each vector; None as the checkpoint says
    output_value: str  # `sentence_embedding`
    device: Any


OUTPUT = "sentence_embedding"
# Similarities that are negated distances, and the order of their norm.
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}
LOWER_LIMITS = ("batch_size", "truncate_dim")


def check_options(options: EncodeOptions, device: torch.device) -> None:
    """Refuse keyword arguments that are unknown, or ask for what minBERT does not have."""
    known = EncodeOptions.__annotations__
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"encode has no argument {name!r}; its options are {', '.join(known)}")
        if name == "output_value" and value != OUTPUT:
            raise ValueError(
                f"encode: output_value={value!r} is not supported, leave it out; for the states of "
                "tokens, call the model"
            )
        if value is None:
            continue
        if name in LOWER_LIMITS and int(str(value)) < 1:
            raise ValueError(f"encode: {name}={value} must be 1 or more")
        if name == "device" and torch.device(str(value)).type != device.type:
            raise ValueError(f"encode: device={value!r}, but the model is on {device}: move it")


def convert(vectors: Tensor, options: EncodeOptions) -> Any:
    """Convert vectors, (N, D), to what the caller wants."""
    to_tensor, to_numpy = options.get("convert_to_tensor"), options.get("convert_to_numpy")
    if to_tensor or (to_tensor is None and to_numpy is None):
        return vectors
    return vectors.numpy() if to_numpy is not False else list(vectors)


class MinBertEvaluations:
    """Where an evaluator leaves its metrics.

    Attributes:
        metrics: The latest value of every metric.
    """

    def __init__(self) -> None:
        self.metrics: dict[str, float] = {}

    def set_evaluation_metrics(
        self,
        evaluator: Any,  # noqa: ARG002 - the names of metrics include its name
        metrics: dict[str, float],
        epoch: int = 0,  # noqa: ARG002
        step: int = 0,  # noqa: ARG002
    ) -> None:
        """Keep the metrics of an evaluator, as sentence-transformers does for its model card."""
        self.metrics.update(metrics)


class MinBertComparing:
    """Mixin of models that embed sentences: how vectors are compared, and evaluators."""

    config: MinBertConfig
    encode: Any
    _evaluations: MinBertEvaluations | None = None

    def encode_query(self, sentences: str | Sequence[str], **options: Any) -> Any:
        """Embed the queries of a search: `encode` with the prompt of the name `query`.

        As in sentence-transformers it takes the place of the default prompt, also if it is empty.
        With `task`, there is no prompt.
        """
        return self.encode(sentences, **self._name_prompt("query", options))

    def encode_document(self, sentences: str | Sequence[str], **options: Any) -> Any:
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

    def similarity_pairwise(self, first: Any, second: Any) -> Tensor:
        """Compare each vector of (N, D) with the one of (N, D) in the same place: (N,)."""
        first, second = self._prepare(first), self._prepare(second)
        if (order := DISTANCES.get(self.similarity_fn_name)) is not None:
            return -torch.linalg.vector_norm(first - second, ord=order, dim=-1)
        return (first * second).sum(dim=-1)

    def _prepare(self, vectors: Any) -> Tensor:
        """Make vectors (N, D), of length 1 for cosines; one vector becomes one row."""
        if isinstance(vectors, list | tuple):
            vectors = torch.stack([torch.as_tensor(each) for each in vectors])
        vectors = torch.atleast_2d(torch.as_tensor(vectors))
        if vectors.dtype in (torch.uint8, torch.int8):
            raise ValueError(
                "vectors are 8-bit integers: for packed bits, use semantic_search of "
                "sentence_vectors with similarity='hamming'; if they are numbers, convert them to "
                "float32"
            )
        if vectors.dtype != torch.float64:
            vectors = vectors.float()  # half precision has few different similarities
        is_cosine = self.similarity_fn_name == "cosine"
        return F.normalize(vectors, dim=-1) if is_cosine else vectors

    @property
    def model_card_data(self) -> MinBertEvaluations:
        """Metrics of evaluators that ran on this model."""
        if self._evaluations is None:
            self._evaluations = MinBertEvaluations()
        return self._evaluations
