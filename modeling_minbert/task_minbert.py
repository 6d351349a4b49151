# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""The interface of all task classes: the description of one task of `MinBertForMultiTask`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, NamedTuple

from huggingface_hub.dataclasses import strict
from torch import Tensor, nn

from .distillation_minbert import order_labels
from .sentence_transformers_minbert import MinBertEmbedding

# What rows of `predict` are.
RowKind = Literal["single texts", "pairs", "contexts with choices"]
SetBy = Literal["recipe", "data", "training"]
# The keys of `TASKS`, for type checkers.
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
# Metadata of the fields of tasks: their source.
RECIPE: dict[str, SetBy] = {"set_by": "recipe"}
DATA: dict[str, SetBy] = {"set_by": "data"}
TRAINING: dict[str, SetBy] = {"set_by": "training"}


class Pretrained(NamedTuple):
    """What is known of the weights that a task starts from."""

    sentence_pooling: str | None = None  # of a sentence encoder; None if it is none
    has_trained_pooler: bool = False


class Suggestion(NamedTuple):
    """A value for a field that a recipe leaves out."""

    value: Any
    reason: str


@strict
@dataclass(kw_only=True)
class MinBertTask:
    """A task of `MinBertForMultiTask`: what its head predicts, from which input, with which loss.

    Every problem type has a subclass with its own fields; see `TASKS`.

    Args:
        problem_type: A key of `TASKS`.

    Attributes:
        is_pretraining: Whether the task shares BERT's own pre-training heads.
        is_unlabelled: Whether the task learns without labels, so that no pipeline can use it.
        is_token_level: Whether the head scores every token and pools nothing.
        predicts_masked_tokens: Whether the task needs the masked-language-model head.
        predicts_next_sentence: Whether the task needs the next-sentence head.
        answers_questions: Whether predictions are answers from texts.
        offers_choices: Whether rows have a list of choices, one of which is predicted.
        extra_targets: Keyword arguments of `forward` that only this type of task takes.
        single_task_model: Name of the model class with this head alone; None if there is none.
    """

    problem_type: ProblemType = field(metadata=DATA)
    is_pretraining: ClassVar[bool] = False
    is_unlabelled: ClassVar[bool] = False
    is_token_level: ClassVar[bool] = False
    predicts_masked_tokens: ClassVar[bool] = False
    predicts_next_sentence: ClassVar[bool] = False
    answers_questions: ClassVar[bool] = False
    offers_choices: ClassVar[bool] = False
    extra_targets: ClassVar[tuple[str, ...]] = ()
    single_task_model: ClassVar[str | None] = None

    def __post_init__(self) -> None:
        """Fill in what the other fields determine."""

    @classmethod
    def fields_set_by(cls, source: SetBy) -> tuple[str, ...]:
        """Return the names of the fields that a recipe, the data, or training sets."""
        return tuple(each.name for each in fields(cls) if each.metadata["set_by"] == source)

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        """Add the fields that follow from the data to the `given` ones of a recipe.

        `facts` are `labels`, `score_range`, `num_texts` (texts of a row), `class_counts` (training
        rows by class or label, words by tag, or None), `num_rows` of training, `has_unanswerable`,
        `data_keys`, `max_length` of the run, and for a regression `targets`, `mean` and `std`. A
        recipe that
        contradicts them is a ValueError.
        """
        known = {name: facts.get(name) for name in cls.fields_set_by("data")}
        lists = {
            name: value if isinstance(value, dict) else list(value)
            for name, value in known.items()
            if value is not None
        }
        return {**given, **lists, "problem_type": vars(cls)["problem_type"]}

    @classmethod
    def suggest(
        cls, given: Mapping[str, Any], start: Pretrained, rows: int
    ) -> dict[str, Suggestion]:
        """Suggest values for fields that suit the weights that a task starts from.

        Args:
            given: The fields that a recipe sets, which win.
            start: What is known of these weights.
            rows: Number of training rows.
        """
        del given, start, rows
        return {}

    @property
    def weight_among_tasks(self) -> float:
        """Factor on the loss with which other tasks leave this one its share of the encoder."""
        return 1.0

    @property
    def num_sequences(self) -> int | None:
        """Sequences of a row, which come as (B, S, L); None for one, which comes as (B, L)."""
        return None

    @property
    def has_windows(self) -> bool:
        """Whether texts are split into windows, whose vectors are pooled."""
        return False

    @property
    def has_vectors(self) -> bool:
        """Whether the task compares vectors of single texts."""
        return False

    @property
    def num_predicted(self) -> int | None:
        """Sequences of a row in predictions, as `num_sequences`."""
        return self.num_sequences

    @property
    def uses_pooler(self) -> bool:
        """Whether the task uses BERT's pooler."""
        return False

    @property
    def has_threshold(self) -> bool:
        """Whether predictions are decided by thresholds that `fit_threshold` can choose."""
        return False

    @property
    def num_texts(self) -> int:
        """Texts of a row for `predict`."""
        return 1

    @property
    def row_kind(self) -> RowKind:
        """What rows of `predict` are."""
        return "single texts" if self.num_texts == 1 else "pairs"

    @property
    def example_row(self) -> str:
        """Source code of an example row for `predict`."""
        return '"A sentence."' if self.num_texts == 1 else '("A first.", "A second.")'

    @property
    def example_texts(self) -> tuple[str, ...]:
        """Texts of an example row on the command line."""
        return ("a text",) if self.num_texts == 1 else ("a text", "another text")

    @property
    def joins_texts(self) -> bool:
        """Whether a sequence has two segments."""
        return self.num_texts == 2 and self.num_sequences is None

    @property
    def adoption_problem(self) -> str | None:
        """Why `single_task_model` cannot compute this task, as a predicate; None if it can."""
        return None

    @property
    def adoption_warning(self) -> str | None:
        """What pipelines of transformers do otherwise with `single_task_model`; None if nothing."""
        return None

    def make_row(self, columns: Sequence[str]) -> Any:
        """Make a row for `predict` of its texts in the columns of a line.

        Raises:
            ValueError: If their number is wrong, or one is blank.
        """
        if len(columns) != self.num_texts or not all(map(str.strip, columns)):
            raise ValueError(
                f"{len(columns)} text(s), but the task takes a pair: two columns separated by a "
                "tab, or two texts on the command line"
            )
        return tuple(columns)

    @property
    def score_limits(self) -> tuple[float, float] | None:
        """Lowest and highest predicted score; None if predictions are not one score."""
        return None

    @property
    def logit_units(self) -> tuple[list[float | int], list[float | int]]:
        """Usual mean and standard deviation of the logits: what two of them differ by is in these.

        One number each for all logits, or one for each logit.
        """
        return [0.0], [1.0]

    @property
    def predicts_several_scores(self) -> bool:
        """Whether predictions are `scores` by name."""
        return False

    def count_layers(self, num_hidden_layers: int) -> int | None:
        """Return the number of layers to compute, from the bottom; None for all."""
        return None

    def encoding_options(self, max_length: int) -> dict[str, Any]:
        """Return how rows are encoded, as keyword arguments; `max_length` is in tokens."""
        return {"max_length": max_length}

    @property
    def kind(self) -> str:
        """Its type with an article, for messages."""
        article = "an" if self.problem_type[0] in "aeiou" else "a"
        return f"{article} {self.problem_type} task"

    def describe_outputs(self) -> tuple[Any, list[str]]:
        """Return the problem type and the label names for transformers' pipelines."""
        return None, ["LABEL_0", "LABEL_1"]

    @property
    def pipeline_problem(self) -> str | None:
        """Why transformers' `text-classification` cannot give its predictions; None if it can.

        A predicate. That pipeline shows the label with the highest score, and the score.
        """
        return f"is {self.kind}"

    def describe_embedding(self) -> MinBertEmbedding | None:
        """Describe the vectors of single texts that this task trains; None if there are none.

        Only vectors that sentence-transformers can make, too: pooled states of the last layer.
        """
        return None

    def make_head(self, config: Any) -> nn.Module | None:
        """Make the head; None for a task that shares one."""
        return None

    def align(self, teacher: "MinBertTask") -> Callable[[Tensor], Tensor]:
        """Return what brings the outputs of a teacher to the order of the labels of this task.

        Raises:
            ValueError: If the task of the teacher is another one.
        """
        mine, others = ((x.kind, x.num_texts) for x in (self, teacher))
        if mine != others:
            raise ValueError(
                f"it is {others[0]} with {others[1]} text(s) a row, but the task to learn "
                f"is {mine[0]} with {mine[1]}"
            )
        own, labels = (getattr(x, "labels", None) for x in (self, teacher))
        return partial(self.reorder, order=order_labels(own, labels))

    def reorder(self, values: Tensor, order: list[int]) -> Tensor:
        """Bring the outputs of a teacher, (..., K), to another order of the labels."""
        return values[..., order] if order else values


@strict
@dataclass(kw_only=True)
class HeadTask(MinBertTask):
    """A task with its own head.

    Args:
        dropout: Probability of dropping an element of the input of the head.
        pooling_layer: Input of the head, an index of `hidden_states`: 0 is the embeddings, -1 the
            last layer, -2 the one before. No layer above is computed.
        max_length: Maximum tokens of a sequence, special ones included, in training and in
            predictions. In a recipe None is that of the run, which becomes part of the checkpoint;
            elsewhere it stands for as many as the model has positions.
        data_keys: Keys of a recipe that say where the texts of a row are in a file, such as
            `text_columns`; `minbert predict --file` reads tables by them.
    """

    dropout: float | int | None = field(default=None, metadata=RECIPE)
    pooling_layer: int = field(default=-1, metadata=RECIPE)
    max_length: int | None = field(default=None, metadata=RECIPE)
    data_keys: dict[str, Any] | None = field(default=None, metadata=DATA)

    @classmethod
    def complete(cls, given: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
        # predictions cut texts where training did, and thresholds were chosen for such texts
        own = given.get("max_length")
        length = facts["max_length"] if own is None else own
        return super().complete({**given, "max_length": length}, facts)

    def count_layers(self, num_hidden_layers: int) -> int:
        layer, count = self.pooling_layer, num_hidden_layers
        if not -count - 1 <= layer <= count:
            raise ValueError(
                f"pooling_layer={layer} must be in [{-count - 1}, {count}]: there are {count} "
                "layers, and 0 is the embeddings"
            )
        return layer % (count + 1)

    def encoding_options(self, max_length: int) -> dict[str, Any]:
        return {"max_length": self.max_length or max_length}

    def limit_length(self, positions: int) -> int:
        """Return the maximum tokens of a sequence in predictions of a model with `positions`."""
        return min(self.max_length or positions, positions)

    def validate_max_length(self) -> None:
        if self.max_length is not None and self.max_length < 8:
            raise ValueError(f"max_length={self.max_length} must be at least 8 tokens")

    def validate_dropout(self) -> None:
        if self.dropout is not None and not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1]")


def check_labels(labels: list[str] | None) -> None:
    """Check the names of classes."""
    names = labels or []
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"labels={labels} must be at least two different names")
