"""Measure the data pipeline of pre-training: memory by size of the text, and rows per second.

    python benchmarks/run_pipeline.py                      # 50 and 500 MB; benchmarks/PIPELINE.md
    python benchmarks/run_pipeline.py --megabytes 5 --seconds 1    # smoke test

The text is random: words of an invented language with frequencies by Zipf's law.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import datasets  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402
from transformers import BertTokenizer, DataCollatorForLanguageModeling  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from datasets_scripts import (  # noqa: E402
    CorpusData,
    corpus_texts,
    encode_corpus,
    make_text_rows,
    train_wordpiece,
)
from trainers import Masking, TaskBatchSampler, TaskCollator, TaskDataset  # noqa: E402
from trainers.data.masking import TextTask  # noqa: E402

WORDS = 30_000
VOCABULARY = 8_000
MAX_LENGTH = 128
BATCH = 256
SYLLABLES = [first + vowel for first in "bcdfghjklmnprstvz" for vowel in "aeiou"]


def write_corpus(path: Path, megabytes: int) -> None:
    """Write documents of 5 to 40 sentences, separated by blank lines."""
    rng = np.random.default_rng(0)
    words = np.array(
        ["".join(rng.choice(SYLLABLES, rng.integers(1, 5))) for _ in range(WORDS)], dtype=object
    )
    shares = 1 / np.arange(1, WORDS + 1)
    shares /= shares.sum()
    size = 0
    with path.open("w", encoding="utf-8") as file:
        while size < megabytes * 1_000_000:
            lines = []
            drawn = iter(rng.choice(words, 40 * 40 * 25, p=shares))
            for _ in range(40):
                for _ in range(rng.integers(5, 40)):
                    sentence = " ".join(next(drawn) for _ in range(rng.integers(5, 30)))
                    lines.append(f"{sentence.capitalize()}.\n")
                lines.append("\n")
            size += file.write("".join(lines))


class MemoryWatch:
    """Peak memory of this process, without and with mapped files, in MiB."""

    def __init__(self) -> None:
        self.own = self.whole = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            status = Path("/proc/self/status").read_text()
            fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            self.own = max(self.own, int(fields["RssAnon"].split()[0]) / 1024)
            self.whole = max(self.whole, int(fields["VmRSS"].split()[0]) / 1024)

    def end(self) -> dict[str, float]:
        """Stop watching."""
        self._ended.set()
        self._thread.join()
        return {"own_mib": self.own, "whole_mib": self.whole}


def measure_corpus(file: Path, folder: Path) -> dict[str, Any]:
    """Tokenize a text, plan an epoch of segment pairs, and read all its rows once.

    Returns:
        Seconds of each, counts, and the memory at its peak.
    """
    datasets.disable_progress_bars()
    data = [CorpusData.from_recipe("drawn", {"train_file": str(file), "sentences": "line"})]
    tokenizer = BertTokenizer.from_pretrained(folder / "tokenizer")
    watch = MemoryWatch()
    start = time.perf_counter()
    encoded = encode_corpus(data, tokenizer, cache_dir=folder / f"cache-{file.stem}")
    tokenized = time.perf_counter()
    rows = make_text_rows(
        encoded.splits["train"], tokenizer, packing="segment_pairs", max_length=MAX_LENGTH,
        seed=0, name="drawn",
    )  # fmt: skip
    facts = rows.describe()
    planned = time.perf_counter()
    for batch in make_loader(rows, tokenizer, workers=0):
        assert batch["input_ids"].numel()  # noqa: S101
    read = time.perf_counter()
    return {
        "megabytes": file.stat().st_size / 1e6,
        "rows": len(rows),
        "tokens": facts["tokens"],
        "tokenize": tokenized - start,
        "plan": planned - tokenized,
        "read": read - planned,
        **watch.end(),
    }


def make_loader(rows: Any, tokenizer: Any, workers: int) -> DataLoader[Any]:
    """Load one epoch of masked, packed batches, as the trainer does."""
    sampler = TaskBatchSampler(
        {"text": len(rows)}, {"text": BATCH}, steps_per_epoch="longest", changing=["text"]
    )
    texts = {"text": TextTask(Masking.from_tokenizer(tokenizer), is_paired=True)}
    collator = TaskCollator(tokenizer.pad_token_id, packed=True, texts=texts)
    return DataLoader(
        TaskDataset({"text": rows}),
        batch_sampler=sampler,
        collate_fn=collator,
        num_workers=workers,
    )


def measure_speed(file: Path, folder: Path, seconds: float, rounds: int) -> dict[str, list[float]]:
    """Measure rows per second of loaders, in turn in every round."""
    datasets.disable_progress_bars()
    data = [CorpusData.from_recipe("drawn", {"train_file": str(file), "sentences": "line"})]
    tokenizer = BertTokenizer.from_pretrained(folder / "tokenizer")
    encoded = encode_corpus(data, tokenizer, cache_dir=folder / f"cache-{file.stem}")
    rows = make_text_rows(
        encoded.splits["train"], tokenizer, packing="segment_pairs", max_length=MAX_LENGTH,
        seed=0, name="drawn",
    )  # fmt: skip
    loaders: dict[str, Callable[[], Iterator[int]]] = {
        f"minbert, {workers} workers": partial(load_own, rows, tokenizer, workers)
        for workers in (0, 1, 2)
    }
    loaders["DataCollatorForLanguageModeling"] = partial(load_stock, rows, tokenizer)
    found: dict[str, list[float]] = {name: [] for name in loaders}
    for number in range(rounds):
        for name in list(loaders)[:: 1 if number % 2 == 0 else -1]:
            found[name].append(count_rows(loaders[name](), seconds))
    return found


def load_own(rows: Any, tokenizer: Any, workers: int) -> Iterator[int]:
    """Count the rows of our batches."""
    for batch in make_loader(rows, tokenizer, workers):
        yield len(batch["cu_seq_lens_q"]) - 1


def load_stock(rows: Any, tokenizer: Any) -> Iterator[int]:
    """Collate rows that are already cut with transformers' collator, as run_mlm does."""
    part = rows.read(0, np.arange(min(len(rows), 20 * BATCH)))
    ends = part["lengths"].cumsum()[:-1]
    ids = [list(map(int, row)) for row in np.split(part["input_ids"], ends)]
    table = datasets.Dataset.from_dict({"input_ids": ids})
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    while True:
        for batch in DataLoader(table, batch_size=BATCH, shuffle=True, collate_fn=collator):
            yield len(batch["input_ids"])


def count_rows(counts: Iterator[int], seconds: float) -> float:
    """Return rows per second, after the first batch."""
    next(counts)
    start, rows = time.perf_counter(), 0
    for count in counts:
        rows += count
        if time.perf_counter() - start > seconds:
            break
    return rows / (time.perf_counter() - start)


def run_part(part: str, *arguments: Any) -> Any:
    """Run a function of this file in its own process."""
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    done = subprocess.run(  # noqa: S603  (this file)
        [sys.executable, __file__, "--part", json.dumps([part, *map(str, arguments)])],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    return json.loads(done.stdout.splitlines()[-1])


def do_part(part: str, file: str, folder: str, *numbers: str) -> None:
    """Run a part, and print its result."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if part == "corpus":
        print(json.dumps(measure_corpus(Path(file), Path(folder))))
        return
    seconds, rounds = float(numbers[0]), int(numbers[1])
    print(json.dumps(measure_speed(Path(file), Path(folder), seconds, rounds)))


def describe(memory: list[dict[str, Any]], speed: dict[str, list[float]], command: str) -> str:
    """Write the tables."""
    machine = describe_machine()
    versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
    lines = [
        "# Pre-training data pipeline",
        "",
        f"Written by `{command}` on {datetime.now(UTC).date().isoformat()}.",
        "",
        f"- Machine: {machine['cpu']}, {machine['cores']} threads; {machine['system']}",
        f"- Versions: {versions}",
        "",
        "## Memory and time by text size",
        "",
        "| text | tokens | rows | tokenize | plan | read, mask | own memory | with mapped files |",
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {each['megabytes']:,.0f} MB | {each['tokens']:,} | {each['rows']:,} "
        f"| {each['tokenize']:.1f} s | {each['plan']:.1f} s | {each['read']:.1f} s "
        f"| {each['own_mib']:,.0f} MiB | {each['whole_mib']:,.0f} MiB |"
        for each in memory
    ]
    lines += [
        "",
        'One process. "With mapped files" includes the memory-mapped files of the tokenized text,',
        "which the system drops when it needs their memory. A plan lists the rows of an epoch; it",
        "is rebuilt for each.",
        "",
        f"## Masked and collated rows (up to {MAX_LENGTH} tokens) per second",
        "",
        "| loader | rows/s, median | minimum | maximum |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, rates in speed.items():
        median = float(np.median(rates))
        lines.append(f"| {name} | {median:,.0f} | {min(rates):,.0f} | {max(rates):,.0f} |")
    lines += [
        "",
        "Segment pairs from the tokenized text, packed, without padding. transformers' collator",
        "gets rows that are already split. One thread per process, so workers share the cores.",
    ]
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and write the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", default="50,500", help="sizes of the texts")
    parser.add_argument("--seconds", type=float, default=5.0, help="of each loader and round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, default=ROOT / "benchmarks" / "PIPELINE.md")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    if args.part:
        do_part(*json.loads(args.part))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = []
        for megabytes in map(int, args.megabytes.split(",")):
            files.append(folder / f"{megabytes}.txt")
            write_corpus(files[-1], megabytes)
        data = CorpusData.from_recipe("drawn", {"train_file": str(files[0]), "sentences": "line"})
        train_wordpiece(corpus_texts([data]), VOCABULARY).save_pretrained(folder / "tokenizer")
        memory = [run_part("corpus", file, folder) for file in files]
        speed = run_part("speed", files[0], folder, args.seconds, args.rounds)
    words = " ".join(["python", "benchmarks/run_pipeline.py", *(argv or sys.argv[1:])])
    args.output.write_text(describe(memory, speed, words), encoding="utf-8")
    print(f"wrote {args.output}")


if __name__ == "__main__":
    main()
