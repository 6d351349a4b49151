"""Temperatures against scipy and scikit-learn; probabilities change by them, decisions never."""

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from modeling_minbert import find_temperature

PLAIN = {
    "tone": {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
    "same": {"problem_type": "paraphrase"},
    "topics": {"problem_type": "multi_label_classification", "labels": ["a", "b", "c"]},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-PER", "I-PER"]},
}
ROWS = {
    "tone": ["the cat sat", "far in the tree"],
    "same": [("the cat", "a cat"), ("the tree", "the cat sat")],
    "topics": ["the cat sat", "far in the tree"],
    "tags": ["the cat sat", "far in the tree"],
}


def with_fields(fields):
    return {name: task | fields.get(name, {}) for name, task in PLAIN.items()}


@pytest.fixture
def build(build_multitask, tokenizer):
    """Return a maker of models with the same weights, some tasks with more fields."""

    def make(**fields):
        return build_multitask(with_fields(fields), tokenizer)

    return make


def draw_classes(count=4000, seed=0):
    """Draw logits of four classes, and labels with exactly their probabilities."""
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, 4, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator).squeeze(1)
    return logits, labels


def draw_yes(shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
    return logits, (torch.rand(shape, generator=generator) < logits.sigmoid()).double()


def minimize(loss):
    return minimize_scalar(loss, bounds=(0.02, 50), method="bounded", options={"xatol": 1e-10}).x


class Logits(ClassifierMixin, BaseEstimator):
    """A classifier of scikit-learn whose rows are its logits."""

    def fit(self, rows, labels):  # noqa: ARG002  as scikit-learn calls it
        self.classes_ = np.unique(labels)
        return self

    def decision_function(self, rows):
        return rows

    def predict(self, rows):
        return rows.argmax(axis=1)


@pytest.mark.parametrize("factor", [0.3, 1, 3])
def test_the_temperature_of_classes_is_scipys_and_scikit_learns(factor):
    logits, labels = draw_classes()
    given, numbers = (factor * logits).numpy(), labels.numpy()

    found = find_temperature(factor * logits, labels, is_binary=False)

    rows = np.arange(len(given))
    best = minimize(lambda x: -log_softmax(given / x, axis=1)[rows, numbers].mean())
    peer = CalibratedClassifierCV(
        FrozenEstimator(Logits().fit(given, numbers)), method="temperature"
    )
    (fitted,) = peer.fit(given, numbers).calibrated_classifiers_
    assert found == pytest.approx(best, rel=1e-6)
    assert found == pytest.approx(1 / fitted.calibrators[0].beta_, rel=1e-4)
    assert found == pytest.approx(factor, rel=0.05)


@pytest.mark.parametrize("factor", [0.3, 1, 3])
@pytest.mark.parametrize("shape", [(4000, 1), (2000, 3)])
def test_the_temperature_of_binary_logits_is_scipys(shape, factor):
    logits, labels = draw_yes(shape)
    given, wanted = (factor * logits).numpy(), labels.numpy()

    found = find_temperature(factor * logits, labels.squeeze(-1), is_binary=True)

    signs = 2 * wanted - 1
    best = minimize(lambda x: -np.log(expit(signs * given / x)).mean())
    assert found == pytest.approx(best, rel=1e-6)
    assert found == pytest.approx(factor, rel=0.1)


def test_rows_without_labels_or_finite_logits_do_not_count(build):
    logits, labels = draw_classes(300)
    expected = build().fit_temperature("tone", logits[:, :3], labels.clamp(max=2))

    more = torch.cat([logits[:, :3], torch.full((2, 3), torch.nan), 9 * torch.rand(5, 3)])
    numbers = torch.cat([labels.clamp(max=2), torch.tensor([0, 1]), torch.full((5,), -100)])
    found = build().fit_temperature("tone", more, numbers)

    assert found == expected
    shaped = more[:304].unflatten(0, (4, 76)), numbers[:304].unflatten(0, (4, 76))
    found = build().fit_temperature("tags", *shaped)  # B rows of L tokens
    assert found == pytest.approx(expected, rel=1e-9)
    many, given = draw_yes((300, 3))
    expected = find_temperature(many, given, is_binary=True)
    holes = torch.cat([many, 5 * torch.ones(300, 3)])
    found = build().fit_temperature(
        "topics", holes, torch.cat([given, torch.full((300, 3), -100.0)])
    )
    assert found == pytest.approx(expected, rel=1e-9)


def test_without_a_best_temperature_probabilities_stay(build):
    model = build(tone={"temperature": 2.0})
    logits, _ = draw_classes(50)
    logits = logits[:, :3]

    assert model.fit_temperature("tone", logits, logits.argmax(dim=1)) is None
    assert model.config.task("tone").temperature is None
    assert model.fit_temperature("tone", logits, logits.argmin(dim=1)) is None


DECIDED = [
    ("tone", {}, 3),
    ("same", {}, 1),
    ("same", {"thresholds": [0.7]}, 1),
    ("same", {"pair_encoding": "separate", "head": "cosine", "loss": "bce"}, 1),
    ("topics", {}, 3),
    ("tags", {}, 3),
]


@pytest.mark.parametrize("factor", [0.1, 0.5, 4])
@pytest.mark.parametrize(("task", "fields", "width"), DECIDED)
def test_no_temperature_changes_a_decision(build, task, fields, width, factor):
    model = build(**{task: fields})
    logits, given = draw_yes((2000, width))
    given[1::2] = given[::2]
    labels = {"tone": given.argmax(dim=1), "tags": given.argmax(dim=1), "same": given.squeeze(1)}
    labels = labels.get(task, given)
    # float32, as from the model, with many nearly equal ones
    logits = (factor * logits).float()
    logits[1::2] = torch.nextafter(logits[::2], torch.tensor(torch.inf))
    if task == "topics":
        model.fit_threshold(task, logits, labels)
    before = model.decode(task, logits)

    temperature = model.fit_temperature(task, logits, labels)

    assert abs(temperature - 1) > 0.1
    assert torch.equal(model.decode(task, logits), before)
    moved = model.config.task(task)
    model.fit_temperature(task, 7 * logits, labels)  # another one in place of the first
    assert torch.equal(model.decode(task, logits), before)
    assert model.config.task(task).temperature == pytest.approx(7 * moved.temperature)


def test_thresholds_are_on_calibrated_probabilities(build):
    logits, given = draw_yes((500, 3))
    model = build()
    model.fit_threshold("topics", 3 * logits, given)
    temperature = model.fit_temperature("topics", 3 * logits, given)

    thresholds = torch.tensor(model.config.task("topics").thresholds)

    probabilities = (3 * logits / temperature).sigmoid()
    assert torch.equal((probabilities > thresholds).long(), model.decode("topics", 3 * logits))
    again = model.fit_threshold("topics", 3 * logits, given)
    assert again == pytest.approx(thresholds.tolist(), abs=1e-6)


def scores_of(predictions):
    """List all probabilities of predictions."""
    flat = [row if isinstance(row, list) else [row] for row in predictions]
    found = [one.get("scores", one.get("score")) for row in flat for one in row]
    return np.hstack(found).tolist() if found else []


@pytest.mark.parametrize("task", PLAIN)
def test_predictions_have_the_probabilities_of_divided_logits(build, task):
    plain, warm = build(), build(**{task: {"temperature": 2.5}})
    # an inverse oracle: weights divided by the temperature, and no temperature
    cold = build()
    with torch.no_grad():
        for weight in cold.heads[task].parameters():
            weight.div_(2.5)

    predicted = [model.predict(task, ROWS[task]) for model in (plain, warm, cold)]

    for name in ("label", "tags"):
        found = [[row.get(name) for row in rows if isinstance(row, dict)] for rows in predicted]
        assert found[0] == found[1]
    expected = scores_of(predicted[2])
    assert scores_of(predicted[1]) == pytest.approx(expected, abs=1e-6)
    if task != "topics":
        assert scores_of(predicted[0]) != pytest.approx(expected, abs=1e-3)
    if task != "tags":
        top = warm.predict(task, ROWS[task], top_k=3)
        assert scores_of(top) == pytest.approx(
            scores_of(cold.predict(task, ROWS[task], top_k=3)), abs=1e-6
        )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tone": {"temperature": 0}}, "temperature=0 must be above 0"),
        ({"tone": {"temperature": float("inf")}}, "must be above 0"),
        (
            {
                "same": {"calibrate": True, "pair_encoding": "separate", "head": "cosine"}
                | {"loss": "mse"}
            },
            "needs probabilities, which loss 'mse' does not train",
        ),
        ({"same": {"thresholds": [1.5]}}, r"must be one number in \[0, 1\]"),
    ],
)
def test_fields_are_checked(build, fields, message):
    with pytest.raises(ValueError, match=message):
        build(**fields)


def test_a_fit_needs_labels(build):
    with pytest.raises(ValueError, match="no labeled rows"):
        build().fit_temperature("tone", torch.ones(2, 3), torch.full((2,), -100))
