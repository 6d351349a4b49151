"""``TrainingArguments`` whose defaults suit the device."""

import os
from dataclasses import dataclass

import torch
from transformers import TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from datasets_scripts.checking import option

from .training.checks import check_numbers, check_schedules

# Arguments that other libraries check, whose messages do not name them.
ELSEWHERE = ("accelerator_config", "ddp_backend", "deepspeed", "fsdp", "fsdp_config")
LOGGED_SHARE = 0.05
# The names of torch for the precisions of accelerate.
PRECISIONS = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass
class FastTrainingArguments(TrainingArguments):
    """``TrainingArguments`` with defaults for the device; explicit values win.

    - ``bf16`` is on if CUDA supports it, and in the programs also on processors that are fast in
      it: about twice as fast as float32, and weights and optimizer stay in float32. It is off with
      ``fp16``. The precision of ``accelerate launch --mixed_precision`` is taken over, unless it is
      ``bf16`` and ``bf16`` is set to false.
    - ``logging_steps`` is 5 % of the steps, so that runs of any length have curves.
    - ``accelerator_config`` has ``non_blocking: true`` on CUDA: otherwise the copy of every batch
      waits for all queued work of the device.
    """

    bf16: bool | None = option(  # type: ignore[assignment]  # __post_init__ makes it a bool
        None, "Mixed precision in bfloat16; by default on if the device is fast in it."
    )
    logging_steps: float | None = option(  # type: ignore[assignment]  # as for bf16
        None, "Steps between two logs, or below 1 their share of all steps; by default 0.05."
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        cuda = torch.cuda.is_available() and not self.use_cpu
        launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        is_refused = launched == "bf16" and self.bf16 is False and not self.fp16
        if self.bf16 is None:
            device = torch.device("cuda" if cuda else "cpu")
            self.bf16 = not self.fp16 and (launched == "bf16" or self._chooses_bfloat16(device))
        if launched == "fp16" and not self.bf16 and not self.use_cpu:
            self.fp16 = self.fp16 or torch.accelerator.is_available()
        if self.bf16 and not torch.accelerator.is_available():
            self.use_cpu = True  # otherwise bfloat16 would be refused
        config = self.accelerator_config
        if cuda and isinstance(config, dict | None):
            self.accelerator_config = {"non_blocking": True, **(config or {})}
        is_default = self.logging_steps is None
        if is_default:
            self.logging_steps = TrainingArguments.logging_steps  # also that of eval_steps
        try:
            super().__post_init__()
        except (AttributeError, ImportError, LookupError, OSError, TypeError, ValueError) as error:
            unset_hf_deepspeed_config()  # a global of transformers, which outlives these arguments
            given = [f"{name}={getattr(self, name)!r}" for name in ELSEWHERE if getattr(self, name)]
            if not given and isinstance(error, ValueError):
                raise
            raise ValueError(f"{', '.join(given) or 'TrainingArguments'}: {error}") from error
        if is_refused or (launched == "fp16" and not self.fp16):  # a CPU has no float16
            self.mixed_precision = "no"
        if is_default:
            self.logging_steps = LOGGED_SHARE
        check_schedules(self)

    def _chooses_bfloat16(self, device: torch.device) -> bool:
        if os.environ.get("ACCELERATE_MIXED_PRECISION", "no") != "no":
            return False
        is_known = device.type == "cuda" or self.use_cpu or not torch.accelerator.is_available()
        return is_known and self.is_fast_in_bfloat16(device)  # of others nothing is known

    def is_fast_in_bfloat16(self, device: torch.device) -> bool:
        """Return whether ``bf16`` is on by default."""
        # emulated bfloat16 would be slower than float32
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
