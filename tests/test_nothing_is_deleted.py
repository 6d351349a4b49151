"""Commands delete nothing, and replace only what they wrote before."""

import json
import shutil
from contextlib import nullcontext

import pytest
import torch
import yaml
from safetensors.torch import load_file

from minbert_cli import __main__ as minbert, read_settings, run_folder
from minbert_cli.run_folder import start_run
from tests import small_run

RESUME = ["--resume_from_checkpoint", "true"]
FOREIGN = {
    "README.md": "# Mine",
    "predictions/mine.csv": "my table",
    "config.json": "{}",
    "checkpoint-best/model.safetensors": "weights",
    "1_Pooling/config.json": "{}",
}


def write(folder, files):
    """Write files by name."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def read(folder):
    """Read the files of a folder, by name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def refused(command, *argv):
    """Check that a command is refused."""
    with pytest.raises(SystemExit) as stop:
        minbert.main([command, *map(str, argv)])
    assert stop.value.code in (1, 2)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write the rows and a recipe of one task, with three steps."""
    folder = tmp_path_factory.mktemp("files")
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    recipe |= {"evaluate_train": False, "report_examples": 0}
    recipe |= {"num_train_epochs": 3, "steps_per_epoch": 1}
    small_run.write_recipe(folder, recipe)
    return folder


@pytest.fixture(scope="module")
def finished(files):
    """Run the recipe once."""
    small_run.train(files / "recipe.yaml")
    return files / "out"


@pytest.fixture
def folder(finished, tmp_path):
    """Copy the finished run."""
    return shutil.copytree(finished, tmp_path / "run")


def change_record(folder, **changes):
    """Change what a run has recorded."""
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize("resume", [[], RESUME])
@pytest.mark.parametrize("given", [FOREIGN, {"notes.txt": "years of work"}])
def test_a_run_does_not_write_to_a_folder_of_others(files, tmp_path, capsys, given, resume):
    write(tmp_path / "mine", given)

    refused("finetune", files / "recipe.yaml", "--output_dir", tmp_path / "mine", *resume)

    assert "has files that are not of a run: choose another --output" in capsys.readouterr().err
    assert read(tmp_path / "mine") == {name: text.encode() for name, text in given.items()}


@pytest.mark.parametrize("resume", [[], RESUME])
@pytest.mark.parametrize("is_finished", [True, False])
@pytest.mark.parametrize(
    "change", ["--seed=2", "--model_name_or_path={}", "--teacher={}/checkpoint-3"]
)
def test_another_run_is_left_as_it_is(files, folder, capsys, change, is_finished, resume):
    change_record(folder, finished=is_finished)
    before = read(folder)
    flags = (change.format(folder), "--model_config={}", *resume)

    refused("finetune", files / "recipe.yaml", "--output_dir", folder, *flags)

    message = capsys.readouterr().err
    assert f"{'resumes with' if resume else 'holds a run with'} another " in message
    assert change[2:].partition("=")[0] in message
    assert "choose another --output_dir, or delete this one if you do not need it" in message
    assert read(folder) == before


def test_a_run_that_began_meanwhile_is_left_as_it_is(files, tmp_path, monkeypatch):
    def begin(output_dir):
        start_run(output_dir, {"seed": 7})
        return nullcontext()

    monkeypatch.setattr(run_folder, "sole_writer", begin)
    flags = ("--output_dir", tmp_path / "run")

    with pytest.raises(SystemExit, match="1"):
        small_run.train(files / "recipe.yaml", *flags)

    assert list(read(tmp_path / "run")) == ["run.json"]
    assert read_settings(tmp_path / "run") == {"seed": 7}


def test_a_finished_run_is_not_repeated_in_its_folder(files, folder, capsys):
    recipe = files / "recipe.yaml"
    before = read(folder)

    refused("finetune", recipe, "--output_dir", folder)

    assert "has this run, finished: it is left as it is. To train it" in capsys.readouterr().err
    assert read(folder) == before


def test_a_run_that_was_killed_before_its_first_checkpoint_begins_again(files, folder, capsys):
    recipe, flags = files / "recipe.yaml", ("--output_dir", folder)
    before = read(folder)
    change_record(folder, finished=False)
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != "run.json":
            path.unlink()

    refused("finetune", recipe, *flags)

    assert "unfinished: add --resume_from_checkpoint true to continue" in capsys.readouterr().err
    small_run.train(recipe, *flags, *RESUME)
    assert (folder / "model.safetensors").read_bytes() == before["model.safetensors"]


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_copy_of_a_checkpoint_is_not_rotated_away(files, folder, capsys, is_finished):
    shutil.copytree(folder / "checkpoint-3", folder / "checkpoint-3-best")
    change_record(folder, finished=is_finished)

    refused("finetune", files / "recipe.yaml", "--output_dir", folder, *RESUME)

    assert "has checkpoint-3-best, which no run wrote" in capsys.readouterr().err
    assert (folder / "checkpoint-3-best/model.safetensors").is_file()


@pytest.mark.parametrize("resume", [[], RESUME])
@pytest.mark.parametrize("more", [["--num_train_epochs", 4], ["--max_steps", 9]])
def test_a_finished_run_can_be_trained_further_and_kept(files, folder, capsys, more, resume):
    before = read(folder)

    refused("finetune", files / "recipe.yaml", "--output_dir", folder, *more, *resume)

    further = ["--model_name_or_path", str(folder)]
    message = capsys.readouterr().err
    assert f"further, choose another --output_dir and add {' '.join(further)};" in message
    assert read(folder) == before
    if resume or "--max_steps" in more:
        return
    # almost no learning rate: the weights are those that it starts from, heads included
    flags = ["--output_dir", folder.parent / "further", "--learning_rate", "1e-9"]
    small_run.train(files / "recipe.yaml", *further, "--model_config", "{}", *flags)
    assert read(folder) == before
    names = ("run", "further")
    old, new = (load_file(folder.parent / name / "model.safetensors") for name in names)
    assert old.keys() == new.keys()
    assert all(torch.allclose(old[name], new[name], atol=1e-6) for name in old)


def test_experiments_replace_no_table_of_others(files, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out/table.md").write_text("mine")
    rows = {
        "base": str(files / "recipe.yaml"),
        "output_dir": "out",
        "seeds": [1],
        "rows": {"a": {}},
    }
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(rows))

    with pytest.raises(SystemExit):
        minbert.main(["experiments", "rows.yaml"])

    assert "has table.md of another program" in capsys.readouterr().err
    assert read(tmp_path / "out") == {"table.md": b"mine"}


def test_predictions_do_not_replace_their_texts(finished, tmp_path, capsys):
    texts = tmp_path / "texts.jsonl"
    texts.write_text("a fine day\n")
    for flags in (
        ("--task", "moods", "--file", texts, "--output", texts),
        ("--task", "moods", "--file", texts, "--output", tmp_path / "x/../texts.jsonl"),
    ):
        (tmp_path / "x").mkdir(exist_ok=True)
        refused("predict", finished, *flags)

        assert f"the output would replace {texts}" in capsys.readouterr().err
        assert texts.read_text() == "a fine day\n"
