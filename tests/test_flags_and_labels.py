"""Flags of experiments are those of fine-tuning; rows that are skipped make no classes."""

import pytest
import yaml

from datasets_scripts import TaskData, load_task
from minbert_cli.arguments import FinetuneArguments, ProgramTrainingArguments
from minbert_cli.experiments.plan import read_file
from minbert_cli.recipe import fill_arguments, parse_recipe
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


def test_flags_of_experiments_are_those_of_finetuning(tmp_path):
    """The one program reads them as the other: names of tasks, dashes, a start without sizes."""
    small_run.write_files(tmp_path)
    base = small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))
    rows = {"base": base, "output_dir": str(tmp_path / "out"), "rows": {"a": {}}}
    (tmp_path / "rows.yaml").write_text(yaml.safe_dump(rows))
    flags = ["--tasks", "scores, moods", "--learning-rate", "0.5"]
    flags += ["--model_name_or_path", "owner/bert", "--tasks.moods.pooling", "max"]
    kinds = (FinetuneArguments, ProgramTrainingArguments)

    _, (row,) = read_file([str(tmp_path / "rows.yaml"), *flags])

    (run,) = row.runs.values()
    arguments, args = fill_arguments(kinds, run.recipe, run.flags, where="")
    alone, args_alone = parse_recipe(kinds, [base, *flags])
    assert arguments == alone
    assert (args.learning_rate, args_alone.learning_rate) == (0.5, 0.5)
    assert list(arguments.tasks) == ["scores", "moods"]
    assert arguments.model_config is None


def test_a_flag_with_many_commas_is_split_at_once(tmp_path):
    small_run.write_files(tmp_path)
    recipe = small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))
    kinds = (FinetuneArguments, ProgramTrainingArguments)

    with pytest.raises(UsageError, match="the recipe has no 'a'"):
        parse_recipe(kinds, [recipe, "--tasks", "a," * 5000])
