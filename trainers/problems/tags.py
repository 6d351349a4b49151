"""Token classification: a tag for each of the W words of the sentences, counted as entities.

The entities are those of conlleval (Tjong Kim Sang and Buchholz 2000): a stray ``I-`` opens one,
unlike in seqeval's strict mode. Tags that do not mark spans, such as parts of speech, count as
entities of one word each, all but ``O``, as with ``conlleval -r``.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor

from modeling_minbert.tokens import TokenClassificationTask
from trainers.data.dataset import Rows
from trainers.data.masking import IGNORED_LABEL
from trainers.data.rows import FlatRows, TextSource, has_token_labels
from trainers.files import write_text

from .base import Decode, Evaluated, Problem, find_output
from .blocks import Block, Example, Examples, Table
from .classes import Calibrated
from .metrics import Metric, f1_of_counts, score_counts

OUTSIDE = "O"
# The letters of tags of spans: begin, inside or middle, end or last, single or unit or whole.
LETTERS, FIRST, LAST = "BIMELSUW", "BSUW", "ELSUW"

Numbers = NDArray[np.int64]


class TagNames(NamedTuple):
    """The meaning of the tags."""

    begins: NDArray[np.bool_]  # whether they always begin an entity, (K,)
    ends: NDArray[np.bool_]  # whether they always end one, (K,)
    types: Numbers  # number of the type of each, -1 for ``O``, (K,)
    names: list[str]  # of the types

    @classmethod
    def parse(cls, names: Sequence[str]) -> "TagNames":
        """Parse the names of tags: those of spans in IOB, BIOES or BILOU, or of single words."""
        inside = [name for name in names if name != OUTSIDE]
        letters = {name[:2] for name in inside if len(name) > 2}
        known = {"B-", "I-"} if "B-" not in letters else {f"{letter}-" for letter in LETTERS}
        is_span = letters <= known and all(len(name) > 2 for name in inside)
        type_of = {name: name[2:] if is_span else name for name in inside}
        types = sorted(set(type_of.values()))
        return cls(
            np.asarray([not is_span or name[0] in FIRST for name in names]),
            np.asarray([is_span and name[0] in LAST for name in names]),
            np.asarray([types.index(type_of[name]) if name in type_of else -1 for name in names]),
            types,
        )


class Entities(NamedTuple):
    """E entities, in the order of the words."""

    first: Numbers  # words, (E,)
    last: Numbers  # (E,)
    types: Numbers  # (E,)


class Tagged(NamedTuple):
    """The tags of the words of some sentences."""

    predictions: Numbers  # ids of tags, (W,)
    labels: Numbers | None  # (W,); None if unknown
    sentences: Numbers  # number of the sentence of each word, ascending, (W,)


def find_entities(tags: Numbers, sentences: Numbers, names: TagNames) -> Entities:
    """Find the entities of tags (W,)."""
    types = names.types[tags]
    new_sentence = np.diff(sentences, prepend=-1) != 0
    changes = np.diff(types, prepend=-1) != 0
    after_end = np.append(False, names.ends[tags][:-1])[: len(tags)]
    boundaries = new_sentence | changes | names.begins[tags] | after_end
    first = np.flatnonzero(boundaries & (types >= 0))
    places = np.append(np.flatnonzero(boundaries), len(tags))
    last = places[np.searchsorted(places, first, side="right")] - 1
    return Entities(first, last, types[first])


def count_entities(tagged: Tagged, names: TagNames) -> tuple[Numbers, Numbers]:
    """Count right, predicted and labelled entities by type, (types, 3), and by sentence."""
    numbers = np.unique(tagged.sentences, return_inverse=True)[1]
    labelled = find_entities(np.asarray(tagged.labels), tagged.sentences, names)
    predicted = find_entities(tagged.predictions, tagged.sentences, names)
    common = np.isin(_keys(predicted, names), _keys(labelled, names))
    right = Entities(*(values[common] for values in predicted))
    by_type, by_sentence = [], []
    for entities in (right, predicted, labelled):
        by_type.append(np.bincount(entities.types, minlength=len(names.names)))
        size = int(numbers[-1]) + 1 if len(numbers) else 0
        by_sentence.append(np.bincount(numbers[entities.first], minlength=size))
    return np.stack(by_type, axis=1), np.stack(by_sentence, axis=1)


def _keys(entities: Entities, names: TagNames) -> Numbers:
    """Number entities: equal numbers for equal words and types."""
    # 31 bits for the first word and 20 for the others of the entity leave 12 for its type
    words = (entities.first << 20) + (entities.last - entities.first)
    return words * max(1, len(names.names)) + entities.types


def tag_metrics(tagged: Tagged, names: TagNames) -> dict[str, float]:
    """Compute ``f1``, ``precision`` and ``recall`` of entities, and ``accuracy`` of the words."""
    counts, _ = count_entities(tagged, names)
    correct = tagged.predictions == tagged.labels
    return {**score_counts(counts.sum(axis=0)), "accuracy": float(np.mean(correct))}


def describe_types(tagged: Tagged, names: TagNames) -> list[dict[str, Any]]:
    """Describe every entity type: its ``name``, metrics and counts."""
    counts, _ = count_entities(tagged, names)
    columns = ("right", "labelled", "predicted")
    return [
        {
            "name": name,
            **score_counts(row),
            **dict(zip(columns, row[[0, 2, 1]].tolist(), strict=True)),
        }
        for name, row in zip(names.names, counts, strict=True)
    ]


def describe_tags(evaluated: Evaluated[Tagged], labels: Sequence[str]) -> list[Block]:
    """Describe entity types and the worst sentences; words are quoted if the rows have them."""
    tagged, rows, names = evaluated.outputs, evaluated.rows, TagNames.parse(labels)
    given = np.asarray(tagged.labels)
    sentences, numbers = np.unique(tagged.sentences, return_inverse=True)
    wrong = np.bincount(numbers, tagged.predictions != given, len(sentences))
    shares = wrong / np.bincount(numbers, minlength=len(sentences))
    worst = np.argsort(-wrong, kind="stable")[: evaluated.examples]
    words = None
    if "words" in rows.column_names:
        words = np.asarray([word for row in rows["words"] for word in row], dtype=object)
    errors = [
        _show_sentence(tagged, names, words, numbers == number, sentences[number], shares[number])
        for number in worst.tolist()
        if wrong[number]
    ]
    keys = ("f1", "precision", "recall", "labelled", "predicted", "right")
    columns = [("type", ""), ("F1", ".4f"), ("precision", ".4f"), ("recall", ".4f")]
    columns += [(key, ",") for key in keys[3:]]
    types = [[row["name"], *(row[key] for key in keys)] for row in describe_types(tagged, names)]
    note = "An entity is right if its first word, its last word and its type are, as in conlleval."
    blocks: list[Block] = [Table("Types", columns, types, note)]
    if errors:
        note = "The sentences with the most wrong tags, and their share."
        blocks.append(Examples("Worst errors", errors, "wrong tags", ".1%", note))
    return blocks


def _show_sentence(
    tagged: Tagged,
    names: TagNames,
    words: NDArray[Any] | None,
    chosen: NDArray[np.bool_],
    number: int,
    share: float,
) -> Example:
    """Show the right and the predicted entities of a sentence."""
    if words is None:
        return Example(str(number), [], "", "", float(share))
    texts = words[chosen].tolist()

    def show(tags: Numbers) -> str:
        entities = find_entities(tags[chosen], np.zeros(len(texts), np.int64), names)
        shown = [
            f"{' '.join(texts[first : last + 1])} ({names.names[kind]})"
            for first, last, kind in zip(*(values.tolist() for values in entities), strict=True)
        ]
        return ", ".join(shown) or "none"

    label, prediction = show(np.asarray(tagged.labels)), show(tagged.predictions)
    return Example(str(number), [" ".join(texts)], label, prediction, float(share))


# Label of a word whose tag is unknown.
UNKNOWN_LABEL = -1


class TokenClassification(Calibrated, Problem[Tagged]):
    """A tag for each word."""

    problem_type = "token_classification"
    spec: TokenClassificationTask | None
    metrics = (Metric("f1"), Metric("precision"), Metric("recall"), Metric("accuracy"))
    predicts_tokens = True
    label_type = "tokens"
    joins_rows = True
    hub_task = pipeline_tag = "token-classification"
    card_example = '["A sentence."]'
    smooths_labels = True
    teaching = "tokens"

    @property
    def names(self) -> TagNames:
        """The meaning of the tags; ValueError if the head does not name them."""
        return TagNames.parse(self.tag_names)

    @property
    def tag_names(self) -> list[str]:
        """The tags, in the order of their ids; ValueError if the model does not name them."""
        if self.spec is None or not self.spec.labels:
            raise ValueError(
                f"task {self.task!r}: the metrics of token_classification need the names of the "
                "tags, as model.config.tasks[task]['labels']"
            )
        return self.spec.labels

    def is_labelled(self, rows: Rows) -> bool:
        if not super().is_labelled(rows):
            return False
        columns: Any = rows
        return not has_token_labels(columns) or UNKNOWN_LABEL not in columns[0]["labels"]

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        if (
            isinstance(rows, TextSource)
            or not has_token_labels(rows)
            or FlatRows.read(rows) is None
        ):
            raise ValueError(
                f"{where} is of a token_classification: labels must be a list with a number for "
                "every token, -100 for those without one, of a dataset without a format or "
                "transform (see with_format(None))"
            )

    def has_loss(self, inputs: Mapping[str, Any]) -> bool:
        return not bool((inputs["labels"] == UNKNOWN_LABEL).any())

    def gather(self, inputs: Mapping[str, Any], outputs: Any) -> tuple[Tensor, Tensor | None]:
        logits = find_output(outputs, "logits").detach()
        return tags_by_row(logits, inputs["labels"], inputs.get("cu_seq_lens_q"))

    def collect(
        self, values: NDArray[Any], rows: Any, labels: Any = None, decode: Decode | None = None
    ) -> Tagged:
        return join_windows(values, rows)

    def compute_metrics(self, outputs: Tagged) -> dict[str, float]:
        return tag_metrics(outputs, self.names)

    def standard_error(self, outputs: Tagged, metrics: Mapping[str, float]) -> float:
        return self.bootstrap_error(outputs)

    def count(self, outputs: Tagged) -> int:
        return len(np.unique(outputs.sentences))

    def describe_types(self, outputs: Tagged) -> list[dict[str, Any]] | None:
        return describe_types(outputs, self.names)

    def sample(self, outputs: Tagged) -> tuple[NDArray[Any], NDArray[Any]]:
        """Count the right, predicted and labelled entities of each sentence, (N, 3)."""
        counts = count_entities(outputs, self.names)[1]
        return counts, np.zeros(len(counts))

    def score(self, values: NDArray[Any], labels: NDArray[Any]) -> float:
        return float(f1_of_counts(*values.sum(axis=0)))

    def identify(self, outputs: Tagged, rows: Any) -> list[str]:
        """Return the number and the tags of each sentence."""
        tags = np.asarray(self.tag_names, dtype=object)[np.asarray(outputs.labels)]
        numbers, first = np.unique(outputs.sentences, return_index=True)
        parts = np.split(tags, first[1:])
        return [f"{name} {' '.join(part)}" for name, part in zip(numbers, parts, strict=True)]

    def write(self, folder: Path, stem: str, outputs: Tagged, rows: Any) -> None:
        words = [word for row in rows["words"] for word in row]
        write_tags(folder / f"{stem}-output.txt", words, outputs, self.tag_names)

    def describe(self, evaluated: Evaluated[Tagged]) -> list[Block]:
        table, *errors = describe_tags(evaluated, self.tag_names)
        return [table, *self.draw_calibration(None, evaluated.held_out), *errors]

    def confidences(self, logits: Any, predictions: NDArray[Any]) -> NDArray[np.float64]:
        likely = softmax(self.scale(logits), axis=1)
        return np.take_along_axis(likely, predictions[:, None], axis=1)[:, 0]

    def reading_logits(self) -> "TokenLogits":
        return TokenLogits(self.task, self.spec)


class TokenLogits(TokenClassification):
    """The logits of each word instead of its tag: much more memory, for some rows."""

    def gather(self, inputs: Mapping[str, Any], outputs: Any) -> tuple[Tensor, Tensor | None]:
        logits, labels = find_output(outputs, "logits").detach().float(), inputs["labels"]
        words = find_words(labels, inputs.get("cu_seq_lens_q"))
        filled = logits.new_full((*words.shape, logits.shape[-1]), IGNORED_LABEL)
        filled[words.rows, words.columns] = logits[words.tokens]
        return filled, filled[..., 0]  # without labels the Trainer computes no metrics

    def list_logits(self, values: NDArray[Any], rows: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        given = [np.asarray(row) for row in rows["labels"]]
        labels = [row[row != IGNORED_LABEL] for row in given]
        logits = [row[: len(own)] for row, own in zip(values, labels, strict=True)]
        return np.concatenate(logits), np.concatenate(labels)


class Words(NamedTuple):
    """The labelled tokens of a batch, which are the words of its rows."""

    tokens: tuple[Tensor, Tensor]  # their places in the batch
    rows: Tensor  # row of each
    columns: Tensor  # number of each in its row
    shape: tuple[int, int]  # rows, and words of the longest


def find_words(labels: Tensor, offsets: Tensor | None) -> Words:
    """Find the labelled tokens of a batch, (B, L) or packed (1, T) with ``offsets``."""
    rows, places = (labels != IGNORED_LABEL).nonzero(as_tuple=True)
    count, tokens = labels.shape[0], (rows, places)
    if offsets is not None:
        count = len(offsets) - 1
        rows = torch.searchsorted(offsets, places.to(offsets.dtype), right=True) - 1
    words = torch.bincount(rows, minlength=count)
    columns = torch.arange(len(rows), device=rows.device) - (words.cumsum(0) - words)[rows]
    return Words(tokens, rows, columns, (count, int(words.max())))


def tags_by_row(logits: Tensor, labels: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """Select predicted and right tags of the words of each row, (B, words), filled with -100.

    The Trainer gathers the result: one number per word is much smaller than logits. Processes
    cannot exchange 16-bit integers.
    """
    words = find_words(labels, offsets)
    tags, given = logits[words.tokens].argmax(dim=-1), labels[words.tokens]
    filled = labels.new_full((2, *words.shape), IGNORED_LABEL, dtype=torch.int32)
    filled[0, words.rows, words.columns] = tags.to(torch.int32)
    filled[1, words.rows, words.columns] = given.to(torch.int32)
    return filled[0], filled[1]


def join_windows(tags: NDArray[Any], rows: Any) -> Tagged:
    """Join the tags (R, words) of windows of sentences, filled with -100."""
    given = [np.asarray(row) for row in rows["labels"]]
    labels = [row[row != IGNORED_LABEL] for row in given]
    words = np.asarray([len(row) for row in labels])
    if not np.array_equal(words, (tags != IGNORED_LABEL).sum(axis=1)):
        raise ValueError("the predictions are not of these rows: the numbers of words differ")
    numbers = np.arange(len(words))
    if "sentence" in rows.column_names:
        numbers = np.asarray(rows["sentence"])
    joined = np.concatenate(labels).astype(np.int64)
    known = not (joined == UNKNOWN_LABEL).any()
    return Tagged(
        tags[tags != IGNORED_LABEL].astype(np.int64),
        joined if known else None,
        np.repeat(numbers, words).astype(np.int64),
    )


def write_tags(path: Path, words: Sequence[str], tagged: Tagged, names: Sequence[str]) -> None:
    """Write a word with its tags per line, for conlleval; white space in a word becomes ``_``."""
    lines = []
    for place, word in enumerate(words):
        if place and tagged.sentences[place] != tagged.sentences[place - 1]:
            lines.append("")
        columns = ["_".join(word.split()) or "_"]
        if tagged.labels is not None:
            columns.append(names[tagged.labels[place]])
        lines.append(" ".join([*columns, names[tagged.predictions[place]]]))
    write_text(path, "\n".join([*lines, "", ""]))
