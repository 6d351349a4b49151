"""Problem types: everything about a task on the training side that depends on its type."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from modeling_minbert import unknown

from .base import Problem
from .classes import Classification, MultiLabelClassification, MultipleChoice, Ordinal, Paraphrase
from .contrastive import Contrastive
from .questions import QuestionAnswering
from .scores import Regression, Similarity
from .tags import TokenClassification
from .text import MaskedLM, NextSentence, Pretraining

# The keys of `PROBLEMS`, for type checkers.
ProblemType = Literal[
    "classification",
    "multi_label_classification",
    "ordinal",
    "paraphrase",
    "similarity",
    "regression",
    "multiple_choice",
    "contrastive",
    "token_classification",
    "question_answering",
    "masked_lm",
    "next_sentence",
    "pretraining",
]
PROBLEMS: dict[str, type[Problem[Any]]] = {
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


def make_problems(
    problem_types: Mapping[str, str],
    heads: Mapping[str, Mapping[str, Any]] | None = None,
    metrics: Mapping[str, Sequence[str]] | None = None,
) -> dict[str, Problem[Any]]:
    """Create the problem of each task, with its head (``config.tasks``) and chosen metrics."""
    problems: dict[str, Problem[Any]] = {}
    for task, name in problem_types.items():
        if name not in PROBLEMS:
            raise ValueError(f"task {task!r}: {unknown('problem_type', name, PROBLEMS)}")
        problems[task] = PROBLEMS[name](
            task, (heads or {}).get(task), (metrics or {}).get(task, ())
        )
    return problems
