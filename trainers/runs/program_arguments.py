"""``TrainingArguments`` of the programs, which choose what a recipe leaves out."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainers.options import option

from .arguments import FastTrainingArguments

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
BEST_METRIC = "mean"  # of the headline metrics of all tasks


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
        self._plan_evaluations()
        missing = {name for name in PROVISIONAL if getattr(self, name) is None}
        self.undecided = {name for name in missing if self._matters(name)}
        self.decide({name: PROVISIONAL[name] for name in missing})
        self._plan_best()
        super().__post_init__()

    def _plan_best(self) -> None:
        """Choose which weights to keep, where the recipe leaves it out."""
        chosen = (self.load_best_model_at_end, self.metric_for_best_model)
        self.chooses_best = chosen == (None, None) and _name(self.save_strategy) != "best"
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = self._saves_every_evaluation()
        if self.chooses_best and self.load_best_model_at_end:
            self.undecided |= set(BEST)
        if self.metric_for_best_model is None and (
            self.load_best_model_at_end or _name(self.save_strategy) == "best"
        ):
            self.metric_for_best_model = BEST_METRIC

    def _plan_evaluations(self) -> None:
        """Let evaluation and saving go together, where only one of them is given."""
        evaluating, saving = _name(self.eval_strategy), _name(self.save_strategy)
        if evaluating is None:
            self.eval_strategy = saving if saving in ("steps", "epoch") else "steps"
        if saving is None:
            self.save_strategy = "steps" if evaluating in (None, "no") else evaluating
        if {_name(self.eval_strategy), _name(self.save_strategy)} == {"steps"}:
            steps = self.eval_steps if self.save_steps is None else self.save_steps
            self.eval_steps = steps if self.eval_steps is None else self.eval_steps
            self.save_steps = steps

    def _matters(self, name: str) -> bool:
        """Whether an argument has an effect."""
        if name.endswith("_steps"):
            return _name(getattr(self, name.replace("_steps", "_strategy"))) == "steps"
        return name != "num_train_epochs" or self.max_steps <= 0

    def _saves_every_evaluation(self) -> bool:
        strategies = {_name(self.eval_strategy), _name(self.save_strategy)}
        if len(strategies) > 1 or "no" in strategies:
            return False
        return "steps" not in strategies or self.eval_steps == self.save_steps

    def decide(self, values: Mapping[str, Any]) -> None:
        """Set arguments that were left out."""
        for name, value in values.items():
            setattr(self, name, value)

    def keep_last_without(self, metrics: Collection[str]) -> None:
        """Keep the last weights if no metric of the run says which are best; explicit values stay.

        Args:
            metrics: Names of the metrics of the run.
        """
        if self.chooses_best and self.metric_for_best_model not in (None, *metrics):
            self.keep_last()

    def keep_last(self) -> None:
        """Keep the last weights instead of those of the best evaluation."""
        self.load_best_model_at_end = False
        self.metric_for_best_model = self.greater_is_better = None


def _name(strategy: Any) -> str | None:
    """Return the name of a strategy, which may be a member of an enumeration."""
    return None if strategy is None else str(getattr(strategy, "value", strategy))
