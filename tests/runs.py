"""Runs of our programs on a few rows, in processes that can be killed at a chosen moment.

A fork server imports the programs once; each process of a run is a fork of it that calls ``main``.
"""

import importlib
import json
import multiprocessing
import os
import random
import signal
import socket
import sys
import time
from dataclasses import dataclass

TIMEOUT = 240  # seconds; a run takes about one
WORDS = [
    *("ant", "bee", "cow", "dog", "elk", "fox", "gnu"),
    *("hen", "ibex", "jay", "kite", "mole", "yak"),
]
# Rows for training, validation and test: odd, and no multiples of a batch.
ROWS = {"moods": (23, 7, 4), "pairs": (37, 9, 5), "scores": (19, 5, 3)}
TASKS = {
    "moods": {
        "problem_type": "classification",
        "labels": ["bad", "so-so", "good"],
        "text_columns": ["text"],
        "pooling": "mean",
    },
    "pairs": {
        "problem_type": "paraphrase",
        "text_columns": ["text", "other"],
        "pair_encoding": "joint",
        "loss_weight": 0.5,
    },
    "scores": {
        "problem_type": "similarity",
        "score_range": [0, 5],
        "text_columns": ["text", "other"],
        "pair_encoding": "separate",
        "head": "concat",
    },
}
BATCH_SIZES = {"moods": 4, "pairs": 6, "scores": 4}  # of all processes together
SIZES = {
    "vocab_size": 120,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 32,
}


@dataclass(frozen=True)
class Moment:
    """When the first process is killed.

    ``step``: while it computes this optimizer step. ``event`` and ``path``: when Python is about to
    do this (an audit event) to a path with this ending. ``signal`` is what it gets.
    """

    step: int | None = None
    event: str | None = None
    path: str = ""
    signal: int = signal.SIGKILL


def write_task(folder, task, splits=("train", "validation", "test")):
    """Write the files of a task and return its keys of a recipe."""
    rng = random.Random(task)
    keys = dict(TASKS[task])
    columns = keys["text_columns"]
    labels = {
        "moods": lambda: rng.choice(keys["labels"]),
        "pairs": lambda: rng.randrange(2),
        "scores": lambda: round(rng.uniform(0, 5), 1),
    }
    for split, count in zip(splits, ROWS[task], strict=True):
        lines = ["\t".join([*columns, *(["label"] if split != "test" else [])])]
        for _ in range(count):
            cells = [" ".join(rng.choices(WORDS, k=rng.randint(2, 8))) for _ in columns]
            lines.append("\t".join([*cells, *([str(labels[task]())] if split != "test" else [])]))
        path = folder / f"{task}-{split}.tsv"
        path.write_text("\n".join(lines) + "\n")
        keys[f"{split}_file"] = str(path)
    return keys | {"label_column": "label"}


def write_recipe(folder, *, processes=1, dropout=0.1, model=None, **settings):
    """Write a recipe of three tasks; ``model`` is a checkpoint to begin with."""
    tasks = {}
    for task in TASKS:
        batch = {"batch_size": BATCH_SIZES[task] // processes, "dropout": dropout}
        tasks[task] = write_task(folder, task) | batch
    recipe = {
        "tasks": tasks,
        "max_length": SIZES["max_position_embeddings"],
        "use_cpu": True,
        "bf16": False,  # the same numbers on every processor
        "disable_tqdm": True,
        "seed": 7,
        "steps_per_epoch": 6,
        "num_train_epochs": 3,
        "learning_rate": 0.002,
        "warmup_steps": 2,
        "logging_steps": 1,
        "save_steps": 2,
        "per_device_eval_batch_size": 4,
    }
    if model is None:
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        recipe["model_config"] = SIZES | rates
    else:
        recipe["model_name_or_path"] = str(model)
    path = folder / f"recipe-{processes}.yaml"
    path.write_text(json.dumps(recipe | settings, indent=2))
    return path


def write_text(folder, documents=30):
    """Write documents, parted by blank lines, of a sentence on each line."""
    rng = random.Random(documents)
    lines = []
    for _ in range(documents):
        words = rng.sample(WORDS, 4)  # a document has its own
        count = rng.randint(3, 7)
        lines += [" ".join(rng.choices(words, k=rng.randint(2, 6))) + " ." for _ in range(count)]
        lines.append("")
    path = folder / f"text-{documents}.txt"
    path.write_text("\n".join(lines))
    return {"train_file": str(path), "sentences": "line", "validation_share": 0.2}


def write_pretraining(folder, *, processes=1, dropout=0.1, model=None, **settings):
    """Write a recipe of pretrain.py; ``model`` is a checkpoint to begin with."""
    recipe = {
        "corpus": {"own": write_text(folder)},
        "objective": "mlm_nsp",
        "max_length": SIZES["max_position_embeddings"],
        "use_cpu": True,
        "bf16": False,  # the same numbers on every processor
        "disable_tqdm": True,
        "report_to": "none",
        "seed": 7,
        "max_steps": 9,
        "learning_rate": 0.002,
        "warmup_steps": 2,
        "logging_steps": 1,
        "save_steps": 2,
        "per_device_train_batch_size": 8 // processes,
        "per_device_eval_batch_size": 4,
    }
    if model is None:
        recipe |= {"train_tokenizer": True, "vocab_size": SIZES["vocab_size"], "dropout": dropout}
        recipe["model_config"] = {key: SIZES[key] for key in SIZES if key != "vocab_size"}
    else:
        recipe["model_name_or_path"] = str(model)
    path = folder / f"pretraining-{processes}.yaml"
    path.write_text(json.dumps(recipe | settings, indent=2))
    return path


def finetune(recipe, output_dir, *flags, processes=1, moment=None):
    """Run finetune.py, or pretrain.py with the recipe of one.

    Returns:
        The exit status of the first process, negative for a signal. What every process did is in
        the files ``rank-<rank>.log`` and ``rank-<rank>.jsonl`` beside the output folder.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["minbert_cli.finetune"])
    program = "pretrain" if recipe.stem.startswith("pretraining") else "finetune"
    argv = [str(recipe), "--output_dir", str(output_dir), *flags]
    port = free_port()
    ranks = [
        context.Process(
            target=run_rank, args=(program, argv, output_dir.parent, rank, processes, port, moment)
        )
        for rank in range(processes)
    ]
    for rank in ranks:
        rank.start()
    deadline = time.monotonic() + TIMEOUT
    try:
        for rank in ranks:
            rank.join(max(0, deadline - time.monotonic()))
            if rank.exitcode != 0:
                break  # `kill -9` of a run ends all its processes
        return ranks[0].exitcode if ranks[0].exitcode != 0 else rank.exitcode
    finally:
        for rank in ranks:
            rank.kill()
            rank.join()


def free_port():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


def run_rank(program, argv, folder, rank, processes, port, moment):
    """Be one process of a run."""
    os.chdir(folder)
    log = os.open(f"rank-{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    if processes > 1:
        os.environ |= {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(processes),
            "LOCAL_WORLD_SIZE": str(processes),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }
    # else a worker of a data loader is a child of another fork server and survives the kill
    multiprocessing.set_start_method("fork", force=True)
    watch(folder / f"rank-{rank}.jsonl", moment if rank == 0 else None)
    importlib.import_module(f"minbert_cli.{program}").main(argv)
    if processes > 1:
        import torch

        torch.distributed.barrier()  # destroying a group while another process works can abort
        torch.distributed.destroy_process_group()


def watch(path, moment):
    """Write down the task and rows of every training batch, and kill this process when asked."""
    import transformers

    batches = path.open("w")
    moment = moment or Moment()

    def note(model, _, inputs):
        # without labels a regulariser looks at the same rows again
        if model.training and "labels" in inputs:
            seen = [inputs.get("task", "text"), len(inputs["labels"])]
            print(json.dumps(seen), file=batches, flush=True)

    class Watch(transformers.TrainerCallback):
        def on_train_begin(self, *_, model, **__):
            model.register_forward_pre_hook(note, with_kwargs=True)

        def on_pre_optimizer_step(self, _, state, *__, **___):
            if state.global_step + 1 == moment.step:
                os.kill(os.getpid(), moment.signal)

    def audit(event, arguments):
        if event == moment.event and str(arguments[0]).endswith(moment.path):
            os.kill(os.getpid(), moment.signal)

    transformers.trainer.DEFAULT_CALLBACKS.append(Watch)
    sys.addaudithook(audit)


def read_batches(folder, rank=0):
    """Task and rows of every batch that a process trained on."""
    lines = (folder / f"rank-{rank}.jsonl").read_text().splitlines()
    return [tuple(json.loads(line)) for line in lines]


def read_log(output_dir):
    """Return the logs of the last checkpoint, without times."""
    log = read_state(output_dir)["log_history"]
    timed = ("_runtime", "_per_second")
    return [{key: entry[key] for key in entry if not key.endswith(timed)} for entry in log]


def read_state(output_dir):
    return json.loads((checkpoints(output_dir)[-1] / "trainer_state.json").read_text())


def checkpoints(output_dir):
    """The checkpoints of a run, by step."""
    return sorted(output_dir.glob("checkpoint-*"), key=lambda path: int(path.name.split("-")[1]))


def read_output(output_dir, rank=0):
    """The output of a process."""
    return (output_dir.parent / f"rank-{rank}.log").read_text()
