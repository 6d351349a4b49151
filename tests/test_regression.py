"""Regression against torch, transformers, scikit-learn and scipy."""

import datasets
import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error
from sklearn.preprocessing import StandardScaler
from torch.nn import functional as F
from transformers import BertForSequenceClassification, BertTokenizer

from datasets_scripts import TaskData, load_task
from minbert_cli.exporting import compare
from minbert_cli.predicting import spread_scores
from modeling_minbert import MinBertForMultiTask, export_onnx
from modeling_minbert.tasks import parse_task
from tests.modeling_minbert.test_onnx import needs_onnx
from tests.trainers import tiny
from trainers import PROBLEMS, Predicted, Task, TaskCollator, TaskDataset

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


def make_batch(rows, **options):
    dataset = TaskDataset({"size": rows})
    return TaskCollator(0, **options)(dataset.__getitems__(list(range(len(rows)))))


# Data


def load(folder, name, text, **keys):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    files = {"train_file": str(path), "validation_file": str(path)}
    keys = {"problem_type": KIND, "text_columns": "text", **files, **keys}
    return load_task(TaskData.from_recipe("size", keys), folder / "cache")


TABLE = "text,price,age\na,900,3\nb,,4\nc,1100.5,\nd,-7,1e3\n"


@pytest.mark.parametrize("key", [{"label_column": "price"}, {"label_columns": ["price"]}])
def test_one_target_is_a_number(tmp_path, key):
    loaded = load(tmp_path, "a.csv", TABLE, **key, max_invalid_fraction=0.3)

    assert loaded.splits["train"]["label"][:] == [900, 1100.5, -7]
    assert [row.reason for row in loaded.bad_rows] == ["no label"] * 2
    assert loaded.head_facts()["targets"] == ("price",)


def test_mean_and_deviation_are_those_of_scikit_learn(tmp_path):
    generator = np.random.default_rng(0)
    values = generator.normal([1e5, 3], [2e4, 1], (40, 2)).astype(np.float32)
    values[generator.random((40, 2)) < 0.2] = np.nan
    values[0] = 1.0
    lines = [f"text {n},{a},{b}" for n, (a, b) in enumerate(values.tolist())]
    text = "\n".join(["text,price,age", *lines]).replace("nan", "") + "\n"

    facts = load(tmp_path, "a.csv", text, label_columns=["price", "age"]).head_facts()

    kept = values[~np.isnan(values).all(axis=1)]
    scaler = StandardScaler().fit(kept.astype(np.float64))
    np.testing.assert_allclose(facts["mean"], scaler.mean_, rtol=1e-12)
    np.testing.assert_allclose(facts["std"], scaler.scale_, rtol=1e-12)


def test_a_target_of_minus_100_is_no_missing_one(tmp_path):
    text = "text,degrees\na,-100\nb,-99.5\nc,-101\n"

    loaded = load(tmp_path, "a.csv", text, label_column="degrees")

    labels = loaded.splits["train"]["label"][:]
    assert labels == pytest.approx([-100, -99.5, -101])
    assert MISSING not in labels
    assert loaded.head_facts()["mean"] == [pytest.approx(np.mean([-100, -99.5, -101]))]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("7", "column 'age' is 7 in all training rows"),
        ("", "no training row has a number in column 'age'"),
    ],
)
def test_a_target_that_cannot_be_learned_is_refused(tmp_path, second, message):
    rows = "".join(f"text {n},{n},{second}\n" for n in range(20))
    (tmp_path / "a.csv").write_text("text,price,age\n" + rows)
    keys = {"problem_type": KIND, "text_columns": "text", "label_columns": ["price", "age"]}
    keys["train_file"] = str(tmp_path / "a.csv")
    loaded = load_task(TaskData.from_recipe("size", keys), tmp_path / "cache")

    with pytest.raises(ValueError, match=message):
        loaded.head_facts()


def test_targets_are_spread_over_both_splits(tmp_path):
    rows = "".join(f"text {n},{(n / 500) ** 4},{n if n % 2 else ''}\n" for n in range(500))
    (tmp_path / "a.csv").write_text("text,price,age\n" + rows)
    keys = {"problem_type": KIND, "text_columns": "text", "label_columns": ["price", "age"]}
    keys |= {"train_file": str(tmp_path / "a.csv"), "validation_share": 0.2}

    held = load_task(TaskData.from_recipe("size", keys), tmp_path / "cache").splits["validation"]

    prices = np.asarray(held["label"])[:, 0]
    counts, _ = np.histogram(prices, (np.arange(0, 501, 125) / 500) ** 4)
    assert len(held) == 100
    assert counts.min() >= 20


# Model


def scale(labels):
    return (torch.as_tensor(labels).double() - torch.tensor(MEAN).double()) / torch.tensor(STD)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("loss", ["mse", "huber"])
@pytest.mark.parametrize(
    "keys", [{}, {"head": "mlp"}, {"pair_encoding": "separate", "head": "concat"}]
)
def test_the_loss_is_torchs_of_standardized_targets(keys, loss, packed):
    model = make_model(mean=MEAN, std=STD, loss=loss, **keys)
    rows = make_rows(separate=len(keys) == 2)

    outputs = model(**make_batch(rows, packed=packed))

    labels = torch.tensor(rows["labels"][:])
    given = labels != MISSING
    compute = {"mse": F.mse_loss, "huber": F.huber_loss}[loss]
    expected = compute(scale(outputs.logits)[given], scale(labels)[given])
    assert given.sum() == 34
    torch.testing.assert_close(outputs.loss.double(), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [1, 3])
def test_transformers_computes_the_same(count):
    keys = {} if count == 3 else {"targets": None}
    model, batch = make_model(**keys).double(), make_batch(make_rows(targets=count))
    batch["labels"] = torch.randn(batch["labels"].shape, dtype=torch.float64)
    peer = BertForSequenceClassification(model.config.to_bert()).double().eval()
    names = {name: name.replace("heads.size.out", "classifier") for name in model.state_dict()}
    peer.load_state_dict({names[name]: x for name, x in model.state_dict().items()})

    found = model(**batch)
    expected = peer(**{name: x for name, x in batch.items() if name != "task"})
    for outputs in (found, expected):
        outputs.loss.backward()

    assert peer.config.problem_type == KIND
    assert peer.config.num_labels == count
    torch.testing.assert_close(found.logits, expected.logits, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.loss.double(), expected.loss, rtol=1e-6, atol=0)
    gradients = dict(peer.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(
            parameter.grad, gradients[names[name]].grad, rtol=1e-5, atol=1e-8
        )


def test_a_model_in_bfloat16_keeps_the_digits_of_the_mean():
    model = make_model(mean=[1990.5, 3, 0]).bfloat16()

    logits = model(**make_batch(make_rows()))["logits"]

    assert logits.dtype == torch.float32
    assert (logits[:, 0] - 1990.5).abs().max() < 0.5


def test_one_target_takes_columns_and_vectors():
    model, batch = make_model(targets=["age"]), make_batch(make_rows(targets=1))

    expected = model(**batch).loss

    torch.testing.assert_close(
        model(**{**batch, "labels": batch["labels"][:, None]}).loss, expected
    )
    whole = batch["labels"].round()
    torch.testing.assert_close(
        model(**{**batch, "labels": whole.long()}).loss, model(**{**batch, "labels": whole}).loss
    )
    assert model.decode("size", torch.ones(4, 1)).shape == (4,)
    with pytest.raises(ValueError, match=r"expected \(12,\)"):
        model(**make_batch(make_rows()))
    with pytest.raises(ValueError, match=r"expected \(12, 3\)"):
        make_model()(**batch)


def test_the_divergence_is_in_standard_deviations():
    model = make_model(mean=MEAN, std=STD)
    first, second = torch.tensor(MEAN) + torch.tensor(STD) * torch.randn(2, 5, 3)

    found = model.divergence("size", first, second)

    expected = F.mse_loss(scale(first), scale(second))
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0)


def test_a_recipe_cannot_set_what_the_rows_tell():
    with pytest.raises(ValueError, match="mean follows from the data; leave it out"):
        make_model().config.task("size").complete({"mean": [0]}, {"num_texts": 1, "max_length": 8})


@needs_onnx
@pytest.mark.parametrize("mean", [[1e5, 3.0, -0.01], [-1e7, 0, 5]])
def test_an_export_is_compared_in_standard_deviations(tmp_path, mean):
    model = make_model(mean=mean, std=STD)
    path = export_onnx(model, tmp_path, task="size")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)})

    assert "equals the model" in compare(path, model, "size", tokenizer)
    with torch.no_grad():
        model.heads.size.out.bias += 1e-3
    with pytest.raises(ValueError, match=r"differs from the model by 1\.0e-03"):
        compare(path, model, "size", tokenizer)


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


@pytest.mark.parametrize("changed", ["labels", "predictions", "rows"])
def test_undefined_metrics_are_zero_with_a_warning(changed, caplog):
    predictions, labels = draw(targets=1)
    labels[:] = 5.0 if changed == "labels" else labels
    predictions[:] = 0.1 + 0.2 if changed == "predictions" else predictions
    count = 1 if changed == "rows" else 30

    metrics, *_ = measure(predictions[:count], np.abs(labels[:count]))

    assert metrics["pearson"] == metrics["spearman"] == 0.0
    assert "pearson is undefined" in caplog.text
    assert ("r2 is undefined" in caplog.text) == (changed != "predictions")
    assert metrics["rmse"] > 0


def test_a_target_without_labels_is_left_out():
    predictions, labels = draw()
    labels[:, 1] = MISSING

    metrics, problem, outputs = measure(predictions, labels)

    others, *_ = measure(predictions[:, [0, 2]], labels[:, [0, 2]], {"targets": ["a", "b"]})
    assert metrics == pytest.approx(others)
    assert [one["labelled"] for one in problem.describe_types(outputs)][1] == 0
    assert problem.describe_types(outputs)[1]["rmse"] is None


def test_an_error_cannot_be_averaged_with_other_tasks():
    PROBLEMS[KIND]("size", metrics=("pearson", "spearman"))
    with pytest.raises(ValueError, match="metric_for_best_model: size_rmse and greater_is_better"):
        PROBLEMS[KIND]("size", metrics=("rmse",))
    with pytest.raises(ValueError, match="unknown regression metric 'r'"):
        PROBLEMS[KIND]("size", metrics=("r",))


# Training


def test_a_target_with_the_name_of_a_column_needs_json():
    with pytest.raises(ValueError, match=r"'text' has the name of another column .* jsonl"):
        spread_scores({"scores": {"text": 1.0}, "text": "a text"})


def make_linear_rows(count, seed):
    """Make rows whose targets are linear in the mean of the values of their tokens."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(1, tiny.VOCABULARY, size=(count, 6))
    values = np.random.default_rng(9).normal(size=(tiny.VOCABULARY, 2))[ids].mean(axis=1)
    labels = np.asarray([5e4, -3]) + np.asarray([2e4, 0.02]) * values
    columns = {"input_ids": ids.tolist(), "token_type_ids": np.zeros_like(ids).tolist()}
    return datasets.Dataset.from_dict({**columns, "labels": labels.tolist()}), labels


def test_training_fits_a_linear_function_in_the_units_of_its_targets(tmp_path):
    (train, labels), (held, expected) = make_linear_rows(256, 1), make_linear_rows(64, 2)
    scaler = StandardScaler().fit(labels)
    task = {"problem_type": KIND, "targets": ["price", "age"], "pooling_layer": 0}
    task |= {"pooling": "mean", "dropout": 0.0}
    task |= {"mean": scaler.mean_.tolist(), "std": scaler.scale_.tolist()}
    torch.manual_seed(0)
    model = MinBertForMultiTask(tiny.make_config({"size": task}))
    trainer = tiny.make_trainer(
        tmp_path,
        model=model,
        own={"tasks": [Task("size", KIND, train, held)]},
        num_train_epochs=15,
        per_device_train_batch_size=32,
        learning_rate=0.03,
        logging_steps=1,
    )

    trainer.train()
    metrics = trainer.evaluate()

    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert losses[0] == pytest.approx(1, abs=0.5)  # that of the mean
    assert metrics["eval_size_r2"] > 0.97
    found = trainer.predict_task("size", held)
    assert r2_score(expected, found) == pytest.approx(metrics["eval_size_r2"], abs=1e-4)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1.0, 2.0, float("nan")]] * 3, "row 0: the label .* is not finite; give -100"),
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
