"""``minbert finetune`` refuses keys that contradict the rows."""

import re

import pytest

from minbert_cli import finetune
from tests import small_run


@pytest.fixture
def recipe(tmp_path):
    """Return a recipe of four steps of a task with labels and two without."""
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    files = {f"{split}_file": str(tmp_path / f"near-{name}.tsv") for split, name in SPLITS.items()}
    for name in SPLITS.values():
        rows = [(first, second, "not at all") for _, first, second, *_ in small_run.make_rows(name)]
        small_run.write_tsv(tmp_path / f"near-{name}.tsv", ("a", "b", "c"), rows)
    alike = {"problem_type": "contrastive", **files}
    moods = recipe["tasks"]["moods"] | {"class_weights": "balanced", "pooling_layer": -2}
    recipe["tasks"] = {
        "moods": moods,
        "alone": alike | {"text_columns": ["a"], "pooling": "cls", "projection": "training"},
        "near": alike | {"text_columns": ["a", "b", "c"]},
    }
    return recipe | {"steps_per_epoch": "2", "metric_for_best_model": "near_mrr"}


SPLITS = {"train": "train", "validation": "dev", "test": "test"}


@pytest.mark.parametrize(
    ("task", "change", "message"),
    [
        ("near", {"num_sentences": 2}, "num_sentences follows from the data; leave it"),
        ("near", {"class_weights": "balanced"}, "it is for classification, paraphrase"),
        ("moods", {"labels": ["bad", "good", "odd"]}, "no training row has the label 'odd'; give"),
        ("moods", {"class_weights": [1.0, 2.0, 3.0]}, "must be 2 numbers, one for each"),
    ],
)
def test_keys_that_contradict_the_rows_are_refused(tmp_path, recipe, capsys, task, change, message):
    recipe["tasks"][task] |= change

    with pytest.raises(SystemExit):
        finetune.main([small_run.write_recipe(tmp_path, recipe)])

    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "out" / "model.safetensors").exists()
