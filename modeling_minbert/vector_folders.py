# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Vectors as a folder that sentence-transformers opens without code of minBERT."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers.utils import logging

from .folders import write_modules
from .heads import POOLINGS, parse_embedding
from .rows import EmbeddingPlan
from .texts import own_tokenizer

logger = logging.get_logger(__name__)


def save(
    model: Any, folder: Path, plan: EmbeddingPlan, max_length: int | None, *, is_own: bool
) -> None:
    """Save an encoder with its vectors; see `MinBertModel.save_as_sentence_transformers`.

    Prompts and the size of vectors are those of the checkpoint where the vectors are its own.
    """
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
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if config.get("model_type") == model.config.model_type:
        raise ValueError(f"{folder} holds a minBERT checkpoint, which would be lost: name another")
    encoding = vectors.encoding
    if encoding.truncation != "head":
        message = "the task keeps the %s of a long text; sentence-transformers keeps its head"
        logger.warning(message, encoding.truncation)
    tokenizer = own_tokenizer(model.tokenizer)
    length = min(max_length or encoding.max_length, model.config.longest_sequence)
    kept = asdict(model.config.embedding) if is_own else {}
    made = {"pooling": vectors.pooling, "normalize": plan.normalize or plan.rescale}
    embedding = parse_embedding({**kept, **made, "max_length": length, "missing": None})
    # Settings in its file would take precedence over these.
    tokenizer.model_max_length = length
    model.base_model.save_as_transformers(folder, num_layers=vectors.num_layers)
    tokenizer.save_pretrained(folder)
    write_modules(folder, embedding, model.config.hidden_size)
