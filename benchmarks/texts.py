"""Real texts for the workloads, from the user's files.

Looked for anywhere in the folder: ``ids-sst-train.csv``, ``quora-train.csv`` and ``sts-train.csv``
(the files of the CS224N project), ``wiki-train.txt`` (one paragraph a line) and BERT's
``vocab.txt``.
"""

import csv
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import BertTokenizer

from .tasks import Task, draw_lengths

FILES = {
    "sst": ("ids-sst-train.csv", "sentiment", ("sentence",)),
    "quora": ("quora-train.csv", "is_duplicate", ("sentence1", "sentence2")),
    "sts": ("sts-train.csv", "similarity", ("sentence1", "sentence2")),
}
RUNNING_TEXT = "wiki-train.txt"


class RealTexts:
    """Sentences and running text as tokens.

    Args:
        folder: Folder with the files.

    Raises:
        ValueError: If a file is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tokenizer = BertTokenizer(vocab=str(self._find("vocab.txt")), do_lower_case=True)

    def read(
        self, name: str, task: Task, rows: int, rng: np.random.Generator
    ) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
        """Read the first ``rows`` rows of a task: sequences without special tokens, and labels."""
        longest = task.longest - 2
        if task.kind == "mlm":
            return self._running_text(name, task, rows, rng), np.zeros(0)
        read = self._labelled(name.removesuffix("_grouped"))
        chosen = np.resize(rng.permutation(len(read)), rows)  # repeated if too few
        flat = [text for row in chosen for text in read[row][1]]
        labels = np.array([read[row][0] for row in chosen])
        kind = np.int64 if task.kind == "classification" else np.float32
        return [ids[:longest] for ids in self._tokenize(flat)], labels.astype(kind)

    def sentences(self, count: int) -> list[str]:
        """Return single sentences, in the order of the files."""
        found = [text for name in FILES for _, row in self._labelled(name) for text in row]
        picked = np.random.default_rng(0).permutation(len(found))[:count]
        return [" ".join(found[index].split()) for index in picked]

    def _labelled(self, name: str) -> list[tuple[float, tuple[str, ...]]]:
        file, label, columns = FILES[name]
        with self._find(file).open(encoding="utf-8", newline="") as stream:
            records = list(csv.DictReader(stream, delimiter="\t"))
        return [
            (float(record[label]), tuple(record[column] for column in columns))
            for record in records
            if record[label] and all(record[column] for column in columns)
        ]

    def _running_text(
        self, name: str, task: Task, rows: int, rng: np.random.Generator
    ) -> list[NDArray[np.int32]]:
        """Paragraphs cut at the longest length, or one stream of them cut into lengths."""
        with self._find(RUNNING_TEXT).open(encoding="utf-8") as stream:
            lines = (line.strip() for line in stream)
            wanted = rows * 6 * task.longest // 128
            paragraphs = self._tokenize(list(islice((line for line in lines if line), wanted)))
        if name == "mlm128":
            return [ids[: task.longest - 2] for ids in paragraphs[:rows]]
        joined = np.concatenate(paragraphs)
        ends = (draw_lengths(task, rows, rng) - 2).cumsum()
        return np.split(joined, ends)[:rows]

    def _tokenize(self, texts: list[str]) -> list[NDArray[np.int32]]:
        encoded = self.tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=10_000,
            return_attention_mask=False, return_token_type_ids=False,
        )  # fmt: skip
        return [np.array(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    def _find(self, name: str) -> Path:
        found = sorted(self.folder.rglob(name))
        if not found:
            raise ValueError(f"data_dir={self.folder} has no {name}; leave it out to draw lengths")
        return found[0]
