"""Try a few steps of a run, and estimate the time of the others.

    python -m minbert_cli.experiments.trial PROGRAM RECIPE RESULT

A process of a dry run of experiments. It trains in the output folder of the recipe, and writes its
result as JSON.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from transformers import TrainerCallback, TrainerControl

from minbert_cli.console import TimeEstimate, measure_workload
from minbert_cli.finetune import finetune
from minbert_cli.pretrain import pretrain
from minbert_cli.recipe import read_recipe
from trainers import readable_errors, write_text

TIMED_STEPS = 10


class Stop(TrainerCallback):
    """Ends a training after its timed steps, without logs, evaluations and checkpoints."""

    def __init__(self, estimate: TimeEstimate) -> None:
        self._estimate = estimate

    def on_step_end(self, *given: Any, **_: Any) -> None:
        """Leave out all but the next step."""
        control: TrainerControl = given[2]
        control.should_log = control.should_evaluate = control.should_save = False
        control.should_training_stop |= self._estimate.left is not None

    on_epoch_end = on_step_end


def try_run(program: str, recipe: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Train the first steps of a run; return the trainer, and an estimate of the whole run.

    ``seconds_left`` in the estimate are those of all that the trial leaves out.
    """
    run = {"finetune": finetune, "pretrain": pretrain}[program](recipe, is_dry=True)
    run.trainer.args.output_dir = str(recipe["output_dir"])
    trainer, workload = run.trainer, measure_workload(run.trainer, run.rows_to_evaluate())
    # this training does none of the evaluations, so all of them are left at its end
    at_end = (workload.steps,) * len(workload.evaluated_steps)
    estimate = TimeEstimate(replace(workload, evaluated_steps=at_end), timed_steps=TIMED_STEPS)
    trainer.args.eval_on_start = False
    trainer.add_callback(estimate)
    trainer.add_callback(Stop(estimate))
    trainer.train()
    return trainer, {
        "steps": workload.steps,
        "rows": sum(workload.count_rows(workload.steps).values()),
        "seconds_left": 0.0 if estimate.left is None else estimate.left.total,
        "hardware": workload.hardware,
        "may_stop_early": workload.may_stop_early,
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Try a run; a pre-training saves its model, from which trials of fine-tuning start."""
    program, recipe, result = sys.argv[1:] if argv is None else argv
    with readable_errors("trial"):
        trainer, content = try_run(program, read_recipe(Path(recipe)))
    if program == "pretrain":
        trainer.save_model(_internal_call=True)
    if trainer.is_world_process_zero():
        write_text(Path(result), json.dumps(content))


if __name__ == "__main__":
    main()
