"""The folder of a run: its owner and its records."""

import pytest
from transformers import TrainingArguments

import minbert
from minbert_cli import describe_settings
from minbert_cli.finetune import QUICKSTART
from minbert_cli.run import open_run
from minbert_cli.run_folder import (
    check_checkpoint,
    check_data,
    check_output_dir,
    fingerprint_start,
    finish_run,
    hash_checkpoint,
    sole_writer,
    start_run,
)
from tests import small_run

SETTINGS = {"seed": 1, "tasks": {"sst": {"dataset": "sst"}}, "logging_steps": 5}


@pytest.fixture
def folder(tmp_path):
    """Return the path of a folder that is not there."""
    return tmp_path / "new" / "run"


def test_weights_are_identified_by_file_contents(tmp_path):
    for name in ("config.json", "model.safetensors", "README.md", "training_args.bin"):
        (tmp_path / name).write_text("a")
    settings = {"model_name_or_path": str(tmp_path), "tokenizer_name_or_path": "owner/name"}
    tokenizer = {"tokenizer_name_or_path": str(tmp_path)}
    first, tokens = fingerprint_start(settings), fingerprint_start(tokenizer)

    (tmp_path / "README.md").write_text("b")
    (tmp_path / "training_args.bin").write_text("b")
    same = fingerprint_start(settings)
    (tmp_path / "model.safetensors").write_text("b")

    assert list(first) == ["model_name_or_path"]
    assert same == first
    assert fingerprint_start(settings) != first
    assert fingerprint_start(tokenizer) == tokens  # whose weights are not read
    (tmp_path / "tokenizer.json").write_text("b")
    assert fingerprint_start(tokenizer) != tokens


@pytest.mark.parametrize(
    "name",
    ["tokenizer_config.json", "special_tokens_map.json", "modules.json", "1_Pooling/config.json"],
)
def test_what_makes_tokens_and_vectors_belongs_to_a_checkpoint(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("{}")
    before = hash_checkpoint(tmp_path)
    (tmp_path / name).write_text('{"do_lower_case": false}')
    assert hash_checkpoint(tmp_path) != before


@pytest.mark.parametrize("content", ["", "[]", "{}", "no JSON"])
def test_a_folder_whose_run_cannot_be_read_is_refused(tmp_path, content):
    (tmp_path / "run.json").write_text(content)

    with pytest.raises(ValueError, match="has files that are not of a run: choose another"):
        check_output_dir(tmp_path, SETTINGS, resume=False)


def test_an_unfinished_run_is_not_begun_again(folder):
    start_run(folder, SETTINGS)

    with pytest.raises(ValueError, match="unfinished: add --resume_from_checkpoint true to"):
        check_output_dir(folder, SETTINGS, resume=False)


@pytest.mark.parametrize("finished", [False, True])
def test_data_that_changed_are_named(folder, finished):
    start_run(folder, SETTINGS, {"sst": "a", "text": "b"})
    if finished:
        finish_run(folder)

    check_data(folder, {"text": "b", "sst": "a"})
    with pytest.raises(ValueError, match=r"resumes with other data of text: .* restore them"):
        check_data(folder, {"text": "c", "sst": "a"})


def test_a_checkpoint_is_of_a_run_with_the_same_settings_and_data(folder, caplog):
    checkpoint = str(folder / "checkpoint-4")
    check_checkpoint(checkpoint, SETTINGS)
    assert "has no run.json beside it" in caplog.text
    start_run(folder, SETTINGS, {"sst": "a"})

    check_checkpoint(checkpoint, SETTINGS, {"sst": "a"})
    with pytest.raises(ValueError, match="is of a run with another seed: restore"):
        check_checkpoint(checkpoint, SETTINGS | {"seed": 2})
    with pytest.raises(ValueError, match="is of a run with other data of sst: restore"):
        check_checkpoint(checkpoint, SETTINGS, {"sst": "b"})


def test_another_order_of_tasks_is_another_run(tmp_path):
    args = TrainingArguments(output_dir=str(tmp_path / "run"), use_cpu=True)

    first = describe_settings(args, {"tasks": {"a": {}, "b": {}}})
    second = describe_settings(args, {"tasks": {"b": {}, "a": {}}})

    assert first != second


def test_a_folder_has_one_writer(tmp_path):
    with sole_writer(tmp_path), pytest.raises(ValueError, match="is being written by another"):
        sole_writer(tmp_path).__enter__()

    with sole_writer(tmp_path):
        assert (tmp_path / "_run.lock").is_file()


def test_a_run_goes_on_from_the_commit_of_its_model(tmp_path):
    recipe = small_run.make_recipe(tmp_path) | {"model_name_or_path": "owner/name"}
    recipe["model_config"] = {}
    with open_run("finetune", QUICKSTART, recipe, is_command=False, is_dry=False) as run:
        start_run(run.output_dir, run.settings, {}, {"model_name_or_path": "abc"})

    recipe["resume_from_checkpoint"] = "true"
    with open_run("finetune", QUICKSTART, recipe, is_command=False, is_dry=False) as run:
        assert run.arguments.revision == "abc"
        assert run.settings["revision"] is None


def test_a_run_within_another_one_of_the_process_is_refused(tmp_path):
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    with open_run("finetune", QUICKSTART, recipe, is_command=False, is_dry=True) as run:
        for start in (minbert.finetune, minbert.check):
            with pytest.raises(ValueError, match="would draw from the same random state"):
                start(recipe)
        assert not (tmp_path / run.output_dir).exists()
    minbert.check(recipe)
