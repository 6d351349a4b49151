"""``finetune`` in Python gives the files, the weights and the checks of the command."""

import json

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from minbert import finetune
from minbert_cli.finetune import main
from tests import small_run
from trainers import MultiTaskTrainer, TrainingDivergedError

# Differ in every run, or name the command.
VARYING = ("command", "recipe", "output_dir", "minutes")


@pytest.fixture
def recipe(tmp_path):
    small_run.write_files(tmp_path)
    return small_run.make_recipe(tmp_path) | {"hub_token": "hf_secret", "seed": 5}


def files_of(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def read(path):
    return json.loads(path.read_text())


def test_a_mapping_gives_the_files_and_weights_of_the_command(recipe, tmp_path):
    command = tmp_path / "command"
    main([small_run.write_recipe(tmp_path, recipe), "--output_dir", str(command)])
    folder = tmp_path / "python"

    trainer = finetune(recipe | {"output_dir": folder})

    assert isinstance(trainer, MultiTaskTrainer)
    assert trainer.state.global_step == 6
    assert files_of(folder) == files_of(command)
    weights = load_file(command / "model.safetensors")
    assert_close(load_file(folder / "model.safetensors"), weights, rtol=0, atol=0)
    for name, value in trainer.model.state_dict().items():
        assert_close(value, weights[name], rtol=0, atol=0)
    for name in ("predictions/moods-dev-output.csv", "config.json", "tokenizer.json"):
        assert (folder / name).read_bytes() == (command / name).read_bytes()
    mine, theirs = read(folder / "metrics.json"), read(command / "metrics.json")
    assert {key for key in theirs if mine[key] != theirs[key]} <= set(VARYING)
    assert mine["command"] == "import minbert; minbert.finetune(recipe)"
    ours, others = (read(each / "run.json")["settings"] for each in (folder, command))
    assert ours | {"output_dir": str(command), "run_name": "command"} == others
    texts = {name: (folder / name).read_bytes() for name in files_of(folder)}
    assert not any(b"hf_secret" in text for text in texts.values())
    assert b"max_length: 17" in texts["README.md"]


def test_a_path_is_that_of_the_command(recipe, tmp_path):
    path = small_run.write_recipe(tmp_path, recipe | {"num_train_epochs": 1})

    trainer = finetune(tmp_path / "recipe.yaml")

    assert trainer.model.predict("moods", ["the garden is fine"])
    assert path in read(tmp_path / "out" / "metrics.json")["command"]


def test_the_command_resumes_what_python_began(recipe, tmp_path):
    trainer = finetune(recipe)
    last = tmp_path / "out" / "checkpoint-6"
    for name in ("model.safetensors", "optimizer.pt"):
        (last / name).unlink()  # as if the run had been killed

    main([small_run.write_recipe(tmp_path, recipe), "--resume_from_checkpoint", "true"])

    for name, value in load_file(tmp_path / "out" / "model.safetensors").items():
        assert_close(value, trainer.model.state_dict()[name], rtol=0, atol=0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rat": 1.0}, "recipe: unknown key 'learning_rat'; did you mean 'learning_rate'"),
        ({"seed": "many"}, "recipe: seed='many'; expected int"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0; expected"),
        ({"tasks": {}}, "tasks is empty; name at least one"),
        ({"seed": object}, "recipe: <class 'object'> has no place in a recipe; use texts"),
        ({"model_name_or_path": "nowhere"}, "model_name_or_path='nowhere'.*"),
    ],
)
def test_wrong_recipes_raise_before_anything_is_written(recipe, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        finetune(recipe | change)
    assert not (tmp_path / "out").exists()


def test_an_unknown_name_of_a_recipe_is_an_error():
    with pytest.raises(FileNotFoundError, match=r"recipe 'cs224m' is not a file.*mean 'cs224n'"):
        finetune("cs224m")


def test_divergence_is_raised(recipe):
    with pytest.raises(TrainingDivergedError, match="training diverged at step"):
        finetune(recipe | {"learning_rate": 1e30})


def test_variables_in_paths_are_expanded(recipe, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DATA", str(tmp_path))
    keys = recipe["tasks"]["moods"]
    files = {
        key: value.replace(str(tmp_path), "$MY_DATA")
        for key, value in keys.items()
        if "file" in key
    }
    assert all(value.startswith("$MY_DATA") for value in files.values())

    trainer = finetune(recipe | {"tasks": {"moods": keys | files}, "max_steps": 1})

    assert trainer.state.global_step == 1
