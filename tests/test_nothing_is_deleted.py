"""Commands delete and replace only what they wrote before."""

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file

from minbert_cli import __main__ as minbert
from tests import small_run

FOREIGN = {
    "README.md": "# Mine",
    "predictions/mine.csv": "my table",
    "config.json": "{}",
    "checkpoint-best/model.safetensors": "weights",
    "1_Pooling/config.json": "{}",
}
OVERWRITE = "--overwrite_output_dir"


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


def train(files, folder, *flags):
    """Train another run in a folder."""
    flags = ("--output_dir", folder, "--seed", 2, *flags, OVERWRITE)
    return small_run.train(files / "recipe.yaml", *flags)


def test_a_run_replaces_no_file_that_no_run_wrote(files, tmp_path, capsys):
    write(tmp_path / "mine", FOREIGN)
    write(tmp_path / "other", {"notes.txt": "years of work"})

    refused("finetune", files / "recipe.yaml", "--output_dir", tmp_path / "mine", OVERWRITE)

    names = "1_Pooling/config.json, README.md, checkpoint-best, config.json"
    message = f"has {names}, predictions/mine.csv, which no run wrote and this one would replace"
    assert message in capsys.readouterr().err
    assert read(tmp_path / "mine") == {name: text.encode() for name, text in FOREIGN.items()}
    train(files, tmp_path / "other")  # where nothing is in its way
    assert (tmp_path / "other/model.safetensors").is_file()
    assert (tmp_path / "other/notes.txt").read_text() == "years of work"


def test_files_that_were_added_to_a_run_are_not_deleted_with_it(files, folder, capsys):
    write(folder, {"predictions/mine.csv": "mine"})
    before = read(folder)

    refused("finetune", files / "recipe.yaml", "--output_dir", folder, "--seed", 2, OVERWRITE)

    assert "has predictions/mine.csv, which no run wrote" in capsys.readouterr().err
    assert read(folder) == before


def test_a_finished_run_is_not_repeated_in_its_folder(files, folder, capsys):
    recipe = files / "recipe.yaml"
    before = read(folder)

    refused("finetune", recipe, "--output_dir", folder)

    assert "has this run, finished: it is left as it is. To train it" in capsys.readouterr().err
    assert read(folder) == before
    small_run.train(recipe, "--output_dir", folder, OVERWRITE)
    assert (folder / "model.safetensors").read_bytes() == before["model.safetensors"]


@pytest.mark.parametrize("is_finished", [True, False])
def test_another_run_removes_the_files_of_the_last_one_only(files, folder, is_finished):
    write(folder, {"notes.txt": "mine"})
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(record | {"finished": is_finished}))
    before = read(folder)

    train(files, folder, "--max_steps", 2, "--eval_strategy", "no", "--save_strategy", "no")

    after = read(folder)
    assert after["notes.txt"] == b"mine"
    assert json.loads(after["run.json"])["settings"]["seed"] == 2
    assert any(name.startswith("checkpoint-") for name in before)
    assert not any(name.startswith("checkpoint-") for name in after)
    assert after["model.safetensors"] != before["model.safetensors"]


def test_a_copy_of_a_checkpoint_is_not_rotated_away(files, folder, capsys):
    shutil.copytree(folder / "checkpoint-3", folder / "checkpoint-3-best")

    refused(
        *("finetune", files / "recipe.yaml", "--output_dir", folder, "--num_train_epochs", 5),
        *("--resume_from_checkpoint", "true", "--overwrite_output_dir"),
    )

    assert "has checkpoint-3-best, which no run wrote" in capsys.readouterr().err
    assert (folder / "checkpoint-3-best/model.safetensors").is_file()


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--model_name_or_path={}", "--model_config={{}}"), "the model that the run starts from"),
        (("--model_name_or_path={}/checkpoint-3", "--model_config={{}}"), "the model that the run"),
        (("--teacher=other,{}",), "what the run reads, teacher="),
        (("--tasks.moods.teacher={{path: {}/checkpoint-3}}",), "what the run reads, path="),
        (("--tasks.moods.train_file={}/predictions/moods-dev.csv",), "what the run reads, train_f"),
    ],
)
def test_a_run_does_not_replace_what_it_reads(files, folder, capsys, flags, message):
    before = read(folder)

    with pytest.raises(SystemExit):
        train(files, folder, *(flag.format(folder) for flag in flags))

    assert f"has {message}" in capsys.readouterr().err
    assert read(folder) == before


@pytest.mark.parametrize("resume", [[], ["--resume_from_checkpoint", "true"]])
@pytest.mark.parametrize("more", [["--num_train_epochs", 4], ["--max_steps", 9]])
def test_a_finished_run_can_be_trained_further_and_kept(files, folder, capsys, more, resume):
    before = read(folder)

    refused("finetune", files / "recipe.yaml", "--output_dir", folder, *more, *resume)

    further = ["--model_name_or_path", str(folder)]
    message = capsys.readouterr().err
    assert f"keep it, choose another --output_dir and add {' '.join(further)};" in message
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
