"""A recipe with three small tasks and their files; a run of it takes seconds."""

import json
import random
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import datasets
import torch
import yaml
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import BertTokenizer

from datasets_scripts import TaskData, load_task
from minbert_cli import fill_arguments, finetune, read_recipe
from minbert_cli.recipes import split_argv
from modeling_minbert import MinBertConfig, MinBertForMultiTask

GOOD, BAD = ("fine", "lovely", "warm"), ("dull", "bleak", "cold")
THINGS = ("garden", "river", "story", "window", "song")
SPLITS = {"train": 24, "dev": 9, "test": 5}
# Half of the time of a run, for tests that look at its weights or its console alone.
QUICK = {
    "eval_strategy": "no",
    "save_strategy": "no",
    "evaluate_train": False,
    "report_examples": 0,
}


def write_tsv(path, header, rows):
    """Write a tab-separated file."""
    lines = ["\t".join(map(str, row)) for row in (header, *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_jsonl(path, rows):
    """Write JSON lines; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load_rows(folder, name, content, task="own", **keys):
    """Load a task whose training and validation rows are those of one file.

    Its content is text, or bytes, or rows to be written as JSON lines.
    """
    path = folder / name
    if isinstance(content, str | bytes):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    else:
        write_jsonl(path, content)
    files = dict.fromkeys(("train_file", "validation_file"), str(path))
    return load_task(TaskData.from_recipe(task, files | keys))


def write_hub(folder, features=None, **splits):
    """Write splits, as columns, to a folder in the layout of a dataset of the Hub; returns it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for split, columns in splits.items():
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        datasets.Dataset.from_dict(columns, features).to_parquet(path)
    return str(folder)


class Row(NamedTuple):
    """A sentence, another one, and whether both adjectives are of a kind and the first is good."""

    id: str
    text: str
    other: str
    same: bool
    good: bool


def make_rows(split):
    """Make the rows of a split."""
    generator = random.Random(split)
    for number in range(SPLITS[split]):
        first, second = (generator.choice((GOOD, BAD)) for _ in "ab")
        thing = generator.choice(THINGS)
        words = generator.choice(first), generator.choice(second)
        texts = f"the {thing} is {words[0]}", f"this {thing} was {words[1]}"
        yield Row(f"{split}{number}", *texts, first is second, first is GOOD)


def write_files(folder):
    """Write moods (unlabelled test rows), pairs (no test rows) and scores (JSON lines)."""
    for split in SPLITS:
        rows = list(make_rows(split))
        moods = [(name, text, "good" if good else "bad") for name, text, _, _, good in rows]
        header = ("id", "text", "mood")
        if split == "test":
            header, moods = header[:2], [row[:2] for row in moods]
        write_tsv(folder / f"moods-{split}.tsv", header, moods)
        pairs = [(name, first, second, int(same)) for name, first, second, same, _ in rows]
        write_tsv(folder / f"pairs-{split}.tsv", ("id", "a", "b", "same"), pairs)
        scores = [
            {"id": name, "a": first, "b": second, "score": 1 + 3 * same + (number % 4) / 4}
            for number, (name, first, second, same, _) in enumerate(rows)
        ]
        write_jsonl(folder / f"scores-{split}.jsonl", scores)


def make_recipe(folder):
    """Return the recipe of the three tasks, to be changed by a test."""

    def files(name, suffix):
        keys = {"train": "train_file", "dev": "validation_file", "test": "test_file"}
        return {key: str(folder / f"{name}-{split}.{suffix}") for split, key in keys.items()}

    pairs = files("pairs", "tsv")
    del pairs["test_file"]
    return {
        "tasks": {
            "moods": {
                "problem_type": "classification",
                "text_columns": ["text"],
                "label_column": "mood",
                "pooling": "mean",
                "batch_size": 6,
                **files("moods", "tsv"),
            },
            "pairs": {
                "problem_type": "paraphrase",
                "text_columns": ["a", "b"],
                "label_column": "same",
                "loss_weight": 0.5,
                **pairs,
            },
            "scores": {
                "problem_type": "similarity",
                "text_columns": ["a", "b"],
                "label_column": "score",
                "score_range": [0, 5],
                "pair_encoding": "separate",
                **files("scores", "jsonl"),
            },
        },
        "model_config": {
            "vocab_size": 150,
            "hidden_size": 12,
            "num_hidden_layers": 2,
            "num_attention_heads": 3,
            "intermediate_size": 29,
            "max_position_embeddings": 32,
        },
        "max_length": 17,
        "output_dir": str(folder / "out"),
        "steps_per_epoch": 3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.01,
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "logging_steps": 1,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "use_cpu": True,
        "disable_tqdm": True,
        "report_to": "none",
    }


def write_recipe(folder, recipe):
    """Write a recipe; returns its path."""
    path = Path(folder) / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return str(path)


def train(*argv, program=finetune):
    """Fine-tune, or run another program; return what is printed."""
    printed = StringIO()
    with redirect_stdout(printed):
        program.main([str(word) for word in argv])
    return printed.getvalue()


def assert_resumes(recipe, output, step):
    """Check that a run goes on from one of its checkpoints to the same weights and tasks."""
    checkpoint, again = output / f"checkpoint-{step}", output.with_name("again")
    train(recipe, "--output_dir", str(again), "--resume_from_checkpoint", str(checkpoint))
    whole, resumed = (load_file(folder / "model.safetensors") for folder in (output, again))
    assert_close(resumed, whole, rtol=0, atol=0)
    configs = (json.loads((folder / "config.json").read_text()) for folder in (output, again))
    assert next(configs)["tasks"] == next(configs)["tasks"]  # with all that was fitted


def make_tokenizer(words):
    """Make a tokenizer of which every one of these words is a token."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    return BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})


def vary_weights(model, size=0.1):
    """Change the weights of a model in place, such that no two of them are alike."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * torch.randn_like(parameter))


def make_model(tasks, words, **changes):
    """Make a tiny model with a tokenizer of few words, or a given one, for predictions."""
    tokenizer = make_tokenizer(words) if isinstance(words, list | tuple) else words
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 30, "max_position_embeddings": 20, "initializer_range": 0.2}
    torch.manual_seed(0)
    config = MinBertConfig(**sizes | changes, vocab_size=len(tokenizer), tasks=tasks)
    model = MinBertForMultiTask(config).eval()
    model.tokenizer = tokenizer
    return model


def save_model(folder, tasks, words, **changes):
    """Save a tiny model with a tokenizer of few words; return the loaded model."""
    model = make_model(tasks, words, **changes)
    model.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
    return MinBertForMultiTask.from_pretrained(folder).eval()


def parse_recipe(argument_classes, argv):
    """Fill dataclasses from ``[recipe.yaml] [--flag value ...]``, as the programs do."""
    path, flags = split_argv([*map(str, argv)], None)
    recipe = {} if path is None else read_recipe(path)
    return fill_arguments(argument_classes, recipe, flags, where=path)
