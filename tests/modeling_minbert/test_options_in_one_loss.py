"""Options that meet in one loss: small cases, whose values are written out by hand.

The weights of the head are 0 and its bias gives every row the same probabilities. All losses are in
units of log 2, in which an outcome of probability 1/4 costs 2; one of 3/4 costs N.
"""

import math

import pytest
import torch

from modeling_minbert import MinBertConfig, MinBertForMultiTask

N = 2 - math.log2(3)
NONE = -100
IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 8, 3], [2, 8, 9, 3]])
SIZES = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 16}

# Probabilities 1/2, 1/4, 1/4; the classes 0 and 1, and a row without a label. A row of class 0
# costs 1, one of class 1 costs 2, and the mean over all classes is 5/3.
CLASSES = {"labels": ["a", "b", "c"]}
WEIGHTS = {"class_weights": [1, 3, 1]}
OF_CLASSES = [
    ({}, 0.0, (1 + 2) / 2),
    (WEIGHTS, 0.0, (1 + 3 * 2) / 2),
    ({}, 0.3, (0.7 * 1 + 0.1 * 5 + 0.7 * 2 + 0.1 * 5) / 2),
    # the weight of a row is that of its class, whichever classes get a share
    (WEIGHTS, 0.3, ((0.7 * 1 + 0.1 * 5) + 3 * (0.7 * 2 + 0.1 * 5)) / 2),
]
# Yes has the probability 1/4; the rows are yes, no, and without a label.
BINARY = {"class_weights": [1, 3]}
OF_PAIRS = [
    ({}, 0.0, (2 + N) / 2),
    (BINARY, 0.0, (3 * 2 + N) / 2),
    ({}, 0.2, (0.9 * 2 + 0.1 * N + 0.9 * N + 0.1 * 2) / 2),
    (BINARY, 0.2, (3 * (0.9 * 2 + 0.1 * N) + (0.9 * N + 0.1 * 2)) / 2),
]
# Labels of the probabilities 1/4 and 1/2: both labels are known of the first row, one of the next.
POSITIVE = {"pos_weight": [3, 1]}
SEVERAL = [[1.0, 0.0], [0.0, NONE], [NONE, NONE]]
OF_LABELS = [
    ({}, 0.0, (2 + 1 + N) / 3),
    (POSITIVE, 0.0, (3 * 2 + 1 + N) / 3),
    ({}, 0.2, (0.9 * 2 + 0.1 * N + 1 + 0.9 * N + 0.1 * 2) / 3),
    (POSITIVE, 0.2, (3 * (0.9 * 2 + 0.1 * N) + 1 + 0.9 * N + 0.1 * 2) / 3),
]
LOGIT = -math.log(3)  # of 1/4
THREE = [math.log(p) for p in (1 / 2, 1 / 4, 1 / 4)]
TAGS = [[NONE, 0, NONE, NONE], [NONE, 1, NONE, NONE], [NONE] * 4]
CASES = [
    *[("classification", CLASSES | head, THREE, [0, 1, NONE], *rest) for head, *rest in OF_CLASSES],
    *[("token_classification", CLASSES | head, THREE, TAGS, *rest) for head, *rest in OF_CLASSES],
    *[("paraphrase", head, [LOGIT], [1, 0, NONE], *rest) for head, *rest in OF_PAIRS],
    *[
        ("multi_label_classification", {"labels": ["a", "b"]} | head, [LOGIT, 0.0], SEVERAL, *rest)
        for head, *rest in OF_LABELS
    ],
    # a temperature and thresholds, which training fits, change no loss
    ("classification", CLASSES | WEIGHTS | {"temperature": 4.0}, THREE, [0, 1, NONE], 0.0, 3.5),
    ("paraphrase", {"thresholds": [0.9]}, [LOGIT], [1, 0, NONE], 0.0, (2 + N) / 2),
    # CORN asks whether the class is above 0 (1/4), and if so above 1 (1/2)
    ("ordinal", CLASSES, [LOGIT, 0.0], [0, 2, NONE], 0.0, (N + 2 + 1) / 3),
    # of a score of 3 from 1 to 5 both outcomes count half
    ("similarity", {"score_range": [1, 5]}, [LOGIT], [3.0, NONE, 1.0], 0.0, (1 + N / 2 + N) / 2),
]


def compute(kind, head, bias, labels, smoothing):
    torch.manual_seed(0)
    tasks = {"it": {"problem_type": kind, "dropout": 0.0, **head}}
    model = MinBertForMultiTask(MinBertConfig(**SIZES, tasks=tasks)).double().train()
    model.smooth_labels("it", smoothing)
    with torch.no_grad():
        model.heads.get("it").out.weight.zero_()
        model.heads.get("it").out.bias.copy_(torch.tensor(bias, dtype=torch.float64))
    labels = torch.tensor(labels)
    return model(input_ids=IDS, attention_mask=torch.ones_like(IDS), labels=labels, task="it").loss


@pytest.mark.parametrize(("kind", "head", "bias", "labels", "smoothing", "expected"), CASES)
def test_a_loss_is_the_value_written_out(kind, head, bias, labels, smoothing, expected):
    loss = compute(kind, head, bias, labels, smoothing)

    assert float(loss.detach()) / math.log(2) == pytest.approx(expected, rel=1e-6)


# The prediction is 7, one standard deviation above the mean; labels are off by 1/2, 3, and missing.
@pytest.mark.parametrize(
    ("loss", "expected"), [("mse", (0.5**2 + 3**2) / 2), ("huber", (0.5**2 / 2 + 2.5) / 2)]
)
def test_errors_of_numbers_are_in_standard_deviations(loss, expected):
    head = {"mean": [5.0], "std": [2.0], "loss": loss}

    found = compute("regression", head, [1.0], [6.0, 13.0, NONE], 0.0)

    assert float(found.detach()) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_smoothed_choices_are_those_that_a_row_has(smoothing):
    torch.manual_seed(0)
    tasks = {"it": {"problem_type": "multiple_choice", "num_choices": 3, "dropout": 0.0}}
    model = MinBertForMultiTask(MinBertConfig(**SIZES, tasks=tasks)).train()
    model.smooth_labels("it", smoothing)
    ids = IDS.repeat(3, 1).view(3, 3, 4).clone()
    ids[0, 2] = 0  # two choices
    mask = (ids > 0).long()

    out = model(input_ids=ids, attention_mask=mask, labels=torch.tensor([1, 2, NONE]), task="it")

    first, second = out.logits[0, :2].log_softmax(dim=0), out.logits[1].log_softmax(dim=0)
    rows = [
        -(1 - smoothing) * logs[label] - smoothing * logs.mean()
        for logs, label in ((first, 1), (second, 2))
    ]
    torch.testing.assert_close(out.loss, sum(rows) / 2)
