# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`encode`: vectors of texts, with the arguments of sentence-transformers.

Shapes: N and M sentences, D size of a vector.
"""

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .configuration_minbert import MinBertConfig
from .inference import (
    MinBertTokenizing,
    check_request,
    choose_tokens,
    input_device,
    stream,
)
from .packing import pool_outputs, reads
from .pooled import WindowPlan, default_overlap, stream_documents
from .sharing import POOLINGS, parse_embedding, write_modules
from .texts import HEAD_SHARES, WINDOWS, DocumentWindows, Row, list_rows, own_tokenizer, tokenize

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
                "vectors are 8-bit integers, which may be packed bits: unpack these, or convert "
                "numbers to float32"
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


logger = logging.get_logger(__name__)


class _Plan(NamedTuple):
    """How a vector is made of a sentence."""

    pooling: str
    num_layers: int
    normalize: bool
    max_length: int
    truncation: str
    project: Callable[[Tensor], Tensor] | None  # maps a pooled state to the vector
    windows: WindowPlan | None = None  # for truncation "windows"
    prompt: str = ""  # written before every sentence
    include_prompt: bool = True  # whether it is pooled, too
    truncate_dim: int | None = None  # components that are kept; None for all
    rescale: bool = False  # whether what is kept is scaled to length 1


class MinBertEmbeddingMixin(MinBertComparing, MinBertTokenizing):
    """Mixin of models that embed sentences."""

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
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
        precision: str | None = None,
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
            max_tokens_per_batch: Tokens that are computed together; None for a default of the
                device.
            show_progress: Whether to show a progress bar; None shows it for long lists.
            precision: In which to compute: `float32`, `bfloat16`, `int8` or `auto`, as in
                `set_precision`; None for that of the model. The vectors are float32 in any case,
                unlike with the `precision` of sentence-transformers, which is that of its vectors.
            **options: Arguments of sentence-transformers, for its evaluators; see `EncodeOptions`.

        Returns:
            Float32 vectors on the CPU, (number of sentences, D), in the order given; of one
            sentence its vector, (D,). A tensor, unless the options say otherwise.

        Raises:
            TypeError: If an option is unknown.
            ValueError: If there is no such task, pooling or prompt, the checkpoint's own vectors
                need what minBERT does not have, a row is not a sentence, there are several columns,
                or an option is not supported.
        """
        check_options(options, input_device(self.base_model))
        plan = self._plan(task, pooling, normalize, truncation, options)
        if options.get("batch_size") is not None:
            largest = choose_tokens(self.base_model, max_tokens_per_batch)
            max_tokens_per_batch = min(largest, options["batch_size"] * plan.max_length)
        if show_progress is None:
            show_progress = options.get("show_progress_bar")
        given = list_rows(sentences, "encode")
        is_one = isinstance(given, str)
        rows = list(check_request([given] if is_one else given, "encode", 1))
        batching = {
            "max_tokens": max_tokens_per_batch,
            "show_progress": show_progress,
            "precision": precision,
        }
        windows = list(self._encode(rows, plan, **batching))
        none = torch.empty(0, self.config.hidden_size)[:, : plan.truncate_dim]
        converted = convert(torch.cat(windows) if windows else none, options)
        return converted[0] if is_one else converted

    def encode_stream(
        self,
        sentences: Iterable[str],
        *,
        task: str | None = None,
        pooling: str | None = None,
        truncation: str | None = None,
        normalize: bool | None = None,
        max_tokens_per_batch: int | None = None,
        show_progress: bool | None = None,
        precision: str | None = None,
        prompt: str | None = None,
        prompt_name: str | None = None,
    ) -> Iterator[Tensor]:
        """Embed more sentences than fit into memory; see `encode` for the arguments.

        `sentences` may be any iterable; some thousand are read ahead.

        Yields:
            Float32 vectors on the CPU, (n, D) for some thousand sentences, in the order given.
        """
        prompts: EncodeOptions = {"prompt": prompt, "prompt_name": prompt_name}
        plan = self._plan(task, pooling, normalize, truncation, prompts)
        rows = check_request(list_rows(sentences, "encode"), "encode", 1)
        options = {
            "max_tokens": max_tokens_per_batch,
            "show_progress": show_progress,
            "precision": precision,
        }
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
        plan = self._plan(task, pooling, normalize)
        self._check_export(plan)
        folder = Path(save_directory)
        _check_folder(folder)
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

    def _check_export(self, plan: _Plan) -> None:
        """Refuse vectors that sentence-transformers does not have."""
        if plan.rescale and plan.truncate_dim:
            raise ValueError(
                f"sentence-transformers cuts vectors to truncate_dim={plan.truncate_dim} after "
                "scaling them: leave normalize out, and let its encode normalize_embeddings"
            )
        if plan.pooling in POOLINGS and plan.project is None and plan.num_layers:
            return
        what = "a projection" if plan.project else "the layer of the embeddings"
        if plan.pooling not in POOLINGS:
            what = f"pooling={plan.pooling!r}"
        raise ValueError(
            f"sentence-transformers does not support {what}: set pooling, one of "
            f"{', '.join(POOLINGS)}, and no task"
        )

    def _plan(
        self,
        task: str | None,
        pooling: str | None,
        normalize: bool | None,
        truncation: str | None = None,
        options: EncodeOptions | None = None,
    ) -> _Plan:
        """Decide how vectors are made."""
        options = options or {}
        if task is None:
            plan = self._plan_without_task(pooling, normalize)
            plan = self._truncate(plan, truncation) if truncation else plan
        elif truncation is not None:
            raise ValueError(
                f"task {task!r} determines what remains of long texts: leave truncation out"
            )
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
        plan = plan._replace(
            prompt=self._find_prompt(task, options),
            truncate_dim=options.get("truncate_dim") or plan.truncate_dim,
            rescale=bool(normalize or options.get("normalize_embeddings")),
        )
        if (
            plan.prompt
            and not plan.include_prompt
            and (plan.windows or plan.pooling not in ("mean", "max"))
        ):
            what = "truncation='windows'" if plan.windows else f"pooling={plan.pooling!r}"
            raise ValueError(
                f"the checkpoint leaves its prompt out of the pooling (include_prompt), which does "
                f"not fit {what}: leave that out, or pass prompt=''"
            )
        return plan

    def _find_prompt(self, task: str | None, options: EncodeOptions) -> str:
        """Find the text before every text; the default prompt is not for a task."""
        prompt, name = options.get("prompt"), options.get("prompt_name")
        if prompt is None and (name is not None or task is None):
            saved = self.config.embedding
            prompt = saved.find_prompt(saved.default_prompt_name if name is None else name)
        return prompt or ""

    def _plan_of_task(self, task: str, normalize: bool | None) -> _Plan:
        spec: Any = self.config.task(task)
        if spec.is_pretraining or spec.is_token_level:
            raise ValueError(f"task {task!r} is {spec.kind}, which has no vectors")
        heads: Any = getattr(self, "heads", None)
        if spec.keeps_projection and heads is None:
            raise ValueError(
                f"task {task!r} projects its vectors, and the projection is in its head: load the "
                "checkpoint with MinBertForMultiTask, or give pooling for vectors of the encoder"
            )
        project = heads.get(task).embed if spec.keeps_projection else None
        layers = spec.count_layers(self.config.num_hidden_layers)
        own = parse_embedding(self.config.sentence_embedding)
        is_normal = normalize is None and (own.normalize or spec.normalizes_vectors)
        length = spec.limit_length(self.config.max_position_embeddings)
        windows = spec.plan_windows(self.config) if spec.has_windows else None
        return _Plan(spec.pooling, layers, is_normal, length, spec.truncation, project, windows)

    def _truncate(self, plan: _Plan, truncation: str) -> _Plan:
        """Return the plan with another treatment of long sentences."""
        if truncation not in (*HEAD_SHARES, WINDOWS):
            raise ValueError(
                f"truncation={truncation!r} must be one of {', '.join(HEAD_SHARES)}, {WINDOWS}"
            )
        windows = None
        if truncation == WINDOWS:
            cut = DocumentWindows(plan.max_length, default_overlap(plan.max_length), None)
            windows = WindowPlan(cut, plan.pooling, plan.num_layers)
        return plan._replace(truncation=truncation, windows=windows)

    def _plan_without_task(self, pooling: str | None, normalize: bool | None) -> _Plan:
        task = self.config.embedding_task
        if pooling is None and task is not None and self.config.sentence_embedding is None:
            return self._plan_of_task(task, normalize)
        own = self.config.embedding
        if pooling is None and own.missing:
            raise ValueError(
                f"{self.name_or_path}: its vectors need {', '.join(own.missing)}, which minBERT "
                "does not have: use sentence-transformers, or set pooling for vectors without that"
            )
        longest = self.config.max_position_embeddings
        length = min(longest, own.max_length or self.tokenizer.model_max_length)
        return _Plan(
            pooling or own.pooling,
            self.config.num_hidden_layers,
            normalize is None and own.normalize,
            length,
            "head",
            None,
            include_prompt=own.include_prompt,
            truncate_dim=own.truncate_dim,
        )

    def _encode(self, rows: Iterable[Row], plan: _Plan, **options: Any) -> Iterator[Tensor]:
        encoder: Any = self.base_model
        cut: dict[str, Any] = {"max_length": plan.max_length, "truncation": plan.truncation}
        encode = partial(tokenize, self.tokenizer, separate=False, **cut)
        ignored = 0
        if plan.prompt:
            if not plan.include_prompt:
                (alone,) = encode(rows=[(plan.prompt,)])
                ignored = alone.tokens - 1  # without the last one, which ends a text
            rows = _add_prompt(rows, plan.prompt)

        def finish(vectors: Tensor) -> Tensor:
            vectors = vectors if plan.project is None else plan.project(vectors)
            vectors = F.normalize(vectors.float(), dim=-1) if plan.normalize else vectors
            vectors = vectors[:, : plan.truncate_dim]
            return F.normalize(vectors.float(), dim=-1) if plan.rescale else vectors

        if plan.windows is not None:
            return stream_documents(self, rows, plan.windows, finish, **options)

        def compute(batch: dict[str, Any]) -> Tensor:
            outputs = encoder(
                **batch, return_dict=True, read=reads(plan.pooling), num_layers=plan.num_layers
            )
            mask = batch.get("attention_mask")
            return finish(pool_outputs(outputs, mask, plan.pooling, ignored))

        model: Any = self
        return stream(model, rows, encode, compute, **options)


def _add_prompt(rows: Iterable[Row], prompt: str) -> Iterable[Row]:
    """Write a prompt before every sentence."""
    prompted = ((prompt + text,) for (text,) in rows)
    return list(prompted) if isinstance(rows, Sequence) else prompted


def _check_folder(folder: Path) -> None:
    """Refuse a folder with a minBERT checkpoint, whose weights would be overwritten."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if config.get("model_type") == "minbert":
        raise ValueError(f"{folder} holds a minBERT checkpoint, which would be lost: name another")
