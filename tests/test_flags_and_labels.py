"""Flags of experiments are those of fine-tuning; rows that are skipped make no classes."""

import pytest
import yaml

from datasets_scripts import TaskData, load_task
from minbert_cli.arguments import FinetuneArguments, ProgramTrainingArguments
from minbert_cli.experiments.experiment_arguments import parse_experiments
from minbert_cli.experiments.planning import plan_rows
from minbert_cli.recipe import parse_recipe
from tests import small_run
from trainers import UsageError


def load(tmp_path, text, **keys):
    """Load the rows of a file."""
    (tmp_path / "rows.tsv").write_text(text)
    keys = {"text_columns": ["text"], "label_column": "label"} | keys
    keys["train_file"] = str(tmp_path / "rows.tsv")
    return load_task(TaskData.from_recipe("mine", keys, None))


ROWS = "".join(f"text {number}\t{'good' if number % 2 else 'bad'}\n" for number in range(200))


@pytest.mark.parametrize("problem_type", ["classification", "multi_label_classification"])
def test_the_label_of_a_row_without_text_is_no_class(tmp_path, problem_type):
    loaded = load(tmp_path, f"text\tlabel\n{ROWS}\tugly\n", problem_type=problem_type)

    assert loaded.labels == ("bad", "good")
    assert len(loaded.bad_rows) == 1


@pytest.fixture
def plan(tmp_path):
    """Return a function that plans the runs of a row with flags."""
    small_run.write_files(tmp_path)
    base = small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))
    rows = {"base": base, "output_dir": str(tmp_path / "out"), "rows": {"a": {}}}

    def plan(*flags, **keys):
        (tmp_path / "rows.yaml").write_text(yaml.safe_dump(rows | keys))
        arguments, overrides, of_file = parse_experiments([str(tmp_path / "rows.yaml"), *flags])
        return [
            run for row in plan_rows(arguments, overrides, of_file) for run in row.runs.values()
        ]

    return plan


def test_experiments_select_tasks_by_name(plan):
    (run,) = plan("--tasks", "moods,scores")

    assert list(run.recipe["tasks"]) == ["moods", "scores"]
    with pytest.raises(ValueError, match=r"task 'mood'.*moods"):
        plan("--tasks", "mood")


def test_experiments_read_dashes_as_underscores(plan):
    (run,) = plan("--learning-rate", "0.5")

    assert run.recipe["learning_rate"] == 0.5
    assert "learning-rate" not in run.recipe


def test_experiments_start_from_a_checkpoint_instead_of_new_sizes(plan):
    (run,) = plan("--model_name_or_path", "owner/bert")

    assert run.recipe["model_name_or_path"] == "owner/bert"
    assert "model_config" not in run.recipe


@pytest.mark.parametrize("method", ["grid", "random"])
def test_every_search_names_its_objective(plan, method):
    search = {"fields": {"learning_rate": [0.1, 0.2]}, "method": method, "objective": "accuracy"}
    search |= {"trials": 2} if method == "random" else {}

    assert {run.objective for run in plan(rows={"a": {"search": search}})} == {"accuracy"}


def test_a_flag_with_many_commas_is_split_at_once(tmp_path):
    small_run.write_files(tmp_path)
    recipe = small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))
    kinds = (FinetuneArguments, ProgramTrainingArguments)

    with pytest.raises(UsageError, match="the recipe has no 'a'"):
        parse_recipe(kinds, [recipe, "--tasks", "a," * 5000])
