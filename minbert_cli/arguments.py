"""Flags and recipe keys of fine-tuning and pretraining, beside ``TrainingArguments``."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from transformers import TrainingArguments

from datasets_scripts.checking import (
    Columns,
    Count,
    Text,
    check_fields,
    check_keys,
    option,
    to_text,
    whole_number,
)
from modeling_minbert.cpu import bfloat16_is_fast
from trainers.arguments import FastTrainingArguments, MethodArguments
from trainers.data.sampling import StepsPerEpoch, TaskBatchSampler, TaskSampling
from trainers.training.callbacks import AggregateEarlyStopping
from trainers.training.checks import follows_evaluations

CARD = {"language": Columns, "license": Text, "datasets": Columns, "tags": Columns}


@dataclass(kw_only=True)
class RunArguments:
    """Flags and recipe keys of fine-tuning and pretraining."""

    # Keys of a recipe that a flag replaces: a checkpoint has its own sizes.
    replaced_keys: ClassVar[dict[str, tuple[str, ...]]] = {
        "model_name_or_path": ("model_config", "revision")
    }

    model_name_or_path: str | None = option(
        None, "A checkpoint of BERT or a similar encoder; null for a new model."
    )
    revision: str | None = option(
        None, "Branch, tag or commit of the model on the Hub; by default its main branch."
    )
    model_config: dict[str, Any] | None = option(None, "Fields of MinBertConfig for a new model.")
    data_dir: str | None = option(None, "Folder with the official files of the built-in datasets.")
    max_length: int | None = option(
        None, "Maximum tokens of a sequence; by default 128, or the positions of a smaller model."
    )
    early_stopping_patience: Count | None = option(
        None, "Evaluations without a better metric before stopping."
    )
    evaluate_train: bool = option(
        True,
        "At the end also evaluate a training sample the size of the validation set.",
        free=True,
    )
    verbose: bool = option(
        False, "Show the messages and progress bars of all libraries.", free=True
    )
    card: dict[str, Any] | None = option(
        None,
        "Hub metadata of the model card: language (en), license (apache-2.0), datasets and tags "
        "(lists).",
        free=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)
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
        check_keys("card", self.card or {}, CARD)

    def make_callbacks(self, args: TrainingArguments) -> list[AggregateEarlyStopping]:
        """Build the early stopping callback, if there is a patience."""
        patience = self.early_stopping_patience
        if patience is None:
            return []
        if not args.load_best_model_at_end:
            raise ValueError(
                f"early_stopping_patience={patience} needs load_best_model_at_end: true and a "
                "metric_for_best_model, such as mean"
            )
        return [AggregateEarlyStopping(patience)]


@dataclass(kw_only=True)
class FinetuneArguments(TaskSampling, MethodArguments, RunArguments):
    """Flags and recipe keys of fine-tuning."""

    tasks: dict[str, Any] = field(
        metadata={"help": "Keys of each task by name; as a flag also names of tasks of the recipe."}
    )
    freeze_encoder: bool = option(False, "Train only the heads.")
    calibrate: bool = option(
        False, "Calibrate probabilities on validation rows after training, one temperature a task."
    )
    steps_per_epoch: StepsPerEpoch = option(
        "longest", "Length of an epoch: shortest, longest, or a number of steps."
    )
    report_examples: Annotated[int, whole_number(0)] | None = option(
        None,
        "Worst errors of each task quoted in report.html; by default 20, or 0 with push_to_hub.",
        free=True,
    )

    def __post_init__(self) -> None:
        RunArguments.__post_init__(self)
        check_names("tasks", self.tasks, "{sst: {dataset: sst}}")
        TaskSampling.__post_init__(self)
        MethodArguments.__post_init__(self)
        # of tasks with one row each, to check the names of tasks and the length of an epoch
        sizes = dict.fromkeys(self.tasks, 1)
        TaskBatchSampler(sizes, sizes, steps_per_epoch=self.steps_per_epoch, sampling=self)
        if self.freeze_encoder:
            for name in ("freeze_layers", "lora", "head_learning_rate"):
                if getattr(self, name) is not None:
                    raise ValueError(f"freeze_encoder trains only the heads; leave {name} out")


def check_names(key: str, mapping: dict[Any, Any], example: str) -> None:
    """Check that a mapping from YAML is not empty, and that its names are texts."""
    if not mapping:
        raise ValueError(f"{key} is empty; name at least one, as in {example}")
    if unnamed := [name for name in mapping if not isinstance(name, str)]:
        raise ValueError(f"{key}: {unnamed[0]!r} is not a name; put it in quotes")


# Arguments whose values depend on the model or the rows, and values for the time before.
PROVISIONAL: dict[str, Any] = {
    "learning_rate": 5e-5,
    "num_train_epochs": 3.0,
    "per_device_train_batch_size": 32,
    "eval_steps": 0.2,
    "save_steps": 0.2,
}
# Arguments that say which weights to keep; a run with few validation rows keeps the last.
BEST = ("load_best_model_at_end", "metric_for_best_model", "greater_is_better")


def to_checkpoint(value: object) -> str:
    """Check the folder of a checkpoint, or true or false for the last one."""
    return str(value).lower() if isinstance(value, bool) else to_text(value)


@dataclass
class ProgramTrainingArguments(FastTrainingArguments):
    """``FastTrainingArguments`` for runs of any length, of any model; explicit values win.

    What is left out and depends on the model or the rows has a provisional value, until ``decide``
    sets it. The best weights are kept, so evaluation and saving go together unless a recipe
    separates them.

    Attributes:
        undecided: Names of the arguments that are left out and depend on the model or the rows.
        chooses_best: Whether the recipe leaves out which weights to keep.
    """

    replaced_keys: ClassVar[dict[str, tuple[str, ...]]] = {"num_train_epochs": ("max_steps",)}

    # What a program or the trainer decides alone is no key: it would have no effect.
    do_train: bool = field(default=False, init=False)
    do_eval: bool = field(default=False, init=False)
    do_predict: bool = field(default=False, init=False)
    logging_nan_inf_filter: bool = field(default=False, init=False)
    remove_unused_columns: bool = field(default=True, init=False)
    restore_callback_states_from_checkpoint: bool = field(default=True, init=False)
    use_cache: bool = field(default=False, init=False)

    resume_from_checkpoint: Annotated[str, to_checkpoint] | None = option(
        None, "Continue an interrupted run: true for its last checkpoint."
    )
    learning_rate: float | None = option(  # type: ignore[assignment]  # as for bf16
        None, "Peak learning rate; by default chosen by the width of the model."
    )
    num_train_epochs: float | None = option(  # type: ignore[assignment]
        None, "Epochs; by default chosen by the number of rows."
    )
    per_device_train_batch_size: int | None = option(  # type: ignore[assignment]
        None, "Rows per device and step; by default chosen by the number and length of rows."
    )
    per_device_eval_batch_size: int = option(64, "Rows per device in an evaluation.")
    warmup_steps: float = option(
        0.1, "Steps in which the learning rate grows, or below 1 their share of all steps."
    )
    weight_decay: float = option(0.01, "Weight decay of AdamW, except for biases and norms.")
    eval_strategy: str | None = option(  # type: ignore[assignment]
        None, "When to evaluate: no, steps or epoch; by default as for saving, or by steps."
    )
    eval_steps: float | None = option(
        None,
        "Steps between two evaluations, or below 1 their share of all steps; by default chosen so "
        "that they take little of the time.",
    )
    save_strategy: str | None = option(  # type: ignore[assignment]
        None, "When to save a checkpoint: no, steps, epoch or best; by default as for evaluation."
    )
    save_steps: float | None = option(  # type: ignore[assignment]
        None, "Steps between two checkpoints, as eval_steps; by default the same."
    )
    save_total_limit: int | None = option(2, "Number of checkpoints to keep; null for all.")
    load_best_model_at_end: bool | None = option(  # type: ignore[assignment]
        None, "Keep the weights of the best evaluation; by default if each of them is saved."
    )
    metric_for_best_model: str | None = option(
        None, "What is best; by default mean, that of the headline metrics of all tasks."
    )

    def __post_init__(self) -> None:
        if self.run_name is None and self.output_dir is not None:
            self.run_name = Path(self.output_dir).name  # trackers would invent one
        strategies = self._pair_strategies()
        missing = {name for name in PROVISIONAL if getattr(self, name) is None}
        without_effect = {name for name in strategies if strategies[name] != "steps"}
        if self.max_steps > 0:
            without_effect.add("num_train_epochs")
        self.undecided = missing - without_effect
        self.decide({name: PROVISIONAL[name] for name in missing})

        # which weights to keep: those of the best evaluation, if each of them is saved
        keeps_best = strategies["save_steps"] == "best"
        has_metric = (self.metric_for_best_model, self.greater_is_better) != (None, None)
        self.chooses_best = self.load_best_model_at_end is None and not (has_metric or keeps_best)
        if self.load_best_model_at_end is None:
            kinds = {*strategies.values()}
            is_equal = "steps" not in kinds or self.eval_steps == self.save_steps
            # if a metric says what is best, transformers refuses intervals that do not fit
            fits = has_metric or (len(kinds) == 1 and is_equal)
            self.load_best_model_at_end = fits and not kinds & {"no", "best"}
        if self.chooses_best and self.load_best_model_at_end:
            self.undecided |= {*BEST}
        needs_metric = self.load_best_model_at_end or keeps_best or follows_evaluations(self)
        if self.metric_for_best_model is None and needs_metric:
            self.metric_for_best_model = "mean"  # of the headline metrics of all tasks
        super().__post_init__()

    def _pair_strategies(self) -> dict[str, str]:
        """Let evaluation and saving go together; return both by the names of their intervals."""
        given = (self.eval_strategy, self.save_strategy)  # which may be members of an enumeration
        evaluating, saving = (getattr(strategy, "value", strategy) for strategy in given)
        if evaluating is None:
            follows = saving == "epoch" and self.eval_steps is None
            self.eval_strategy = evaluating = "epoch" if follows else "steps"
            saving = saving or "steps"
        elif saving is None:
            follows = evaluating == "epoch" and self.save_steps is None
            saving = "epoch" if follows else "steps"
        self.save_strategy = saving
        if evaluating == saving == "steps":
            if self.save_steps is None:
                self.save_steps = self.eval_steps
            elif self.eval_steps is None:
                self.eval_steps = self.save_steps
        return {"eval_steps": str(evaluating), "save_steps": str(saving)}

    def is_fast_in_bfloat16(self, device: torch.device) -> bool:
        """Return whether ``bf16`` is on by default, also on processors that are fast in it."""
        return bfloat16_is_fast(device)

    def decide(self, values: Mapping[str, Any]) -> None:
        """Set arguments that were left out."""
        for name, value in values.items():
            setattr(self, name, value)

    def keep_last_without(self, metrics: Collection[str]) -> None:
        """Keep the last weights if no metric says which are best; explicit values stay."""
        if self.chooses_best and self.metric_for_best_model not in (None, *metrics):
            self.keep_last()

    def keep_last(self) -> None:
        """Keep the last weights instead of those of the best evaluation."""
        self.load_best_model_at_end = False
        if not follows_evaluations(self):
            self.metric_for_best_model = self.greater_is_better = None
