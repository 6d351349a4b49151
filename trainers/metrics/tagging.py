"""Tags of words: entities by the rules of conlleval, and how they are counted.

An entity is right if its first word, its last word and its type are. It begins at a ``B-``, and
where the type changes or after an ``O``: also an ``I-`` that nothing came before opens one, as in
conlleval (Tjong Kim Sang and Buchholz 2000) and in seqeval's default mode, and unlike in seqeval's
strict mode. It ends before the next one, before an ``O`` and with its sentence. Tags that mark no
spans, as parts of speech, count as entities of one word each, all but ``O``, as with conlleval's
option ``-r``.

Shapes: W words of all sentences, one after the other, R rows (windows of sentences).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainers.data.masking import IGNORED_LABEL
from trainers.data.task_dataset import Rows

OUTSIDE = "O"
# Label of a word whose tag nobody knows.
UNKNOWN_LABEL = -1

Numbers = NDArray[np.int64]


class TagNames(NamedTuple):
    """What the tags mean.

    Args:
        begins: Which of them always begin an entity, (K,), bool.
        types: Number of the type of each, -1 for ``O``, (K,).
        names: Names of the types.
    """

    begins: NDArray[np.bool_]
    types: Numbers
    names: list[str]

    @classmethod
    def parse(cls, names: Sequence[str]) -> "TagNames":
        """Read the names of tags: all of spans in IOB, or of single words."""
        inside = [name for name in names if name != OUTSIDE]
        is_iob = all(name[:2] in ("B-", "I-") and len(name) > 2 for name in inside)
        found = {name: name[2:] if is_iob else name for name in inside}
        types = sorted(set(found.values()))
        return cls(
            np.asarray([name.startswith("B-") or not is_iob for name in names]),
            np.asarray([types.index(found[name]) if name in found else -1 for name in names]),
            types,
        )


class Entities(NamedTuple):
    """Entities in the order of the words, E of them.

    Args:
        first: Their first words, (E,).
        last: Their last words, (E,).
        types: Numbers of their types, (E,).
    """

    first: Numbers
    last: Numbers
    types: Numbers


class Tagged(NamedTuple):
    """The words of some sentences.

    Args:
        predictions: Ids of the tags that were predicted, (W,).
        labels: Ids of those that are right, (W,); None if nobody knows.
        sentences: Number of the sentence of each word, ascending, (W,).
    """

    predictions: Numbers
    labels: Numbers | None
    sentences: Numbers


def find_entities(tags: Numbers, sentences: Numbers, names: TagNames) -> Entities:
    """Find the entities of some sentences.

    Args:
        tags: Ids, (W,).
        sentences: Number of the sentence of each word, (W,).
        names: What the ids mean.
    """
    types = names.types[tags]
    new_sentence = np.diff(sentences, prepend=-1) != 0
    changes = np.diff(types, prepend=-1) != 0
    borders = new_sentence | changes | names.begins[tags]
    first = np.flatnonzero(borders & (types >= 0))
    places = np.append(np.flatnonzero(borders), len(tags))
    last = places[np.searchsorted(places, first, side="right")] - 1
    return Entities(first, last, types[first])


def count_entities(found: Tagged, names: TagNames) -> tuple[Numbers, Numbers]:
    """Count the entities that are right, predicted, and labelled.

    Args:
        found: Words with labels.
        names: What the tags mean.

    Returns:
        By type, (types, 3), and by sentence, (sentences, 3).
    """
    numbers = np.unique(found.sentences, return_inverse=True)[1]
    labelled = find_entities(np.asarray(found.labels), found.sentences, names)
    predicted = find_entities(found.predictions, found.sentences, names)
    common = np.isin(_keys(predicted, names), _keys(labelled, names))
    right = Entities(*(values[common] for values in predicted))
    by_type, by_sentence = [], []
    for entities in (right, predicted, labelled):
        by_type.append(np.bincount(entities.types, minlength=len(names.names)))
        size = int(numbers[-1]) + 1 if len(numbers) else 0
        by_sentence.append(np.bincount(numbers[entities.first], minlength=size))
    return np.stack(by_type, axis=1), np.stack(by_sentence, axis=1)


def _keys(entities: Entities, names: TagNames) -> Numbers:
    """Number entities; those with equal words and types have equal numbers."""
    # 31 bits for the first word and 20 for the others of the entity leave 12 for its type
    words = (entities.first << 20) + (entities.last - entities.first)
    return words * max(1, len(names.names)) + entities.types


def score(counts: NDArray[Any]) -> dict[str, float]:
    """Compute precision, recall and F1 of counts (3,) of right, predicted and labelled ones.

    Each is 0 where it is not defined, as in conlleval.
    """
    right, predicted, labelled = (float(count) for count in counts)
    precision = right / predicted if predicted else 0.0
    recall = right / labelled if labelled else 0.0
    f1 = 2 * right / (predicted + labelled) if right else 0.0
    return {"f1": f1, "precision": precision, "recall": recall}


def tag_metrics(found: Tagged, names: TagNames) -> dict[str, float]:
    """Compute ``f1``, ``precision`` and ``recall`` of entities, and ``accuracy`` of the words."""
    counts, _ = count_entities(found, names)
    correct = found.predictions == found.labels
    return {**score(counts.sum(axis=0)), "accuracy": float(np.mean(correct))}


def describe_types(found: Tagged, names: TagNames) -> list[dict[str, Any]]:
    """Describe every type of entity: ``name``, metrics, and how many are labelled and predicted."""
    counts, _ = count_entities(found, names)
    return [
        {
            "name": name,
            **score(row),
            "right": int(row[0]),
            "predicted": int(row[1]),
            "labelled": int(row[2]),
        }
        for name, row in zip(names.names, counts, strict=True)
    ]


def f1_standard_error(
    found: Tagged, names: TagNames, resamples: int = 1000, seed: int = 0
) -> float:
    """Estimate the standard error of the F1 over the choice of the sentences, by bootstrap."""
    _, counts = count_entities(found, names)
    generator = np.random.default_rng(seed)
    values = []
    for _ in range(resamples):
        rows = generator.integers(len(counts), size=len(counts))
        values.append(score(counts[rows].sum(axis=0))["f1"])
    return float(np.std(values))


def analyse_tags(found: Tagged, labels: Sequence[str], rows: Rows, examples: int) -> dict[str, Any]:
    """Sum up the tags of a task for a report.

    Args:
        found: Words with labels.
        labels: Names of the tags.
        rows: The rows, with their ``words`` if texts are to be quoted.
        examples: Number of sentences with most wrong words that are quoted.

    Returns:
        ``rows``, the number of sentences; ``distribution``, how often each tag was given and
        predicted; ``types``, see ``describe_types``; and ``errors``.
    """
    names, given = TagNames.parse(labels), np.asarray(found.labels)
    counts = [np.bincount(tags, minlength=len(labels)) for tags in (given, found.predictions)]
    sentences, numbers = np.unique(found.sentences, return_inverse=True)
    wrong = np.bincount(numbers, found.predictions != given, len(sentences))
    share = wrong / np.bincount(numbers, minlength=len(sentences))
    worst = np.argsort(-wrong, kind="stable")[:examples]
    columns: Any = rows
    words = None
    if "words" in columns.column_names:
        words = np.asarray([word for row in columns["words"] for word in row], dtype=object)
    return {
        "rows": len(sentences),
        "distribution": [
            {"name": name, "labels": int(labelled), "predictions": int(predicted)}
            for name, labelled, predicted in zip(labels, *counts, strict=True)
        ],
        "types": describe_types(found, names),
        "errors": [
            _describe_error(found, names, words, numbers == number, int(sentences[number]))
            | {"size": float(share[number])}
            for number in worst.tolist()
            if wrong[number]
        ],
    }


def _describe_error(
    found: Tagged,
    names: TagNames,
    words: NDArray[Any] | None,
    chosen: NDArray[np.bool_],
    number: int,
) -> dict[str, Any]:
    """Show the entities of a sentence as they should be and as they were predicted."""
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
        "label": show(np.asarray(found.labels)),
        "prediction": show(found.predictions),
    }


# Rows of windows


def tags_by_row(logits: Tensor, labels: Tensor, offsets: Tensor | None) -> tuple[Tensor, Tensor]:
    """Take what was predicted for the labelled words of every row of a batch.

    Args:
        logits: Of every token, (B, L, K), or (1, T, K) of a packed batch.
        labels: (B, L), or (1, T); -100 where there is no word.
        offsets: Where each row of a packed batch begins, and T, (B + 1,); None if it is padded.

    Returns:
        Predicted ids and labels, both (B, words of the row that has most), int16, filled with -100:
        rows are what a Trainer gathers, and a number a word is little.
    """
    rows, places = (labels != IGNORED_LABEL).nonzero(as_tuple=True)
    count = labels.shape[0]
    tags, given = logits[rows, places].argmax(dim=-1), labels[rows, places]
    if offsets is not None:
        count = len(offsets) - 1
        rows = torch.searchsorted(offsets[1:].contiguous(), places.to(offsets.dtype), right=True)
    words = torch.bincount(rows, minlength=count)
    columns = torch.arange(len(rows), device=rows.device) - (words.cumsum(0) - words)[rows]
    filled = labels.new_full((2, count, int(words.max())), IGNORED_LABEL, dtype=torch.int16)
    filled[0, rows, columns] = tags.to(torch.int16)
    filled[1, rows, columns] = given.to(torch.int16)
    return filled[0], filled[1]


def join_rows_of_words(tags: NDArray[Any], rows: Rows) -> Tagged:
    """Put the rows of a task, which are windows of sentences, together again.

    Args:
        tags: Predicted ids of the words of each row, (R, words), filled with -100.
        rows: The rows in their order, with ``labels`` and, if a sentence may have several of them,
            ``sentence``, its number.

    Raises:
        ValueError: If rows have other numbers of words than were predicted.
    """
    columns: Any = rows
    given = [np.asarray(row) for row in columns["labels"]]
    labels = [row[row != IGNORED_LABEL] for row in given]
    words = np.asarray([len(row) for row in labels])
    if not np.array_equal(words, (tags != IGNORED_LABEL).sum(axis=1)):
        raise ValueError("the predictions are not of these rows: they have other words")
    numbers = np.arange(len(words))
    if "sentence" in columns.column_names:
        numbers = np.asarray(columns["sentence"])
    joined = np.concatenate(labels).astype(np.int64)
    known = not (joined == UNKNOWN_LABEL).any()
    return Tagged(
        tags[tags != IGNORED_LABEL].astype(np.int64),
        joined if known else None,
        np.repeat(numbers, words).astype(np.int64),
    )


def find_names(model: Any, task: str) -> TagNames:
    """Find what the tags of a task mean, in the configuration of the model.

    Raises:
        ValueError: If it has none.
    """
    tasks: Any = getattr(getattr(model, "config", None), "tasks", None) or {}
    names = tasks.get(task, {}).get("labels")
    if not names:
        raise ValueError(
            f"task {task!r} is a token_classification: its metrics need the names of the tags, as "
            "model.config.tasks[task]['labels']"
        )
    return TagNames.parse(names)
