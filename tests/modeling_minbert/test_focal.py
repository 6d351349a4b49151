"""Focal loss, weights and smoothed labels, against formulas written out and against torch."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertConfig, MinBertForMultiTask
from modeling_minbert.losses import binary_losses, sum_class_losses

LABELS = ["a", "b", "c"]
WEIGHTS = [0.5, 1.0, 4.0]
HEADS = {
    "classification": {"labels": LABELS, "class_weights": WEIGHTS},
    "paraphrase": {"class_weights": [0.5, 3.0]},
    "multi_label_classification": {"labels": LABELS, "pos_weight": WEIGHTS},
    "token_classification": {"labels": LABELS, "class_weights": WEIGHTS},
}
IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0], [2, 8, 9, 3], [2, 4, 3, 0]])
TARGETS = {
    "classification": torch.tensor([2, 0, -100, 1]),
    "paraphrase": torch.tensor([1, 0, -100, 1]),
    "multi_label_classification": torch.tensor([[1.0, 0, 1], [0, 0, 0], [-100] * 3, [0, 1, 1]]),
    "token_classification": torch.tensor(
        [[-100, 2, 0, -100], [-100, 1, -100, -100], [-100, 0, 0, -100], [-100, 2, -100, -100]]
    ),
}


def draw(*shape, seed=0, scale=3):
    generator = torch.Generator().manual_seed(seed)
    drawn = scale * torch.randn(*shape, generator=generator, dtype=torch.float64)
    return drawn.requires_grad_()


def sigmoid_focal(logits, targets, alpha, gamma):
    """The formula of Lin et al. 2017 as torchvision.ops.sigmoid_focal_loss writes it out."""
    p = torch.sigmoid(logits)
    ce = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    p_t = p * targets + (1 - p) * (1 - targets)
    alpha_t = alpha * targets + (1 - alpha) * (1 - targets)
    return alpha_t * ce * (1 - p_t) ** gamma


def softmax_focal(logits, labels, weight, gamma, smoothing=0.0):
    """Equation 5 for softmax, for a label whose share of every class is given."""
    counted = labels != -100
    logits, labels = logits[counted], labels[counted]
    classes = logits.shape[-1]
    shares = F.one_hot(labels, classes) * (1 - smoothing) + smoothing / classes
    p = logits.softmax(dim=-1)
    return -(weight[labels] * (shares * (1 - p) ** gamma * p.log()).sum(dim=-1)).sum()


def make_model(kind, head, dtype=torch.float64):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "vocab_size": 16, "hidden_dropout_prob": 0.0}
    tasks = {"it": {"problem_type": kind, "dropout": 0.0, **head}}
    torch.manual_seed(0)
    config = MinBertConfig(**sizes, attention_probs_dropout_prob=0.0, tasks=tasks)
    model = MinBertForMultiTask(config).to(dtype)
    with torch.no_grad():
        model.heads.get("it").out.weight.mul_(100)  # logits of some size
    return model


def compute(model, kind, smoothing=0.0):
    model.train().smooth_labels("it", smoothing)
    output = model(input_ids=IDS, attention_mask=(IDS > 0).long(), labels=TARGETS[kind], task="it")
    return output.loss, output.logits


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1, 2.0, 5])
@pytest.mark.parametrize("alpha", [0.25, 0.5, 0.9])
def test_a_logit_has_the_focal_loss_of_torchvision(gamma, alpha):
    logits, targets = draw(50), (draw(50, seed=1) > 0).double()
    weights = torch.tensor(1 - alpha), torch.tensor(alpha)

    actual = binary_losses(logits, targets, weights=weights, gamma=gamma)

    assert_close(actual, sigmoid_focal(logits, targets, alpha, gamma))
    slopes = [
        torch.autograd.grad(losses.sum(), logits)[0]
        for losses in (actual, sigmoid_focal(logits, targets, alpha, gamma))
    ]
    assert_close(*slopes)


@pytest.mark.parametrize("gamma", [0.5, 1, 2.0, 5])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_classes_have_the_focal_loss_written_out(gamma, smoothing):
    logits, weight = draw(50, 4), torch.tensor([0.5, 1, 2, 3]).double()
    labels = torch.arange(50) % 4
    labels[7] = -100

    actual = sum_class_losses(logits, labels, weight=weight, smoothing=smoothing, gamma=gamma)

    expected = softmax_focal(logits, labels, weight, gamma, smoothing)
    assert_close(actual, expected)
    assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (actual, expected)))


def test_two_classes_and_one_logit_have_the_same_loss():
    logits, labels = draw(40), torch.arange(40) % 2
    two = torch.stack([torch.zeros_like(logits), logits], dim=1)
    weight = torch.tensor([0.5, 3.0]).double()
    options = {"weights": tuple(weight), "smoothing": 0.2, "gamma": 2.0}

    actual = binary_losses(logits, labels.double(), **options).sum()

    assert_close(actual, sum_class_losses(two, labels, weight=weight, smoothing=0.2, gamma=2.0))


@pytest.mark.parametrize(
    ("weight", "smoothing"),
    [(None, 0.0), (None, 0.2), (torch.tensor([0.5, 1, 2, 3]).double(), 0.0)],
)
def test_without_gamma_it_is_the_cross_entropy(smoothing, weight):
    logits, labels = draw(50, 4), torch.arange(50) % 4
    options = {"weight": weight, "smoothing": smoothing}

    exact = sum_class_losses(logits, labels, gamma=0.0, **options)
    nearly = sum_class_losses(logits, labels, gamma=1e-9, **options)

    expected = F.cross_entropy(
        logits, labels, weight=weight, label_smoothing=smoothing, reduction="sum"
    )
    assert torch.equal(exact, expected)
    assert_close(nearly, expected, rtol=1e-7, atol=0)  # the other branch has the same limit


@pytest.mark.parametrize("gamma", [0.5, 2.0])
def test_the_most_certain_logits_have_finite_gradients(gamma):
    logits = torch.tensor([[200.0, -200], [-200, 200]], requires_grad=True)
    labels = torch.tensor([0, 0])

    classes = sum_class_losses(logits, labels, gamma=gamma)
    binary = binary_losses(logits, torch.ones(2, 2), gamma=gamma).sum()

    for loss in (classes, binary):
        assert loss.isfinite()
        assert torch.autograd.grad(loss, logits)[0].isfinite().all()


@pytest.mark.parametrize("kind", HEADS)
def test_weights_count_as_in_torch(kind):
    loss, logits = compute(make_model(kind, HEADS[kind]), kind)

    labels = TARGETS[kind]
    counted = labels != -100
    logits = logits.float()
    if kind == "multi_label_classification":
        expected = F.binary_cross_entropy_with_logits(
            logits[counted].view(3, 3),
            labels[counted].view(3, 3),
            pos_weight=torch.tensor(WEIGHTS),
        )
        assert_close(loss.float(), expected)
        return
    if kind == "paraphrase":  # a logit z is that of two classes with 0 and z
        logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
    weight = torch.tensor(HEADS[kind]["class_weights"])
    options = {"weight": weight, "reduction": "sum"}
    total = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), **options)
    assert_close(loss.float(), total / counted.sum())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("kind", HEADS)
def test_every_type_has_the_focal_loss(kind, smoothing):
    model = make_model(kind, {**HEADS[kind], "loss": "focal", "focal_gamma": 1.5})

    loss, logits = compute(model, kind, smoothing)

    labels = TARGETS[kind]
    counted = labels != -100
    logits = logits.float()
    if kind == "multi_label_classification":
        logits, labels = (x[counted].view(3, 3) for x in (logits, labels))
        targets = labels * (1 - smoothing) + smoothing / 2
        p, weight = logits.sigmoid(), torch.tensor(WEIGHTS) ** labels  # 1 for no
        yes = targets * (1 - p) ** 1.5 * p.log()
        expected = -(weight * (yes + (1 - targets) * p**1.5 * (1 - p).log())).sum()
    else:
        if kind == "paraphrase":
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        weight = torch.tensor(HEADS[kind]["class_weights"])
        expected = softmax_focal(
            logits.flatten(0, -2), labels.flatten(), weight, 1.5, smoothing=smoothing
        )
    assert_close(loss.float(), expected / counted.sum())
    (gradient,) = torch.autograd.grad(loss, model.heads.get("it").out.weight)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize("kind", HEADS)
def test_weights_and_gamma_come_back_with_a_saved_model(kind, tmp_path):
    model = make_model(kind, {**HEADS[kind], "loss": "focal"}, torch.float32)
    loss, _ = compute(model, kind)
    model.save_pretrained(tmp_path)

    loaded = MinBertForMultiTask.from_pretrained(tmp_path)

    assert loaded.config.task("it").focal_gamma == 2.0
    assert_close(compute(loaded, kind)[0], loss)
    assert not any("weights" in key or "pos_weight" in key for key in loaded.state_dict())
