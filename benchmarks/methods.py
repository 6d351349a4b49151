"""The cost of each training method beside the plain step.

All train on the same three tasks in turn, in equal batches of rows of one length, so that equal
steps are equal work for the plain way.
"""

import tempfile
from collections.abc import Mapping
from itertools import count
from typing import Any, cast

import numpy as np
from datasets import Dataset
from transformers import PrinterCallback, set_seed

from modeling_minbert import MinBertForMultiTask
from trainers import (
    FastTrainingArguments,
    MethodArguments,
    MultiTaskTrainer,
    ProblemType,
    Task,
    TaskSampling,
    add_lora,
)

from .block import Job, Meter
from .training import Probe, ProbeCallback
from .workloads import FIRST_WORD, VOCABULARY

SEPARATE = {"pair_encoding": "separate", "head": "cosine"}
RANKING = {"quora": SEPARATE | {"loss": "multiple_negatives_ranking"}, "sts": SEPARATE}
# name -> keys of a recipe, and `heads`: changes of heads, by task
METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "R-Drop": {"r_drop": 1.0},
    "autocast": {"bf16": True},
    "half the layers frozen": {"freeze_layers": True},
    "LoRA": {"lora": {"r": 8}},
    "tasks drawn": {"task_sampling": "proportional"},
    "pairs separate": {"heads": {"quora": SEPARATE, "sts": SEPARATE}},
    "multiple negatives ranking": {"heads": RANKING},
    "CoSENT": {"heads": {"quora": SEPARATE, "sts": SEPARATE | {"loss": "cosent"}}},
    "SimCSE": {"heads": {"sst": {"problem_type": "contrastive", "num_sentences": 1}}},
}
# task -> its head and tokens per row, about the means of SST, Quora and STS with joint pairs
TASKS: dict[str, tuple[dict[str, Any], int]] = {
    "sst": ({"problem_type": "classification", "labels": list("01234")}, 25),
    "quora": ({"problem_type": "paraphrase"}, 29),
    "sts": ({"problem_type": "similarity", "score_range": [0, 5]}, 27),
}
ROWS = 32  # per batch


def train(job: Job, meter: Meter) -> dict[str, Any]:
    """Train with a method; a unit is a turn of all three tasks."""
    set_seed(job.seed)
    keys = dict(METHODS[job.name.peer])
    changes = keys.pop("heads", {})
    heads = {}
    for task, (head, _) in TASKS.items():
        change = changes.get(task, {})
        heads[task] = change if "problem_type" in change else head | change
    model: Any = MinBertForMultiTask.from_pretrained(job.model_dir, tasks=heads)
    if "freeze_layers" in keys:
        keys["freeze_layers"] = model.config.num_hidden_layers // 2
    if lora := keys.pop("lora", None):
        add_lora(model, lora, trained=("heads.", "cls."))
    sampling = TaskSampling(keys.pop("task_sampling", "round_robin"))
    turns = job.warmup + job.units
    arguments = FastTrainingArguments(
        output_dir=tempfile.gettempdir(), max_steps=turns * len(TASKS), use_cpu=job.device == "cpu",
        per_device_train_batch_size=ROWS, save_strategy="no", disable_tqdm=True,
        learning_rate=2e-5, report_to="none", logging_strategy="no", bf16=keys.pop("bf16", False),
    )  # fmt: skip
    tasks = [
        Task(name, cast("ProblemType", head["problem_type"]), make_rows(name, head, ROWS * turns))
        for name, head in heads.items()
    ]
    trainer = MultiTaskTrainer(
        model, arguments, tasks, sampling=sampling,
        methods=MethodArguments(**keys).make_methods(),
    )  # fmt: skip
    steps = count(1)

    class TurnTimer(Probe):
        def on_step(self) -> None:
            if next(steps) % len(TASKS) == 0:
                meter.unit(ROWS * len(TASKS))

    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(ProbeCallback(TurnTimer()))
    meter.ready()
    trainer.train()
    return {}


def make_rows(task: str, head: Mapping[str, Any], rows: int) -> Dataset:
    """Draw rows of equal length; each sentence of a separate pair has half of it."""
    length, kind = TASKS[task][1], head["problem_type"]
    rng = np.random.default_rng(list(TASKS).index(task))
    shape: tuple[int, ...] = (rows, length)
    if head.get("pair_encoding") == "separate":
        shape = (rows, 2, -(-length // 2))
    elif kind == "contrastive":
        shape = (rows, 1, length)
    ids = rng.integers(FIRST_WORD, VOCABULARY, shape)
    columns = {"input_ids": ids.tolist(), "token_type_ids": np.zeros_like(ids).tolist()}
    if kind != "contrastive":
        labels = rng.integers(0, 5 if kind == "classification" else 2, rows)
        dtype = np.int64 if kind == "classification" else np.float32
        columns["labels"] = labels.astype(dtype).tolist()
    return Dataset.from_dict(columns)
