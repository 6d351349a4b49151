"""CORN and cumulative link against their formulas, written out in float64, and numbers by hand."""

import math

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask, MinBertModel, export_onnx
from modeling_minbert.losses import order_thresholds
from tests.modeling_minbert.test_onnx import assert_equal_everywhere, needs_onnx
from tests.trainers import tiny
from trainers import TaskCollator, TaskDataset

CLASSES = 5
LOSSES = ("corn", "cumulative_link")
EXACT = {"atol": 1e-5, "rtol": 1e-5, "check_dtype": False}


def make_model(count=CLASSES, **keys):
    torch.manual_seed(0)
    labels = [str(number) for number in range(count)]
    task = {"problem_type": "ordinal", "labels": labels, "dropout": 0.0, **keys}
    model = MinBertForMultiTask(tiny.make_config({"stars": task})).eval()
    if model.heads["stars"].thresholds_bias is not None:
        torch.nn.init.normal_(model.heads["stars"].thresholds_bias)
    return model


def make_head(loss, count=CLASSES):
    return make_model(count, loss=loss).heads["stars"]


def thresholds_of(head):
    first, gaps = order_thresholds(head.thresholds_bias)
    return torch.cat([first, first + gaps.cumsum(dim=0)])


def make_scores(loss, rows=40, count=CLASSES, scale=3.0):
    torch.manual_seed(1)
    width = count - 1 if loss == "corn" else 1
    return (scale * torch.randn(rows, width)).requires_grad_(), torch.randint(count, (rows,))


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


def proportional_odds(scores, labels, thresholds):
    """Average the negative logarithms of differences of P(y <= k) = sigmoid(t_k - s)."""
    at_most = torch.sigmoid(thresholds.double() - scores.double())
    ends = torch.zeros(len(scores), 1), torch.ones(len(scores), 1)
    classes = torch.cat([ends[0], at_most, ends[1]], dim=1).diff(dim=1)
    return -classes[torch.arange(len(scores)), labels].log().mean()


@pytest.mark.parametrize("count", [2, 3, 5])
def test_corn_equals_the_formula_of_the_paper(count):
    logits, labels = make_scores("corn", count=count)

    loss = make_head("corn", count).loss(None, logits, labels)

    expected = corn_of_the_paper(logits, labels)
    assert_close(loss, expected, **EXACT)
    assert_close(*(torch.autograd.grad(each, logits)[0] for each in (loss, expected)), **EXACT)


def test_corn_by_hand():
    # log 3 is the logit of 3/4; the questions of three rows: one of label 0, two of 1, two of 2
    logits = math.log(3) * torch.tensor([[1.0, 1.0], [1.0, -1.0], [1.0, 1.0]])

    loss = make_head("corn", 3).loss(None, logits, torch.tensor([0, 1, 2]))

    quarter, rest = -math.log(1 / 4), -math.log(3 / 4)
    assert loss.item() == pytest.approx((quarter + 4 * rest) / 5)


def test_corn_decodes_the_published_example():
    # of the documentation of coral_pytorch, by one of the paper's authors
    logits = torch.tensor([[14.152, -6.1942, 0.47710, 0.96850], [65.667, 0.303, 11.500, -4.524]])
    head = make_head("corn")

    assert head.decode(head.to_logits(logits)).tolist() == [1, 3]


@pytest.mark.parametrize("count", [2, 3, 5])
def test_cumulative_link_equals_its_formula(count):
    scores, labels = make_scores("cumulative_link", count=count)
    head = make_head("cumulative_link", count)
    learned = scores, head.thresholds_bias

    loss = head.loss(None, scores, labels)

    expected = proportional_odds(scores, labels, thresholds_of(head))
    assert_close(loss, expected, **EXACT)
    gradients = zip(*(torch.autograd.grad(each, learned) for each in (loss, expected)), strict=True)
    for ours, theirs in gradients:
        assert_close(ours, theirs, **EXACT)
        assert ours.abs().sum() > 0


@pytest.mark.parametrize("parameter", range(CLASSES - 1))
def test_the_gradient_of_a_threshold_is_the_slope_of_the_loss(parameter):
    scores, labels = make_scores("cumulative_link")
    head = make_head("cumulative_link")
    bias = head.thresholds_bias
    (gradient,) = torch.autograd.grad(head.loss(None, scores, labels), bias)

    ends = []
    for step in (-1e-2, 1e-2):
        with torch.no_grad():
            bias[parameter] += step
            ends.append(head.loss(None, scores, labels).item())
            bias[parameter] -= step

    assert gradient[parameter].item() == pytest.approx((ends[1] - ends[0]) / 2e-2, abs=1e-4)


@pytest.mark.parametrize("scale", [0.0, 3.0, 1000.0])
def test_thresholds_stay_in_order(scale):
    head = make_head("cumulative_link", 9)
    torch.nn.init.uniform_(head.thresholds_bias, -scale, scale)

    assert (order_thresholds(head.thresholds_bias)[1] > 0).all()
    assert (thresholds_of(head).diff() >= 0).all()
    assert head.to_logits(torch.zeros(1, 1)).isfinite().all()


@pytest.mark.parametrize("from_bert", [False, True])
def test_a_new_model_expects_all_classes_equally(tmp_path, from_bert):
    tasks = {"stars": {"problem_type": "ordinal", "labels": list("abcd")}}
    tasks["stars"]["loss"] = "cumulative_link"
    config = tiny.make_config(tasks)
    if from_bert:
        MinBertModel(tiny.make_config(None)).save_pretrained(tmp_path)
        head = MinBertForMultiTask.from_pretrained(tmp_path, tasks=tasks).heads["stars"]
    else:
        head = MinBertForMultiTask(config).heads["stars"]

    assert_close(head.to_logits(torch.zeros(1, 1)).exp(), torch.full((1, 4), 0.25))
    assert thresholds_of(head)[1].item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("loss", LOSSES)
def test_far_scores_have_finite_losses_and_gradients(loss):
    scores, labels = make_scores(loss, scale=1e5)

    value = make_head(loss).loss(None, scores, labels)

    assert value.isfinite()
    assert torch.autograd.grad(value, scores)[0].isfinite().all()


@pytest.mark.parametrize("loss", LOSSES)
def test_rows_without_a_label_do_not_count(loss):
    head = make_head(loss)
    scores, labels = make_scores(loss)
    filled = labels.where(torch.arange(40) < 30, -100)

    assert_close(head.loss(None, scores, filled), head.loss(None, scores[:30], labels[:30]))
    assert head.loss(None, scores, torch.full_like(labels, -100)).item() == 0


@pytest.mark.parametrize("loss", LOSSES)
def test_the_prediction_has_the_least_expected_absolute_error(loss):
    head = make_head(loss)
    logits = head.to_logits(make_scores(loss, rows=200)[0])

    probabilities = logits.exp()
    distances = (torch.arange(CLASSES)[:, None] - torch.arange(CLASSES)).abs().float()
    assert_close(probabilities.sum(dim=-1), torch.ones(200))
    assert torch.equal(head.decode(logits), (probabilities @ distances).argmin(dim=-1))
    assert not torch.equal(head.decode(logits), logits.argmax(dim=-1))


@pytest.mark.parametrize("loss", LOSSES)
def test_the_divergence_is_that_of_the_classes(loss):
    model = make_model(loss=loss)
    scores = make_scores(loss)[0]
    first, second = (model.heads["stars"].to_logits(each) for each in (scores, 0.5 * scores))

    p, q = Categorical(logits=first), Categorical(logits=second)
    expected = (kl_divergence(p, q) + kl_divergence(q, p)).mean()
    assert_close(model.divergence("stars", first, second), expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "keys", [{}, {"head": "mlp"}, {"pair_encoding": "joint"}, {"pair_encoding": "separate"}]
)
def test_packed_rows_and_pairs_give_the_same(loss, keys):
    model = make_model(loss=loss, **keys)
    separate = keys.get("pair_encoding") == "separate"

    padded = model(**make_batch(separate))
    packed = model(**make_batch(separate, packed=True))

    assert padded.logits.shape == (12, CLASSES)
    assert_close(packed.logits, padded.logits, **EXACT)
    assert_close(packed.loss, padded.loss, **EXACT)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_saved_model_computes_the_same(tmp_path, loss, dtype):
    model = make_model(loss=loss).to(dtype)
    expected = model(**make_batch())
    model.save_pretrained(tmp_path)

    loaded = MinBertForMultiTask.from_pretrained(tmp_path, dtype=dtype)

    found = loaded(**make_batch())
    assert_close((found.logits, found.loss), (expected.logits, expected.loss), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"pair_encoding": "separate", "head": "cosine"}, "does not fit problem_type 'ordinal'"),
        ({"loss": "cross_entropy"}, "known: corn, cumulative_link"),
        ({"labels": ["one"]}, "at least two"),
        ({"class_weights": [1, 2]}, "no key 'class_weights'"),
    ],
)
def test_a_task_is_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        make_model(**keys)


@needs_onnx
@pytest.mark.parametrize("loss", LOSSES)
def test_onnx_computes_the_same(tmp_path, loss):
    model = make_model(loss=loss)
    path = export_onnx(model, tmp_path, task="stars")

    assert_equal_everywhere(path, lambda **x: model(**x, task="stars"), None, tiny.VOCABULARY)
