"""``TrainingArguments`` whose defaults suit the device, and the keys of the training methods."""

import os
from dataclasses import dataclass
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from datasets_scripts.checking import Part, Positive, option

from .methods.base import Method
from .training.checks import check_numbers, check_schedules

# Arguments that other libraries check, whose messages do not name them.
ELSEWHERE = ("accelerator_config", "ddp_backend", "deepspeed", "fsdp", "fsdp_config")
LOGGED_SHARE = 0.05


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
        is_launched = self._choose_precision(cuda=cuda)
        if self.bf16 and not torch.accelerator.is_available():
            self.use_cpu = True  # otherwise bfloat16 would be refused
        given = [f"{name}={getattr(self, name)!r}" for name in ELSEWHERE if getattr(self, name)]
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
            if not given and isinstance(error, ValueError):
                raise
            raise ValueError(f"{', '.join(given) or 'TrainingArguments'}: {error}") from error
        if not is_launched:
            self.mixed_precision = "no"
        if is_default:
            self.logging_steps = LOGGED_SHARE
        check_schedules(self)

    def _choose_precision(self, *, cuda: bool) -> bool:
        """Set ``bf16`` and ``fp16``; return whether that of the launcher, if any, is used."""
        launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        has_device = torch.accelerator.is_available() and not self.use_cpu
        if self.bf16 is None:
            is_known = cuda or not has_device  # of other devices nothing is known
            device = torch.device("cuda" if cuda else "cpu")
            is_fast = launched == "no" and is_known and self.is_fast_in_bfloat16(device)
            self.bf16 = not self.fp16 and (launched == "bf16" or is_fast)
        if launched == "fp16" and not self.bf16:
            self.fp16 = self.fp16 or has_device  # which no CPU has
        return launched not in ("bf16", "fp16") or bool(self.bf16 or self.fp16)

    def is_fast_in_bfloat16(self, device: torch.device) -> bool:
        """Return whether ``bf16`` is on by default."""
        # emulated bfloat16 would be slower than float32
        return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


@dataclass(kw_only=True)
class MethodArguments:
    """Flags and recipe keys of the training methods.

    Raises:
        ValueError: If a value is out of range, or two keys contradict each other.
    """

    teacher: str | list[str] | None = option(
        None, "Distillation: the folder or Hub id of a teacher, or several, as in a,b,c."
    )
    distillation_alpha: Part | None = option(
        None, "Share of the teachers in the loss; by default 0.5, and 1 for vectors."
    )
    distillation_temperature: Positive | None = option(
        None, "Temperature of the teachers' probabilities; 2 by default."
    )
    head_learning_rate: float | None = option(
        None,
        "Learning rate of the heads; by default 100 times learning_rate for a pretrained encoder.",
    )
    freeze_layers: int | None = option(
        None, "Number of lowest layers to freeze together with the embeddings."
    )
    r_drop: float | None = option(None, "Weight of R-Drop's divergence between two passes.")
    lora: dict[str, Any] | None = option(None, "LoRA: fields of peft's LoraConfig, such as {r: 8}.")

    def __post_init__(self) -> None:
        self.make_methods()
        if self.freeze_layers is not None and self.lora is not None:
            raise ValueError("freeze_layers and lora both choose what to train; give one of them")

    def make_methods(self) -> list[Method]:
        """Build the chosen methods in the order in which they apply; the others are not loaded.

        Distillation, which comes before all, is made with its teachers.
        """
        methods: list[Method] = []
        if self.r_drop is not None:
            from .methods.extra_losses import RDrop

            methods.append(RDrop(self.r_drop))
        if self.head_learning_rate is not None:
            from .methods.layers import HeadLearningRate

            methods.append(HeadLearningRate(self.head_learning_rate))
        if self.freeze_layers is not None:
            from .methods.layers import FreezeLayers

            methods.append(FreezeLayers(self.freeze_layers))
        return methods
