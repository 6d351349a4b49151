"""Sizes that no model has are refused before any weight is allocated."""

import json

import pytest

from minbert_cli import __main__ as minbert

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
