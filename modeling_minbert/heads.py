# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""`MinBertTask`, what a task is, and `MinBertHead`, what its head does: the bases of all types."""

import copy
import marshal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import wraps
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, cast

import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, initialization as init
from transformers.utils.generic import ModelOutput

from .cpu import MinBertDropout, is_followed
from .inference import Predictor, Windows
from .packing import Options, Read
from .rows import Pooling, RowKind, find_prompt
from .texts import Encoding, Fields

# What the logits of a head are, for divergences and distillation: those of the classes of a row,
# of several sets of classes one after the other, one for each yes or no, a score, numbers, vectors,
# those of the classes of a token, or of the first and the last token of an answer.
Outputs = Literal[
    "classes",
    "several_classes",
    "outcomes",
    "scores",
    "numbers",
    "vectors",
    "tags",
    "spans",
]
HubType = Literal["regression", "single_label_classification", "multi_label_classification"]
# All problem types, the keys of `TASKS`.
ProblemType = Literal[
    "classification",
    "multi_label_classification",
    "multi_output_classification",
    "paraphrase",
    "similarity",
    "regression",
    "contrastive",
    "token_classification",
    "question_answering",
    "masked_lm",
    "next_sentence",
    "pretraining",
]
# Metadata of the fields of tasks: who sets them, and what they are to a trained head: what its
# weights mean, how it reads texts, how it decides, its loss; without a role for training alone.
RECIPE = {"set_by": "recipe"}
LAYOUT = RECIPE | {"role": "meaning"}
READING = RECIPE | {"role": "reading"}
DECISION = RECIPE | {"role": "decision"}
LOSS = RECIPE | {"role": "loss"}
DATA = {"set_by": "data"}
MEANING = DATA | {"role": "meaning"}
TRAINING = {"set_by": "training", "role": "decision"}
# The classes of problem types by their names, tasks and heads.
Types = dict[str, tuple[type[Any], Any]]


Similarity = Literal["cosine", "dot", "euclidean", "manhattan"]


@strict
@dataclass(kw_only=True)
class MinBertEmbedding:
    """How `encode` makes one vector of a sentence.

    Args:
        pooling: `cls`, `pooler`, `mean` or `max`; None for the vectors of `embedding_task`, with
            its length, layer and truncation.
        normalize: Whether vectors are scaled to length 1.
        max_length: Maximum tokens of a sentence, special ones included; None for the limit of the
            encoder and its tokenizer.
        similarity: How two vectors are compared: `cosine`, `dot`, or as the negated distance
            `euclidean` or `manhattan`.
        prompts: Texts that may be written before a sentence, by name. `encode_query` uses that of
            the name `query`, `encode_document` that of `document`.
        default_prompt_name: Name of the prompt that `encode` uses; None for no prompt.
        truncate_dim: Number of components of a vector that are kept; None for all.
        pools_prompt: Whether the tokens of a prompt are part of the vector; False is for vectors
            without a prompt only.
        missing: Steps of sentence-transformers for this checkpoint that minBERT does not have.
    """

    pooling: Pooling | None = "mean"
    normalize: bool = False
    max_length: int | None = None
    similarity: Similarity = "cosine"
    prompts: dict[str, str] | None = None
    default_prompt_name: str | None = None
    truncate_dim: int | None = None
    pools_prompt: bool = True
    missing: list[str] | None = None

    def validate_values(self) -> None:
        """Check the sizes, and that there is a default prompt if it has a name."""
        if self.max_length is not None and self.max_length < 3:
            raise ValueError(f"max_length={self.max_length} must be 3 or more")
        if self.truncate_dim is not None and self.truncate_dim < 1:
            raise ValueError(f"truncate_dim={self.truncate_dim} must be 1 or more")
        find_prompt(self.prompts, self.default_prompt_name)


# Results of a function that are remembered.
REMEMBERED = 64
Parse = TypeVar("Parse", bound=Callable[..., Any])


def remember(parse: Parse) -> Parse:
    """Copy the earlier result for equal values: to check them takes longer than a short text."""
    known: dict[bytes, Any] = {}

    @wraps(parse)
    def remembered(*values: Any, **names: Any) -> Any:
        try:
            key = marshal.dumps((values, names), 2)  # bytes that tell True, 1 and 1.0 apart
        except ValueError:  # not plain values
            return parse(*values, **names)
        found = known.get(key)
        if found is None:
            # a copy, since lists among the values are the caller's
            found = copy.deepcopy(parse(*values, **names))
            if len(known) >= REMEMBERED:
                known.clear()
            known[key] = found
        return copy.deepcopy(found)

    return cast("Parse", remembered)


@remember
def parse_embedding(values: Fields | None) -> MinBertEmbedding:
    """Check `sentence_embedding` of a configuration."""
    try:
        return MinBertEmbedding(**(values or {}))
    except StrictDataclassError as error:
        raise ValueError(f"sentence_embedding: {error.__cause__ or error}") from error
    except TypeError as error:
        known = ", ".join(MinBertEmbedding.__dataclass_fields__)
        raise ValueError(f"sentence_embedding={values}: the known keys are {known}") from error


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
        has_classes: Whether every row has one class, by which rows can be drawn.
        hub_type: What transformers' pipelines call the type; None if there is no pipeline.
        extra_targets: Keyword arguments of `forward` that only this type of task takes.
    """

    problem_type: ProblemType = field(metadata=MEANING)
    is_pretraining: ClassVar[bool] = False
    is_unlabelled: ClassVar[bool] = False
    is_token_level: ClassVar[bool] = False
    predicts_masked_tokens: ClassVar[bool] = False
    predicts_next_sentence: ClassVar[bool] = False
    answers_questions: ClassVar[bool] = False
    has_classes: ClassVar[bool] = False
    hub_type: ClassVar[HubType | None] = None
    extra_targets: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def fields_of(cls, *marks: str) -> tuple[str, ...]:
        """Return the names of the fields with one of the values of the metadata, such as "data"."""
        return tuple(each.name for each in fields(cls) if {*marks} & {*each.metadata.values()})

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        """Add the fields that follow from the data to the `given` ones of a recipe.

        `facts` are `labels`, `score_range`, `num_texts` (texts of a row), `class_counts` (training
        rows by class or label, words by tag, or None), `num_rows` of training, `has_unanswerable`,
        `data_keys`, `max_length` of the run, `scheme` and `sentences` of tags, and for a regression
        `targets`, `mean` and `std`. A recipe that contradicts them is a ValueError.
        """
        known = dict(given)
        for name in cls.fields_of("data"):
            if name in given:
                raise ValueError(f"{name} follows from the data; leave it out")
            value = facts.get(name)
            if value is not None:
                known[name] = value if isinstance(value, dict | str) else list(value)
        return known | {"problem_type": vars(cls)["problem_type"]}

    @classmethod
    def suggest(cls, given: Fields, start: Pretrained, rows: int) -> dict[str, Suggestion]:
        """Suggest values for fields that suit the weights that a task starts from.

        Args:
            given: The fields that a recipe sets, which win.
            start: What is known of these weights.
            rows: Number of training rows.
        """
        del given, start, rows
        return {}

    @property
    def is_likelihood(self) -> bool:
        """Whether the loss is a likelihood, which trains probabilities."""
        return False

    @property
    def is_separate(self) -> bool:
        """Whether every text is a sequence of its own, and vectors are compared."""
        return getattr(self, "pair_encoding", None) == "separate"

    @property
    def num_classes(self) -> int | None:
        """Numbers that a label may be, from 0; None for other labels."""
        return None

    @property
    def num_sequences(self) -> int | None:
        """Sequences of a row, which come as (B, S, L); None for one, which comes as (B, L)."""
        return 2 if self.is_separate else None

    @property
    def num_texts(self) -> int:
        """Texts of a row for `predict`."""
        return 1 if getattr(self, "pair_encoding", None) is None else 2

    @property
    def has_windows(self) -> bool:
        """Whether texts are split into windows, whose vectors are pooled."""
        return getattr(self, "truncation", None) == "windows"

    @property
    def uses_pooler(self) -> bool:
        """Whether the task uses BERT's pooler."""
        return getattr(self, "pooling", None) == "pooler"

    @property
    def row_kind(self) -> RowKind:
        """What rows of `predict` are."""
        return "single texts" if self.num_texts == 1 else "pairs"

    @property
    def example_row(self) -> Any:
        """An example of a row for `predict`."""
        return "A sentence." if self.num_texts == 1 else ("A first.", "A second.")

    def count_layers(self, num_hidden_layers: int) -> int | None:
        """Return the number of layers to compute, from the bottom; None for all."""
        return None

    def encoding(self, max_length: int) -> Encoding:
        """Return how rows are encoded; `max_length` is that of a task without its own."""
        return Encoding(max_length)

    @property
    def kind(self) -> str:
        """Its type with an article, for messages."""
        article = "an" if self.problem_type[0] in "aeiou" else "a"
        return f"{article} {self.problem_type} task"

    def describe_outputs(self) -> tuple[HubType | None, list[str]]:
        """Return the problem type and the label names for transformers' pipelines."""
        names = getattr(self, "labels", None) or getattr(self, "targets", None)
        default = ["score"] if self.hub_type == "regression" else ["LABEL_0", "LABEL_1"]
        return self.hub_type, names or default

    def describe_embedding(self) -> MinBertEmbedding | None:
        """Describe the vectors of single texts that this task trains; None if there are none.

        Only vectors that sentence-transformers can make, too: pooled states of the last layer.
        """
        return None


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
    pooling_layer: int = field(default=-1, metadata=LAYOUT)
    max_length: int | None = field(default=None, metadata=READING)
    data_keys: dict[str, Any] | None = field(default=None, metadata=DATA)

    @property
    def num_logits(self) -> int:
        """Outputs of the head."""
        return 1

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
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

    def encoding(self, max_length: int) -> Encoding:
        return Encoding(self.max_length or max_length)

    def reading(self, config: PreTrainedConfig) -> Encoding:
        """Return how a model encodes rows in predictions."""
        positions = config.longest_sequence
        length = min(self.max_length or positions, positions)
        return replace(self.encoding(positions), max_length=length)

    def validate_numbers(self) -> None:
        if self.max_length is not None and self.max_length < 8:
            raise ValueError(f"max_length={self.max_length} must be at least 8 tokens")
        if self.dropout is not None and not 0 <= self.dropout <= 1:
            raise ValueError(f"dropout={self.dropout} must be in [0, 1]")


Inputs = tuple[Tensor | None, ...]  # the first arguments of the encoder


@dataclass
class TaskBatch:
    """A batch of one task."""

    name: str  # of the task
    inputs: Inputs
    options: Options = field(default_factory=dict)  # other arguments of the encoder
    num_sequences: int | None = None  # of a row, (B, S, L); None for (B, L)
    labels: Tensor | None = None
    targets: dict[str, Tensor | None] = field(default_factory=dict)  # others, by argument
    keys: Tensor | None = None  # hashes of the texts, (B, S), for losses that compare rows
    num_windows: Tensor | None = None  # sequences of each text, (B,) or (B, S); None for one
    windows: Windows | None = None  # if texts are split into windows
    read: Read = None  # which states were read
    is_repeated: bool = False  # whether the batch contains all sequences twice

    @property
    def offsets(self) -> Tensor | None:
        """Where the sequences of a packed batch begin, (N + 1,); None if it is padded."""
        return self.options.get("cu_seq_lens_q")


def ids_of(inputs: Inputs) -> Tensor | None:
    """Return the ids, or a tensor of their shape."""
    return inputs[0] if inputs[4] is None else inputs[4][..., 0]


def check_inputs(batch: TaskBatch, task: Any) -> None:
    """Check the shape of the input, and that all targets belong to the type of the task."""
    name, count, offsets = batch.name, batch.num_sequences, batch.offsets
    for key, value in batch.targets.items():
        if value is not None and key not in task.extra_targets:
            raise ValueError(f"task {name!r} is {task.kind}: leave {key} out")
    if batch.num_windows is not None and not task.has_windows:
        raise ValueError(f"task {name!r} does not split texts into windows: leave num_windows out")
    if offsets is not None:
        total = len(offsets) - 1 if batch.num_windows is None else batch.num_windows.numel()
        if total % (count or 1):
            raise ValueError(f"task {name!r} takes {count} sequences per row, got {total} in all")
        return
    ids = ids_of(batch.inputs)
    if ids is None:
        raise ValueError("pass exactly one of input_ids and inputs_embeds")
    texts = () if count is None or batch.num_windows is not None else (count,)
    if ids.dim() != 2 + len(texts) or ids.shape[1:-1] != texts:
        expected = ", ".join(map(str, ("batch", *texts, "length")))
        raise ValueError(f"task {name!r} takes input of shape ({expected}), got {tuple(ids.shape)}")


def check_labels(batch: TaskBatch, task: Any) -> None:
    """Check the values of labels on the CPU: elsewhere this would synchronize the device."""
    labels, count = batch.labels, task.num_classes
    scores: Any = getattr(task, "score_range", None)
    if labels is None or labels.device.type != "cpu" or is_followed(labels):
        return
    if count is None and scores is None:
        return
    low, high = scores or (0, count - 1)
    fits = (labels >= low) & (labels <= high)
    if scores is None:
        fits &= labels == labels.long()
    wrong = labels[~fits & (labels != -100)]
    if len(wrong):
        kind = "whole number" if scores is None else "score"
        raise ValueError(
            f"task {batch.name!r}: the label {wrong[0].item():g} must be a {kind} from {low} to "
            f"{high}, or -100 for none"
        )


def find_padding(batch: TaskBatch, padding: int | None) -> Tensor:
    """Find the sequences of padding alone, which fill up a batch, (N,), bool."""
    ids: Any = ids_of(batch.inputs)
    tokens = ids if batch.offsets is None else ids[0, batch.offsets[:-1].long()].unsqueeze(1)
    tokens = tokens.flatten(0, -2)  # (N, L), or the first of each
    if batch.inputs[0] is None or padding is None:
        return torch.zeros_like(tokens[:, 0], dtype=torch.bool)
    return (tokens == padding).all(dim=-1)  # padding may also be on the left


def check_token_labels(batch: TaskBatch) -> None:
    """Check that there is a label for every token."""
    ids, labels = ids_of(batch.inputs), batch.labels
    if labels is not None and ids is not None and labels.shape != ids.shape:
        raise ValueError(
            f"labels of shape {tuple(labels.shape)}, but task {batch.name!r} takes one per token, "
            f"{tuple(ids.shape)}"
        )


class MinBertHead(nn.Module):
    """The head of one task of `MinBertForMultiTask`.

    For a batch, the model calls `prepare`, `arrange` and `read`, then the encoder, and `forward`
    with its output. Without `prepare` there is no loss.

    Attributes:
        outputs: What the logits are.
        predictor: What predicts rows, made of a model, the name of its task, and `top_k`.
        task: The description of the task.
        gathers: Whether a loss that compares rows uses the rows of all processes in training.
        label_smoothing: Share of a label that is spread over all classes in training.
    """

    outputs: ClassVar[Outputs] = "classes"
    predictor: ClassVar[type[Predictor]]
    gathers = False
    label_smoothing = 0.0
    task: Any

    @property
    def smoothing(self) -> float:
        """The label smoothing of this pass: evaluation has the plain loss."""
        return self.label_smoothing if self.training else 0.0

    def fill(self) -> None:
        """Compute the buffers, factors of labels, again: what is not saved is not loaded."""
        for key, buffer in self._buffers.items():
            if buffer is not None:
                init.copy_(buffer, torch.tensor(getattr(self.task, key), dtype=torch.float32))

    def prepare(self, batch: TaskBatch) -> None:
        """Check the targets of a batch and complete them in place."""

    def arrange(self, batch: TaskBatch) -> TaskBatch:
        """Return the batch with inputs as the encoder takes them."""
        return batch

    def read(self, batch: TaskBatch) -> Read:
        """Return which states `forward` needs; see `MinBertModel.forward`."""
        raise NotImplementedError

    def forward(self, outputs: Any, batch: TaskBatch) -> ModelOutput:
        """Compute logits and, with labels, the loss from the output of the encoder."""
        raise NotImplementedError

    def count_terms(self, labels: Tensor) -> Tensor:
        """Count what the loss is a mean of; see `MinBertForMultiTask.count_terms`."""
        return (labels != -100).sum()

    def decode(self, logits: Tensor) -> Tensor:
        """Convert logits to predictions; see `MinBertForMultiTask.decode`."""
        raise ValueError(f"logits of {self.task.kind} are decoded with the text: use predict")

    def to_targets(self, logits: Tensor) -> Tensor:
        """Convert logits of a teacher to what students of its task learn from."""
        return logits


class MinBertHeads(nn.Module):
    """The heads of `MinBertForMultiTask` by the name of their task, sorted.

    Thus the parameters of a new model and a loaded one, and the state of an optimizer, have the
    same order.

    Other than `nn.ModuleDict`, which peft does not wrap, so that `modules_to_save=["heads"]` of
    peft trains and saves them. The wrapper passes on methods, but not `[]` and `in`: code of the
    package calls `get`, `items` and `values`.
    """

    def __init__(self, heads: Mapping[str, MinBertHead] | None = None) -> None:
        super().__init__()
        for name, head in (heads or {}).items():
            self.add_module(name, head)

    def get(self, name: str) -> Any:
        """Return the head of a task; None if it has none of its own."""
        return self._modules.get(name)

    def items(self) -> Iterator[tuple[str, Any]]:
        """Iterate over names and heads."""
        return iter(self._modules.items())

    def values(self) -> Iterator[Any]:
        """Iterate over the heads."""
        return iter(self._modules.values())

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)


class TokenHead(MinBertHead):
    """A head with a linear layer on every token."""

    def __init__(self, config: PreTrainedConfig, task: Any) -> None:
        super().__init__()
        self.task = task
        self.dropout = MinBertDropout(task.dropout)
        self.out = nn.Linear(config.hidden_size, task.num_logits)

    def score(self, hidden: Tensor) -> Tensor:
        """Score states, (..., D) -> (..., K)."""
        return self.out(self.dropout(hidden))
