"""Evaluations are evenly spread."""

import re

import pytest

from minbert_cli import __main__ as minbert
from tests import small_run


@pytest.mark.parametrize("rows", [80, 100, 140, 250, 370])
def test_evaluations_are_evenly_spread_to_the_end(tmp_path, capsys, rows):
    recipe = small_run.make_recipe(tmp_path)
    small_run.write_files(tmp_path)
    for key in ("eval_strategy", "save_strategy", "steps_per_epoch", "num_train_epochs"):
        del recipe[key]
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    dev = [(number, "the garden is fine", "good") for number in range(rows * 10)]
    small_run.write_tsv(tmp_path / "moods-dev.tsv", ("id", "text", "mood"), dev)

    minbert.main(["check", small_run.write_recipe(tmp_path, recipe), "--max_steps", "30000"])

    printed = capsys.readouterr().out
    wanted = re.search(r"(\d+) evaluations of [\d,]+ rows", printed)
    planned = re.findall(r"(\d+) evaluations? of", printed)
    assert 2 <= int(wanted[1]) <= 10
    assert set(planned) == {wanted[1]}
