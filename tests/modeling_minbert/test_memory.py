"""Sizes that memory cannot hold are refused before any weight is allocated."""

import json
import os

import pytest
import torch

from minbert_cli import __main__ as minbert, finetune, pretrain
from minbert_cli.checkpoints import new_config
from modeling_minbert import MinBertConfig, MinBertForMaskedLM, MinBertForMultiTask, MinBertModel
from modeling_minbert.cpu import check_memory
from trainers import TaskTraining

HUGE = {
    "vocab_size": 2**40,
    "hidden_size": 2**40,
    "num_hidden_layers": 10**9,
    "intermediate_size": 2**40,
    "max_position_embeddings": 2**40,
    "type_vocab_size": 2**40,
}


@pytest.mark.parametrize("name", HUGE)
def test_a_model_that_memory_cannot_hold_is_not_built(tiny_sizes, name):
    config = MinBertConfig(**{**tiny_sizes, "num_attention_heads": 1, name: HUGE[name]})

    for build in (MinBertModel, MinBertForMaskedLM):
        with pytest.raises(ValueError, match=f"{name}={HUGE[name]}"):
            build(config)
    with pytest.raises(ValueError, match=f"{name}={HUGE[name]}"):
        new_config({name: HUGE[name], "num_attention_heads": 1})


def test_half_precision_halves_the_estimate(tiny_sizes):
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    rows = int(memory / 4 / tiny_sizes["hidden_size"] * 1.5)
    config = MinBertConfig(**{**tiny_sizes, "vocab_size": rows})

    message = rf"GiB as torch\.float32, .* {memory // 2**30:,} GiB"
    with pytest.raises(ValueError, match=message):
        check_memory(config)
    torch.set_default_dtype(torch.bfloat16)
    try:
        check_memory(config)
    finally:
        torch.set_default_dtype(torch.float32)


def test_too_many_labels_are_refused(tiny_sizes):
    with pytest.raises(ValueError, match="num_labels=1000000000000 must be at most 1,000,000"):
        MinBertConfig(**tiny_sizes, num_labels=10**12)


@pytest.mark.parametrize("name", [*HUGE, "num_labels"])
def test_a_checkpoint_with_such_sizes_is_one_line(build_multitask, tasks, tmp_path, capsys, name):
    build_multitask(tasks).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "num_attention_heads": 1, name: HUGE.get(name, 10**12)}))

    with pytest.raises(ValueError, match=f"{name}={HUGE.get(name, 10**12)}"):
        MinBertForMultiTask.from_pretrained(tmp_path)
    with pytest.raises(SystemExit):
        minbert.main(["predict", str(tmp_path), "a cat", "--device", "cpu"])
    error = capsys.readouterr().err
    assert f"{name}={HUGE.get(name, 10**12)}" in error
    assert error.count("minbert predict: error: checkpoint=") == 1


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        (finetune, ["--model_config", "{vocab_size: 1099511627776}"], "vocab_size=1099511627776"),
        (finetune, ["--model_config", "{hidden_size: 1099511627776}"], "hidden_size=1099511627776"),
        (pretrain, ["--vocab_size", "1099511627776"], "vocab_size=1099511627776"),
        (pretrain, ["--model_config", "{num_hidden_layers: 1000000000}"], "must be at most 10,000"),
        (
            pretrain,
            ["--per_device_train_batch_size", "1000000"],
            "a whole number from 1 to 100,000",
        ),
        (finetune, ["--per_device_eval_batch_size", "1000000"], "a whole number from 1 to 100,000"),
    ],
)
def test_a_recipe_with_such_sizes_is_one_line(tmp_path, capsys, program, flags, message):
    with pytest.raises(SystemExit):
        program.main([*flags, "--output_dir", str(tmp_path / "out"), "--use_cpu", "true"])

    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_rows_of_the_batches_of_a_task_are_limited():
    with pytest.raises(
        ValueError, match=r"batch_size=1000000000000; expected a whole number from 1 to 100,000"
    ):
        TaskTraining(batch_size=10**12)
