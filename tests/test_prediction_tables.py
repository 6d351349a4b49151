"""``predictions/<task>-<split>.csv``: texts, labels and predictions by name."""

import csv
import json

import numpy as np
import pytest

from tests import small_run

ODD = 'a "quoted", comma\tand a tab; ünïcode'


def read(folder, stem):
    with (folder / "predictions" / f"{stem}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def train(folder, **changes):
    """Run the recipe of three small tasks for a few steps; return its folder."""
    recipe = small_run.make_recipe(folder) | {"max_steps": 6, "eval_strategy": "no"}
    recipe |= {"save_strategy": "no", "output_dir": str(folder / "out")} | changes
    small_run.train(small_run.write_recipe(folder, recipe))
    return folder / "out"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train on rows whose texts need quotes."""
    folder = tmp_path_factory.mktemp("tables")
    small_run.write_files(folder)
    path = folder / "scores-dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0] |= {"a": f"{ODD}\nsecond line", "b": ODD}
    small_run.write_jsonl(path, rows)
    return train(folder)


def test_pairs_have_two_texts_which_are_quoted(run):
    rows = read(run, "scores-dev")

    assert list(rows[0]) == ["id", "text1", "text2", "label", "prediction"]
    assert (rows[0]["text1"], rows[0]["text2"]) == (f"{ODD}\nsecond line", ODD)
    with (run / "predictions" / "scores-dev-output.csv").open() as file:
        values = [line.rpartition(" , ")[2] for line in file][1:]
    predictions = [float(row["prediction"]) for row in rows]
    np.testing.assert_allclose(predictions, [float(value) for value in values])


def test_no_text_is_shown_if_none_may_be_quoted(tmp_path):
    small_run.write_files(tmp_path)
    folder = train(tmp_path, report_examples=0)

    assert list(read(folder, "pairs-dev")[0]) == ["id", "label", "prediction", "probability"]
