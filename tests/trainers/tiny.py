"""A tiny model with three tasks, encoded rows for it, and a trainer. No tokenizer, no files."""

from dataclasses import replace
from functools import cache

import datasets
import numpy as np
import torch
from torch.testing import assert_close
from transformers import TrainerCallback, TrainingArguments

from modeling_minbert import MinBertConfig, MinBertForMultiTask
from trainers import (
    MethodArguments,
    MultiTaskTrainer,
    Task,
    TaskCollator,
    TaskDataset,
    TaskTraining,
)

PROBLEM_TYPES = {"moods": "classification", "pairs": "paraphrase", "scores": "similarity"}
SIZES = {"moods": 40, "pairs": 100, "scores": 30}
VOCABULARY = 23


def make_config(tasks, dropout=0.0, layers=2, hidden_size=12):
    return MinBertConfig(
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=3,
        intermediate_size=29,
        max_position_embeddings=17,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        tasks=tasks,
    )


def make_model(dropout=0.0, layers=2, seed=0, **sizes):
    """Make a model; with the seed None its weights follow from the state of torch."""
    if seed is not None:
        torch.manual_seed(seed)
    tasks = {
        "moods": {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
        "pairs": {"problem_type": "paraphrase"},
        "scores": {
            "problem_type": "similarity",
            "score_range": [0, 5],
            "pair_encoding": "separate",
            "head": "concat",
        },
    }
    config = make_config(
        {name: {**task, "dropout": dropout} for name, task in tasks.items()},
        dropout,
        layers,
        **sizes,
    )
    return MinBertForMultiTask(config)


@cache
def make_rows(task, count, seed=0):
    """Encoded rows of a task, as the loaders give them, with columns that training leaves out."""
    generator = np.random.default_rng((seed, count))
    lengths = generator.integers(3, 12, size=count).tolist()
    ids = [generator.integers(1, VOCABULARY, size=length).tolist() for length in lengths]
    types = [[0] * length for length in lengths]
    if task == "scores":
        shorter = [generator.integers(1, VOCABULARY, size=3).tolist() for _ in lengths]
        ids = [list(pair) for pair in zip(ids, shorter, strict=True)]
        types = [[[0] * len(sequence) for sequence in pair] for pair in ids]
    labels = {
        "moods": generator.integers(0, 3, size=count).tolist(),
        "pairs": generator.integers(0, 2, size=count).astype(float).tolist(),
        "scores": generator.uniform(0, 5, size=count).tolist(),
    }[task]
    columns = {"input_ids": ids, "token_type_ids": types, "labels": labels, "length": lengths}
    names = [f"{task}-{row}" for row in range(count)]
    return datasets.Dataset.from_dict({"id": names, **columns})


def make_tasks(**training):
    """The tasks, with fields of their ``TaskTraining`` by name."""
    return [
        Task(
            name,
            PROBLEM_TYPES[name],
            make_rows(name, size),
            make_rows(name, 11, seed=1),
            TaskTraining(**training.get(name, {})),
        )
        for name, size in SIZES.items()
    ]


def change_task(name, **changes):
    """The tasks, one of them with other fields."""
    return [replace(task, **changes) if task.name == name else task for task in make_tasks()]


def make_trainer(output_dir, *, dropout=0.0, model=None, callbacks=None, own=None, **arguments):
    """Build a trainer; ``own`` are arguments of ours, ``methods`` also as keys of a recipe."""
    defaults = {
        "output_dir": str(output_dir),
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "learning_rate": 0.01,
        "num_train_epochs": 2,
    }
    own = {"tasks": make_tasks()} | (own or {})
    if isinstance(own.get("methods"), dict):  # methods have a state: every trainer has its own
        own["methods"] = MethodArguments(**own["methods"]).make_methods()
    return MultiTaskTrainer(
        make_model(dropout) if model is None else model,
        TrainingArguments(**(defaults | arguments)),
        callbacks=callbacks,
        **own,
    )


def collate(task, rows, indices=None, *, padding=0, **options):
    """Make a batch of some rows of a task, a dataset or a list of dictionaries."""
    if isinstance(rows, list):
        rows = datasets.Dataset.from_list(rows)
    indices = range(len(rows)) if indices is None else indices
    return TaskCollator(padding, **options)(TaskDataset({task: rows}).__getitems__(list(indices)))


class Spy(TrainerCallback):
    """Note the gradients of every optimizer step."""

    def __init__(self):
        self.gradients = []

    def on_pre_optimizer_step(self, *_, model, **__):
        self.gradients.append(
            {
                name: parameter.grad.clone()
                for name, parameter in model.named_parameters()
                if parameter.grad is not None
            }
        )


def weights(trainer):
    """Copy the weights of a trainer's model."""
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_resumes(build, checkpoint):
    """Check that a run continues from a checkpoint of the same run, bit for bit.

    `build` makes the trainer, which writes that checkpoint.
    """
    whole = build()
    whole.train()
    resumed = build()
    with torch.no_grad():
        for value in resumed.model.parameters():
            value.add_(1.0)  # unrestored values would show
    resumed.train(resume_from_checkpoint=str(checkpoint))

    assert_close(resumed.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)
