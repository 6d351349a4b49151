"""An epoch of SST, and the accuracy of what was trained: heads of ``predict``, and quality."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer, BertForSequenceClassification

from benchmarks.block import be_quiet
from benchmarks.peers import Job, Probe, make_peer
from benchmarks.peers.common import CLASSES

from .plain import load_pipeline
from .quality import measure_quality

EPOCH = "epoch"  # folder of the batches of an epoch


def train_epoch(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Train a peer for an epoch, and evaluate its weights in float32.

    Args:
        spec: ``job``, ``peer`` and ``save``: whether to keep the model for ``predict``.

    Returns:
        ``quality``, the accuracy on SST dev in percent.
    """
    be_quiet()
    job = Job(**dict(spec["job"]) | {"folder": Path(spec["job"]["folder"])})
    torch.manual_seed(spec["seed"])
    runner: Any = make_peer(spec["peer"], job)
    runner.train(Probe())
    folder = job.folder / "trained"
    model = to_bert(runner.parameters(), job)
    save_both(model, runner.model, folder / "models", job)
    rows = job.folder.parent / "sst_dev.json"
    record: dict[str, Any] = {}
    if rows.exists():
        shutil.copy(rows, folder)
        apply = load_pipeline(folder, "float32", spec["threads"])
        record = dict(measure_quality("predict", apply, folder, spec["peer"]))
    if spec["save"]:
        for name in ("sst", "sst-bert"):
            target = job.folder.parent / "models" / name
            shutil.copytree(folder / "models" / name, target, dirs_exist_ok=True)
    return record


def to_bert(parameters: Mapping[str, torch.Tensor], job: Job) -> BertForSequenceClassification:
    """Copy weights with BERT's names into transformers' class.

    Raises:
        ValueError: If one is missing.
    """
    model: Any = BertForSequenceClassification.from_pretrained(job.model_dir, num_labels=CLASSES)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name not in parameters:
                raise ValueError(f"the trained model has no {name}")
            parameter.copy_(parameters[name])
    return model


def save_both(bert: Any, own: Any, folder: Path, job: Job) -> None:
    """Save the model for transformers and, of minBERT, also its own, with the tokenizer."""
    tokenizer: Any = AutoTokenizer.from_pretrained(job.model_dir)
    for model, name in ((bert, "sst-bert"), (own, "sst")):
        shutil.rmtree(folder / name, ignore_errors=True)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
