"""A finished run that is trained further keeps what was there."""

import pytest
import torch
from safetensors.torch import load_file

from minbert_cli import finetune
from tests import small_run


@pytest.fixture
def recipe(tmp_path):
    """Write a recipe of six steps of one task; return its path."""
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    recipe |= {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2}
    recipe |= {"save_total_limit": None}
    return small_run.write_recipe(tmp_path, recipe)


def read(folder):
    """Read the files of a folder, by name."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("resume", [[], ["--resume_from_checkpoint", "true"]])
@pytest.mark.parametrize("more", [["--num_train_epochs", "4"], ["--max_steps", "9"]])
def test_a_finished_run_can_be_trained_further_and_kept(tmp_path, capsys, recipe, more, resume):
    finetune.main([recipe])
    before = read(tmp_path / "out")

    with pytest.raises(SystemExit):
        finetune.main([recipe, *more, *resume])

    further = ["--model_name_or_path", str(tmp_path / "out")]
    message = capsys.readouterr().err
    assert f"keep it, choose another --output_dir and add {' '.join(further)};" in message
    assert read(tmp_path / "out") == before
    if resume or "--max_steps" in more:
        return
    # almost no learning rate: the weights are those that it starts from, heads included
    further += ["--output_dir", str(tmp_path / "further"), "--learning_rate", "1e-9"]
    finetune.main([recipe, *further, "--num_train_epochs", "1"])
    assert read(tmp_path / "out") == before
    old, new = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "further"))
    assert old.keys() == new.keys()
    assert all(torch.allclose(old[name], new[name], atol=1e-6) for name in old)
