"""Entities in tagged sentences, by the rules of conlleval (Tjong Kim Sang and Buchholz 2000).

A stray ``I-`` opens an entity, unlike in seqeval's strict mode. Tags that do not mark spans, such
as parts of speech, count as entities of one word each, all but ``O``, as with ``conlleval -r``.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def score(counts: NDArray[Any]) -> dict[str, float]:
    """Compute precision, recall and F1 of counts (3,); 0 where undefined, as in conlleval."""
    right, predicted, labelled = (float(count) for count in counts)
    precision = right / predicted if predicted else 0.0
    recall = right / labelled if labelled else 0.0
    f1 = 2 * right / (predicted + labelled) if right else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


def tag_metrics(tagged: Tagged, names: TagNames) -> dict[str, float]:
    """Compute ``f1``, ``precision`` and ``recall`` of entities, and ``accuracy`` of the words."""
    counts, _ = count_entities(tagged, names)
    correct = tagged.predictions == tagged.labels
    return {**score(counts.sum(axis=0)), "accuracy": float(np.mean(correct))}


def describe_types(tagged: Tagged, names: TagNames) -> list[dict[str, Any]]:
    """Describe every entity type: its ``name``, metrics and counts."""
    counts, _ = count_entities(tagged, names)
    columns = ("right", "labelled", "predicted")
    return [
        {"name": name, **score(row), **dict(zip(columns, row[[0, 2, 1]].tolist(), strict=True))}
        for name, row in zip(names.names, counts, strict=True)
    ]


def analyse_tags(tagged: Tagged, labels: Sequence[str], rows: Any, examples: int) -> dict[str, Any]:
    """Summarize tags for a report; words are quoted if the rows have them."""
    names, given = TagNames.parse(labels), np.asarray(tagged.labels)
    counts = [np.bincount(tags, minlength=len(labels)) for tags in (given, tagged.predictions)]
    sentences, numbers = np.unique(tagged.sentences, return_inverse=True)
    wrong = np.bincount(numbers, tagged.predictions != given, len(sentences))
    share = wrong / np.bincount(numbers, minlength=len(sentences))
    worst = np.argsort(-wrong, kind="stable")[:examples]
    words = None
    if "words" in rows.column_names:
        words = np.asarray([word for row in rows["words"] for word in row], dtype=object)
    return {
        "rows": len(sentences),
        "distribution": [
            {"name": name, "labels": int(labelled), "predictions": int(predicted)}
            for name, labelled, predicted in zip(labels, *counts, strict=True)
        ],
        "types": describe_types(tagged, names),
        "errors": [
            _describe_error(tagged, names, words, numbers == number, int(sentences[number]))
            | {"size": float(share[number])}
            for number in worst.tolist()
            if wrong[number]
        ],
    }


def _describe_error(
    tagged: Tagged,
    names: TagNames,
    words: NDArray[Any] | None,
    chosen: NDArray[np.bool_],
    number: int,
) -> dict[str, Any]:
    """Describe the right and the predicted entities of a sentence."""
    if words is None:
        return {"id": str(number), "texts": [], "label": "", "prediction": ""}
    own = words[chosen].tolist()

    def show(tags: Numbers) -> str:
        entities = find_entities(tags[chosen], np.zeros(len(own), np.int64), names)
        shown = [
            f"{' '.join(own[first : last + 1])} ({names.names[kind]})"
            for first, last, kind in zip(*(values.tolist() for values in entities), strict=True)
        ]
        return ", ".join(shown) or "none"

    return {
        "id": str(number),
        "texts": [" ".join(own)],
        "label": show(np.asarray(tagged.labels)),
        "prediction": show(tagged.predictions),
    }
