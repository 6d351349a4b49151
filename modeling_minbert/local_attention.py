# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Plans of attention within a window, on the CPU: long sequences are computed in blocks.

A module of its own, which the first plan imports: few encoders have local attention.
"""

from itertools import pairwise
from typing import TYPE_CHECKING

import torch

from .attention import BUCKET_RATIO, BUCKET_SLACK, Bucket, Plan, arrange, mask_padding

if TYPE_CHECKING:
    from .packing import MinBertSequences

# A sequence of more windows (to one side) than these is cut into blocks.
WHOLE_WINDOWS = 4
# Added to scores of keys beyond the window: finite, so that a padded query has no NaN.
LEAST = torch.finfo(torch.bfloat16).min


def plan_blocks(sequences: "MinBertSequences", heads: int, window: int) -> Plan:
    """Group sequences, and the blocks of long ones, into buckets for local attention.

    A block has 2 * `window` queries and the keys in their reach, `window` more to both sides, so
    that no key is in more than two blocks.
    """
    blocks: list[tuple[int, int, int, int]] = []  # queries and their end, keys and their end
    for start, end in pairwise(sequences.offsets.tolist()):
        size = 2 * window if end - start > WHOLE_WINDOWS * window else end - start
        for first in range(start, end, size):
            last = min(first + size, end)
            blocks.append((first, last, max(start, first - window), min(end, last + window)))
    # those with keys to their left are apart, since their queries are elsewhere among the keys
    blocks.sort(key=lambda block: (block[0] - block[2], block[0] - block[1], block[2] - block[3]))
    groups: list[list[int]] = []
    for number, (first, last, low, _) in enumerate(blocks):
        if groups:
            longest = blocks[groups[-1][0]]
            is_similar = (last - first) * BUCKET_RATIO + BUCKET_SLACK >= longest[1] - longest[0]
            if is_similar and first - low == longest[0] - longest[2]:
                groups[-1].append(number)
                continue
        groups.append([number])
    spans = torch.tensor(blocks)
    tokens = int(sequences.offsets[-1]) + sequences.extra
    queries, query_ranges, _ = arrange(spans[:, :2], groups, heads, tokens)
    keys, key_ranges, real = arrange(spans[:, 2:], groups, heads, tokens, spans[:, :2])
    buckets = []
    for group, q, k, is_real in zip(groups, query_ranges, key_ranges, real, strict=True):
        rows = (q[1] - q[0]) // (len(group) * heads)
        columns = is_real.shape[1]
        places = torch.arange(rows) + int(spans[group[0], 0] - spans[group[0], 2])
        is_far = (torch.arange(columns) - places.unsqueeze(1)).abs() > window
        mask = mask_padding(is_real)
        if is_far.any():
            far = torch.zeros(1, 1, rows, columns).masked_fill_(is_far, LEAST)
            mask = far if mask is None else far + mask
        buckets.append(Bucket(q, k, len(group) * heads, mask))
    return Plan(queries, keys, buckets)
