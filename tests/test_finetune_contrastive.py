"""``minbert finetune`` on tasks without labels, and weights that come from the rows."""

import json
import re

import numpy as np
import pytest
from sklearn.utils.class_weight import compute_class_weight

from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
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


def test_a_run_from_files_to_metrics(tmp_path, recipe, capsys):
    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    found = metrics["validation"]["metrics"]
    assert {name for name in found if name.startswith(("alone", "near"))} == {
        "alone_uniformity",
        "near_accuracy",
        "near_mrr",
        "near_alignment",
        "near_uniformity",
    }
    assert found["mean"] == found["moods_accuracy"]
    assert metrics["test"]["rows"] == {"alone": 5, "near": 5}
    assert "| near  | mrr" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out" / "predictions").iterdir()} == {
        "moods-dev.csv",
        "moods-dev.npz",
        "moods-test.csv",
        "moods-dev-output.csv",
        "moods-test-output.csv",
    }
    page = (tmp_path / "out" / "report.html").read_text()
    assert all(f"{value:.4f}" in page for value in found.values())
    assert page.count("<strong><bdi>Lower is better</bdi></strong>") == 2
    model = MinBertForMultiTask.from_pretrained(tmp_path / "out")
    assert model.config.default_task == "moods"
    assert model.config.task("near").num_sentences == 3
    assert model.config.task("moods").class_weights == balance(tmp_path)
    (score,) = model.predict("near", [("the garden is fine", "the garden is fine")])
    assert score == {"score": pytest.approx(1)}


def balance(folder):
    """Weight the classes as scikit-learn does."""
    lines = (folder / "moods-train.tsv").read_text().splitlines()[1:]
    labels = [line.split("\t")[2] for line in lines]
    weights = compute_class_weight("balanced", classes=np.array(["bad", "good"]), y=labels)
    return pytest.approx(weights.tolist())


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
