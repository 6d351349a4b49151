# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`encode`: vectors of texts, with the arguments of sentence-transformers.

Shapes: N and M sentences, D size of a vector.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, Unpack, cast

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .configuration_minbert import MinBertConfig
from .inference import (
    Batch,
    Batching,
    MinBertTokenizing,
    check_rows,
    choose_tokens,
    input_device,
    stream,
)
from .packing import pool_outputs, reads
from .pooled import WindowPlan, default_overlap, stream_documents
from .sharing import POOLINGS, parse_embedding, write_modules
from .texts import HEAD_SHARES, WINDOWS, DocumentWindows, Row, list_rows, own_tokenizer, tokenize

logger = logging.get_logger(__name__)

OUTPUT = "sentence_embedding"
# Similarities that are negated distances, and the order of their norm.
DISTANCES = {"euclidean": 2.0, "manhattan": 1.0}


class EncodeOptions(Batching, total=False):
    """Further keyword arguments of `encode`: those of sentence-transformers, for its evaluators.

    Args:
        prompt: Text before every sentence; wins over `prompt_name`.
        prompt_name: Name of one of `config.embedding.prompts`; None for that of the checkpoint.
        batch_size: A batch has at most the tokens of so many of the longest sentences.
        show_progress_bar: As `show_progress`.
        convert_to_tensor: Whether to return one tensor, which is the default.
        convert_to_numpy: Whether to return one array; if false, a list of tensors.
        normalize_embeddings: Whether to scale the vectors to length 1, after `truncate_dim`.
        truncate_dim: How many components of each vector to keep; None as the checkpoint says.
        output_value: `sentence_embedding`, the only one.
        device: That of the model.
    """

    prompt: str | None
    prompt_name: str | None
    batch_size: int
    show_progress_bar: bool | None
    convert_to_tensor: bool | None
    convert_to_numpy: bool | None
    normalize_embeddings: bool
    truncate_dim: int | None
    output_value: str
    device: object


def check_options(options: EncodeOptions, device: torch.device) -> None:
    """Refuse keyword arguments that are unknown, or ask for what minBERT does not have."""
    if others := [name for name in options if name not in EncodeOptions.__annotations__]:
        known = ", ".join(EncodeOptions.__annotations__)
        raise TypeError(f"encode has no argument {others[0]!r}; its options are {known}")
    if (wanted := options.get("output_value", OUTPUT)) != OUTPUT:
        raise ValueError(
            f"encode: output_value={wanted!r} is not supported, leave it out; for the states of "
            "tokens, call the model"
        )
    for name in ("batch_size", "truncate_dim"):
        value = options.get(name)
        if value is not None and int(str(value)) < 1:
            raise ValueError(f"encode: {name}={value} must be 1 or more")
    place = options.get("device")
    if place is not None and torch.device(str(place)).type != device.type:
        raise ValueError(f"encode: device={place!r}, but the model is on {device}: move it")


class _Plan(NamedTuple):
    """How a vector is made of a sentence."""

    pooling: str
    num_layers: int
    normalize: bool
    max_length: int
    truncation: str = "head"
    project: Callable[[Tensor], Tensor] | None = None  # maps a pooled state to the vector
    windows: WindowPlan | None = None  # for truncation "windows"
    prompt: str = ""  # written before every sentence
    truncate_dim: int | None = None  # components that are kept; None for all
    rescale: bool = False  # whether what is kept is scaled to length 1


def _truncate(plan: _Plan, truncation: str) -> _Plan:
    """Return a plan with another treatment of long sentences."""
    if truncation not in (*HEAD_SHARES, WINDOWS):
        raise ValueError(
            f"truncation={truncation!r} must be one of {', '.join(HEAD_SHARES)}, {WINDOWS}"
        )
    windows = None
    if truncation == WINDOWS:
        cut = DocumentWindows(plan.max_length, default_overlap(plan.max_length), None)
        windows = WindowPlan(cut, plan.pooling, plan.num_layers)
    return plan._replace(truncation=truncation, windows=windows)


class MinBertEmbeddingMixin(MinBertTokenizing):
    """Mixin of models that embed sentences: their vectors, and how these are compared."""

    config: MinBertConfig
    base_model: Any

    def encode(
        self,
        sentences: str | Sequence[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        truncation: str | None = None,
        normalize: bool | None = None,
        **options: Unpack[EncodeOptions],
    ) -> Any:
        """Embed sentences.

        Without `task` and `pooling`, the vectors are those of the folder of sentence-transformers
        that the checkpoint was or started from (`config.sentence_embedding`), else of the first
        task of separate texts (`config.embedding_task`), else the mean. The default prompt and the
        size of such a folder apply, except with `task`, which was trained without them.

        Args:
            sentences: The sentences, or one. Or a column of them: an array, a column of a frame or
                a dataset, or a frame or a dictionary with no other column.
            task: Name of a task, to use its pooling, layer, truncation and permanent projection;
                vectors of a contrastive task have length 1.
            pooling: `cls`, `pooler`, `mean` or `max`, instead of both.
            truncation: What remains of a sentence that is too long: its `head`, its `tail`, or
                `head_tail`, a quarter of the tokens from the start and the rest from the end; or
                `windows`, which keeps all of it: the vector is the mean of those of windows, which
                share 64 tokens each, weighted by their tokens. None for that of the task, or
                `head`.
            normalize: Whether to scale the vectors to length 1, after `truncate_dim`; None for the
                checkpoint's choice, which comes before it.
            **options: See `Batching` and `EncodeOptions`. The vectors are float32 in any
                `precision`, unlike with that of sentence-transformers, which is that of its
                vectors.

        Returns:
            Float32 vectors on the CPU, (number of sentences, D), in the order given; of one
            sentence its vector, (D,). A tensor, unless the options say otherwise.

        Raises:
            TypeError: If an option is unknown.
            ValueError: If there is no such task, pooling or prompt, the checkpoint's own vectors
                need what minBERT does not have, a row is not a sentence, there are several columns,
                or an option is not supported.
        """
        plan = self._plan(task, pooling, truncation, normalize, options)
        given = list_rows(sentences, "encode")
        is_one = isinstance(given, str)
        rows = list(check_rows([given] if is_one else given, "encode", 1))
        windows = list(self._encode(rows, plan, options))
        none = torch.empty(0, self.config.hidden_size)[:, : plan.truncate_dim]
        vectors = torch.cat(windows) if windows else none
        to_tensor, to_numpy = options.get("convert_to_tensor"), options.get("convert_to_numpy")
        converted: Any = vectors
        if not to_tensor and (to_tensor is not None or to_numpy is not None):
            converted = vectors.numpy() if to_numpy is not False else list(vectors)
        return converted[0] if is_one else converted

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

        The encoder is a plain `bert`, which needs no remote code; layers above the pooled one and
        heads are left out, and with `task` the prompts and the size of the checkpoint's vectors.

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
        plan = self._plan(task, pooling, None, normalize, {})
        if plan.rescale and plan.truncate_dim:
            raise ValueError(
                f"sentence-transformers cuts vectors to truncate_dim={plan.truncate_dim} after "
                "scaling them: leave normalize out, and let its encode normalize_embeddings"
            )
        if plan.pooling not in POOLINGS or plan.project is not None or not plan.num_layers:
            what = "a projection" if plan.project else "the layer of the embeddings"
            what = what if plan.pooling in POOLINGS else f"pooling={plan.pooling!r}"
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
        if plan.truncation != "head":
            message = "the task keeps the %s of a long text; sentence-transformers keeps its head"
            logger.warning(message, plan.truncation)
        tokenizer = own_tokenizer(self.tokenizer)
        length = min(max_length or plan.max_length, self.config.max_position_embeddings)
        kept = {} if task is not None else asdict(self.config.embedding)
        made = {"pooling": plan.pooling, "normalize": plan.normalize or plan.rescale}
        embedding = parse_embedding({**kept, **made, "max_length": length, "missing": None})
        # Settings in its file would take precedence over these.
        tokenizer.model_max_length = length
        self.base_model.save_as_bert(folder, num_layers=plan.num_layers)
        tokenizer.save_pretrained(folder)
        write_modules(folder, embedding, self.config.hidden_size)

    def _plan(
        self,
        task: str | None,
        pooling: str | None,
        truncation: str | None,
        normalize: bool | None,
        options: EncodeOptions,
    ) -> _Plan:
        """Decide how vectors are made."""
        check_options(options, input_device(self.base_model))
        config, own = self.config, self.config.embedding
        if task is not None and (pooling is not None or truncation is not None):
            raise ValueError(
                f"task {task!r} determines how its vectors are pooled, and what remains of long "
                "texts: leave pooling and truncation out"
            )
        maker = task
        if maker is None and pooling is None and config.sentence_embedding is None:
            maker = config.embedding_task
        if maker is not None:
            plan = self._plan_of_task(maker, normalize)
        else:
            plan = self._plan_of_folder(pooling, normalize)
        if plan.pooling not in (*POOLINGS, "pooler"):
            raise ValueError(f"pooling={pooling!r} must be one of cls, pooler, mean, max")
        if plan.pooling == "pooler" and self.base_model.pooler is None:
            raise ValueError("pooling='pooler', but this model was made without a pooler")
        if truncation is not None:
            plan = _truncate(plan, truncation)
        prompt, name = options.get("prompt"), options.get("prompt_name")
        if prompt is None and (name is not None or task is None):
            prompt = own.find_prompt(own.default_prompt_name if name is None else name)
        return plan._replace(
            prompt=prompt or "",
            truncate_dim=options.get("truncate_dim") or plan.truncate_dim,
            rescale=bool(normalize or options.get("normalize_embeddings")),
        )

    def _plan_of_folder(self, pooling: str | None, normalize: bool | None) -> _Plan:
        config, own = self.config, self.config.embedding
        if pooling is None and own.missing:
            raise ValueError(
                f"{self.name_or_path}: its vectors need {', '.join(own.missing)}, which minBERT "
                "does not have: use sentence-transformers, or set pooling for vectors without that"
            )
        length = own.max_length or self.tokenizer.model_max_length
        return _Plan(
            pooling or own.pooling,
            config.num_hidden_layers,
            normalize is None and own.normalize,
            min(config.max_position_embeddings, length),
            truncate_dim=own.truncate_dim,
        )

    def _plan_of_task(self, task: str, normalize: bool | None) -> _Plan:
        config = self.config
        spec: Any = config.task(task)
        if spec.is_pretraining or spec.is_token_level:
            raise ValueError(f"task {task!r} is {spec.kind}, which has no vectors")
        heads: Any = getattr(self, "heads", None)
        if heads is None and spec.keeps_projection:
            raise ValueError(
                f"task {task!r} projects its vectors, and the projection is in its head: load the "
                "checkpoint with MinBertForMultiTask, or give pooling for vectors of the encoder"
            )
        own = parse_embedding(config.sentence_embedding)
        return _Plan(
            spec.pooling,
            spec.count_layers(config.num_hidden_layers),
            normalize is None and (own.normalize or spec.normalizes_vectors),
            spec.limit_length(config.max_position_embeddings),
            spec.truncation,
            heads.get(task).embed if spec.keeps_projection else None,
            spec.plan_windows(config) if spec.has_windows else None,
        )

    def _encode(self, rows: Sequence[Row], plan: _Plan, options: EncodeOptions) -> Iterator[Tensor]:
        encoder = self.base_model
        batching = Batching(
            max_tokens_per_batch=options.get("max_tokens_per_batch"),
            show_progress=options.get("show_progress", options.get("show_progress_bar")),
            precision=options.get("precision"),
        )
        if (batch_size := options.get("batch_size")) is not None:
            largest = choose_tokens(encoder, batching["max_tokens_per_batch"])
            batching["max_tokens_per_batch"] = min(largest, batch_size * plan.max_length)
        encode = partial(
            tokenize,
            self.tokenizer,
            separate=False,
            max_length=plan.max_length,
            truncation=plan.truncation,
        )
        if plan.prompt:
            rows = [(plan.prompt + text,) for (text,) in rows]

        def finish(vectors: Tensor) -> Tensor:
            vectors = vectors if plan.project is None else plan.project(vectors)
            vectors = F.normalize(vectors.float(), dim=-1) if plan.normalize else vectors
            vectors = vectors[:, : plan.truncate_dim]
            return F.normalize(vectors.float(), dim=-1) if plan.rescale else vectors

        model = cast("torch.nn.Module", self)
        if plan.windows is not None:
            return stream_documents(model, rows, plan.windows, finish, **batching)

        def compute(batch: Batch) -> Tensor:
            outputs = encoder(
                **batch, return_dict=True, read=reads(plan.pooling), num_layers=plan.num_layers
            )
            return finish(pool_outputs(outputs, batch.get("attention_mask"), plan.pooling))

        return stream(model, rows, encode, compute, **batching)

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
                "vectors are 8-bit integers, which may be packed bits: unpack these, or convert "
                "numbers to float32"
            )
        if vectors.dtype != torch.float64:
            vectors = vectors.float()  # half precision has few different similarities
        is_cosine = self.similarity_fn_name == "cosine"
        return F.normalize(vectors, dim=-1) if is_cosine else vectors

    @property
    def model_card_data(self) -> SimpleNamespace:
        """Where evaluators of sentence-transformers leave the metrics that they return."""
        return SimpleNamespace(set_evaluation_metrics=lambda *_, **__: None)
