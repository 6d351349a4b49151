"""What a recipe of ``finetune.py`` says beside ``TrainingArguments``."""

import os
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from transformers import TrainingArguments

from .callbacks import AggregateEarlyStopping


@dataclass
class FastTrainingArguments(TrainingArguments):
    """``TrainingArguments`` whose defaults suit the device; what a user gives wins.

    - ``bf16`` is on where CUDA computes in it: about twice as fast as float32, and weights and
      optimizer stay in float32. It is off beside ``fp16``, and if ``accelerate launch`` was told
      ``--mixed_precision fp16`` or ``fp8``.
    - ``logging_nan_inf_filter`` is off: the filter waits for the device at every step, and a loss
      that is no number should be seen.
    - ``accelerator_config`` has ``non_blocking: true`` on CUDA: without it the copy of every batch
      waits until the device has done all that was asked of it.
    """

    bf16: bool | None = field(  # type: ignore[assignment]  # __post_init__ makes it a bool
        default=None,
        metadata={"help": "Mixed precision in bfloat16; by default where CUDA computes in it."},
    )
    logging_nan_inf_filter: bool = field(
        default=False,
        metadata={"help": "Leave losses that are no numbers out of the logs; waits at every step."},
    )

    def __post_init__(self) -> None:
        cuda = torch.cuda.is_available() and not self.use_cpu
        if self.bf16 is None:
            launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
            free = not self.fp16 and launched in ("no", "bf16")
            # emulated, it would be slower than float32
            self.bf16 = cuda and free and torch.cuda.is_bf16_supported(including_emulation=False)
        config = self.accelerator_config
        if cuda and (config is None or isinstance(config, dict)):
            self.accelerator_config = {"non_blocking": True, **(config or {})}
        super().__post_init__()


@dataclass
class FinetuneArguments:
    """Flags and keys of ``finetune.py``.

    Raises:
        ValueError: If there are no tasks, both a checkpoint and sizes of a new model, or batches
            without tokens.
    """

    tasks: dict[str, Any] = field(
        metadata={"help": "Task name to its keys; as a flag also names of tasks of the recipe."}
    )
    model_name_or_path: str | None = field(
        default=None, metadata={"help": "A bert or minbert checkpoint; none for a new model."}
    )
    model_config: dict[str, Any] | None = field(
        default=None, metadata={"help": "Fields of MinBertConfig for a new model."}
    )
    data_dir: str | None = field(
        default=None, metadata={"help": "Folder with the official files of the built-in datasets."}
    )
    max_length: int = field(default=128, metadata={"help": "Tokens of a sequence at most."})
    mode: Literal["finetune", "frozen"] = field(
        default="finetune", metadata={"help": "Train all weights, or only the heads."}
    )
    stop: str = field(
        default="longest",
        metadata={"help": "When an epoch ends: shortest, longest, or a number of steps."},
    )
    max_tokens_per_batch: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a batch at most, instead of a number of rows, for the tasks "
            "without a batch_size of their own."
        },
    )
    exponential_lr_gamma: float | None = field(
        default=None, metadata={"help": "Factor on the learning rate after every epoch."}
    )
    early_stopping_patience: int | None = field(
        default=None, metadata={"help": "Evaluations without a better metric before stopping."}
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Whether the folder may lose another run."}
    )

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("tasks is empty; name at least one, as in {sst: {dataset: sst}}")
        names: list[Any] = list(self.tasks)  # out of YAML
        if unnamed := [name for name in names if not isinstance(name, str)]:
            raise ValueError(f"tasks: {unnamed[0]!r} is no name; put it in quotes")
        if self.model_name_or_path is not None and self.model_config:
            raise ValueError(
                f"model_name_or_path={self.model_name_or_path!r} brings its own sizes; leave it "
                "out, or give --model_config '{}'"
            )
        if self.max_tokens_per_batch is not None and self.max_tokens_per_batch < 1:
            raise ValueError(
                f"max_tokens_per_batch={self.max_tokens_per_batch}; expected 1 or more, or null "
                "for per_device_train_batch_size rows"
            )

    def parse_stop(self) -> Any:
        """Read the stop policy; the sampler checks it."""
        return int(self.stop) if self.stop.isdigit() else self.stop

    def make_callbacks(self, args: TrainingArguments) -> list[AggregateEarlyStopping]:
        """Make the callback for early stopping, if asked for.

        Raises:
            ValueError: If the patience is no number of evaluations, or no metric is watched.
        """
        patience = self.early_stopping_patience
        if patience is None:
            return []
        if patience < 1:
            raise ValueError(f"early_stopping_patience={patience} must be 1 or more")
        if not args.load_best_model_at_end:
            raise ValueError(
                f"early_stopping_patience={patience} needs load_best_model_at_end: true and a "
                "metric_for_best_model, such as mean"
            )
        return [AggregateEarlyStopping(patience)]
