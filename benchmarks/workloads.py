"""The inputs of all contenders: drawn once with a seed, or from real texts, and written to files.

A folder of workloads has ``<task>.npz`` for each task (see ``Rows``), ``sentences.txt``, and one
folder for each size of model with random weights and a tokenizer. Contenders read nothing else.

With a data folder, texts are real: ``ids-sst-train.csv``, ``quora-train.csv``, ``sts-train.csv``
and ``sts-dev.csv`` (the files of the CS 224N project), ``wiki-train.txt`` (one paragraph a line)
and BERT's ``vocab.txt``, anywhere in it. Without one, tokens are random and lengths are drawn from
log-normal fits to those data.
"""

import csv
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import (
    CONFIG_MAPPING,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BertConfig,
    BertForPreTraining,
    BertModel,
    BertTokenizer,
)
from transformers.trainer_pt_utils import LengthGroupedSampler

UNKNOWN, CLS, SEP, MASK = 100, 101, 102, 103
FIRST_WORD = 1000  # ids below are special or unused in BERT's vocabulary
VOCABULARY = 30522
ROOT = Path(__file__).resolve().parents[1]
IGNORED = -100
SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2},
    "minilm": {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12},
    "base": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12},
}
# Other model types than bert, behind the name of a size: `base-roberta`.
ROBERTA = {"max_position_embeddings": 514, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
KINDS: dict[str, dict[str, Any]] = {
    "roberta": {"vocab_size": 50_265, **ROBERTA},
    "xlm-roberta": {"vocab_size": 250_002, **ROBERTA},
    "mpnet": {"vocab_size": 30_527, "max_position_embeddings": 514},
    "modernbert": {
        "vocab_size": 50_368, "num_hidden_layers": 22, "pad_token_id": 0, "bos_token_id": CLS,
        "cls_token_id": CLS, "sep_token_id": SEP, "eos_token_id": SEP,
    },
}  # fmt: skip
ENCODER = "encoder"  # size of the model of --encoder
FILES = {
    "sst": ("ids-sst-train.csv", "sentiment", ("sentence",)),
    "quora": ("quora-train.csv", "is_duplicate", ("sentence1", "sentence2")),
    "sts": ("sts-train.csv", "similarity", ("sentence1", "sentence2")),
}
Sequences = list[NDArray[np.int32]]


class Lengths(NamedTuple):
    """Tokens of a sequence, special ones included; the log-normal fit where there are no data."""

    mean: float
    sd: float
    longest: int


@dataclass(frozen=True)
class Task:
    """How the batches of one task are drawn.

    Args:
        kind: ``classification``, ``paraphrase``, ``similarity`` or ``mlm``.
        rows: Rows of a batch.
        lengths: What lengths are drawn from where there are no data.
        longest: Tokens at which a sequence is cut.
        full: Whether every sequence has exactly ``longest`` tokens.
        grouped: Whether transformers' ``group_by_length`` composes the batches.
    """

    kind: str
    rows: int
    lengths: Lengths
    longest: int = 128
    full: bool = False
    grouped: bool = False

    @property
    def per_row(self) -> int:
        """Sequences of a row."""
        return 2 if self.kind in ("paraphrase", "similarity") else 1


SST = Lengths(25.0, 11.4, 80)
WIKI = Lengths(126.0, 69.0, 720)
LONG = Lengths(254.0, 150.0, 512)  # 254 is the mean of MLPerf's pre-training data at 512
TASKS = {
    "sst": Task("classification", 32, SST),
    "sst_grouped": Task("classification", 32, SST, grouped=True),
    "quora": Task("paraphrase", 32, Lengths(15.8, 7.2, 86)),
    "sts": Task("similarity", 32, Lengths(14.7, 7.3, 70)),
    "mlm128": Task("mlm", 16, WIKI),
    "mlm128_full": Task("mlm", 16, WIKI, full=True),
    "mlm512": Task("mlm", 8, LONG, longest=512),
    # about 64k real tokens, for a GPU
    "sst_large": Task("classification", 2560, SST),
    "mlm128_large": Task("mlm", 640, WIKI),
    "mlm512_large": Task("mlm", 256, LONG, longest=512),
    "mlm128_grouped": Task("mlm", 16, WIKI, grouped=True),
}


def find_tasks(workload: str) -> tuple[str, ...]:
    """Return the tasks of a workload, which take turns; none for those without training."""
    if workload == "mixed":
        return ("sst", "quora", "sts")
    if workload == "parts":
        return ("sst",)
    return (workload,) if workload in TASKS else ()


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

    def fill(self) -> float:
        """Share of real tokens where each side of a batch is padded to its longest sequence."""
        lengths = self.lengths[self.batches]  # (N, B, per_row)
        return float(lengths.sum() / (lengths.max(axis=1).sum() * lengths.shape[1]))


@dataclass(frozen=True)
class Sources:
    """What a folder of workloads is made from.

    Args:
        data_dir: Folder with real texts; None draws them.
        encoder: Folder of a BERT encoder with its tokenizer, for the size ``encoder``.
        batches: Batches of each task.
        sentences: Sentences to encode.
        kilobytes: Size of the running text.
        seed: Seed of everything that is drawn.
    """

    data_dir: Path | None = None
    encoder: Path | None = None
    batches: int = 64
    sentences: int = 10_000
    kilobytes: int = 5000
    seed: int = 0


def prepare(
    folder: Path, tasks: Iterable[str], sizes: Iterable[str], sources: Sources
) -> dict[str, Any]:
    """Write what the folder lacks.

    Args:
        folder: Where to.
        tasks: Names of ``TASKS``.
        sizes: Names of models: of ``SIZES``, or ``encoder``.
        sources: What it is made from.

    Returns:
        The sources, and ``tasks``: rows, real tokens and fill of each.

    Raises:
        ValueError: If the folder was made from other sources, or a file is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {name: str(value) for name, value in vars(sources).items()}
    record = folder / "workloads.json"
    facts: dict[str, Any] = json.loads(record.read_text()) if record.exists() else {"tasks": {}}
    if record.exists() and {name: facts.get(name) for name in made} != made:
        raise ValueError(f"{folder} has other workloads; delete it or give another --work_dir")
    tokenizer = _load_vocabulary(sources.data_dir)
    for name in sorted(set(tasks) - set(facts["tasks"])):
        facts["tasks"][name] = _write_task(folder, name, sources, tokenizer)
    if not (folder / "sentences.txt").exists():
        _write_texts(folder, sources)
    for size in sizes:
        target = folder / "models" / size
        if not (target / "model.safetensors").exists():
            _write_model(target, size, sources, tokenizer)
    record.write_text(json.dumps(facts | made, indent=2))
    return facts | made


def _load_vocabulary(data_dir: Path | None) -> Any:
    """Load BERT's vocabulary, or make one of invented words with the same special tokens."""
    if data_dir is not None:
        return BertTokenizer(vocab=str(_find(data_dir, "vocab.txt")), do_lower_case=True)
    words = [f"[unused{number}]" for number in range(FIRST_WORD)]
    special = {0: "[PAD]", UNKNOWN: "[UNK]", CLS: "[CLS]", SEP: "[SEP]", MASK: "[MASK]"}
    for place, word in special.items():
        words[place] = word
    words += make_words(VOCABULARY - FIRST_WORD)
    return BertTokenizer(vocab={word: place for place, word in enumerate(words)})


def make_words(count: int) -> list[str]:
    """Make distinct words of an invented language; the first ones are the shortest."""
    syllables = [first + vowel for first in "bcdfghjklmnprstvz" for vowel in "aeiou"]
    words, longer = list(syllables), list(syllables)
    while len(words) < count:
        longer = [word + syllable for word in longer[:500] for syllable in syllables]
        words += longer
    return words[:count]


def _write_task(folder: Path, name: str, sources: Sources, tokenizer: Any) -> dict[str, Any]:
    """Write the rows of a task and return their statistics."""
    task = TASKS[name]
    rng = np.random.default_rng((sources.seed, list(TASKS).index(name)))
    # grouped: as many rows as SST has, since the sampler sorts better with more rows
    count = sources.batches * task.rows * (4 if task.grouped else 1)
    if sources.data_dir is None:
        sequences, labels = _draw(task, count, rng)
    else:
        sequences, labels = _read_rows(name, task, count, sources.data_dir, tokenizer, rng)
    rows = _make_rows(task, sequences, labels, sources.batches, rng)
    rows.save(folder / f"{name}.npz")
    tokens = rows.lengths[rows.batches].sum() / sources.batches
    return {"rows": task.rows, "tokens": float(tokens), "fill": rows.fill()}


def _draw(task: Task, rows: int, rng: np.random.Generator) -> tuple[Sequences, NDArray[Any]]:
    """Draw sequences without special tokens, and labels."""
    sequences = [
        rng.integers(FIRST_WORD, VOCABULARY, length - 2, dtype=np.int32)
        for length in draw_lengths(task, rows * task.per_row, rng)
    ]
    if task.kind == "similarity":
        return sequences, rng.uniform(0, 5, rows).astype(np.float32)
    labels = rng.integers(0, 5 if task.kind == "classification" else 2, rows)
    return sequences, labels.astype(np.float32 if task.kind == "paraphrase" else np.int64)


def draw_lengths(task: Task, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the tokens of sequences, special ones included, (count,)."""
    if task.full:
        return np.full(count, task.longest)
    mean, sd, longest = task.lengths
    variance = np.log1p((sd / mean) ** 2)
    drawn = np.exp(rng.normal(np.log(mean) - variance / 2, np.sqrt(variance), count))
    return np.clip(np.rint(drawn), 3, min(longest, task.longest)).astype(np.int64)


def _read_rows(
    name: str, task: Task, count: int, data_dir: Path, tokenizer: Any, rng: np.random.Generator
) -> tuple[Sequences, NDArray[Any]]:
    """Read real rows of a task: sequences without special tokens, and labels."""
    longest = task.longest - 2

    def tokenize(texts: list[str]) -> Sequences:
        encoded = tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=10_000,
            return_attention_mask=False, return_token_type_ids=False,
        )  # fmt: skip
        return [np.array(ids, dtype=np.int32) for ids in encoded["input_ids"]]

    if task.kind != "mlm":
        labelled = read_labelled(data_dir, *FILES[name.split("_")[0]])
        chosen = np.resize(rng.permutation(len(labelled)), count)  # repeated if too few
        texts = [text for row in chosen for text in labelled[row][1]]
        labels = np.array([labelled[row][0] for row in chosen])
        kind = np.int64 if task.kind == "classification" else np.float32
        return [ids[:longest] for ids in tokenize(texts)], labels.astype(kind)
    with _find(data_dir, "wiki-train.txt").open(encoding="utf-8") as stream:
        lines = (line.strip() for line in stream)
        wanted = count * 6 * task.longest // 128
        paragraphs = tokenize(list(islice((line for line in lines if line), wanted)))
    if task.longest == 128 and not task.full:
        chosen = np.arange(count) % len(paragraphs)
        return [paragraphs[place][:longest] for place in chosen], np.zeros(0)
    # one stream of paragraphs, cut into lengths
    ends = (draw_lengths(task, count, rng) - 2).cumsum()
    joined = np.resize(np.concatenate(paragraphs), ends[-1] + 1)
    return np.split(joined, ends)[:count], np.zeros(0)


def read_labelled(
    data_dir: Path, file: str, label: str, columns: tuple[str, ...]
) -> list[tuple[float, tuple[str, ...]]]:
    """Read the labels and texts of a file of the CS 224N project."""
    with _find(data_dir, file).open(encoding="utf-8", newline="") as stream:
        records = list(csv.DictReader(stream, delimiter="\t"))
    return [
        (float(record[label]), tuple(record[column] for column in columns))
        for record in records
        if record[label] and all(record[column] for column in columns)
    ]


def _find(folder: Path, name: str) -> Path:
    files = sorted(folder.rglob(name))
    if not files:
        raise ValueError(f"data_dir={folder} has no {name}; leave it out to draw lengths")
    return files[0]


def _make_rows(
    task: Task, sequences: Sequences, labels: NDArray[Any], count: int, rng: np.random.Generator
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
    order = np.arange(len(sequences) // task.per_row)
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


def _write_texts(folder: Path, sources: Sources) -> None:
    """Write the sentences to encode, one a line, a running text, and pairs with their scores."""
    rng = np.random.default_rng(sources.seed)
    if sources.data_dir is None:
        sentences = list(islice(_draw_sentences(rng), sources.sentences))
    else:
        rows = [row for file in FILES.values() for row in read_labelled(sources.data_dir, *file)]
        texts = list(dict.fromkeys(" ".join(text.split()) for _, row in rows for text in row))
        chosen = rng.permutation(len(texts))[: sources.sentences]
        sentences = [texts[place] for place in chosen]
        pairs = read_labelled(sources.data_dir, "sts-dev.csv", *FILES["sts"][1:])
        (folder / "sts.json").write_text(json.dumps(pairs), encoding="utf-8")
    (folder / "sentences.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    size = 0
    lines = _draw_sentences(rng)
    with (folder / "corpus.txt").open("w", encoding="utf-8") as file:
        while size < 1000 * sources.kilobytes:
            document = [
                line.capitalize() + ".\n" for line in islice(lines, int(rng.integers(5, 40)))
            ]
            size += file.write("".join(document) + "\n")


def _draw_sentences(rng: np.random.Generator) -> Iterator[str]:
    """Draw sentences of invented words, whose frequencies follow Zipf's law."""
    words = np.array(make_words(VOCABULARY - FIRST_WORD), dtype=object)
    shares = 1 / np.arange(1, len(words) + 1)
    shares /= shares.sum()
    while True:
        lengths = rng.lognormal(np.log(19), 0.5, 1000).clip(3, 80).astype(int)
        drawn = np.split(rng.choice(words, lengths.sum(), p=shares), lengths.cumsum()[:-1])
        yield from (" ".join(sentence) for sentence in drawn)


def _write_model(folder: Path, size: str, sources: Sources, tokenizer: Any) -> None:
    """Save an encoder with its tokenizer: random weights with all pre-training heads, or a copy."""
    model: Any
    if size == ENCODER:
        # without what others stored in its folder
        model = BertModel.from_pretrained(sources.encoder)
        tokenizer = AutoTokenizer.from_pretrained(sources.encoder)
    else:
        torch.manual_seed(sources.seed)
        shape, kind = SIZES[size.partition("-")[0]], size.partition("-")[2]
        shape = {"intermediate_size": 4 * shape["hidden_size"], **shape, **KINDS.get(kind, {})}
        if not kind:
            model = BertForPreTraining(BertConfig(**shape))
        else:
            if kind == "modernbert":  # gated
                shape["intermediate_size"] = 3 * shape["hidden_size"] // 2
            model = AutoModelForMaskedLM.from_config(CONFIG_MAPPING[kind](**shape))
            tokenizer = BertTokenizer(
                vocab=tokenizer.get_vocab(),
                # rows are the same for all types; this token is in none of them
                pad_token=tokenizer.convert_ids_to_tokens(model.config.pad_token_id),
                model_input_names=["input_ids", "attention_mask"],
            )
    tokenizer.model_max_length = 512
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
