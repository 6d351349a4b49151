"""Problem types: everything about a task on the training side that depends on its type."""

from collections.abc import Mapping, Sequence
from pkgutil import resolve_name

from modeling_minbert import MinBertTask, unknown
from modeling_minbert.heads import ProblemType as ProblemType
from modeling_minbert.tasks import LazyTypes

from .base import AnyProblem

# The module and the class of each type, in the order of `TASKS`.
PLACES = {
    "classification": "classes:Classification",
    "multi_label_classification": "labels:MultiLabelClassification",
    "multi_output_classification": "labels:MultiOutputClassification",
    "paraphrase": "classes:Paraphrase",
    "similarity": "scores:Similarity",
    "regression": "scores:Regression",
    "contrastive": "text:Contrastive",
    "token_classification": "tags:TokenClassification",
    "question_answering": "questions:QuestionAnswering",
    "masked_lm": "text:MaskedLM",
    "next_sentence": "text:NextSentence",
    "pretraining": "text:Pretraining",
}
PROBLEMS = LazyTypes[AnyProblem](PLACES, lambda name: resolve_name(f"{__name__}.{PLACES[name]}"))


def make_problems(
    problem_types: Mapping[str, str],
    specs: Mapping[str, MinBertTask | None] | None = None,
    metrics: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, AnyProblem]:
    """Create the problem of each task, with its description (``config.task``) and metrics."""
    specs, metrics = specs or {}, metrics or {}
    problems: dict[str, AnyProblem] = {}
    for task, name in problem_types.items():
        if name not in PROBLEMS:
            raise ValueError(f"task {task!r}: {unknown('problem_type', name, PROBLEMS)}")
        problems[task] = PROBLEMS[name](task, specs.get(task), metrics.get(task, ()))
    return problems
