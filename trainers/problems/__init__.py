"""Problem types: everything about a task on the training side that depends on its type."""

from collections.abc import Mapping, Sequence
from typing import Any

from modeling_minbert import MinBertTask, unknown
from modeling_minbert.heads import ProblemType as ProblemType
from modeling_minbert.tasks import parse_fields

from .base import AnyProblem
from .classes import Classification, MultiLabelClassification, MultipleChoice, Ordinal, Paraphrase
from .questions import QuestionAnswering
from .scores import Contrastive, Regression, Similarity
from .tags import TokenClassification
from .text import MaskedLM, NextSentence, Pretraining

# By the names of `TASKS`.
PROBLEMS: dict[str, type[AnyProblem]] = {
    "classification": Classification,
    "multi_label_classification": MultiLabelClassification,
    "ordinal": Ordinal,
    "paraphrase": Paraphrase,
    "similarity": Similarity,
    "regression": Regression,
    "multiple_choice": MultipleChoice,
    "contrastive": Contrastive,
    "token_classification": TokenClassification,
    "question_answering": QuestionAnswering,
    "masked_lm": MaskedLM,
    "next_sentence": NextSentence,
    "pretraining": Pretraining,
}


def read_problems(results: Mapping[str, Any]) -> dict[str, AnyProblem]:
    """Create the problems of a run from its ``metrics.json``."""
    specs = {task: parse_fields(task, fields) for task, fields in (results["tasks"] or {}).items()}
    types = {task: spec.problem_type for task, spec in specs.items()}
    return make_problems(types, specs, results.get("metrics"))


def make_problems(
    problem_types: Mapping[str, str],
    specs: Mapping[str, MinBertTask] | None = None,
    metrics: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, AnyProblem]:
    """Create the problem of each task, with its description (``config.task``) and metrics."""
    problems: dict[str, AnyProblem] = {}
    for task, name in problem_types.items():
        if name not in PROBLEMS:
            raise ValueError(f"task {task!r}: {unknown('problem_type', name, PROBLEMS)}")
        problems[task] = PROBLEMS[name](
            task, (specs or {}).get(task), (metrics or {}).get(task, ())
        )
    return problems
