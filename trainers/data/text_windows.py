"""Batches of long texts, whose windows are sequences: B rows of S texts with up to W windows.

There are N windows in all, of up to L tokens.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F


def pad_windows(columns: Mapping[str, Tensor], counts: Tensor, padding: int) -> dict[str, Tensor]:
    """Arrange the windows of padded columns, (N, L), by text.

    Args:
        columns: ``input_ids``, ``token_type_ids`` and ``attention_mask``.
        counts: Windows of each text, (B,), or (B, S) for several texts of a row.
        padding: Padding of ``input_ids``.

    Returns:
        The columns, (B, W, L) or (B, S, W, L). A window that only fills the batch has one token,
        since a sequence without any would have no first state.
    """
    is_real = torch.arange(int(counts.max())) < counts.unsqueeze(-1)
    fillers = {"input_ids": padding}
    arranged = {}
    for name, values in columns.items():
        shape = (*is_real.shape, values.shape[1])
        arranged[name] = values.new_full(shape, fillers.get(name, 0))
        arranged[name][is_real] = values
    arranged["attention_mask"][..., 0] = 1
    return arranged


def pad_counts(counts: Tensor, rows: int, windows: int) -> Tensor:
    """Append filler rows to the windows of each text; the first one has all filler ``windows``."""
    filler = F.pad(counts, (0, 0) * (counts.dim() - 1) + (0, rows))
    if windows:
        filler[len(counts)].view(-1)[0] = windows
    return filler
