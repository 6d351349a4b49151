# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Whether a tensor is computed with, or only followed."""

from typing import Any

import torch
from transformers.utils.import_utils import is_tracing


def is_followed(tensor: Any) -> bool:
    """Return whether torch traces or transforms the program (compile, export, `torch.func`).

    What depends on the values of a tensor, and functions with a backward of their own, are not for
    that.
    """
    return is_tracing(tensor) or torch._C._are_functorch_transforms_active()
