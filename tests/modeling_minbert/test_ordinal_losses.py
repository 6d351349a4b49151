"""CORN against its formula, written out in float64, and numbers by hand."""

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny

CLASSES = 5
EXACT = {"atol": 1e-5, "rtol": 1e-5, "check_dtype": False}


def make_model(count=CLASSES):
    torch.manual_seed(0)
    labels = [str(number) for number in range(count)]
    task = {"problem_type": "ordinal", "labels": labels, "dropout": 0.0}
    return MinBertForMultiTask(tiny.make_config({"stars": task})).eval()


def make_scores(rows=40, count=CLASSES, scale=3.0):
    torch.manual_seed(1)
    return (scale * torch.randn(rows, count - 1)).requires_grad_(), torch.randint(count, (rows,))


def corn_of_the_paper(logits, labels):
    """Average over the conditional subsets, one binary question after the other."""
    total, count = torch.zeros((), dtype=torch.float64), 0
    for level, column in enumerate(logits.double().unbind(dim=1)):
        subset = [row for row, label in enumerate(labels.tolist()) if label > level - 1]
        for row in subset:
            probability = torch.sigmoid(column[row])
            total = total - torch.log(probability if labels[row] > level else 1 - probability)
        count += len(subset)
    return total / count


@pytest.mark.parametrize("count", [2, 5])
def test_corn_equals_the_formula_of_the_paper(count):
    logits, labels = make_scores(count=count)

    loss = make_model(count).heads["stars"].loss(None, logits, labels)

    expected = corn_of_the_paper(logits, labels)
    assert_close(loss, expected, **EXACT)
    assert_close(*(torch.autograd.grad(each, logits)[0] for each in (loss, expected)), **EXACT)


def test_corn_decodes_the_published_example():
    # of the documentation of coral_pytorch, by one of the paper's authors
    logits = torch.tensor([[14.152, -6.1942, 0.47710, 0.96850], [65.667, 0.303, 11.500, -4.524]])
    head = make_model().heads["stars"]

    assert head.decode(head.to_logits(logits)).tolist() == [1, 3]


def test_far_scores_have_finite_losses_and_gradients():
    scores, labels = make_scores(scale=1e5)

    value = make_model().heads["stars"].loss(None, scores, labels)

    assert value.isfinite()
    assert torch.autograd.grad(value, scores)[0].isfinite().all()


def test_the_prediction_has_the_least_expected_absolute_error():
    head = make_model().heads["stars"]
    logits = head.to_logits(make_scores(rows=200)[0])

    probabilities = logits.exp()
    distances = (torch.arange(CLASSES)[:, None] - torch.arange(CLASSES)).abs().float()
    assert_close(probabilities.sum(dim=-1), torch.ones(200))
    assert torch.equal(head.decode(logits), (probabilities @ distances).argmin(dim=-1))
    assert not torch.equal(head.decode(logits), logits.argmax(dim=-1))
