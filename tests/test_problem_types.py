"""Every problem type, end to end: train, evaluate, save, load, predict, report, resume."""

import csv
import json
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import yaml
from huggingface_hub import ModelCard
from sklearn.metrics import accuracy_score, f1_score

from datasets_scripts import ROW_KINDS
from modeling_minbert import TASKS, MinBertForMultiTask, heads
from tests import small_run
from tests.problem_examples import EXAMPLES
from trainers import PROBLEMS, ProblemType

# Types whose predictions R-Drop does not compare.
UNREGULARIZED = (
    *("contrastive", "token_classification", "question_answering"),
    *("masked_lm", "next_sentence", "pretraining"),
)
HALF = 3  # steps of the first of two epochs


def test_the_three_packages_have_the_same_problem_types():
    assert list(TASKS) == list(PROBLEMS)
    assert [name for name, task in TASKS.items() if not task.is_pretraining] == list(ROW_KINDS)
    assert get_args(ProblemType) == get_args(heads.ProblemType) == tuple(TASKS)
    assert TASKS.keys() == EXAMPLES.keys()
    for name, problem in PROBLEMS.items():
        assert problem.problem_type == name


def measure_labels(rows, predicted):
    """Measure sets of labels, of which a table has the names."""
    names = ("good", "outside", "same")
    labels, predictions = (
        np.array([[name in row for name in names] for row in values])
        for values in ([row["topics"] for row in rows], [row["prediction"] for row in predicted])
    )
    scores = {
        f"{average}_f1": f1_score(labels, predictions, average=average, zero_division=0)
        for average in ("micro", "macro")
    }
    return scores | {"accuracy": accuracy_score(labels, predictions)}


def measure_aspects(rows, predicted):
    """Measure two classes, of which some of the second are missing."""
    accuracies, scores = [], []
    for name in ("mood", "grade"):
        pairs = [
            (row[name], values[f"{name}_prediction"])
            for row, values in zip(rows, predicted, strict=True)
            if row[name] is not None
        ]
        labels, predictions = zip(*pairs, strict=True)
        accuracies.append(accuracy_score(labels, predictions))
        scores.append(f1_score(labels, predictions, average="macro"))
    right = [
        all(row[name] in (None, values[f"{name}_prediction"]) for name in ("mood", "grade"))
        for row, values in zip(rows, predicted, strict=True)
    ]
    means = {"accuracy": np.mean(accuracies), "macro_f1": np.mean(scores)}
    return means | {"exact_match": np.mean(right)}


MEASURES = {
    "multi_label_classification": measure_labels,
    "multi_output_classification": measure_aspects,
}


@pytest.fixture(scope="module", params=EXAMPLES)
def run(request, tmp_path_factory):
    """Train a task of each problem type beside a classification; returns type and folder."""
    folder = tmp_path_factory.mktemp(request.param)
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    task = {"problem_type": request.param, "batch_size": 4}
    task |= EXAMPLES[request.param].write(folder)
    if request.param in MEASURES:
        task["test_file"] = task["validation_file"]
    recipe["tasks"] = {"own": task, "moods": recipe["tasks"]["moods"] | {"calibrate": True}}
    recipe |= {"steps_per_epoch": HALF, "num_train_epochs": 2, "seed": 5, "r_drop": 1.0}
    printed = small_run.train(small_run.write_recipe(folder, recipe))
    (folder / "printed.txt").write_text(printed)
    return request.param, folder


def read_metrics(folder):
    return json.loads((folder / "out" / "metrics.json").read_text())["validation"]


def read_rows(folder):
    """Read the validation rows of the task."""
    task = yaml.safe_load((folder / "recipe.yaml").read_text())["tasks"]["own"]
    lines = Path(task["validation_file"]).read_text().splitlines()
    return [json.loads(line) for line in lines]


def read_predictions(folder):
    """Read the table of predictions."""
    with (folder / "out/predictions/own-dev.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_it_is_trained_and_measured_by_its_own_metrics(run):
    kind, folder = run
    own = {name for name in read_metrics(folder)["metrics"] if name.startswith("own_")}
    state = json.loads((folder / "out" / f"checkpoint-{2 * HALF}/trainer_state.json").read_text())
    logged = {name for entry in state["log_history"] for name in entry}

    assert f"own_{PROBLEMS[kind].metrics[0].name}" in own
    assert {
        f"eval_{name}" for name in own
    } <= logged  # one way to measure, in training and at the end
    assert "loss_own" in logged
    assert ("rdrop_divergence_own" in logged) == (kind not in UNREGULARIZED)


def test_its_page_and_its_card_have_its_metric(run):
    kind, folder = run
    page = (folder / "out" / "report.html").read_text()
    name = PROBLEMS[kind].metrics[0].name
    value = read_metrics(folder)["metrics"][f"own_{name}"]
    assert f"{value:.4f}" in page
    card = ModelCard.load(folder / "out" / "README.md")
    results = {(x.task_name, x.metric_type): x.metric_value for x in card.data.eval_results}
    assert results["own", name] == value
    if kind == "token_classification":  # that of every type of entity, too
        assert "| own  | THING |" in (folder / "printed.txt").read_text()
        assert "<bdi>Types</bdi>" in page


def test_a_resumed_run_equals_the_whole_one(run):
    _, folder = run

    small_run.assert_resumes(folder / "recipe.yaml", folder / "out", HALF)


@pytest.mark.parametrize("run", MEASURES, indirect=True)
def test_its_metrics_are_those_of_scikit_learn(run):
    kind, folder = run
    rows, predicted = read_rows(folder), read_predictions(folder)
    metrics = json.loads((folder / "out" / "metrics.json").read_text())

    assert [row["id"] for row in predicted] == [row["id"] for row in rows]
    measured = metrics["validation"]["metrics"]
    for name, value in MEASURES[kind](rows, predicted).items():
        assert measured[f"own_{name}"] == pytest.approx(value)
    for name, value in metrics["test"]["metrics"].items():  # the same rows
        assert measured[name] == value
    assert metrics["validation"]["standard_errors"]["own"] > 0


@pytest.mark.parametrize("run", [*MEASURES, "regression"], indirect=True)
def test_predict_gives_the_predictions_of_the_files(run):
    kind, folder = run
    model = MinBertForMultiTask.from_pretrained(folder / "out")
    rows = read_rows(folder)
    texts = [row["a"] for row in rows]

    predictions = model.predict("own", texts, precision="float32")

    for prediction, row in zip(predictions, read_predictions(folder), strict=True):
        if kind == "multi_label_classification":
            labels = [label["label"] for label in prediction]
            assert set(labels or ["none"]) == set(row["prediction"].split(", "))
        elif kind == "multi_output_classification":
            labels = {name: label["label"] for name, label in prediction["labels"].items()}
            assert labels == {name: row[f"{name}_prediction"] for name in ("mood", "grade")}
        elif kind == "regression":
            scores = {name: float(row[f"{name}_prediction"]) for name in ("price", "age")}
            assert prediction == {"scores": pytest.approx(scores, rel=1e-5)}
        else:
            assert prediction["label"] == row["prediction"]
