# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Tags of the words of any text, and the entities that they mark.

A text that is too long is split into windows, as in training: they overlap by about half, and a
word is tagged where its shorter context is longest.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from typing import Any, ClassVar, Literal, NamedTuple

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.modeling_outputs import TokenClassifierOutput

from .heads import DATA, RECIPE, Fields, Outputs, TaskBatch, TokenHead, Types, check_token_labels
from .inference import Predictor, check_unicode
from .losses import CalibratedHead, CalibratedTask, WeightedTask, add_weights, sum_class_losses
from .packing import Read, any_at_padding
from .pieces import (
    WordRule,
    choose_rule,
    cut_word_windows,
    find_layout,
    find_words,
    tokenize_words,
)
from .texts import Encoded

# The letters of tags of spans: begin, inside or middle, end or last, single or unit or whole.
LETTERS, FIRST, LAST = "BIMELSUW", "BSUW", "ELSUW"


class Words(NamedTuple):
    """The words of a row."""

    text: str | None  # None if words were given
    words: list[str]
    spans: list[tuple[int, int]]  # start and end of each in the text, or by words without a text


class Part(NamedTuple):
    """A window of a row."""

    row: int  # index of the row
    tokens: Encoded
    places: list[int]  # the first token of each word that is tagged here


def split_words(row: object, number: int, task: str, rule: str = "pattern") -> Words:
    """Split a text into words by a rule of `WordRule`, or take a list of them."""
    if isinstance(row, str):
        check_unicode([row], number, task)
        if rule == "given":
            raise ValueError(
                f"{task}: row {number} is a text, but the words that the task was trained on are "
                "not those that a rule finds in a text: give lists of words, made as those of the "
                "training rows (minbert predict reads them from a .conll file); or, for texts "
                'whose words are separated by spaces, set words to "whitespace" in the recipe, or '
                "for this task in config.json"
            )
        spans = find_words(row, rule)
        return Words(row, [row[start:end] for start, end in spans], spans)
    if isinstance(row, list | tuple) and all(isinstance(word, str) for word in row):
        check_unicode(row, number, task)
        return Words(None, list(row), [(place, place + 1) for place in range(len(row))])
    raise ValueError(f"{task}: row {number} must be a text or a list of words, got {row!r}")


class TagPredictor(Predictor):
    """Predicts `words`, `tags`, `scores` and, for spans, `entities` of texts or lists of words."""

    def __init__(self, model: Any, name: str, head: Any) -> None:
        task = head.task
        self.name, self.model, self.head = name, model, head
        self.group = name  # the words of a row are described by the task that split it
        self.names: Sequence[str] = task.labels
        self.rule: str = task.words
        self.longest: int = task.limit_length(model.config.longest_sequence)
        self.texts: list[Words] = []
        self.parts: list[Part] = []
        self.results: list[list[tuple[int, float]]] = []

    def encode(self, rows: Sequence[object], first: int) -> list[Encoded]:
        self.texts = [
            split_words(row, number, self.name, self.rule) for number, row in enumerate(rows, first)
        ]
        tokenizer = self.model.tokenizer
        layout = find_layout(tokenizer)
        sentences = tokenize_words(tokenizer, [text.words for text in self.texts], self.longest)
        self.parts = []
        for row, pieces in enumerate(sentences):
            for start, end, begin, last in cut_word_windows(
                list(map(len, pieces)), self.longest - layout.single
            ):
                places = list(accumulate(map(len, pieces[start:end]), initial=len(layout.start)))
                ids = layout.wrap(list(chain.from_iterable(pieces[start:end])))
                tokens = Encoded([ids], [[0] * len(ids)])
                self.parts.append(Part(row, tokens, places[begin - start : last - start]))
        self.results = [[] for _ in self.parts]
        return [part.tokens for part in self.parts]

    def keep(self, indices: list[int], inputs: dict[str, Any], output: Any) -> None:
        """Keep the tag of every word, and its probability."""
        mask = inputs.get("attention_mask")
        logits = output.logits[0] if mask is None else output.logits[mask.bool()]
        starts = accumulate((self.parts[index].tokens.tokens for index in indices), initial=0)
        places = [
            start + place
            for index, start in zip(indices, starts, strict=False)
            for place in self.parts[index].places
        ]
        scores, tags = self.head.probabilities(logits[places].float()).max(dim=-1)
        values = iter(zip(tags.tolist(), scores.tolist(), strict=True))
        for index in indices:
            self.results[index] = list(islice(values, len(self.parts[index].places)))

    def describe(self) -> list[Any]:
        rows: list[list[tuple[int, float]]] = [[] for _ in self.texts]
        for part, values in zip(self.parts, self.results, strict=True):
            rows[part.row] += values
        described = []
        for text, values in zip(self.texts, rows, strict=True):
            tags, scores = [self.names[tag] for tag, _ in values], [score for _, score in values]
            described.append({"words": text.words, "tags": tags, "scores": scores})
            if are_spans(self.names):
                described[-1]["entities"] = find_entities(text, tags, scores)
        return described


def are_spans(names: Sequence[str]) -> bool:
    """Return whether tags mark spans, in IOB, or with letters for their ends as in BIOES."""
    inside = [name for name in names if name != "O"]
    letters = LETTERS if any(name.startswith("B-") for name in inside) else "BI"
    return all(name[0] in letters and name[1:2] == "-" for name in inside)


def mark_entities(tags: Sequence[str], spans: bool = True) -> list[tuple[int, int, str]]:
    """Return the first and the last word and the type of the entities of a row, as conlleval.

    One begins at `B-`, at a change of type, and after an `O`; with other letters than `B` and `I`
    also at a single word, and after the last word of another one. Tags that are not of `spans` are
    types, and mark one word each, all but `O`.
    """
    entities: list[tuple[int, int, str]] = []
    previous = "O"
    for place, tag in enumerate(tags):
        if tag != "O" and not spans:
            entities.append((place, place, tag))
        elif tag != "O":
            begins = tag[0] in FIRST or previous[0] in LAST
            if begins or previous == "O" or previous[2:] != tag[2:]:
                entities.append((place, place, tag[2:]))
            else:
                entities[-1] = (entities[-1][0], place, tag[2:])
        previous = tag
    return entities


def find_entities(row: Words, tags: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
    """Return the entities that tags mark.

    Each has `label`, `text`, `start` and `end` (characters of the text, or words if words were
    given) and `score`, the mean of its words.
    """
    entities = []
    for first, last, label in mark_entities(tags):
        start, end = row.spans[first][0], row.spans[last][1]
        words, of_words = row.words[first : last + 1], scores[first : last + 1]
        text = " ".join(words) if row.text is None else row.text[start:end]
        entity = {"label": label, "text": text, "start": start, "end": end}
        entities.append(entity | {"score": sum(of_words) / len(of_words)})
    return entities


@strict
@dataclass(kw_only=True)
class TokenClassificationTask(WeightedTask, CalibratedTask):
    """One of `labels` for every token; long texts are split into windows, not truncated.

    See also `CalibratedTask` and `WeightedTask`: the labels that the loss is divided by are those
    of tokens.

    Args:
        words: How predictions split a text into words. `pattern`: words and punctuation marks,
            with clitics such as `'s` apart and each Chinese character alone; `elision`: the same,
            but cut after an apostrophe, as in French; `compound`: not cut at apostrophes.
            `characters`: each character with its combining marks. `whitespace`: what white space
            separates. `given`: no rule finds the words of the training rows, and rows must be lists
            of words. By default what fits the words of the training rows.
    """

    problem_type: Literal["token_classification"] = field(
        default="token_classification", metadata=DATA
    )
    dropout: float | int = field(default=0.1, metadata=RECIPE)
    words: WordRule = field(default="pattern", metadata=RECIPE)
    is_token_level: ClassVar[bool] = True
    is_likelihood: ClassVar[bool] = True

    @classmethod
    def complete(cls, given: Fields, facts: Fields) -> Fields:
        if "words" not in given and (sentences := facts.get("sentences")):
            given = {**given, "words": choose_rule(sentences)}
        return super().complete(given, facts)


class TokenClassificationHead(CalibratedHead, TokenHead):
    """K logits of every token."""

    outputs: ClassVar[Outputs] = "tags"
    class_weights: Tensor | None  # (K,); None for equal ones

    def __init__(self, config: PreTrainedConfig, task: TokenClassificationTask) -> None:
        super().__init__(config, task)
        add_weights(self, task)

    def prepare(self, batch: TaskBatch) -> None:
        check_token_labels(batch)
        batch.options.pop("label_positions", None)  # tokens without a label are also scored

    def read(self, batch: TaskBatch) -> Read:
        return read_tokens(batch.labels, batch.inputs[1])

    def forward(self, outputs: Any, batch: TaskBatch) -> TokenClassifierOutput:
        number = batch.options.get("num_items_in_batch")
        if number is None and batch.labels is not None:
            number = self.count_terms(batch.labels).clamp(min=1)
        options = {"weight": self.class_weights, "smoothing": self.smoothing}
        return label_tokens(outputs, self.score, batch.labels, number, **options)

    def decode(self, logits: Tensor) -> Tensor:
        return logits.argmax(dim=-1)

    def predictor(self, model: Any, name: str, top_k: int | None) -> TagPredictor:
        if top_k is not None:
            raise ValueError(
                f"task {name!r} is a token_classification task with one tag per word: leave top_k "
                "out"
            )
        return TagPredictor(model, name, self)


def read_tokens(labels: Tensor | None, mask: Tensor | None) -> Read:
    """Return which states are read: of paddings only if they have labels."""
    stray = labels is not None and any_at_padding(labels != -100, mask)
    return "padded" if stray else "tokens"


def label_tokens(
    outputs: Any,
    score: Callable[[Tensor], Tensor],
    labels: Tensor | None,
    number: Tensor | int | None = None,
    **options: Any,
) -> TokenClassifierOutput:
    """Score tokens, (B, L, K) or (1, T, K); the mean loss is over `number` or all labels.

    The `options` are those of `sum_class_losses`.
    """
    logits = score(outputs.last_hidden_state)
    if outputs.sequences is not None:
        logits = outputs.sequences.pad(logits)
    loss = None
    if labels is not None:
        dtype = torch.promote_types(logits.dtype, torch.float32)
        loss = sum_class_losses(logits.flatten(0, -2).to(dtype), labels.flatten(), **options)
        loss = loss / ((labels != -100).sum() if number is None else number)
    return TokenClassifierOutput(loss, logits, outputs.hidden_states, outputs.attentions)


TYPES: Types = {"token_classification": (TokenClassificationTask, TokenClassificationHead)}
