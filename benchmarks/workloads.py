"""The batches of all peers: drawn once with a seed, and written to files.

A folder of workloads has ``<task>.npz`` for each task (see ``Rows``), ``sentences.txt`` for
encoding, a tokenizer, and one folder of random weights for each size of model. Peers read nothing
else.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import BertConfig, BertForPreTraining, BertTokenizer
from transformers.trainer_pt_utils import LengthGroupedSampler

from datasets_scripts import train_wordpiece
from datasets_scripts.samples import read_sample

from . import texts
from .tasks import TASKS, Task, draw_labels, draw_lengths

CLS, SEP, MASK = 101, 102, 103
FIRST_WORD = 1000  # ids below are special or unused in BERT's vocabulary
VOCABULARY = 30522
IGNORED = -100
VERSION = 1  # version of the files, to increase with every change of the draws


SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
}


@dataclass(frozen=True)
class Rows:
    """The rows of one task and their order.

    Args:
        ids: Token ids of all sequences one after the other, masked ones replaced, (T,) int32.
        segments: Segment ids, (T,) int8.
        starts: Offset of every sequence in ``ids``, and T, (S + 1,) int64.
        labels: One a row, (R,), or one a token for ``mlm``, (T,) with -100 where nothing is masked.
        batches: Rows of every batch, (N, B) int64.
        per_row: Sequences of a row, 1 or 2; row r has the sequences ``per_row * r`` and following.
    """

    ids: NDArray[np.int32]
    segments: NDArray[np.int8]
    starts: NDArray[np.int64]
    labels: NDArray[Any]
    batches: NDArray[np.int64]
    per_row: int

    @classmethod
    def load(cls, file: Path) -> "Rows":
        """Read ``<task>.npz``."""
        with np.load(file) as stored:
            arrays = {name: stored[name] for name in stored.files}
        return cls(**arrays | {"per_row": int(arrays["per_row"])})

    def save(self, file: Path) -> None:
        """Write ``<task>.npz``."""
        np.savez(file, **vars(self))

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of every row, (R, per_row)."""
        return np.diff(self.starts).reshape(-1, self.per_row)

    def sequence(self, values: NDArray[Any], index: int) -> list[Any]:
        """Cut one sequence out of values of all tokens."""
        return values[self.starts[index] : self.starts[index + 1]].tolist()

    def tokens(self, batch: int) -> int:
        """Count the real tokens of a batch."""
        return int(self.lengths[self.batches[batch]].sum())

    def fill(self) -> float:
        """Share of real tokens where each side of a batch is padded to its longest sequence."""
        lengths = self.lengths[self.batches]  # (N, B, per_row)
        return float(lengths.sum() / (lengths.max(axis=1).sum() * lengths.shape[1]))


def prepare(
    folder: Path,
    tasks: Iterable[str],
    sizes: Iterable[str],
    data_dir: Path | None,
    batches: int = 64,
    sentences: int = 10_000,
    seed: int = 0,
) -> dict[str, Any]:
    """Write the workloads and models that the folder lacks.

    Args:
        folder: Where to.
        tasks: Names of ``TASKS``.
        sizes: Names of models, of ``SIZES``.
        data_dir: Folder with real data (see ``texts``); None draws lengths and ids.
        batches: Batches of each task.
        sentences: Sentences to encode.
        seed: Seed of everything that is drawn.

    Returns:
        How the workloads were made, and ``tasks``: rows, real tokens and fill of each.

    Raises:
        ValueError: If the folder was made from other arguments.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {"data_dir": data_dir and str(data_dir), "batches": batches}
    made |= {"sentences": sentences, "seed": seed, "version": VERSION}
    record = folder / "workloads.json"
    facts: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"tasks": {}}
    if record.exists() and {name: facts.get(name) for name in made} != made:
        raise ValueError(f"{folder} has other workloads; delete it or give another --work_dir")
    source = texts.RealTexts(data_dir) if data_dir else None
    for name in set(tasks) - set(facts["tasks"]):
        facts["tasks"][name] = _write_task(folder, name, source, batches, seed)
    if not (folder / "sentences.txt").exists():
        _write_sentences(folder, source, sentences)
    record.write_text(json.dumps(facts | made, indent=2))
    for size in sizes:
        write_model(folder / "models" / size, size)
        tokenizer = BertTokenizer.from_pretrained(folder / "tokenizer")
        tokenizer.save_pretrained(folder / "models" / size)
    return facts | made


def _write_task(
    folder: Path, name: str, source: texts.RealTexts | None, batches: int, seed: int
) -> dict[str, Any]:
    """Write the rows of a task and return their statistics."""
    task = TASKS[name]
    rng = np.random.default_rng((seed, list(TASKS).index(name)))
    # as many rows as SST has, since the sampler sorts better with more rows
    rows = batches * task.rows * (4 if task.grouped else 1)
    if source is None:
        sequences, labels = _draw(task, rows, rng)
    else:
        sequences, labels = source.read(name, task, rows, rng)
    made = _make_rows(task, sequences, labels, batches, rng)
    made.save(folder / f"{name}.npz")
    tokens = sum(made.tokens(batch) for batch in range(batches)) / batches
    return {"rows": task.rows, "tokens": tokens, "fill": made.fill()}


def _draw(
    task: Task, rows: int, rng: np.random.Generator
) -> tuple[list[NDArray[np.int32]], NDArray[Any]]:
    """Draw sequences without special tokens, and labels."""
    sequences = [
        rng.integers(FIRST_WORD, VOCABULARY, length - 2, dtype=np.int32)
        for length in draw_lengths(task, rows * task.per_row, rng)
    ]
    return sequences, draw_labels(task.kind, rows, rng)


def _make_rows(
    task: Task,
    sequences: list[NDArray[np.int32]],
    labels: NDArray[Any],
    count: int,
    rng: np.random.Generator,
) -> Rows:
    """Add special tokens and segments, mask, and compose the batches."""
    lengths = np.array([len(sequence) + 2 for sequence in sequences])
    starts = np.concatenate([[0], lengths.cumsum()])
    framed = [np.concatenate([[CLS], sequence, [SEP]]) for sequence in sequences]
    ids = np.concatenate(framed).astype(np.int32)
    segments = np.zeros(len(ids), dtype=np.int8)
    if task.kind == "mlm":
        for start, length in zip(starts, lengths, strict=False):
            segments[start + rng.integers(1, length) : start + length] = 1
        ids, labels = _mask(ids, rng)
    rows = len(sequences) // task.per_row
    order = np.arange(rows)
    if task.grouped:
        generator = torch.Generator().manual_seed(int(rng.integers(2**31)))
        sampler = LengthGroupedSampler(task.rows, lengths=lengths.tolist(), generator=generator)
        order = np.array(list(sampler))
    batches = order.reshape(-1, task.rows)
    if task.grouped:  # transformers sorts from long to short; a few steps should cover all lengths
        batches = rng.permutation(batches)[:count]
    return Rows(ids, segments, starts, labels, batches, task.per_row)


def _mask(
    ids: NDArray[np.int32], rng: np.random.Generator
) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """Choose 15 % of the tokens; 80 % of these are masked, 10 % replaced, 10 % kept."""
    chosen = (rng.random(len(ids)) < 0.15) & (ids != CLS) & (ids != SEP)
    labels = np.where(chosen, ids, IGNORED).astype(np.int64)
    fate = rng.random(len(ids))
    words = rng.integers(FIRST_WORD, VOCABULARY, len(ids), dtype=np.int32)
    replaced = np.where(fate < 0.8, MASK, np.where(fate < 0.9, words, ids))
    return np.where(chosen, replaced, ids).astype(np.int32), labels


def _write_sentences(folder: Path, source: texts.RealTexts | None, count: int) -> None:
    """Write the tokenizer and the sentences to encode, one per line."""
    tokenizer: BertTokenizer
    if source is None:
        rows = cycle(read_sample("sample_sst")["train"])
        sentences = [row["sentence1"] for row in islice(rows, count)]
        tokenizer = train_wordpiece(sentences[:2000], 1000)
    else:
        sentences, tokenizer = source.sentences(count), source.tokenizer
    tokenizer.save_pretrained(folder / "tokenizer")
    (folder / "sentences.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")


def write_model(folder: Path, size: str) -> None:
    """Save random weights with all pre-training heads, for every peer."""
    if (folder / "model.safetensors").exists():
        return
    torch.manual_seed(0)
    shape: dict[str, Any] = dict(SIZES[size])
    config = BertConfig(intermediate_size=4 * shape["hidden_size"], **shape)
    BertForPreTraining(config).save_pretrained(folder)
