"""The files that all contenders read: encoder, sentences, their lengths, rows with labels."""

import csv
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, BertConfig, BertModel

from benchmarks.workloads import SIZES, prepare

from .epoch import EPOCH

SIZE = "encoder"  # name of the model
SST_STEPS = 267  # batches of 32 in an epoch


def prepare_all(
    folder: Path, data_dir: Path | None, encoder: Path | None, *, quick: bool
) -> dict[str, Any]:
    """Write everything that does not need a contender.

    Args:
        folder: Where to.
        data_dir: Folder with real data; None draws lengths, and leaves quality out.
        encoder: Folder of a ``bert`` encoder with its tokenizer; None for random weights.
        quick: Whether to use few rows, and a tiny model if there is no encoder.

    Returns:
        How the workloads were made; see ``workloads.prepare``.

    Raises:
        ValueError: If the folder was made with another encoder.
    """
    batches, sentences = (8, 700) if quick else (64, 10_000)
    facts = prepare(folder, ["sst", "sst_grouped"], [], data_dir, batches, sentences)
    epoch = folder / EPOCH
    prepare(epoch, ["sst"], [], data_dir, 8 if quick else SST_STEPS, 300)
    _check_source(folder, encoder)
    for place in (folder, epoch):
        target = place / "models" / SIZE
        if not target.exists():
            _write_encoder(target, encoder, folder / "tokenizer", "tiny" if quick else "minilm")
    if not (folder / "lengths.json").exists():
        _write_lengths(folder)
    if data_dir is not None:
        _write_labelled(folder, data_dir)
    return facts


def _check_source(folder: Path, encoder: Path | None) -> None:
    record, name = folder / "encoder.json", json.dumps(encoder and str(encoder.resolve()))
    if record.exists() and record.read_text() != name:
        raise ValueError(f"{folder} has another encoder; delete it or give another --work_dir")
    record.write_text(name)


def _write_encoder(target: Path, encoder: Path | None, tokenizer: Path, size: str) -> None:
    """Save the plain encoder with its tokenizer, without what others stored in its folder."""
    if encoder is None:
        shape: dict[str, Any] = dict(SIZES[size])
        model = BertModel(BertConfig(intermediate_size=4 * shape["hidden_size"], **shape))
    else:
        model, tokenizer = BertModel.from_pretrained(encoder), encoder
    words: Any = AutoTokenizer.from_pretrained(tokenizer)
    words.model_max_length = model.config.max_position_embeddings
    words.save_pretrained(target)
    model.save_pretrained(target)


def _write_lengths(folder: Path) -> None:
    """Write the tokens of every sentence, special ones included."""
    sentences = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()
    tokenizer: Any = AutoTokenizer.from_pretrained(folder / "models" / SIZE)
    lengths = [len(ids) for ids in tokenizer(sentences)["input_ids"]]
    (folder / "lengths.json").write_text(json.dumps(lengths))


def _write_labelled(folder: Path, data_dir: Path) -> None:
    """Write the dev rows of STS and SST."""
    sts = [row for row in _read(data_dir, "sts-dev.csv") if row["similarity"]]
    pairs: dict[str, Any] = {"scores": [float(row["similarity"]) for row in sts]}
    for side, column in (("first", "sentence1"), ("second", "sentence2")):
        pairs[side] = [row[column] for row in sts]
    (folder / "sts.json").write_text(json.dumps(pairs))
    sst = [row for row in _read(data_dir, "ids-sst-dev.csv") if row["sentiment"]]
    rows = {
        "sentences": [row["sentence"] for row in sst],
        "labels": [int(float(row["sentiment"])) for row in sst],
    }
    (folder / "sst_dev.json").write_text(json.dumps(rows))


def _read(data_dir: Path, name: str) -> Iterable[dict[str, str]]:
    found = sorted(data_dir.rglob(name))
    if not found:
        raise ValueError(f"data_dir={data_dir} has no {name}; leave it out to measure speed alone")
    with found[0].open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream, delimiter="\t"))
