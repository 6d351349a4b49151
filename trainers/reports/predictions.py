"""Prediction files: in the format of the course project, and tags in that of conlleval."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trainers.files import write_text
from trainers.metrics.tagging import Tagged

# Source: Stanford CS 224N default final project, evaluation.py. "Similiary" is part of the format.
HEADERS = {
    "classification": "id \t Predicted_Sentiment \n",
    "paraphrase": "id \t Predicted_Is_Paraphrase \n",
    "similarity": "id \t Predicted_Similiary \n",
}


def write_predictions(
    path: str | os.PathLike[str],
    ids: Sequence[str],
    predictions: Sequence[float],
    problem_type: str,
) -> None:
    """Write one line per row, ``id , prediction``; the whole file or nothing.

    Args:
        path: File to write; one that is there is replaced.
        ids: Name of each row, (N,).
        predictions: A class index, 0 or 1 for a paraphrase, or a score per row, (N,).
        problem_type: Decides the header and how a prediction is written: ``3``, ``1.0``, ``2.75``.

    Raises:
        ValueError: If the problem type is unknown, the numbers of ids and predictions differ, or a
            prediction is not a finite number.
    """
    if problem_type not in HEADERS:
        raise ValueError(f"problem_type={problem_type!r}; expected one of {', '.join(HEADERS)}")
    if len(ids) != len(predictions):
        raise ValueError(f"{len(ids)} ids but {len(predictions)} predictions; expected one each")
    lines = [HEADERS[problem_type]]
    for name, prediction in zip(ids, predictions, strict=True):
        value = float(prediction)
        if not math.isfinite(value):
            raise ValueError(f"the prediction of row {name!r} is {value}; expected a finite number")
        # float32 prints the shortest digits that tell scores of the model apart
        text = str(int(value)) if problem_type == "classification" else str(np.float32(value))
        lines.append(f"{name} , {text} \n")
    write_text(path, "".join(lines))


def write_tags(
    path: str | os.PathLike[str], words: Sequence[str], found: Tagged, names: Sequence[str]
) -> None:
    """Write a word with its tags a line, as conlleval reads them; the whole file or nothing.

    Args:
        path: File to write; one that is there is replaced.
        words: All words, (W,). White space in a word, which would part columns, becomes ``_``.
        found: Their tags: that which is right, if it is known, and that which was predicted. An
            empty line follows every sentence.
        names: Names of the tags.
    """
    lines = []
    for place, word in enumerate(words):
        if place and found.sentences[place] != found.sentences[place - 1]:
            lines.append("")
        columns = ["_".join(word.split()) or "_"]
        if found.labels is not None:
            columns.append(names[found.labels[place]])
        lines.append(" ".join([*columns, names[found.predictions[place]]]))
    write_text(path, "\n".join([*lines, "", ""]))


def read_predictions(path: str | os.PathLike[str]) -> tuple[list[str], NDArray[np.float64]]:
    """Read what ``write_predictions`` wrote.

    Args:
        path: The file.

    Returns:
        Name of each row, (N,), and its prediction, (N,).

    Raises:
        FileNotFoundError: If the file is not there.
        ValueError: If a line is none of ``id , prediction``; the message has its number.
    """
    ids, values = [], []
    # splitlines would part ids at characters that end no line of a file
    lines = Path(path).read_text(encoding="utf-8").removesuffix("\n").split("\n")
    for number, line in enumerate(lines[1:], start=2):
        name, comma, text = line.rpartition(" , ")
        try:
            values.append(float(text))
        except ValueError:
            comma = ""
        if not comma:
            raise ValueError(f"{path}:{number}: {line!r}; expected an id, ' , ' and a number")
        ids.append(name)
    return ids, np.asarray(values, dtype=np.float64)


def read_tags(path: str | os.PathLike[str]) -> list[list[tuple[str, str]]]:
    """Read what ``write_tags`` wrote of words whose tags are known.

    Args:
        path: The file.

    Returns:
        Of every word of every sentence the tag that is right and that which was predicted.

    Raises:
        FileNotFoundError: If the file is not there.
        ValueError: If a line has no word and two tags; the message has its number.
    """
    sentences: list[list[tuple[str, str]]] = [[]]
    lines = Path(path).read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, start=1):
        columns = line.split(" ")
        if not line:
            sentences.append([])
        elif len(columns) == 3:
            sentences[-1].append((columns[1], columns[2]))
        else:
            raise ValueError(f"{path}:{number}: {line!r}; expected a word and two tags")
    return [sentence for sentence in sentences if sentence]
