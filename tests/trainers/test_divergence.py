"""A run whose loss, gradients or weights are not finite stops, and nothing of it is saved."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from minbert_cli import finetune
from tests import small_run
from trainers import TrainingDivergedError


@pytest.mark.parametrize("rate", [1e30, 1e38])
def test_the_run_stops_at_the_step_and_keeps_finite_checkpoints(make_trainer, rate):
    trainer = make_trainer(learning_rate=rate, save_strategy="steps", save_steps=1)

    with pytest.raises(TrainingDivergedError, match=r"at step \d+: .*(task '|weight ).*checkpoint"):
        trainer.train()

    for path in Path(trainer.args.output_dir).rglob("*.safetensors"):
        assert all(value.isfinite().all() for value in load_file(path).values()), path


def test_infinite_gradients_stop_before_the_update(make_trainer):
    trainer = make_trainer()
    weight = trainer.model.bert.embeddings.LayerNorm.weight
    weight.register_hook(lambda gradient: torch.full_like(gradient, torch.inf))
    before = weight.detach().clone()

    with pytest.raises(TrainingDivergedError, match=r"step 1: the gradient norm .* is not finite"):
        trainer.train()

    torch.testing.assert_close(weight.detach(), before)


def test_a_program_ends_with_one_line_and_status_1(tmp_path, capsys):
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path) | {"learning_rate": 1e30}

    with pytest.raises(SystemExit, match="1"):
        finetune.main([small_run.write_recipe(tmp_path, recipe)])

    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("minbert finetune: error: training diverged at step ")
    assert not json.loads((tmp_path / "out" / "run.json").read_text())["finished"]
    assert not (tmp_path / "out" / "model.safetensors").exists()
