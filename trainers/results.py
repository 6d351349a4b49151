"""What a finished run found: metrics, predictions and plots, computed once and written down."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import EvalPrediction

from .files import write_text
from .metrics import PRIMARY_METRIC, aggregates, standard_error, task_metrics
from .multitask import MultiTaskTrainer
from .predictions import write_predictions
from .report import plot_history, results_table

# Names of the splits in file names of predictions, as in the course project.
FILE_SPLITS = {"validation": "dev", "test": "test"}


@dataclass(frozen=True)
class Results:
    """Metrics of one split.

    Args:
        metrics: ``<task>_<metric>`` for all tasks, and the aggregates.
        standard_errors: Standard error of the primary metric of each task.
        rows: Number of labelled rows of each task.
    """

    metrics: dict[str, float]
    standard_errors: dict[str, float]
    rows: dict[str, int]

    def table(self, problem_types: Mapping[str, str]) -> str:
        """Show the metrics as a Markdown table."""
        return results_table(
            {f"eval_{name}": value for name, value in self.metrics.items()},
            {task: kind for task, kind in problem_types.items() if task in self.rows},
            standard_errors=self.standard_errors,
            rows=self.rows,
        )


def evaluate_run(
    trainer: MultiTaskTrainer, encoded: Mapping[str, Mapping[str, datasets.Dataset]]
) -> tuple[dict[str, Results], dict[tuple[str, str], NDArray[Any]]]:
    """Run the trained model over every held-out row once.

    Args:
        trainer: The trainer, with the best or last weights.
        encoded: By task and split, the encoded rows.

    Returns:
        By split, the results of the tasks with labels there; and by (task, split) the predictions,
        in the order of the rows.
    """
    model = trainer.accelerator.unwrap_model(trainer.model)
    predictions = {}
    logits = {}
    for task, splits in encoded.items():
        for split in FILE_SPLITS:
            if split in splits:
                found = trainer.predict_task(task, splits[split])
                logits[task, split] = found
                predictions[task, split] = np.asarray(model.decode(task, found))
    results = {}
    for split in FILE_SPLITS:
        labelled = {
            task: (logits[task, split], np.asarray(splits[split]["labels"]))
            for task, splits in encoded.items()
            if split in splits and "labels" in splits[split].column_names
        }
        if labelled:
            results[split] = _summarize(labelled, trainer.problem_types)
    return results, predictions


def _summarize(
    labelled: Mapping[str, tuple[NDArray[Any], NDArray[Any]]], problem_types: Mapping[str, str]
) -> Results:
    metrics: dict[str, float] = {}
    errors = {}
    primary = {}
    for task, (logits, labels) in labelled.items():
        kind = problem_types[task]
        values = task_metrics(kind)(EvalPrediction(predictions=logits, label_ids=labels))
        metrics |= {f"{task}_{name}": value for name, value in values.items()}
        errors[task] = standard_error(kind, logits, labels)
        primary[task] = (kind, values[PRIMARY_METRIC[kind]])
    metrics |= aggregates(primary)
    return Results(metrics, errors, {task: len(labels) for task, (_, labels) in labelled.items()})


def write_results(
    output_dir: str | os.PathLike[str],
    results: Mapping[str, Results],
    predictions: Mapping[tuple[str, str], NDArray[Any]],
    ids: Mapping[tuple[str, str], list[str]],
    *,
    trainer: MultiTaskTrainer,
    about: Mapping[str, Any],
) -> None:
    """Write ``metrics.json``, the predictions and the plot of the training.

    Args:
        output_dir: Folder of the run.
        results: Results by split.
        predictions: Predictions by (task, split).
        ids: Row ids by (task, split).
        trainer: The trainer, for its history.
        about: What else ``metrics.json`` says of the run: seed, versions, command.
    """
    folder = Path(output_dir)
    for (task, split), values in predictions.items():
        write_predictions(
            folder / "predictions" / f"{task}-{FILE_SPLITS[split]}-output.csv",
            ids[task, split],
            values.tolist(),
            trainer.problem_types[task],
        )
    content = {split: asdict(found) for split, found in results.items()} | dict(about)
    write_text(folder / "metrics.json", json.dumps(content, indent=2) + "\n")
    plot_history(trainer.state.log_history, folder / "history.png")
