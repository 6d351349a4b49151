"""User errors: one line with the place and a remedy, and nothing written."""

import re
from pathlib import Path

import pytest

from minbert_cli import finetune
from tests import small_run
from tests.processes import ENVIRONMENT, run_python


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe that works, with its files."""
    small_run.write_files(tmp_path)
    return small_run.make_recipe(tmp_path)


@pytest.fixture
def refused(tmp_path, recipe, capsys):
    """Run a recipe that is refused; returns the line."""

    def refused(*flags):
        folder = Path(recipe["output_dir"])
        before = read_tree(folder)
        with pytest.raises(SystemExit) as exited:
            finetune.main([small_run.write_recipe(tmp_path, recipe), *flags])
        captured = capsys.readouterr()
        assert exited.value.code == 1
        assert read_tree(folder) == before
        return only_error(captured.err)

    return refused


def only_error(text):
    """Return the one line that is an error; it is the last one and there is no traceback."""
    lines = text.strip().splitlines()
    assert lines[-1].startswith("minbert finetune: error: ")
    assert sum("error" in line.lower() for line in lines) == 1
    assert "Traceback" not in text
    return lines[-1]


def read_tree(folder):
    """Return the content of a folder, or None if there is none."""
    if not folder.exists():
        return None
    paths = [folder, *folder.rglob("*")]
    return {str(path): path.read_bytes() if path.is_file() else None for path in paths}


def assert_matches(line, message):
    """Compare with a helpful report."""
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"load_best_model_at_end": True, "save_strategy": "no"}, "requires the save and eval"),
        ({"accelerator_config": "none.json"}, "accelerator_config='none.json': .*No such file"),
        ({"ddp_backend": "gloo"}, "ddp_backend='gloo': .*process group"),
        (
            {"moods": {"labels": ["bad", "good", "odd"], "class_weights": "balanced"}},
            "no training row has the label 'odd'",
        ),
    ],
)
def test_values_that_another_library_would_refuse_late_or_that_contradict_the_rows(
    recipe, refused, change, message
):
    """The messages of other values are among the frozen ones."""
    recipe["tasks"]["moods"] |= change.pop("moods", {})
    recipe |= change

    assert_matches(refused(), message)


@pytest.mark.parametrize(
    "change",
    [
        {"metric_for_best_model": "moods_f1"},
        {"model_config": {"hidden_size": 13}},
        {"lora": {"r": 4, "target_modules": ["nothing"]}},
        {"early_stopping_patience": 2, "eval_strategy": "no"},
        {"model_name_or_path": "gone", "model_config": None},
        {"task_sampling": "weighted", "sampling_weights": {"moods": 1}},
        {"scores": {"head": "mlp"}},
        {"scores": {"pooling_layer": 7}},
        {"scores": {"train_file": "gone.jsonl"}},
    ],
    ids=str,
)
def test_keys_are_checked_before_rows_are_read(recipe, refused, change):
    for name in ("moods", "pairs"):
        Path(recipe["tasks"][name]["train_file"]).write_text("neither\trows\tnor\tcolumns\n")
    recipe["tasks"]["scores"] |= change.pop("scores", {})

    recipe |= change

    assert "-train.tsv" not in refused()


# The output folder


@pytest.mark.parametrize("name", ["/dev/full/run", "a\0b", "x" * 300])
def test_a_folder_that_cannot_be_made(recipe, refused, name):
    for task in recipe["tasks"].values():
        Path(task["train_file"]).write_text("neither rows nor columns\n")  # the folder comes first

    assert_matches(refused("--output_dir", name), "output_dir='.*': .*; name another folder")


# The network


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--model_name_or_path", "user/model", "--model_config", "{}"],
            "'user/model' is not a folder and cannot be loaded",
        ),
        (["--tasks", "{sst: {dataset: sst}}"], "task 'sst': dataset 'SetFit/sst5' cannot be "),
        (["--push_to_hub"], "push_to_hub: .*; check the network, log in"),
    ],
)
def test_a_hub_that_refuses_the_connection(tmp_path, recipe, flags, message):
    nobody = ENVIRONMENT | {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}
    path = small_run.write_recipe(tmp_path, recipe)

    done = run_python("finetune.py", path, *flags, environment=nobody, status=1)

    assert_matches(only_error(done.stderr), message)
    assert not Path(recipe["output_dir"]).exists()
