"""Pairs of texts of the same class and of different classes, for learning from few rows.

Source: Tunstall et al. 2022, "Efficient Few-Shot Learning Without Prompts" (SetFit), section 3.1.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.problems.classification import ClassificationFormat
from datasets_scripts.problems.paraphrase import ParaphraseFormat

# Problem types of the rows that are paired, and of their pairs.
SINGLE_TYPE = ClassificationFormat.problem_type
PAIR_TYPE = ParaphraseFormat.problem_type
PAIR_COLUMNS = ("sentence1", "sentence2")
# Pairs of each kind for a held-out row, which are enough to follow the training.
HELD_OUT_PAIRS = 1


def split_pair_keys(where: str, mapping: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the classification whose rows are paired.

    Raises:
        ValueError: If the task is not of pairs.
    """
    kind = mapping.get("problem_type", PAIR_TYPE)
    if kind != PAIR_TYPE:
        raise ValueError(
            f"{where}: class_pairs makes pairs for a {PAIR_TYPE} task, not for problem_type "
            f"{kind!r}; leave one of them out"
        )
    is_built_in = "dataset" in mapping and "/" not in str(mapping["dataset"])
    own = {"problem_type": SINGLE_TYPE} if not is_built_in else {}
    if mapping.get("unlabeled_file") is not None:
        raise ValueError(f"{where}: class_pairs pairs rows by their label; remove unlabeled_file")
    left_out = ("class_pairs", "problem_type", "metrics")
    return {key: value for key, value in mapping.items() if key not in left_out} | own


def describe_pairs(rows: Any, class_pairs: int, metrics: tuple[str, ...] | None) -> Any:
    """Return the ``TaskData`` of the pairs, from that of the rows of a classification.

    Raises:
        ValueError: If these rows have no classes, or more than one text.
    """
    if rows.problem_type != SINGLE_TYPE or len(rows.text_columns or ()) != 1:
        raise ValueError(
            f"{rows.where}: class_pairs needs rows with one text and a class each, not pairs or "
            f"{rows.problem_type} rows; remove it"
        )
    return replace(
        rows,
        problem_type=PAIR_TYPE,
        text_columns=PAIR_COLUMNS,
        label_column="label",
        labels=None,
        metrics=metrics,
        class_pairs=class_pairs,
        class_rows=rows,
    )


def pair_rows(rows: datasets.Dataset, count: int, seed: str) -> datasets.Dataset:
    """Make pairs of rows with a class.

    Args:
        rows: Rows with ``id``, ``sentence1`` and ``label``.
        count: Pairs of the same class, and of different ones, that every row begins; fewer if there
            are no more. No pair occurs twice, in either order.
        seed: Seed of the draws.

    Returns:
        Rows with ``id``, ``sentence1``, ``sentence2`` and ``label``: 1 for the same class, else 0.
    """
    ids, texts = rows["id"][:], rows["sentence1"][:]
    pairs = list(_draw(np.asarray(rows["label"][:], np.int64), count, seed))
    first = [pair[0] for pair in pairs]
    second = [pair[1] for pair in pairs]
    columns = {
        "id": [f"{ids[i]}+{ids[j]}" for i, j in zip(first, second, strict=True)],
        "sentence1": [texts[i] for i in first],
        "sentence2": [texts[j] for j in second],
        "label": [pair[2] for pair in pairs],
    }
    features = datasets.Features(
        {name: datasets.Value("int64" if name == "label" else "string") for name in columns}
    )
    return datasets.Dataset.from_dict(columns, features=features)


def _draw(classes: NDArray[np.int64], count: int, seed: str) -> Iterator[tuple[int, int, int]]:
    """Draw pairs of positions, and whether their classes are equal."""
    rng = np.random.default_rng(random.Random(f"{seed} pairs").getrandbits(64))
    seen: set[tuple[int, int]] = set()
    places = np.arange(len(classes))
    for first in places.tolist():
        for same in (1, 0):
            others = places[((classes == classes[first]) == bool(same)) & (places != first)]
            found = 0
            for second in rng.permutation(others).tolist():
                pair = (min(first, second), max(first, second))
                if found == count:
                    break
                if pair not in seen:
                    seen.add(pair)
                    found += 1
                    yield first, second, same
