"""Fine-tune one trial of a study, and stop if its evaluations are below the median.

    python -m minbert_cli.experiments.search.run STUDY NUMBER RECIPE [--flag value ...]

A process of `minbert experiments`. A stopped trial is recorded in the study, and the process ends
without an error.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate.utils import broadcast_object_list
from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from minbert_cli import finetune
from modeling_minbert import unknown

from .study import NAME, import_optuna, open_storage

# Trials that are never stopped: a median of fewer says little.
FIRST_TRIALS = 5


class Pruning(TrainerCallback):
    """Reports each evaluation to a trial, and stops the training if it should be pruned.

    Args:
        path: File of the study.
        number: Number of the trial.
    """

    def __init__(self, path: Path, number: int) -> None:
        self.optuna: Any = import_optuna("a trial")
        pruner = self.optuna.pruners.MedianPruner(n_startup_trials=FIRST_TRIALS)
        self.study = self.optuna.load_study(
            study_name=NAME, storage=open_storage(path), pruner=pruner
        )
        self.objective: str = json.loads(self.study.user_attrs["objective"])
        frozen = self.study.get_trials(deepcopy=False)[number]
        self.trial = self.optuna.trial.Trial(self.study, frozen._trial_id)
        self.is_main = True

    def on_evaluate(self, *given: Any, **others: Any) -> None:
        """Report the objective; all processes stop together.

        Raises:
            ValueError: If the evaluation has no such objective.
            optuna.TrialPruned: If the trial should stop.
        """
        args, state, _ = given
        metrics: Mapping[str, Any] = others["metrics"]
        known = [name.removeprefix("eval_") for name in metrics if name.startswith("eval_")]
        if self.objective not in known:
            raise ValueError(f"search: {unknown('objective', self.objective, known)}")
        decision, self.is_main = [False], state.is_world_process_zero
        if self.is_main and state.global_step < state.max_steps:
            # the number of the evaluation, which is the same in every trial and after a restart
            number = sum(f"eval_{self.objective}" in entry for entry in state.log_history)
            self.trial.report(metrics[f"eval_{self.objective}"], number)
            decision = [bool(self.trial.should_prune())]
        if args.world_size > 1:
            broadcast_object_list(decision)
        if decision[0]:
            raise self.optuna.TrialPruned

    def record(self) -> None:
        """Record that the trial was stopped."""
        if self.is_main:
            self.study.tell(self.trial.number, state=self.optuna.trial.TrialState.PRUNED)
            print("stopped: below the median of the earlier trials")


def main(argv: Sequence[str] | None = None) -> None:
    """Do the run."""
    path, number, *given = sys.argv[1:] if argv is None else argv
    pruning = Pruning(Path(path), int(number))
    callbacks: list[Any] = DEFAULT_CALLBACKS  # of every Trainer
    callbacks.append(pruning)
    try:
        finetune.main(given)
    except pruning.optuna.TrialPruned:
        pruning.record()


if __name__ == "__main__":
    main()
