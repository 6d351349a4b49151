"""Multi-task training on top of the Hugging Face Trainer.

The map: ``tasks`` (what a recipe says about training a task), ``data`` (rows to batches),
``samplers`` (which task at which step), ``metrics`` (per task and over all tasks), ``multitask``
(the trainer), ``checkpoints`` (what can be resumed), ``recipes`` (a YAML file plus flags),
``predictions`` and ``report`` (what a run leaves behind), ``files`` (whole files or nothing).
"""

from .callbacks import AggregateEarlyStopping
from .checkpoints import last_complete_checkpoint
from .data import TaskCollator, TaskDataset
from .metrics import PRIMARY_METRIC, aggregates, standard_error, task_metrics
from .multitask import MultiTaskTrainer
from .predictions import write_predictions
from .recipes import parse_recipe
from .report import plot_history, results_table, write_model_card
from .results import Results, evaluate_run, write_results
from .runs import (
    check_output_dir,
    find_checkpoint,
    finish_run,
    readable_errors,
    start_run,
)
from .samplers import RoundRobinBatchSampler
from .tasks import TaskTraining

__all__ = [
    "PRIMARY_METRIC",
    "AggregateEarlyStopping",
    "MultiTaskTrainer",
    "Results",
    "RoundRobinBatchSampler",
    "TaskCollator",
    "TaskDataset",
    "TaskTraining",
    "aggregates",
    "check_output_dir",
    "evaluate_run",
    "find_checkpoint",
    "finish_run",
    "last_complete_checkpoint",
    "parse_recipe",
    "plot_history",
    "readable_errors",
    "results_table",
    "standard_error",
    "start_run",
    "task_metrics",
    "write_model_card",
    "write_predictions",
    "write_results",
]
