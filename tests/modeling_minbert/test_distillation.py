"""Losses of a student against the formulas of the papers, written out in float64."""

import pytest
import torch
from scipy.special import expit, softmax
from torch.distributions import Bernoulli, kl_divergence
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertConfig, align_outputs

TASKS = {
    "moods": {"problem_type": "classification", "labels": ["bad", "good", "odd"]},
    "topics": {"problem_type": "multi_label_classification", "labels": ["a", "b", "c"]},
    "numbers": {
        "problem_type": "regression",
        "targets": ["price", "size"],
        "mean": [900, 3],
        "std": [75, 0.5],
    },
    "near": {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "cosine"},
    "scores": {"problem_type": "similarity", "score_range": [0, 5]},
    "order": {
        "problem_type": "similarity",
        "score_range": [0, 5],
        "pair_encoding": "separate",
        "head": "cosine",
        "loss": "cosent",
    },
    "cosines": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
    "vectors": {"problem_type": "contrastive", "num_sentences": 2},
    "single": {"problem_type": "contrastive", "num_sentences": 1},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B", "I"]},
    "answers": {"problem_type": "question_answering"},
}
SEPARATE = {"near": 2, "order": 2, "cosines": 2, "vectors": 2, "single": 1}


@pytest.fixture
def model(build_multitask):
    return build_multitask(TASKS)


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(*shape, generator=generator, dtype=torch.float64)


CLOSE = {"rtol": 1e-4, "atol": 1e-5}


@pytest.mark.parametrize("temperature", [0.5, 2.0, 10.0])
def test_classes_are_matched_by_the_formula_of_hinton_and_others(model, temperature):
    logits, teacher = draw(5, 3), draw(5, 2, 3, seed=1)
    target = torch.tensor(softmax(teacher.numpy() / temperature, axis=-1).mean(axis=1))
    student = torch.tensor(softmax(logits.numpy() / temperature, axis=-1))
    expected = temperature**2 * (target * (target / student).log()).sum(dim=-1)

    for task in ("moods", "tags"):
        shapes = (1, 5, 3), (1, 5, 2, 3)
        given = (
            (logits, teacher)
            if task == "moods"
            else (logits.view(shapes[0]), teacher.view(shapes[1]))
        )
        loss = model.distillation(task, *given, temperature)
        assert_close(loss.double(), expected.mean(), **CLOSE)


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_outcomes_are_matched_as_two_classes_each(model, temperature):
    logits, teacher = draw(5, 3), draw(5, 2, 3, seed=1)
    p = torch.tensor(expit(teacher.numpy() / temperature).mean(axis=1))
    q = torch.tensor(expit(logits.numpy() / temperature))
    expected = temperature**2 * (p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log())

    loss = model.distillation("topics", logits, teacher, temperature)

    assert_close(loss.double(), expected.mean(), **CLOSE)


def predict(model, task):
    """Predict two rows of sequences of 6 and 4 tokens."""
    sequences = (SEPARATE[task],) if task in SEPARATE else ()
    ids = torch.randint(5, 30, (2, *sequences, 6), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask.view(-1, 6)[1::2, 4:] = 0
    outputs = model(input_ids=ids, attention_mask=mask, task=task)
    if task == "answers":
        return torch.stack([outputs.start_logits, outputs.end_logits], dim=-1)
    return outputs.logits


def as_teacher(model, task, logits):
    """What a teacher of these logits teaches, with the dimension of teachers."""
    targets = model.heads.get(task).to_targets(logits.detach())
    return targets.unsqueeze(2 if task in ("tags", "answers") else 1)


@pytest.mark.parametrize("task", TASKS)
def test_a_student_that_is_its_own_teacher_learns_nothing(model, task):
    logits = predict(model, task)
    loss = model.distillation(task, logits, as_teacher(model, task, logits), 2.0)
    loss.backward()

    assert_close(loss, torch.zeros(()), atol=1e-6, rtol=0)
    gradients = [value.grad for value in model.parameters() if value.grad is not None]
    assert gradients
    assert max(float(gradient.abs().max()) for gradient in gradients) < 1e-5


@pytest.mark.parametrize("task", ["moods", "scores", "vectors"])
def test_rows_without_a_teacher_do_not_count(model, task):
    logits = predict(model, task).detach().requires_grad_()
    teacher = as_teacher(model, task, logits.flip(0))
    whole = model.distillation(task, logits[:1], teacher[:1], 2.0)
    teacher[1] = torch.nan
    part = model.distillation(task, logits, teacher, 2.0)
    part.backward()

    assert_close(part, whole)
    assert logits.grad[0].any()
    assert not logits.grad[1].any()
    teacher[0] = torch.nan
    assert model.distillation(task, logits, teacher, 2.0) == 0


def test_tokens_without_a_label_do_not_count(model):
    logits = predict(model, "tags")
    teacher = as_teacher(model, "tags", logits.flip(-1))
    labels = torch.full((2, 6), -100)
    labels[0, 1], labels[1, 2] = 0, 2
    alone = [
        model.distillation("moods", logits[row, place, None], teacher[row, place, None], 2.0)
        for row, place in ((0, 1), (1, 2))
    ]

    loss = model.distillation("tags", logits, teacher, 2.0, labels)

    assert_close(loss, sum(alone) / 2)


def test_answers_are_matched_at_real_positions_only(model):
    logits, teacher = draw(2, 3, 2), draw(2, 3, 1, 2, seed=1)
    short = torch.cat([logits, draw(2, 2, 2, seed=2)], dim=1)
    missing = torch.full((2, 2, 1, 2), torch.nan)
    sides = [
        model.distillation("moods", logits[..., side], teacher[..., side].mT, 2.0)
        for side in (0, 1)
    ]  # of three classes, which here are positions

    loss = model.distillation("answers", short, torch.cat([teacher, missing], dim=1), 2.0)

    assert_close(loss, sum(sides) / 2)


def test_scores_of_all_losses_are_compared_in_units_of_the_range(model):
    logits = {task: predict(model, task) for task in ("scores", "order", "cosines")}
    unit = {task: model.heads.get(task).to_targets(values) for task, values in logits.items()}

    assert_close(unit["scores"], logits["scores"].sigmoid())
    assert_close(unit["order"], (logits["order"] + 1) / 2)
    assert_close(unit["cosines"], logits["cosines"])
    teacher = torch.tensor([[[0.5], [0.9]], [[0.1], [0.3]]])
    loss = model.distillation("order", logits["order"], teacher)
    wanted = torch.tensor([[0.7], [0.2]])
    assert_close(loss, (unit["order"] - wanted).square().mean())


def test_scores_that_are_probabilities_are_compared_by_their_divergence(model):
    logits = predict(model, "scores").requires_grad_()
    teacher = torch.tensor([[[0.5], [0.9]], [[0.0], [0.0]]])
    loss = model.distillation("scores", logits, teacher)

    mean = torch.tensor([[0.7], [0.0]])
    pairs = (Bernoulli(probs=mean), Bernoulli(logits=logits))
    assert_close(loss, kl_divergence(*pairs).mean())
    (gradient,) = torch.autograd.grad(loss, logits)
    assert_close(gradient, (logits.sigmoid() - mean) / 2)


def test_the_loss_of_unit_vectors_is_half_of_their_squared_distance(model):
    vectors = predict(model, "vectors")
    teacher = F.normalize(draw(2, 2, 33).float(), dim=-1)
    loss = model.distillation("vectors", vectors, teacher[:, None])

    assert_close(loss, (vectors - teacher).square().sum(-1).mean() / 2)


def test_values_of_another_shape_are_refused(model):
    logits = predict(model, "moods")
    with pytest.raises(ValueError, match=r"shape \(2, 1, 2\), but logits of \(2, 3\) need \(2, te"):
        model.distillation("moods", logits, torch.zeros(2, 1, 2))


@pytest.mark.parametrize(
    ("name", "other", "message"),
    [
        ("moods", {"labels": ["bad", "good", "new"]}, r"labels \['bad', 'good', 'new'\], but the "),
        ("moods", {"pair_encoding": "joint"}, "classification task with 2 text"),
        ("topics", {"problem_type": "classification"}, "is a classification task with 1 text"),
        ("scores", {"score_range": [1, 5]}, r"score_range \[1, 5\], but the task to learn has "),
    ],
)
def test_another_task_is_refused(name, other, message):
    tasks = {"own": TASKS[name], "other": TASKS[name] | other}
    config = MinBertConfig(tasks=tasks)
    with pytest.raises(ValueError, match=message):
        align_outputs(config.task("own"), config.task("other"))


def test_labels_may_have_another_order():
    other = {"problem_type": "classification", "labels": ["odd", "bad", "good"]}
    pair = {"problem_type": "paraphrase", "labels": ["no", "yes"]}
    tasks = {"own": TASKS["moods"], "other": other, "pair": pair}
    config = MinBertConfig(tasks=tasks | {"turned": pair | {"labels": ["yes", "no"]}})

    align = align_outputs(config.task("own"), config.task("other"))
    assert align(torch.tensor([[0.0, 1.0, 2.0]])).tolist() == [[1, 2, 0]]
    align = align_outputs(config.task("pair"), config.task("turned"))
    assert align(torch.tensor([[3.0]])).tolist() == [[-3]]


def test_targets_may_have_another_order():
    own = TASKS["numbers"]
    other = own | {"targets": ["size", "price"], "mean": [3, 900], "std": [0.5, 75]}
    config = MinBertConfig(tasks={"own": own, "other": other})

    align = align_outputs(config.task("own"), config.task("other"))

    assert align(torch.tensor([[2.0, 800.0]])).tolist() == [[800, 2]]
