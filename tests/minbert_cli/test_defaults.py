"""Defaults of a run: by the checkpoint and the rows, one by one, and shown with their reasons."""

import json
import shutil

import pytest
import torch
from datasets import Dataset
from transformers import BertConfig, BertForMaskedLM, BertModel

from minbert_cli import FinetuneArguments, ProgramTrainingArguments, describe_settings, finetune
from minbert_cli.checkpoints import describe_pretrained
from minbert_cli.recipe_tasks import (
    RunSize,
    choose_arguments,
    choose_head_rate,
    choose_kept_weights,
    choose_loss_as_best,
    count_rows,
    has_new_heads,
)
from modeling_minbert import TASKS, MinBertConfig, MinBertForMultiTask, MinBertModel, Pretrained
from tests import small_run

SIZE = RunSize(width=768, is_new=False, rows=10_000, tasks=1, evaluation_rows=1_000, max_length=128)
TINY = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}


def choose(tmp_path, size=SIZE, **given):
    args = ProgramTrainingArguments(str(tmp_path), use_cpu=True, **given)
    return args, {choice.key: choice.value for choice in choose_arguments(args, size)}


def test_defaults_of_bert_base(tmp_path):
    args, chosen = choose(tmp_path)

    assert chosen == {
        "learning_rate": 5e-5,
        "num_train_epochs": 3.0,
        "per_device_train_batch_size": 32,
        "eval_steps": 0.1,
    }
    assert {name: getattr(args, name) for name in chosen} == chosen
    assert args.save_steps == args.eval_steps


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"width": 384}, {"learning_rate": 1e-4}),
        ({"width": 128, "is_new": True}, {"learning_rate": 1.2e-3}),
        ({"is_frozen": True}, {"learning_rate": 5e-3}),
        ({"is_frozen": True, "has_new_heads": False}, {"learning_rate": 5e-5}),
        ({"rows": 100}, {"num_train_epochs": 10.0, "per_device_train_batch_size": 8}),
        ({"rows": 3_000}, {"num_train_epochs": 10.0, "per_device_train_batch_size": 16}),
        ({"rows": 10**6}, {"num_train_epochs": 3.0, "eval_steps": 0.1}),
        ({"max_length": 512}, {"per_device_train_batch_size": 16}),
        ({"max_length": 512, "rows": 100}, {"per_device_train_batch_size": 8}),
        ({"evaluation_rows": 10**6}, {"eval_steps": 0.5}),
        ({"rows": 200, "evaluation_rows": 1_000}, {"eval_steps": 0.1}),
        ({"rows": 200, "evaluation_rows": 3_000}, {"eval_steps": 0.3334}),
        ({"rows": 200, "evaluation_rows": 20}, {"eval_steps": 0.1}),
        ({"tasks": 3, "evaluation_rows": 6_000}, {"eval_steps": 0.25}),
    ],
)
def test_defaults_follow_the_sizes_of_the_run(tmp_path, changes, expected):
    _, chosen = choose(tmp_path, SIZE._replace(**changes))

    assert {name: chosen[name] for name in expected} == expected


@pytest.mark.parametrize("given", [{"learning_rate": 3e-5}, {"eval_steps": 20}, {"max_steps": 10}])
def test_one_default_is_overridden_at_a_time(tmp_path, given):
    args, chosen = choose(tmp_path, **given)

    (name,) = given
    assert getattr(args, name) == given[name]
    assert len(chosen) == 3
    assert name not in chosen


def save_bert(folder, kind=BertModel, **options):
    kind(BertConfig(**TINY), **options).save_pretrained(folder)
    return str(folder)


def describe(path):
    return describe_pretrained(path, None, MinBertConfig.from_pretrained(path))


def test_the_pooler_of_a_checkpoint_counts_as_trained(tmp_path):
    with_pooler = save_bert(tmp_path / "with")
    without = save_bert(tmp_path / "without", BertForMaskedLM)
    model = BertModel(BertConfig(**TINY))
    model.save_pretrained(tmp_path / "parts", max_shard_size="1KB")
    model.config.save_pretrained(tmp_path / "old")
    torch.save(model.state_dict(), tmp_path / "old" / "pytorch_model.bin")

    assert describe(with_pooler) == Pretrained(None, True)
    assert describe(without) == Pretrained(None, False)
    for name in ("parts", "old"):
        assert describe(str(tmp_path / name)).has_trained_pooler, name
    # of a model that was there before, and that transformers reads no more
    index = tmp_path / "parts" / "model.safetensors.index.json"
    index.rename(tmp_path / "without" / index.name)
    assert describe(without) == Pretrained(None, False)
    (tmp_path / "with" / "model.safetensors").write_bytes(b"none")
    with pytest.raises(ValueError, match=r"model_name_or_path='.*with' cannot be loaded: "):
        describe(with_pooler)


def test_a_sentence_encoder_brings_its_pooling(tmp_path):
    model = MinBertModel(MinBertConfig(**TINY, sentence_embedding={"pooling": "cls"}))
    model.save_pretrained(tmp_path)

    assert describe(str(tmp_path)) == Pretrained("cls", False)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"pooling": "mean"}, Pretrained(None, False)),
        ({"pooling": "pooler"}, Pretrained(None, True)),
        ({"pair_encoding": "separate"}, Pretrained("mean", False)),
    ],
)
def test_the_pooler_of_a_trained_checkpoint_counts_if_its_tasks_use_it(tmp_path, fields, expected):
    task = {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "joint"}
    config = MinBertConfig(**TINY, tasks={"own": {**task, **fields}})
    MinBertForMultiTask(config).save_pretrained(tmp_path)

    assert describe(str(tmp_path)) == expected


SENTENCE_ENCODER, BERT, NEW = Pretrained("mean"), Pretrained(None, True), Pretrained()


@pytest.mark.parametrize(
    ("kind", "given", "start", "expected"),
    [
        ("classification", {}, BERT, {}),
        ("classification", {}, NEW, {"pooling": "mean"}),
        ("classification", {"pooling": "cls"}, NEW, {}),
        ("classification", {}, Pretrained("cls"), {"pooling": "cls"}),
        ("similarity", {}, SENTENCE_ENCODER, {"pooling": "mean", "pair_encoding": "separate"}),
        ("similarity", {"pair_encoding": "joint"}, SENTENCE_ENCODER, {"pooling": "mean"}),
        ("similarity", {"loss": "mse"}, SENTENCE_ENCODER, {"pooling": "mean"}),
        ("similarity", {}, BERT, {}),
        ("paraphrase", {"pair_encoding": "separate"}, NEW, {}),
        ("token_classification", {}, NEW, {}),
    ],
)
def test_heads_suit_the_weights_they_start_from(kind, given, start, expected):
    suggested = TASKS[kind].suggest(given, start, rows=1_001)

    assert {key: made.value for key, made in suggested.items()} == expected


def test_a_run_shows_what_it_chose_and_resumes(tmp_path, capsys):
    recipe = small_run.make_recipe(tmp_path)
    small_run.write_files(tmp_path)
    chosen = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "eval_strategy")
    for key in (*chosen, "save_strategy", "load_best_model_at_end", "metric_for_best_model"):
        recipe.pop(key, None)
    path = small_run.write_recipe(tmp_path, recipe | {"num_train_epochs": 1})

    finetune.main([path])
    shown = capsys.readouterr().out
    settings = json.loads((tmp_path / "out" / "run.json").read_text())["settings"]
    for checkpoint in sorted((tmp_path / "out").glob("checkpoint-*"))[1:]:
        shutil.rmtree(checkpoint)
    finetune.main([path, "--resume_from_checkpoint", "true"])

    header = shown.split("\n\n")[1].splitlines()
    assert header[0] == "defaults of this run (a recipe key or a flag overrides each):"
    keys = [line.split()[0] for line in header[1:]]
    assert "tasks.pairs.pooling" in keys
    assert {"learning_rate", "eval_steps"} <= set(keys)
    assert "num_train_epochs" not in keys
    assert settings["learning_rate"] is None
    assert settings["num_train_epochs"] == 1


@pytest.mark.parametrize(
    ("options", "rate"),
    [
        ({}, 5e-3),
        ({"head_learning_rate": 1e-2}, 1e-2),
        ({"freeze_encoder": True}, None),
        ({"lora": {"r": 4}}, None),
        ({"learning_rate": 2e-5}, None),
        ({"is_new": True}, None),
        ({"has_new_heads": False}, None),
        ({"ACCELERATE_USE_FSDP": "true"}, None),
    ],
)
def test_new_heads_have_a_hundred_times_the_rate_of_the_encoder(
    tmp_path, monkeypatch, options, rate
):
    if options.pop("ACCELERATE_USE_FSDP", None):
        monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    own = {key: options[key] for key in ("learning_rate",) if key in options}
    args = ProgramTrainingArguments(str(tmp_path), use_cpu=True, **own)
    size = SIZE._replace(**{key: options[key] for key in options if key in SIZE._fields})
    rest = {key: options[key] for key in options.keys() - own.keys() - {*SIZE._fields}}
    arguments = FinetuneArguments(tasks={"own": {}}, **rest)

    chosen = choose_head_rate(arguments, args, size)

    assert arguments.head_learning_rate == (rate and pytest.approx(rate))
    assert bool(chosen) is not bool(options or rate is None)


@pytest.mark.parametrize(("rate", "is_low"), [(5e-5, True), (1e-3, False), (5e-3, False)])
def test_the_rate_of_an_encoder_is_low_for_new_heads_alone(tmp_path, caplog, rate, is_low):
    _, chosen = choose(tmp_path, SIZE._replace(is_frozen=True), learning_rate=rate)

    assert "learning_rate" not in chosen
    assert ("without it, freeze_encoder chooses 0.005" in caplog.text) is is_low


def test_heads_of_a_checkpoint_are_not_new(tmp_path):
    tasks = {"tone": {"problem_type": "classification", "labels": ["a", "b"]}}
    near = {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"}
    near |= {"head": "cosine", "loss": "mse"}
    small_run.save_model(tmp_path, tasks, ["a"])
    arguments = FinetuneArguments(tasks={"own": {}}, model_name_or_path=str(tmp_path))

    found = {}
    for name, others in {
        "same": tasks,
        "cosine": tasks | {"near": near},
        "another": tasks | {"mood": tasks["tone"]},
    }.items():
        model = MinBertForMultiTask.from_pretrained(tmp_path, tasks=others)
        found[name] = has_new_heads(model, arguments)

    assert found == {"same": False, "cosine": False, "another": True}


def keep(tmp_path, rows, tasks=None, patience=None, **given):
    """Return the arguments of a run with so many validation rows of each task, and its choices."""
    args = ProgramTrainingArguments(str(tmp_path), use_cpu=True, **given)
    tasks = tasks or {name: {} for name in rows}
    arguments = FinetuneArguments(tasks=tasks, early_stopping_patience=patience)
    encoded = {name: {"validation": range(count)} for name, count in rows.items()}
    return args, choose_kept_weights(arguments, args, encoded)


def test_the_last_weights_are_kept_if_few_rows_compare_them(tmp_path):
    args, (choice,) = keep(tmp_path, {"large": 1_000, "small": 19})

    assert choice == (
        "load_best_model_at_end",
        False,
        "19 validation rows of small cannot say which weights are best",
    )
    assert args.load_best_model_at_end is False
    assert args.metric_for_best_model is None
    assert describe_settings(args, {}) == describe_settings(keep(tmp_path, {"large": 99})[0], {})


def test_windows_of_a_row_are_one_row():
    windows = Dataset.from_dict({"id": ["a", "a", "b"], "passage": ["x", "y", "z"]})

    assert (count_rows(windows), count_rows(windows.remove_columns("passage"))) == (2, 3)


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ({"own": 20}, {}),
        ({"own": 2}, {"load_best_model_at_end": True}),
        ({"own": 2}, {"metric_for_best_model": "own_accuracy"}),
        ({"own": 2}, {"patience": 2}),
        ({"own": 20, "help": 2}, {"tasks": {"own": {}, "help": {"auxiliary": True}}}),
        ({"own": 20, "text": 2}, {"tasks": {"own": {}, "text": {"problem_type": "masked_lm"}}}),
    ],
)
def test_the_best_weights_are_kept_if_the_recipe_or_the_rows_can_tell(tmp_path, rows, options):
    args, choices = keep(tmp_path, rows, **options)

    assert choices == []
    assert args.load_best_model_at_end is True


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("text_mlm_loss", False)),
        ({"metric_for_best_model": "text_mlm_accuracy"}, ("text_mlm_accuracy", True)),
        ({"load_best_model_at_end": False}, (None, None)),
        ({"save_strategy": "no"}, (None, None)),
    ],
)
def test_a_pre_training_keeps_the_weights_with_the_lowest_loss(tmp_path, given, expected):
    args = ProgramTrainingArguments(str(tmp_path), use_cpu=True, **given)

    choices = choose_loss_as_best(args, "text_mlm_loss")

    assert (args.metric_for_best_model, args.greater_is_better) == expected
    assert bool(choices) is not bool(given)
