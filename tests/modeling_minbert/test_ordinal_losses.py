"""CORN against its formula, written out in float64, and numbers by hand."""

import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask, export_onnx
from tests.modeling_minbert.test_onnx import assert_equal_everywhere, needs_onnx
from tests.trainers import tiny
from trainers import TaskCollator, TaskDataset

CLASSES = 5
EXACT = {"atol": 1e-5, "rtol": 1e-5, "check_dtype": False}


def make_model(count=CLASSES, **keys):
    torch.manual_seed(0)
    labels = [str(number) for number in range(count)]
    task = {"problem_type": "ordinal", "labels": labels, "dropout": 0.0, **keys}
    return MinBertForMultiTask(tiny.make_config({"stars": task})).eval()


def make_scores(rows=40, count=CLASSES, scale=3.0):
    torch.manual_seed(1)
    return (scale * torch.randn(rows, count - 1)).requires_grad_(), torch.randint(count, (rows,))


def make_batch(separate=False, **options):
    rows = tiny.make_rows("scores" if separate else "moods", 12)
    rows = rows.remove_columns("labels").add_column("labels", [n % CLASSES for n in range(12)])
    dataset = TaskDataset({"stars": rows})
    return TaskCollator(0, **options)(dataset.__getitems__(list(range(len(rows)))))


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


def test_corn_by_hand():
    # log 3 is the logit of 3/4; the questions of three rows: one of label 0, two of 1, two of 2
    logits = math.log(3) * torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])

    loss = make_model(3).heads["stars"].loss(None, logits, torch.tensor([0, 1, 2]))

    quarter, rest = -math.log(1 / 4), -math.log(3 / 4)
    assert loss.item() == pytest.approx((quarter + 4 * rest) / 5)


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


def test_rows_without_a_label_do_not_count():
    head, (scores, labels) = make_model().heads["stars"], make_scores()
    filled = labels.where(torch.arange(40) < 30, -100)

    assert_close(head.loss(None, scores, filled), head.loss(None, scores[:30], labels[:30]))
    assert head.loss(None, scores, torch.full_like(labels, -100)).item() == 0


def test_the_prediction_has_the_least_expected_absolute_error():
    head = make_model().heads["stars"]
    logits = head.to_logits(make_scores(rows=200)[0])

    probabilities = logits.exp()
    distances = (torch.arange(CLASSES)[:, None] - torch.arange(CLASSES)).abs().float()
    assert_close(probabilities.sum(dim=-1), torch.ones(200))
    assert torch.equal(head.decode(logits), (probabilities @ distances).argmin(dim=-1))
    assert not torch.equal(head.decode(logits), logits.argmax(dim=-1))


def test_the_divergence_is_that_of_the_classes():
    model, scores = make_model(), make_scores()[0]
    first, second = (model.heads["stars"].to_logits(each) for each in (scores, 0.5 * scores))

    p, q = Categorical(logits=first), Categorical(logits=second)
    expected = (kl_divergence(p, q) + kl_divergence(q, p)).mean()
    assert_close(model.divergence("stars", first, second), expected)


@pytest.mark.parametrize("keys", [{"head": "mlp"}, {"pair_encoding": "separate"}])
def test_packed_rows_and_pairs_give_the_same(keys):
    model, separate = make_model(**keys), "pair_encoding" in keys

    padded = model(**make_batch(separate))
    packed = model(**make_batch(separate, packed=True))

    assert padded.logits.shape == (12, CLASSES)
    assert_close(packed.logits, padded.logits, **EXACT)
    assert_close(packed.loss, padded.loss, **EXACT)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pair_encoding": "separate", "head": "cosine"}, "does not fit problem_type 'ordinal'"),
        ({"loss": "cross_entropy"}, "known: corn"),
        ({"labels": ["one"]}, "at least two"),
        ({"class_weights": [1, 2]}, "no key 'class_weights'"),
    ],
)
def test_a_task_is_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        make_model(**keys)


@needs_onnx
def test_onnx_computes_the_same(tmp_path):
    model = make_model()
    path = export_onnx(model, tmp_path, task="stars")

    assert_equal_everywhere(path, lambda **x: model(**x, task="stars"), None, tiny.VOCABULARY)
