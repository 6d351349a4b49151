"""``import minbert``: the files, the weights and the checks of the commands, in Python."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

import minbert
from minbert_cli import finetune
from tests import small_run
from tests.processes import ROOT, run_python
from tests.runs import write_pretraining

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
    flags = ["--output_dir", str(command), "--hub_token", recipe["hub_token"]]
    without = {key: value for key, value in recipe.items() if key != "hub_token"}
    finetune.main([small_run.write_recipe(tmp_path, without), *flags])
    folder = tmp_path / "python"

    trainer = minbert.finetune(recipe | {"output_dir": folder})

    assert isinstance(trainer, minbert.MultiTaskTrainer)
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
    assert (command / "training_args.bin").is_file()
    texts = [(each / name).read_bytes() for each in (folder, command) for name in files_of(each)]
    assert not any(b"hf_secret" in text for text in texts)
    assert "max_length: 17" in (folder / "README.md").read_text()


def test_a_path_is_that_of_the_command_and_changes_are_its_flags(recipe, tmp_path):
    path = small_run.write_recipe(tmp_path, recipe | small_run.QUICK)
    changes = {"tasks.moods.pooling": "max", "num_train_epochs": 1, "tasks.pairs": None}

    trainer = minbert.finetune(Path(path), output_dir=tmp_path / "changed", **changes)

    assert trainer.model.predict("moods", ["the garden is fine"])
    assert list(trainer.model.config.tasks) == ["moods", "scores"]
    assert trainer.model.config.tasks["moods"]["pooling"] == "max"
    again = recipe | small_run.QUICK | {"max_steps": 1, "output_dir": tmp_path / "again"}
    assert minbert.finetune(again, **changes).state.global_step == trainer.state.global_step > 1
    command = read(tmp_path / "changed" / "metrics.json")["command"]
    assert path in command
    assert "--num_train_epochs 1 --tasks.pairs null" in command


def test_a_saved_run_predicts_and_embeds(recipe, tmp_path):
    minbert.finetune(recipe | small_run.QUICK, max_steps=1, **{"tasks.pairs": None})

    model = minbert.load(tmp_path / "out", device="cpu")

    assert isinstance(model, minbert.MinBertForMultiTask)
    assert not model.training
    texts = ["the garden is fine", "this song was dull"]
    assert {found["label"] for found in model.predict("moods", texts)} <= {"good", "bad"}
    assert model.encode(texts).shape == (2, model.config.hidden_size)
    assert set(model.predict_all(texts)) == {"moods"}
    model.base_model.save_pretrained(tmp_path / "encoder")
    model.tokenizer.save_pretrained(tmp_path / "encoder")
    encoder = minbert.load(tmp_path / "encoder", device="cpu")
    assert isinstance(encoder, minbert.MinBertModel)
    with pytest.raises(ValueError, match="path='nowhere'"):
        minbert.load("nowhere")


def test_a_pre_training_from_python(tmp_path, capsys):
    path = write_pretraining(tmp_path, max_steps=2, output_dir=str(tmp_path / "text"))
    minbert.check(path)
    assert "text: pretraining, own, " in capsys.readouterr().out

    trainer = minbert.pretrain(path, max_steps=1)

    assert trainer.state.global_step == 1
    assert (tmp_path / "text" / "model.safetensors").is_file()


RANDOM_STATES = """
import random, sys
import numpy, torch, transformers  # 5.19 draws numbers itself

random.seed(0), numpy.random.seed(0), torch.manual_seed(0)
before = random.getstate(), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
__import__(sys.argv[1])
after = random.getstate(), repr(numpy.random.get_state()), torch.get_rng_state().tolist()
print([first == second for first, second in zip(before, after)])
"""


def test_an_import_leaves_random_states():
    assert run_python("-c", RANDOM_STATES, "minbert_cli.finetune").stdout == "[True, True, True]\n"


@pytest.mark.parametrize("place", ["beside the module", "elsewhere"])
def test_the_module_is_fast_and_not_hidden_by_the_folder_of_the_quickstart(tmp_path, place):
    (tmp_path / "minbert").mkdir()  # a run writes it into the working folder
    if place == "beside the module":
        (tmp_path / "minbert.py").write_text((ROOT / "minbert.py").read_text(encoding="utf-8"))
    program = """
import minbert, sys
assert not {"torch", "transformers", "numpy"} & {*sys.modules}, "imports what takes seconds"
assert {"load", "Task"} <= {*dir(minbert)}
print(minbert.__file__)
"""
    done = run_python("-c", program, folder=tmp_path)

    folder = tmp_path if place == "beside the module" else ROOT
    assert Path(done.stdout.strip()) == folder / "minbert.py"


def test_every_public_name_is_there():
    for name in minbert.SOURCES:
        assert getattr(minbert, name) is not None
    with pytest.raises(AttributeError, match="'minbert' has no attribute 'train'"):
        _ = minbert.train


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"learning_rat": 1.0}, "recipe: unknown key 'learning_rat'; did you mean 'learning_rate'"),
        ({"seed": object}, "recipe: a type has no place in a recipe; give rows as files"),
    ],
)
def test_wrong_recipes_raise_before_anything_is_written(recipe, tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        minbert.finetune(recipe | change)
    assert not (tmp_path / "out").exists()


def test_after_mixed_precision_the_model_predicts_as_the_one_that_it_saved(recipe, tmp_path):
    """accelerate leaves an autocast around its forward."""
    trainer = minbert.finetune(recipe, bf16=True)

    texts = ["the garden is fine", "a house", "it is a dull and rainy morning"]
    mine = trainer.model.predict("moods", texts, precision="float32")
    assert mine == minbert.load(tmp_path / "out", device="cpu").predict("moods", texts)
