"""Multi-task training on top of the Hugging Face Trainer.

The layers from below: ``options``, ``files``, ``data``, ``problems``, ``task``,
``methods``, ``training``, ``reports`` and ``arguments``; each imports only those before it.
"""

from . import random_imports  # noqa: F401  before all that import rich
from .arguments import FastTrainingArguments
from .data.collate import FixedShapes, TaskCollator
from .data.dataset import TaskDataset, spread
from .data.masking import Masking
from .data.rows import TextSource
from .data.sampling.batches import TaskBatchSampler
from .data.sampling.task_sampling import SamplingArguments
from .files import (
    INPUT_ERRORS,
    UsageError,
    WriteError,
    named_errors,
    named_writes,
    readable_errors,
    reason_of,
    replaced_when_done,
    write_text,
)
from .methods.adapters import add_lora, merge_lora
from .methods.averaging import WeightAveraging
from .methods.base import Method
from .methods.distillation import Distillation
from .methods.gradient_surgery import GradientSurgery
from .methods.layers import (
    ExponentialDecay,
    FreezeLayers,
    GradualUnfreezing,
    LayerwiseLearningRates,
)
from .methods.method_arguments import MethodArguments
from .methods.regularization import RDrop, Smart, SmartConfig
from .problems import PROBLEMS, ProblemType, make_problems
from .problems.base import Problem
from .problems.metrics import Metric
from .reports.glue import GlueFile, missing_files, write_submission
from .reports.label_tables import write_label_issues
from .reports.page import report_run, write_report
from .reports.results import Choice, RunFacts, evaluate_run, write_results
from .reports.run_card import write_card
from .reports.tables import write_tables
from .task import Task, TaskTraining
from .training.callbacks import AggregateEarlyStopping, LastStep, TrainingDivergedError
from .training.checks import check_arguments, check_libraries, check_sampling, list_metrics
from .training.multitask import MultiTaskTrainer
from .training.resuming import last_complete_checkpoint, load_pretrained

__all__ = [
    "INPUT_ERRORS",
    "PROBLEMS",
    "AggregateEarlyStopping",
    "Choice",
    "Distillation",
    "ExponentialDecay",
    "FastTrainingArguments",
    "FixedShapes",
    "FreezeLayers",
    "GlueFile",
    "GradientSurgery",
    "GradualUnfreezing",
    "LastStep",
    "LayerwiseLearningRates",
    "Masking",
    "Method",
    "MethodArguments",
    "Metric",
    "MultiTaskTrainer",
    "Problem",
    "ProblemType",
    "RDrop",
    "RunFacts",
    "SamplingArguments",
    "Smart",
    "SmartConfig",
    "Task",
    "TaskBatchSampler",
    "TaskCollator",
    "TaskDataset",
    "TaskTraining",
    "TextSource",
    "TrainingDivergedError",
    "UsageError",
    "WeightAveraging",
    "WriteError",
    "add_lora",
    "check_arguments",
    "check_libraries",
    "check_sampling",
    "evaluate_run",
    "last_complete_checkpoint",
    "list_metrics",
    "load_pretrained",
    "make_problems",
    "merge_lora",
    "missing_files",
    "named_errors",
    "named_writes",
    "readable_errors",
    "reason_of",
    "replaced_when_done",
    "report_run",
    "spread",
    "write_card",
    "write_label_issues",
    "write_report",
    "write_results",
    "write_submission",
    "write_tables",
    "write_text",
]
