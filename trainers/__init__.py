"""Multi-task training on top of the Hugging Face Trainer.

The map: ``tasks`` (what a recipe says about training a task), ``data`` (rows of all tasks),
``rows`` (their arrays), ``masking`` and ``text`` (learning from text without labels), ``collators``
and ``shapes`` (rows to batches), ``task_sampling``, ``samplers``, ``streams`` and ``token_streams``
(which rows of which task at which step), ``batches`` (all these for a run), ``metrics`` (per task
and over all tasks), ``scores`` (of many draws of rows), ``embeddings`` (those of vectors),
``evaluation``, ``method_trainer``, ``mixed_trainer`` and ``multitask`` (the trainer, in layers),
``methods`` (its flags), ``layers``, ``regularization``, ``perturbation``, ``averaging``,
``adapters`` and ``gradient_surgery`` (what they ask for), ``acceleration`` (of its steps),
``checkpoints`` (what can be resumed), ``arguments`` and ``recipes`` (a YAML file plus flags),
``recipe_files`` (that file), ``pretrained`` (strict loading), ``runs`` (the folder of a run),
``launch`` (a whole run), ``results``, ``predictions``, ``glue`` and ``report`` (what it leaves
behind), ``evidence``, ``analysis``, ``curves``, ``plots`` and ``page`` (``report.html``),
``experiments``, ``overrides``, ``search`` and ``planning`` (many runs), ``campaign`` (doing them),
``tables`` and ``table_plot`` (what they found), ``compare`` (two of them), ``errors`` (for people),
``files`` (whole files or nothing).
"""

from .adapters import add_lora, merge_lora
from .answers import AnswerSearch, answer_questions, measure_answers, spread_questions
from .arguments import (
    FastTrainingArguments,
    FinetuneArguments,
    PretrainArguments,
    RunArguments,
    TextArguments,
)
from .callbacks import AggregateEarlyStopping
from .campaign import Campaign, Failure, find_state, order_runs, program_command
from .checkpoints import last_complete_checkpoint
from .checks import check_arguments
from .collators import TaskCollator
from .compare import (
    ComparisonArguments,
    compare_runs,
    describe_differences,
    read_scored_rows,
)
from .data import TaskDataset, spread
from .errors import INPUT_ERRORS, named_errors, readable_errors, reason_of
from .experiments import ExperimentArguments, parse_experiments
from .files import replaced_when_done, write_text
from .glue import GlueFile, missing_files, write_glue_file, write_submission
from .launch import Program
from .masking import Masking
from .methods import MethodArguments
from .metrics import (
    PRIMARY_METRIC,
    aggregates,
    check_metric,
    glue_score,
    standard_error,
    task_metrics,
)
from .multitask import MultiTaskTrainer
from .page import report_run, write_report
from .planning import PlannedRun, Row, plan_rows
from .predictions import read_predictions, write_predictions
from .pretrained import load_pretrained
from .recipes import check_types, deal_keys, fill_arguments, parse_recipe, split_argv
from .report import plot_history, results_table, write_model_card
from .results import Outputs, Results, RunFacts, evaluate_run, write_card, write_results
from .rows import SomeRows, TextSource
from .runs import (
    describe_command,
    describe_recipe,
    describe_settings,
    read_settings,
    sole_writer,
)
from .samplers import TaskBatchSampler
from .tables import ExperimentTable
from .task_sampling import SamplingArguments
from .tasks import TaskTraining
from .text import TEXT_TYPES

__all__ = [
    "INPUT_ERRORS",
    "PRIMARY_METRIC",
    "TEXT_TYPES",
    "AggregateEarlyStopping",
    "AnswerSearch",
    "Campaign",
    "ComparisonArguments",
    "ExperimentArguments",
    "ExperimentTable",
    "Failure",
    "FastTrainingArguments",
    "FinetuneArguments",
    "GlueFile",
    "Masking",
    "MethodArguments",
    "MultiTaskTrainer",
    "Outputs",
    "PlannedRun",
    "PretrainArguments",
    "Program",
    "Results",
    "Row",
    "RunArguments",
    "RunFacts",
    "SamplingArguments",
    "SomeRows",
    "TaskBatchSampler",
    "TaskCollator",
    "TaskDataset",
    "TaskTraining",
    "TextArguments",
    "TextSource",
    "add_lora",
    "aggregates",
    "answer_questions",
    "check_arguments",
    "check_metric",
    "check_types",
    "compare_runs",
    "deal_keys",
    "describe_command",
    "describe_differences",
    "describe_recipe",
    "describe_settings",
    "evaluate_run",
    "fill_arguments",
    "find_state",
    "glue_score",
    "last_complete_checkpoint",
    "load_pretrained",
    "measure_answers",
    "merge_lora",
    "missing_files",
    "named_errors",
    "order_runs",
    "parse_experiments",
    "parse_recipe",
    "plan_rows",
    "plot_history",
    "program_command",
    "read_predictions",
    "read_scored_rows",
    "read_settings",
    "readable_errors",
    "reason_of",
    "replaced_when_done",
    "report_run",
    "results_table",
    "sole_writer",
    "split_argv",
    "spread",
    "spread_questions",
    "standard_error",
    "task_metrics",
    "write_card",
    "write_glue_file",
    "write_model_card",
    "write_predictions",
    "write_report",
    "write_results",
    "write_submission",
    "write_text",
]
