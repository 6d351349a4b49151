"""Flags and recipe keys of all programs and of fine-tuning, beside ``TrainingArguments``."""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import TrainingArguments
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from modeling_minbert import unknown
from trainers.data.sampling.task_sampling import SamplingArguments, StepsPerEpoch, TaskSizes
from trainers.methods.method_arguments import MethodArguments
from trainers.options import MAX_TOKENS, check_count, option
from trainers.training.callbacks import AggregateEarlyStopping
from trainers.training.preparation.argument_checks import check_numbers, check_schedules

# Arguments that other libraries check, whose messages do not name them.
ELSEWHERE = ("accelerator_config", "ddp_backend", "deepspeed", "fsdp", "fsdp_config")
LOGGED_SHARE = 0.05
CARD_KEYS = ("language", "license", "datasets", "tags")


@dataclass
class FastTrainingArguments(TrainingArguments):
    """``TrainingArguments`` with defaults for the device; explicit values win.

    - ``bf16`` is on if CUDA supports it, and in the programs also on processors that are fast in
      it: about twice as fast as float32, and weights and optimizer stay in float32. It is off with
      ``fp16``, and with ``accelerate launch --mixed_precision fp16`` or ``fp8``.
    - ``logging_nan_inf_filter`` is off: the filter synchronizes with the device at every step, and
      a NaN loss should be visible.
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
    logging_nan_inf_filter: bool = option(
        False, "Leave NaN losses out of the logs; synchronizes at every step."
    )

    def __post_init__(self) -> None:
        check_numbers(self)
        self._set_defaults_of_device()
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
        if is_default:
            self.logging_steps = LOGGED_SHARE
        check_schedules(self)

    def is_fast_in_bfloat16(self, device: torch.device) -> bool:
        """Return whether ``bf16`` is on by default."""
        # emulated bfloat16 would be slower than float32
        cuda = device.type == "cuda"
        return cuda and torch.cuda.is_bf16_supported(including_emulation=False)

    def _set_defaults_of_device(self) -> None:
        cuda = torch.cuda.is_available() and not self.use_cpu
        if self.bf16 is None:
            self.bf16 = self._chooses_bfloat16(torch.device("cuda" if cuda else "cpu"))
        if self.bf16 and not torch.accelerator.is_available():
            self.use_cpu = True  # otherwise bfloat16 would be refused
        config = self.accelerator_config
        if cuda and isinstance(config, dict | None):
            self.accelerator_config = {"non_blocking": True, **(config or {})}

    def _chooses_bfloat16(self, device: torch.device) -> bool:
        launched = os.environ.get("ACCELERATE_MIXED_PRECISION", "no")
        if self.fp16 or launched not in ("no", "bf16"):
            return False
        is_known = device.type == "cuda" or self.use_cpu or not torch.accelerator.is_available()
        return is_known and self.is_fast_in_bfloat16(device)  # of others nothing is known


@dataclass(kw_only=True)
class RunArguments:
    """Flags and recipe keys of fine-tuning and pretraining."""

    # Keys of a recipe that a flag replaces: a checkpoint has its own sizes.
    replaced_keys: ClassVar[dict[str, tuple[str, ...]]] = {
        "model_name_or_path": ("model_config", "revision")
    }

    model_name_or_path: str | None = option(
        None, "A bert or minbert checkpoint; null for a new model."
    )
    revision: str | None = option(
        None, "Branch, tag or commit of the model on the Hub; by default its main branch."
    )
    model_config: dict[str, Any] | None = option(None, "Fields of MinBertConfig for a new model.")
    data_dir: str | None = option(None, "Folder with the official files of the built-in datasets.")
    max_length: int | None = option(
        None, "Maximum tokens of a sequence; by default 128, or the positions of a smaller model."
    )
    max_tokens_per_batch: int | None = option(
        None, "Maximum tokens of a batch of the tasks without a batch_size, instead of rows."
    )
    early_stopping_patience: int | None = option(
        None, "Evaluations without a better metric before stopping."
    )
    evaluate_train: bool = option(
        True, "At the end also evaluate a training sample the size of the validation set."
    )
    overwrite_output_dir: bool = option(False, "Whether another run in the folder may be deleted.")
    smoke_test: bool = option(
        False, "Try every stage with few rows and steps, in <output_dir>-smoke."
    )
    verbose: bool = option(False, "Show the messages and progress bars of all libraries.")
    card: dict[str, Any] | None = option(
        None,
        "Hub metadata of the model card: language (en), license (apache-2.0), datasets and tags "
        "(lists).",
    )

    def __post_init__(self) -> None:
        if self.model_name_or_path is not None and self.model_config:
            raise ValueError(
                f"model_name_or_path={self.model_name_or_path!r} determines the sizes; "
                "remove model_config, or clear it with --model_config '{}'"
            )
        if self.revision is not None and Path(self.model_name_or_path or ".").is_dir():
            raise ValueError(
                f"revision={self.revision!r} has no effect without a model_name_or_path on the "
                "Hub; remove it"
            )
        rows = "per_device_train_batch_size rows"
        check_count("max_tokens_per_batch", self.max_tokens_per_batch, MAX_TOKENS, null=rows)
        check_card(self.card or {})

    def make_callbacks(self, args: TrainingArguments) -> list[AggregateEarlyStopping]:
        """Build the early stopping callback, if there is a patience."""
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


@dataclass(kw_only=True)
class FinetuneArguments(SamplingArguments, MethodArguments, RunArguments):
    """Flags and recipe keys of fine-tuning."""

    tasks: dict[str, Any] = field(
        metadata={"help": "Keys of each task by name; as a flag also names of tasks of the recipe."}
    )
    freeze_encoder: bool = option(False, "Train only the heads.")
    calibrate: bool = option(
        False, "Calibrate probabilities on validation rows after training, one temperature a task."
    )
    steps_per_epoch: str = option(
        "longest", "Length of an epoch: shortest, longest, or a number of steps."
    )
    report_examples: int | None = option(
        None,
        "Worst errors of each task quoted in report.html; by default 20, or 0 with push_to_hub.",
    )

    def __post_init__(self) -> None:
        check_names("tasks", self.tasks, "{sst: {dataset: sst}}")
        if self.report_examples is not None and self.report_examples < 0:
            raise ValueError(f"report_examples={self.report_examples}; expected 0 or more")
        SamplingArguments.__post_init__(self)
        MethodArguments.__post_init__(self)
        RunArguments.__post_init__(self)
        # the rows of others are in the batches of these
        owners = [
            name for name, keys in self.tasks.items() if "shares_rows_with" not in (keys or ())
        ]
        sampling, ones = self.make_sampling(), np.ones(len(owners), dtype=np.int64)
        for method in self.make_methods():
            method.check_sampling(sampling)
        # of tasks with one row each, to check the names of tasks and the length of an epoch
        sizes = TaskSizes(owners, ones.astype(np.float64), ones)
        if owners:  # else one that others share rows with is missing, which is an error later
            sampling.make_order(sizes, self.parse_steps_per_epoch(), seed=0)
        if self.freeze_encoder:
            rates = ("layerwise_lr_decay", "head_learning_rate")
            needless = ("freeze_layers", "unfreeze_layer_every", "lora")
            for name in (*needless, *rates):
                if getattr(self, name) is not None:
                    raise ValueError(f"freeze_encoder trains only the heads; leave {name} out")

    def count_examples(self, args: TrainingArguments) -> int:
        """Return the number of quoted errors; a published report has none by default."""
        if self.report_examples is not None:
            return self.report_examples
        return 0 if args.push_to_hub else 20

    def parse_steps_per_epoch(self) -> StepsPerEpoch:
        """Convert ``steps_per_epoch``; the sampler checks it."""
        steps: Any = self.steps_per_epoch
        return int(steps) if steps.isdigit() else steps


def check_card(card: dict[str, Any]) -> None:
    """Check metadata of a model card."""
    for key, value in card.items():
        if key not in CARD_KEYS:
            raise ValueError(f"card: {unknown('key', key, CARD_KEYS)}")
        texts = value if isinstance(value, list) else [value]
        if not texts or not all(isinstance(text, str) and text for text in texts):
            what = {"license": "a text"}.get(key, "a text or a list of texts")
            raise ValueError(f"card: {key}={value!r} must be {what}, in quotes if YAML reads more")
        if key == "license" and isinstance(value, list):
            raise ValueError(f"card: license={value!r} must be one text, as in apache-2.0")


def check_names(key: str, mapping: dict[Any, Any], example: str) -> None:
    """Check that a mapping from YAML is not empty, and that its names are texts."""
    if not mapping:
        raise ValueError(f"{key} is empty; name at least one, as in {example}")
    if unnamed := [name for name in mapping if not isinstance(name, str)]:
        raise ValueError(f"{key}: {unnamed[0]!r} is not a name; put it in quotes")
