"""Training arguments of the programs, with the precision that suits the processor."""

from dataclasses import dataclass

import torch

from modeling_minbert.int8 import bfloat16_is_fast
from trainers import ProgramTrainingArguments


@dataclass
class DeviceTrainingArguments(ProgramTrainingArguments):
    """Those of the trainers, with ``bf16`` also on processors that are fast in it."""

    def is_fast_in_bfloat16(self, device: torch.device) -> bool:
        """Return whether ``bf16`` is on by default."""
        return bfloat16_is_fast(device)
