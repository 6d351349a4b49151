"""Programs around the model: their start, and the corpus of pre-training."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import datasets
import numpy as np
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, BertTokenizer, DataCollatorForLanguageModeling

from datasets_scripts import CorpusData, TextRows, encode_corpus
from modeling_minbert import MinBertForMultiTask
from trainers import FastTrainingArguments, Masking, MultiTaskTrainer, Task

from .block import Job, Meter
from .inference import TASK, find_classifier, save_classifiers
from .workloads import ROOT

MAX_LENGTH = 128
BATCH = 256
SENTENCE = "the acting is brilliant and the ending is superb"
FROM_TRANSFORMERS = """\
from transformers import pipeline
print(pipeline("text-classification", {folder!r}, device="cpu")({sentence!r}))
"""
FROM_MINBERT = """\
from transformers import AutoTokenizer
from modeling_minbert import MinBertForMultiTask
model = MinBertForMultiTask.from_pretrained({folder!r}).eval()
model.tokenizer = AutoTokenizer.from_pretrained({folder!r})
print(model.predict({task!r}, [{sentence!r}]))
"""


def start(job: Job, meter: Meter) -> dict[str, Any]:
    """Start a process that classifies one sentence (or shows the help); a unit is a process."""
    save_classifiers(job)
    own, plain = (str(find_classifier(job, kind)) for kind in ("minbert", "bert"))
    if job.name.peer == "transformers":
        arguments = ["-c", FROM_TRANSFORMERS.format(folder=plain, sentence=SENTENCE)]
    elif job.name.peer == "minbert":
        arguments = ["-c", FROM_MINBERT.format(folder=own, sentence=SENTENCE, task=TASK)]
    elif job.name.peer == "minbert predict":
        arguments = ["-m", "minbert_cli", "predict", own, "--task", TASK, SENTENCE]
    else:
        arguments = ["-m", "minbert_cli", "--help"]
    meter.ready()
    for _ in range(job.warmup + job.units):
        subprocess.run(  # noqa: S603
            [sys.executable, *arguments], cwd=ROOT, check=True, capture_output=True
        )
        meter.unit(1)
    # memory of this process says nothing about those
    meter.extra |= {"peak_mib": None, "added_mib": None}
    return {}


def build_with_minbert(job: Job, meter: Meter) -> dict[str, Any]:
    """Tokenize a text and plan an epoch of full sentences; a unit is the whole text."""
    meter.ready()
    with tempfile.TemporaryDirectory() as cache:
        rows, _ = _make_rows(job, cache, "full_sentences")
        meter.unit(_kilobytes(job))
        meter.extra["rows"] = len(rows)
    return {}


def build_with_datasets(job: Job, meter: Meter) -> dict[str, Any]:
    """The way of transformers' ``run_mlm.py``: map to tokens, then concatenate and cut."""
    datasets.disable_progress_bars()
    tokenizer: Any = AutoTokenizer.from_pretrained(job.model_dir)
    room = MAX_LENGTH - 2

    def tokenize(batch: Any) -> Any:
        return {"input_ids": tokenizer(batch["text"], add_special_tokens=False)["input_ids"]}

    def cut(batch: Any) -> Any:
        ids = [token for row in batch["input_ids"] for token in row]
        starts = range(0, len(ids) - room + 1, room)
        return {"input_ids": [ids[start : start + room] for start in starts]}

    meter.ready()
    with tempfile.TemporaryDirectory() as cache:
        text: Any = datasets.load_dataset(
            "text", data_files=str(job.folder / "corpus.txt"), split="train", cache_dir=cache
        )
        tokens = text.map(tokenize, batched=True, remove_columns=["text"])
        rows = tokens.map(cut, batched=True)
        meter.unit(_kilobytes(job))
        meter.extra["rows"] = len(rows)
    return {}


def read_with_minbert(job: Job, meter: Meter) -> dict[str, Any]:
    """Read masked, packed batches of segment pairs as the trainer does."""
    spec = {"text": {"problem_type": "pretraining"}}
    model: Any = MinBertForMultiTask.from_pretrained(job.model_dir, tasks=spec)
    with tempfile.TemporaryDirectory() as folder:
        rows, tokenizer = _make_rows(job, folder, "segment_pairs")
        masking = Masking.from_tokenizer(tokenizer)
        arguments = FastTrainingArguments(
            output_dir=folder, use_cpu=True, per_device_train_batch_size=BATCH, report_to="none"
        )
        task = Task("text", "pretraining", rows, masking=masking)
        trainer = MultiTaskTrainer(model, arguments, [task])
        meter.ready()
        _read(job, meter, lambda: iter(trainer.get_train_dataloader()), "cu_seq_lens_q")
    return {}


def read_with_transformers(job: Job, meter: Meter) -> dict[str, Any]:
    """Mask and pad rows that are already cut, with transformers' collator."""
    with tempfile.TemporaryDirectory() as cache:
        rows, tokenizer = _make_rows(job, cache, "segment_pairs")
        part = rows.read(0, np.arange(min(len(rows), 20 * BATCH)))
        ids = np.split(part["input_ids"], part["lengths"].cumsum()[:-1])
    table: Any = datasets.Dataset.from_dict({"input_ids": [row.tolist() for row in ids]})
    collator = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15)
    load = partial(DataLoader, table, batch_size=BATCH, shuffle=True, collate_fn=collator)
    meter.ready()
    _read(job, meter, lambda: iter(load()), "input_ids")
    return {}


def _make_rows(job: Job, cache: str, packing: Any) -> tuple[Any, BertTokenizer]:
    """Tokenize the corpus, and plan its rows."""
    datasets.disable_progress_bars()
    datasets.config.HF_DATASETS_CACHE = cache
    tokenizer = BertTokenizer.from_pretrained(job.model_dir)
    keys = {"train_file": str(job.folder / "corpus.txt"), "sentences": "line"}
    encoded = encode_corpus([CorpusData.from_recipe("drawn", keys)], tokenizer)
    rows = TextRows(
        encoded.splits["train"], tokenizer, packing=packing, max_length=MAX_LENGTH, seed=0,
        name="drawn",
    )  # fmt: skip
    return rows, tokenizer


def _read(job: Job, meter: Meter, load: Any, column: str) -> None:
    """Read batches for the wanted seconds, the first one as the warm-up; a unit is a batch."""

    def endless() -> Iterator[Any]:
        while True:
            yield from load()

    start = None
    for batch in endless():
        meter.unit(len(batch[column]) - (column == "cu_seq_lens_q"))
        start = start or time.perf_counter()
        if len(meter.items) > 1 and time.perf_counter() - start > job.seconds:
            return


def _kilobytes(job: Job) -> int:
    return Path(job.folder / "corpus.txt").stat().st_size // 1000
