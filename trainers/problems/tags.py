"""Token classification: a tag for each of the W words of the sentences, counted as entities.

The entities are those of conlleval (Tjong Kim Sang and Buchholz 2000): a stray ``I-`` opens one,
unlike in seqeval's strict mode. Tags that do not mark spans, such as parts of speech, count as
entities of one word each, all but ``O``, as with ``conlleval -r``.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor
from transformers.utils.generic import ModelOutput

from datasets_scripts.row_format import UNKNOWN_LABEL
from modeling_minbert.spans import are_spans, mark_entities
from modeling_minbert.tokens import TokenClassificationTask
from trainers.data.rows import IGNORED_LABEL, Batch, Rows, TextSource, has_token_labels
from trainers.files import write_text

from .base import Decode, Evaluated, Problem, bootstrap, check_labels, check_names, find_output
from .blocks import Block, Example, Examples
from .classes import Calibrated
from .metrics import Array, Described, Metric, f1_of_counts, score_counts

Numbers = NDArray[np.int64]


class Tagged(NamedTuple):
    """The tags of the words of some sentences."""

    predictions: Numbers  # ids of tags, (W,)
    labels: Numbers | None  # (W,); None if unknown
    sentences: Numbers  # number of the sentence of each word, ascending, (W,)


def name_tags(tagged: Tagged, names: Sequence[str]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the names of the right and of the predicted tags of each sentence."""
    cuts = np.flatnonzero(np.diff(tagged.sentences)) + 1
    columns = (np.asarray(names, object)[tags] for tags in (tagged.labels, tagged.predictions))
    right, predicted = (np.split(column, cuts) for column in columns)
    for given, found in zip(right, predicted, strict=True):
        yield given.tolist(), found.tolist()


def count_entities(
    tagged: Tagged, names: Sequence[str], *, is_span: bool
) -> tuple[dict[str, Numbers], Numbers]:
    """Count right, predicted and labelled entities of each type, (3,), and sentence, (N, 3)."""
    types = sorted({name[2:] if is_span else name for name in names if name != "O"})
    by_type = {kind: np.zeros(3, np.int64) for kind in types}
    by_sentence = []
    for tags in name_tags(tagged, names):
        labelled, predicted = (set(mark_entities(row, is_span)) for row in tags)
        columns = (labelled & predicted, predicted, labelled)
        by_sentence.append([len(entities) for entities in columns])
        for column, entities in enumerate(columns):
            for *_, kind in entities:
                by_type[kind][column] += 1
    return by_type, np.asarray(by_sentence)


class TokenClassification(Calibrated, Problem[Tagged]):
    """A tag for each word."""

    problem_type = "token_classification"
    spec: TokenClassificationTask | None
    metrics = (Metric("f1"), Metric("precision"), Metric("recall"), Metric("accuracy"))
    predicts_tokens = True
    hub_task = pipeline_tag = "token-classification"
    smooths_labels = True
    teaching = "tokens"
    writes_texts = True

    @property
    def tag_names(self) -> list[str]:
        """The tags, in the order of their ids; ValueError if the model does not name them."""
        if self.spec is None or not self.spec.labels:
            raise ValueError(
                f"task {self.task!r}: the metrics of token_classification need the names of the "
                "tags, as model.config.tasks[task]['labels']"
            )
        return self.spec.labels

    @property
    def is_span(self) -> bool:
        """Whether the tags mark spans, not single words."""
        return are_spans(self.tag_names, getattr(self.spec, "scheme", None))

    def is_labelled(self, rows: Rows) -> bool:
        if not super().is_labelled(rows):
            return False
        columns: Any = rows
        return not has_token_labels(columns) or UNKNOWN_LABEL not in columns[0]["labels"]

    def check(self, where: str, rows: Rows) -> None:
        super().check(where, rows)
        if isinstance(rows, TextSource) or not has_token_labels(rows):
            raise ValueError(
                f"{where} is of a token_classification: labels must be a list with a number for "
                "every token, -100 for those without one"
            )
        names = (self.spec.labels if self.spec is not None else None) or ()
        check_names(where, rows, names)
        check_labels(where, rows, 0, (len(names) or math.inf) - 1)

    def has_loss(self, inputs: Batch) -> bool:
        if "labels" not in inputs:
            raise ValueError(
                f"task {self.task!r}: rows of tags need the column labels, with {UNKNOWN_LABEL} at "
                f"the first token of each word to tag, and {IGNORED_LABEL} elsewhere"
            )
        return not bool((inputs["labels"] == UNKNOWN_LABEL).any())

    def gather(self, inputs: Batch, outputs: ModelOutput) -> tuple[Tensor, Tensor | None]:
        """Select predicted and right tags of the words of each row, (B, words), filled with -100.

        The Trainer gathers one number per word, which is much smaller than logits; for a
        temperature it gathers logits. Processes cannot exchange 16-bit integers.
        """
        labels, logits = inputs["labels"], find_output(outputs, "logits").detach()
        # the words of a batch, (B, L) or packed (1, T): its tokens with a label
        rows, tokens = (labels != IGNORED_LABEL).nonzero(as_tuple=True)
        sources, count = (rows, tokens), labels.shape[0]
        if (offsets := inputs.get("cu_seq_lens_q")) is not None:
            count = len(offsets) - 1
            rows = torch.searchsorted(offsets, tokens.to(offsets.dtype), right=True) - 1
        words = torch.bincount(rows, minlength=count)
        numbers = torch.arange(len(rows), device=rows.device) - (words.cumsum(0) - words)[rows]
        places, shape = (rows, numbers), (count, int(words.max()))
        right = labels.new_full(shape, IGNORED_LABEL, dtype=torch.int32)
        right[places] = labels[sources].to(torch.int32)
        if self.gathers_logits:
            filled = logits.new_full((*shape, logits.shape[-1]), IGNORED_LABEL, dtype=torch.float32)
            filled[places] = logits[sources].float()
            return filled, right
        tags = right.clone()
        tags[places] = logits[sources].argmax(dim=-1).to(torch.int32)
        return tags, right

    def collect(self, values: Array, rows: Dataset, decode: Decode | None = None) -> Tagged:
        """Join the tags (R, words) of windows of sentences, filled with -100."""
        labels = [row[row != IGNORED_LABEL] for row in map(np.asarray, rows["labels"])]
        words = np.asarray([len(row) for row in labels])
        if not np.array_equal(words, (values != IGNORED_LABEL).sum(axis=1)):
            raise ValueError("the predictions are not of these rows: the numbers of words differ")
        numbers = np.arange(len(words))
        if "sentence" in rows.column_names:
            numbers = np.asarray(rows["sentence"])
        joined = np.concatenate(labels).astype(np.int64)
        return Tagged(
            values[values != IGNORED_LABEL].astype(np.int64),
            None if (joined == UNKNOWN_LABEL).any() else joined,
            np.repeat(numbers, words).astype(np.int64),
        )

    def compute_metrics(self, outputs: Tagged) -> dict[str, float]:
        """Compute ``f1``, ``precision`` and ``recall`` of entities, and ``accuracy`` of words."""
        counts = count_entities(outputs, self.tag_names, is_span=self.is_span)[1]
        correct = outputs.predictions == outputs.labels
        return {**score_counts(counts.sum(axis=0)), "accuracy": float(np.mean(correct))}

    def count(self, outputs: Tagged) -> int:
        return len(np.unique(outputs.sentences))

    def describe_types(self, outputs: Tagged) -> list[Described]:
        types = []
        by_type, _ = count_entities(outputs, self.tag_names, is_span=self.is_span)
        for name, counts in by_type.items():
            right, predicted, labelled = counts.tolist()
            sizes = {"right": right, "labelled": labelled, "predicted": predicted}
            types.append({"name": name, **score_counts(counts), **sizes})
        return types

    def standard_error(self, outputs: Tagged, metrics: Mapping[str, float]) -> float | None:
        counts = count_entities(outputs, self.tag_names, is_span=self.is_span)[1]
        return bootstrap(lambda drawn: float(f1_of_counts(*drawn.sum(axis=0))), counts)

    def write(self, folder: Path, stem: str, outputs: Tagged, rows: Dataset) -> None:
        """Write a word with its tags per line, for conlleval.

        White space in a word becomes ``_``.
        """
        lines, names = [], self.tag_names
        for place, word in enumerate(word for row in rows["words"] for word in row):
            if place and outputs.sentences[place] != outputs.sentences[place - 1]:
                lines.append("")
            columns = ["_".join(word.split()) or "_"]
            if outputs.labels is not None:
                columns.append(names[outputs.labels[place]])
            lines.append(" ".join([*columns, names[outputs.predictions[place]]]))
        write_text(folder / f"{stem}-output.txt", "\n".join([*lines, "", ""]))

    def describe(self, evaluated: Evaluated[Tagged]) -> list[Block]:
        """Describe the worst sentences, quoted if the rows have words."""
        outputs, names = evaluated.outputs, self.tag_names
        has_words, is_span = "words" in evaluated.rows.column_names, self.is_span
        words = [word for row in evaluated.rows["words"] for word in row] if has_words else []
        errors, start = [], 0
        numbers = np.unique(outputs.sentences).tolist()
        for number, tags in zip(numbers, name_tags(outputs, names), strict=True):
            wrong = sum(right != predicted for right, predicted in zip(*tags, strict=True))
            texts = words[start : start + len(tags[0])]
            start += len(tags[0])
            shown = [
                ", ".join(
                    f"{' '.join(texts[first : last + 1])} ({kind})"
                    for first, last, kind in mark_entities(row, is_span)
                )
                or "none"
                for row in (tags if texts else ())
            ]
            label, prediction = shown or ("", "")
            quoted = [" ".join(texts)] if texts else []
            share = wrong / len(tags[0])
            errors.append((wrong, Example(str(number), quoted, label, prediction, share)))
        errors = sorted((error for error in errors if error[0]), key=lambda error: -error[0])
        worst = [example for _, example in errors[: evaluated.examples]]
        note = "The sentences with the most wrong tags, and their share."
        return [Examples("Worst errors", worst, "wrong tags", ".1%", note)] if worst else []

    def list_logits(self, values: Array, rows: Dataset) -> tuple[Array, Array]:
        labels = [row[row != IGNORED_LABEL] for row in map(np.asarray, rows["labels"])]
        logits = [row[: len(given)] for row, given in zip(values, labels, strict=True)]
        return np.concatenate(logits), np.concatenate(labels)
