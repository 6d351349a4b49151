"""Regression against torch, transformers, scikit-learn and scipy."""

import datasets
import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F

from modeling_minbert import MinBertForMultiTask, parse_task
from tests.small_run import load_rows
from tests.trainers import tiny
from trainers import PROBLEMS, Predicted

KIND = "regression"
TARGETS = ["price", "age", "weight"]
MEAN, STD = [1e5, 3.0, -0.01], [2e4, 1.5, 1e-3]
MISSING = -100.0


def make_model(**keys):
    torch.manual_seed(0)
    task = {"problem_type": KIND, "targets": TARGETS, "dropout": 0.0, **keys}
    return MinBertForMultiTask(tiny.make_config({"size": task})).eval()


def make_rows(targets=3, separate=False):
    rows = tiny.make_rows("scores" if separate else "moods", 12).remove_columns("labels")
    normal = np.random.default_rng(0).standard_normal((12, 3))
    labels = (np.asarray(MEAN) + np.asarray(STD) * normal).tolist()
    labels[1][2] = labels[4][0] = MISSING
    labels = labels if targets == 3 else [row[1] for row in labels]
    value = datasets.Value("float32")
    value = value if targets == 1 else datasets.List(value, length=3)
    return rows.add_column("labels", labels).cast_column("labels", value)


# Data


def load(folder, content, **keys):
    keys = {"problem_type": KIND, "text_columns": "text", **keys}
    return load_rows(folder, "a.csv", content, **keys)


def test_mean_and_deviation_are_those_of_scikit_learn(tmp_path):
    generator = np.random.default_rng(0)
    values = generator.normal([1e5, 3], [2e4, 1], (40, 2)).astype(np.float32)
    values[generator.random((40, 2)) < 0.2] = np.nan
    values[0] = 1.0
    lines = [f"text {n},{a},{b}" for n, (a, b) in enumerate(values.tolist())]
    text = "\n".join(["text,price,age", *lines]).replace("nan", "") + "\n"

    facts = load(tmp_path, text, label_columns=["price", "age"]).head_facts()

    kept = values[~np.isnan(values).all(axis=1)]
    scaler = StandardScaler().fit(kept.astype(np.float64))
    np.testing.assert_allclose(facts["mean"], scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(facts["std"], scaler.scale_, rtol=1e-12)


def test_a_target_of_minus_100_is_no_missing_one(tmp_path):
    text = "text,degrees\na,-100\nb,-99.5\nc,-101\n"

    loaded = load(tmp_path, text, label_column="degrees")

    labels = loaded.splits["train"]["label"][:]
    assert labels == pytest.approx([-100, -99.5, -101])
    assert MISSING not in labels
    assert loaded.head_facts()["mean"] == [pytest.approx(np.mean([-100, -99.5, -101]))]


def test_a_target_without_a_number_is_refused(tmp_path):
    rows = "".join(f"text {n},{n},\n" for n in range(20))
    loaded = load(tmp_path, "text,price,age\n" + rows, label_columns=["price", "age"])

    with pytest.raises(ValueError, match="no training row has a number in column 'age'"):
        loaded.head_facts()


# Model


def scale(labels):
    return (torch.as_tensor(labels).double() - torch.tensor(MEAN).double()) / torch.tensor(STD)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "keys", [{}, {"head": "mlp"}, {"pair_encoding": "separate", "head": "concat"}]
)
def test_the_loss_is_torchs_of_standardized_targets(keys, packed):
    model = make_model(mean=MEAN, std=STD, **keys)
    rows = make_rows(separate=len(keys) == 2)

    outputs = model(**tiny.collate("size", rows, packed=packed))

    labels = torch.tensor(rows["labels"][:])
    given = labels != MISSING
    expected = F.mse_loss(scale(outputs.logits)[given], scale(labels)[given])
    assert given.sum() == 34
    torch.testing.assert_close(outputs.loss.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_model_in_bfloat16_keeps_the_digits_of_the_mean():
    model = make_model(mean=[1990.5, 3, 0]).bfloat16()

    logits = model(**tiny.collate("size", make_rows()))["logits"]

    assert logits.dtype == torch.float32
    assert (logits[:, 0] - 1990.5).abs().max() < 0.5


# Metrics


def draw(count=30, targets=3):
    generator = np.random.default_rng(0)
    labels = generator.normal(MEAN[:targets], STD[:targets], (count, targets))
    predictions = labels + generator.normal(0, STD[:targets], (count, targets))
    labels[generator.random((count, targets)) < 0.2] = MISSING
    predictions[3:5], labels[3:5] = predictions[3], labels[3]  # ties
    return predictions, labels


PEERS = {
    "r2": lambda p, y: r2_score(y, p),
    "rmse": lambda p, y: root_mean_squared_error(y, p),
    "mae": lambda p, y: mean_absolute_error(y, p),
    "pearson": lambda p, y: pearsonr(p, y).statistic,
    "spearman": lambda p, y: spearmanr(p, y).statistic,
}


def make_problem(*metrics, **fields):
    spec = parse_task("size", {"problem_type": KIND, **fields})
    return PROBLEMS[KIND]("size", spec, metrics)


def measure(predictions, labels, head=None):
    problem = make_problem(**head or {"targets": TARGETS[: labels.shape[1]]})
    if labels.shape[1] == 1:
        predictions, labels = predictions[:, 0], labels[:, 0]
    outputs = Predicted(None, predictions, labels)
    return problem.compute_metrics(outputs), problem, outputs


@pytest.mark.parametrize("targets", [1, 3])
def test_metrics_are_those_of_scikit_learn_and_scipy(targets):
    predictions, labels = draw(targets=targets)

    metrics, problem, outputs = measure(predictions, labels)

    for name, peer in PEERS.items():
        given = [labels[:, number] != MISSING for number in range(targets)]
        values = [peer(predictions[x, n], labels[x, n]) for n, x in enumerate(given)]
        assert metrics[name] == pytest.approx(np.mean(values), rel=1e-10)
        if targets > 1:
            found = [one[name] for one in problem.describe_types(outputs)]
            assert found == pytest.approx(values, rel=1e-10)
    assert problem.headline == ("r2",)


def test_a_target_without_labels_is_left_out():
    predictions, labels = draw()
    labels[:, 1] = MISSING

    metrics, problem, outputs = measure(predictions, labels)

    others, *_ = measure(predictions[:, [0, 2]], labels[:, [0, 2]], {"targets": ["a", "b"]})
    assert metrics == pytest.approx(others)
    assert [one["labelled"] for one in problem.describe_types(outputs)][1] == 0
    assert problem.describe_types(outputs)[1]["rmse"] is None


# Training


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1.0, 2.0, float("nan")]] * 3, "row 0: the label .* -100 for none; got .*nan"),
        ([[1.0, 2.0, 3.0], [1.0, 2.0]], "row 1: the label of a regression is 3 numbers"),
        ([[1.0, None, 3.0]], "row 0: the label of a regression is 3 numbers"),
        ([1.0] * 3, "is 3 numbers, -100 for none; got 1.0"),
        (["1"], "is 3 numbers, -100 for none; got '1'"),
    ],
)
def test_rows_are_checked_before_training(labels, message):
    problem = make_problem(targets=TARGETS)
    problem.check("rows", make_rows())
    rows = datasets.Dataset.from_dict({"input_ids": [[1]] * len(labels), "labels": labels})

    with pytest.raises(ValueError, match=message):
        problem.check("rows", rows)
