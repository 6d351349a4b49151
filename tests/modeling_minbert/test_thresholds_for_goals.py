"""Thresholds for a wanted precision or recall, against scikit-learn's precision-recall curve."""

import pytest
import torch
from sklearn.metrics import precision_recall_curve, precision_score, recall_score

from modeling_minbert import MinBertForMultiTask, choose_threshold
from tests.trainers import tiny


def draw(seed, count=80):
    """Draw probabilities, many of them equal, and labels that they tell something about."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.rand(count, generator=generator).mul(30).round().div(30)
    return values, torch.rand(count, generator=generator) < values**2


def measure(values, labels, threshold):
    predicted = values.double() > threshold
    return (
        precision_score(labels, predicted, zero_division=0),
        recall_score(labels, predicted),
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("least", [0.5, 0.7, 0.8])
def test_no_other_threshold_of_scikit_learn_is_better(seed, least):
    values, labels = draw(seed)
    precisions, recalls, _ = precision_recall_curve(labels, values)
    precisions, recalls = precisions[:-1], recalls[:-1]  # the last is without predictions

    precise = measure(values, labels, choose_threshold(values, labels, {"precision": least}))
    complete = measure(values, labels, choose_threshold(values, labels, {"recall": least}))

    if (precisions >= least).any():
        assert precise[0] >= least
        assert precise[1] == recalls[precisions >= least].max()
    else:
        assert precise[0] == precisions.max()
        assert precise[1] == recalls[precisions == precisions.max()].max()
    assert complete[1] >= least
    assert complete[0] == precisions[recalls >= least].max()


def make_model(**task):
    torch.manual_seed(0)
    return MinBertForMultiTask(tiny.make_config({"own": task})).eval()


def test_every_label_gets_its_own_threshold_and_keeps_it_without_rows():
    model = make_model(
        problem_type="multi_label_classification",
        labels=["a", "b", "c"],
        threshold_for={"precision": 0.8},
    )
    columns = [draw(seed, 200) for seed in (1, 2)]
    values, labels = (torch.stack([pair[part] for pair in columns], 1) for part in (0, 1))
    values, labels = (torch.cat([x, torch.zeros(200, 1)], dim=1) for x in (values, labels.float()))
    logits = torch.logit(values.clamp(0.01, 0.99))

    chosen = model.fit_threshold("own", logits, labels)

    decided = model.decode("own", logits)
    assert chosen[2] == 0.5
    assert chosen == model.config.task("own").thresholds
    for number in range(2):
        precisions, recalls, _ = precision_recall_curve(labels[:, number], values[:, number])
        found = decided[:, number], labels[:, number]
        assert precision_score(found[1], found[0]) >= 0.8
        assert recall_score(found[1], found[0]) == recalls[precisions >= 0.8].max()


@pytest.mark.parametrize("head", [{}, {"pair_encoding": "separate", "head": "cosine"}])
def test_a_paraphrase_is_decided_by_its_probability(head):
    model = make_model(problem_type="paraphrase", threshold_for={"recall": 0.9}, **head)
    values, labels = draw(3, 200)
    logits = torch.logit(values.clamp(0.01, 0.99)).unsqueeze(1)
    numbers = torch.cat([labels.long(), torch.tensor([-100])])

    chosen = model.fit_threshold("own", torch.cat([logits, logits[:1]]), numbers)

    precisions, recalls, _ = precision_recall_curve(labels, values)
    decided = model.decode("own", logits)
    assert recall_score(labels, decided) >= 0.9
    assert precision_score(labels, decided) == precisions[:-1][recalls[:-1] >= 0.9].max()
    assert [chosen] == model.config.task("own").thresholds
    (row,) = model.heads["own"].describe(torch.logit(torch.tensor([[chosen + 0.01]])), None)
    assert row == {"label": "paraphrase", "score": pytest.approx(chosen + 0.01)}


def test_a_goal_needs_probabilities():
    cosine = {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "cosine"}

    with pytest.raises(ValueError, match="needs probabilities, which loss 'cosine_embedding'"):
        make_model(**cosine, loss="cosine_embedding", threshold_for={"precision": 0.9})
    with pytest.raises(ValueError, match="it is for multi_label_classification, paraphrase tasks"):
        make_model(problem_type="classification", labels=["a", "b"], threshold_for={"recall": 1})
