# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Vectors of N sentences, (N, D): `encode`, and saving for sentence-transformers."""

import copy
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .configuration_minbert import MinBertConfig
from .documents_minbert import WindowPlan, stream_documents
from .evaluators_minbert import EncodeOptions, MinBertComparing, check_options, convert
from .inference_minbert import (
    HEAD_SHARES,
    MinBertTokenizing,
    Row,
    check_request,
    choose_tokens,
    input_device,
    stream,
    tokenize,
)
from .packing_minbert import pool_outputs, reads
from .sentence_transformers_minbert import POOLINGS, parse_embedding, write_modules
from .windows_minbert import MinBertWindowPooling, window_defaults

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

        Without `task` and `pooling`, `config.embedding` decides: the vectors of a folder of
        sentence-transformers, else of the first task of separate texts, else the mean.

        Args:
            sentences: The sentences, or one.
            task: Name of a task, to use its pooling, layer, truncation and permanent projection;
                vectors of a contrastive task have length 1.
            pooling: `cls`, `pooler`, `mean` or `max`, instead of both.
            truncation: What remains of a sentence that is too long: its `head`, its `tail`, or
                `head_tail`, a quarter of the tokens from the start and the rest from the end; or
                `windows`, which keeps all of it: the vector is the mean of those of windows, which
                share 64 tokens each, weighted by their tokens. None for that of the task, or
                `head`.
            normalize: Whether to scale the vectors to length 1; None for the checkpoint's choice.
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
            ValueError: If there is no such task or pooling, the checkpoint's own vectors need what
                minBERT does not have, a row is not a sentence, or an option is not supported.
        """
        check_options(options, input_device(self.base_model))
        plan = self._plan(task, pooling, normalize, truncation)
        if options.get("batch_size") is not None:
            largest = choose_tokens(self.base_model, max_tokens_per_batch)
            max_tokens_per_batch = min(largest, options["batch_size"] * plan.max_length)
        if show_progress is None:
            show_progress = options.get("show_progress_bar")
        is_one, prompt = isinstance(sentences, str), options.get("prompt") or ""
        rows = check_request([sentences] if is_one else sentences, "encode", 1)
        rows = [(prompt + text,) for (text,) in rows]
        batching = {
            "max_tokens": max_tokens_per_batch,
            "show_progress": show_progress,
            "precision": precision,
        }
        windows = list(self._encode(rows, plan, **batching))
        vectors = torch.cat(windows) if windows else torch.empty(0, self.config.hidden_size)
        converted = convert(vectors, options)
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
    ) -> Iterator[Tensor]:
        """Embed more sentences than fit into memory; see `encode` for the arguments.

        `sentences` may be any iterable; some thousand are read ahead.

        Yields:
            Float32 vectors on the CPU, (n, D) for some thousand sentences, in the order given.
        """
        plan = self._plan(task, pooling, normalize, truncation)
        rows = check_request(sentences, "encode", 1)
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

        The encoder is a plain `bert`, which needs no remote code; layers above the pooled one,
        prompts and heads are left out.

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
        if plan.pooling not in POOLINGS or plan.project is not None or not plan.num_layers:
            what = "a projection" if plan.project else "the layer of the embeddings"
            if plan.pooling not in POOLINGS:
                what = f"pooling={plan.pooling!r}"
            raise ValueError(
                f"sentence-transformers does not support {what}: set pooling, one of "
                f"{', '.join(POOLINGS)}, and no task"
            )
        folder = Path(save_directory)
        _check_folder(folder)
        if plan.truncation != "head":
            message = "task %r keeps the %s of a long text; sentence-transformers keeps its head"
            logger.warning(message, task, plan.truncation)
        tokenizer = copy.deepcopy(self.tokenizer)
        length = min(max_length or plan.max_length, self.config.max_position_embeddings)
        embedding = parse_embedding(
            {"pooling": plan.pooling, "normalize": plan.normalize, "max_length": length}
        )
        # Settings in its file would take precedence over these.
        tokenizer.model_max_length = length
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.backend_tokenizer.no_truncation()
        self.base_model.save_as_bert(folder, num_layers=plan.num_layers)
        tokenizer.save_pretrained(folder)
        write_modules(folder, embedding, self.config.hidden_size)

    def _plan(
        self,
        task: str | None,
        pooling: str | None,
        normalize: bool | None,
        truncation: str | None = None,
    ) -> _Plan:
        """Decide how vectors are made."""
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
        return plan

    def _plan_of_task(self, task: str, normalize: bool | None) -> _Plan:
        spec: Any = self.config.task(task)
        if spec.is_pretraining or spec.is_token_level:
            raise ValueError(f"task {task!r} is a {spec.problem_type} task, which has no vectors")
        heads: Any = getattr(self, "heads", None)
        if spec.keeps_projection and heads is None:
            raise ValueError(
                f"task {task!r} projects its vectors, and the projection is in its head: load the "
                "checkpoint with MinBertForMultiTask"
            )
        project = heads.get(task).embed if spec.keeps_projection else None
        layers = spec.count_layers(self.config.num_hidden_layers)
        if normalize is None:
            own = parse_embedding(self.config.sentence_embedding)
            normalize = own.normalize or spec.normalizes_vectors
        length = spec.limit_length(self.config.max_position_embeddings)
        windows = None
        if spec.has_windows:
            if heads is None:
                raise ValueError(
                    f"task {task!r} pools windows, which its head does: load the checkpoint with "
                    "MinBertForMultiTask"
                )
            windows = heads.get(task).plan(self.config)
        return _Plan(spec.pooling, layers, normalize, length, spec.truncation, project, windows)

    def _truncate(self, plan: _Plan, truncation: str) -> _Plan:
        """Return the plan with another treatment of long sentences."""
        if truncation not in (*HEAD_SHARES, "windows"):
            raise ValueError(
                f"truncation={truncation!r} must be one of {', '.join(HEAD_SHARES)}, windows"
            )
        windows = None
        if truncation == "windows":
            overlap = window_defaults(plan.max_length)["window_overlap"]
            pool = MinBertWindowPooling(self.config.hidden_size, "mean")
            windows = WindowPlan(
                plan.max_length, overlap, None, plan.pooling, plan.num_layers, pool
            )
        return plan._replace(truncation=truncation, windows=windows)

    def _plan_without_task(self, pooling: str | None, normalize: bool | None) -> _Plan:
        own = self.config.embedding
        if pooling is None and own.missing:
            raise ValueError(
                f"{self.name_or_path}: its vectors need {', '.join(own.missing)}, which minBERT "
                "does not have: use sentence-transformers, or set pooling for vectors without that"
            )
        longest = self.config.max_position_embeddings
        length = min(longest, own.max_length or longest, self.tokenizer.model_max_length)
        normalize = own.normalize if normalize is None else normalize
        layers = self.config.num_hidden_layers
        return _Plan(pooling or own.pooling, layers, normalize, length, "head", None)

    def _encode(self, rows: Iterable[Row], plan: _Plan, **options: Any) -> Iterator[Tensor]:
        encoder: Any = self.base_model

        def finish(vectors: Tensor) -> Tensor:
            vectors = vectors if plan.project is None else plan.project(vectors)
            return F.normalize(vectors.float(), dim=-1) if plan.normalize else vectors

        if plan.windows is not None:
            return stream_documents(self, rows, plan.windows, finish, **options)

        def compute(batch: dict[str, Any]) -> Tensor:
            outputs = encoder(
                **batch, return_dict=True, read=reads(plan.pooling), num_layers=plan.num_layers
            )
            return finish(pool_outputs(outputs, batch.get("attention_mask"), plan.pooling))

        model: Any = self
        cut: dict[str, Any] = {"max_length": plan.max_length, "truncation": plan.truncation}
        encode = partial(tokenize, self.tokenizer, separate=False, **cut)
        return stream(model, rows, encode, compute, **options)


def _check_folder(folder: Path) -> None:
    """Refuse a folder with a minBERT checkpoint, whose weights would be overwritten."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if config.get("model_type") == "minbert":
        raise ValueError(f"{folder} holds a minBERT checkpoint, which would be lost: name another")
