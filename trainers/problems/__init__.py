"""Problem types: everything about a task on the training side that depends on its type."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from modeling_minbert import unknown

from .base.problem import Problem
from .classification import Classification
from .contrastive import Contrastive
from .masked_lm import MaskedLM
from .multi_label_classification import MultiLabelClassification
from .multiple_choice import MultipleChoice
from .next_sentence import NextSentence
from .ordinal import Ordinal
from .paraphrase import Paraphrase
from .pretraining import Pretraining
from .question_answering import QuestionAnswering
from .regression import Regression
from .similarity import Similarity
from .token_classification import TokenClassification

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
