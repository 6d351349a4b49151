"""Sizes that no model has are refused before any weight is allocated."""

import json

import pytest

from minbert_cli import __main__ as minbert, finetune, pretrain

HUGE = ("vocab_size", "hidden_size", "num_hidden_layers", "num_labels")


@pytest.mark.parametrize("name", HUGE)
def test_a_checkpoint_with_such_sizes_is_one_line(build_multitask, tasks, tmp_path, capsys, name):
    build_multitask(tasks).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), name: 10**12}))

    with pytest.raises(SystemExit):
        minbert.main(["predict", str(tmp_path), "a cat", "--device", "cpu"])
    error = capsys.readouterr().err
    assert f"{name}={10**12}" in error
    assert error.count("minbert predict: error: checkpoint=") == 1


@pytest.mark.parametrize(
    ("program", "flags", "message"),
    [
        (finetune, ["--model_config", "{hidden_size: 1099511627776}"], "hidden_size=1099511627776"),
        (pretrain, ["--vocab_size", "1099511627776"], "vocab_size=1099511627776"),
        (finetune, ["--per_device_eval_batch_size", "1000000"], "a whole number from 1 to 100,000"),
    ],
)
def test_a_recipe_with_such_sizes_is_one_line(tmp_path, capsys, program, flags, message):
    with pytest.raises(SystemExit):
        program.main([*flags, "--output_dir", str(tmp_path / "out"), "--use_cpu", "true"])

    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
