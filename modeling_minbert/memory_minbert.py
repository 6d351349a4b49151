# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""How much memory a model needs, by its configuration, before anything is allocated.

Shapes: V vocabulary, P positions, D hidden size, F width of the feed-forward layer.
"""

import os
from typing import Any

import torch

# Every layer is some dozen objects of Python: their number is limited, however narrow they are.
MAX_LAYERS = 10_000
MAX_LABELS = 1_000_000
NAMES = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
GIB = 2**30


def count_parameters(config: Any) -> int:
    """Return the number of weights of `MinBertModel`, pooler included."""
    width, inner = config.hidden_size, config.intermediate_size
    square, norm = width * width + width, 2 * width  # a dense layer D -> D, a layer norm
    rows = config.vocab_size + config.max_position_embeddings + config.type_vocab_size
    feed_forward = width * inner + inner + inner * width + width
    layer = 4 * square + norm + feed_forward + norm
    return rows * width + norm + config.num_hidden_layers * layer + square


def machine_memory() -> int | None:
    """Return the memory of this machine in bytes; None if it is unknown."""
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return None
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_memory(config: Any) -> None:
    """Refuse sizes whose weights alone exceed the memory of this machine.

    Raises:
        ValueError: If they do, in torch's default precision, or there are too many layers.
    """
    if config.num_hidden_layers > MAX_LAYERS:
        raise ValueError(
            f"num_hidden_layers={config.num_hidden_layers} must be at most {MAX_LAYERS:,}"
        )
    count, dtype, memory = count_parameters(config), torch.get_default_dtype(), machine_memory()
    needed = count * dtype.itemsize
    if memory is not None and needed > memory:
        sizes = ", ".join(f"{name}={getattr(config, name)}" for name in NAMES)
        raise ValueError(
            f"a model of these sizes has {count:,} weights, {needed // GIB:,} GiB as {dtype}, but "
            f"this machine has {memory // GIB:,} GiB of memory; reduce the sizes: {sizes}"
        )
