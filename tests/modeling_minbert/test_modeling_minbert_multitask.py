"""Every legal head computes its formula, on the encoder that all tasks share."""

import copy
import itertools

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers.utils import find_labels

from modeling_minbert import LOSSES, TASKS as KINDS, MinBertForMultiTask, cosent
from modeling_minbert.pooled import HEADS
from tests.modeling_minbert.test_packed import assert_equal_gradients

LABELS = ["down", "level", "up"]
LOW, HIGH = 1, 5
SWAP = [2, 4, 1, 0, 3]  # the row whose sentence is the second one of a separate pair
POOLINGS = ["cls", "pooler", "mean", "max"]


def legal_tasks():
    """Return every legal combination of problem, pair encoding, head and loss."""
    problems = {
        "classification": {"labels": LABELS},
        "paraphrase": {},
        "similarity": {"score_range": [LOW, HIGH]},
    }
    found = []
    for (problem, more), pairs in itertools.product(problems.items(), HEADS):
        if pairs is None and problem != "classification":
            continue
        for head in HEADS[pairs]:
            target = {"classification": "class", "paraphrase": "binary"}.get(problem, "score")
            output = "cosine" if head == "cosine" else "linear"
            fitting = [name for name, loss in LOSSES.items() if (target, output) in loss.fits]
            for loss in fitting:
                chosen = {"pair_encoding": pairs, "head": head, "loss": loss}
                found.append({"problem_type": problem, **more, **chosen})
    return found


TASKS = legal_tasks()


def name_of(task):
    """Return a test id such as ``similarity-separate-cosine-mse``."""
    keys = ("problem_type", "pair_encoding", "head", "loss")
    return "-".join(task[key] or "single" for key in keys)


every_task = pytest.mark.parametrize("task", TASKS, ids=name_of)
every_pooling = pytest.mark.parametrize("pooling", POOLINGS)


def make_batch(tiny_batch, task, rows=4):
    """Return inputs and labels of a task; separate pairs pad the two sentences differently."""
    if task.get("pair_encoding") == "separate":
        batch = {key: torch.stack([value, value[SWAP]], dim=1) for key, value in tiny_batch.items()}
        batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    else:
        batch = tiny_batch
    batch = {key: value[:rows] for key, value in batch.items()}
    labels = {
        "classification": torch.tensor([2, 0, 1, 1, 2]),
        "paraphrase": torch.tensor([1.0, 0.0, 0.0, 1.0, 1.0]),
        "similarity": torch.tensor([1.0, 2.5, 5.0, 4.25, 3.0]),
    }[task["problem_type"]]
    return batch, labels[:rows]


def reference_vector(model, pooling, input_ids, attention_mask, token_type_ids):
    """Encode one sequence without its padding, and pool by the definition."""
    length = int(attention_mask.sum())
    outputs = model.bert(input_ids[None, :length], token_type_ids=token_type_ids[None, :length])
    states = outputs.last_hidden_state[0]
    return {
        "cls": states[0],
        "pooler": torch.tanh(model.bert.pooler.dense(states[0])),
        "mean": sum(states) / length,
        "max": states.max(dim=0).values,
    }[pooling]


def reference_vectors(model, pooling, batch):
    """Encode every sequence of a batch by itself: (N, D)."""
    flat = [batch[key].flatten(0, -2) for key in ("input_ids", "attention_mask", "token_type_ids")]
    return torch.stack([reference_vector(model, pooling, *row) for row in zip(*flat, strict=True)])


def reference_logits(model, task, vectors):
    """Return the logits (B, K) of heads that have a last linear layer."""
    head = model.heads["mine"]
    if task["head"] == "concat":
        u, v = vectors[::2], vectors[1::2]
        vectors = torch.cat([u, v, (u - v).abs()], dim=1)
    elif task["head"] == "mlp":
        vectors = torch.tanh(F.linear(vectors, head.dense.weight, head.dense.bias))
    return F.linear(vectors, head.out.weight, head.out.bias)


def reference_ranking(cosines, labels):
    """Return the ranking loss row by row: cosines (B, B)."""
    losses = []
    for row in range(len(labels)):
        if labels[row] >= 1:
            # the text of the row itself, which is second elsewhere, is no negative
            others = [each for each in range(len(labels)) if SWAP[each] not in (row, SWAP[row])]
            scores = 7 * cosines[row, [row, *others]]
            losses.append(F.cross_entropy(scores, torch.tensor(0)))
    return sum(losses) / len(losses)


def reference_in_batch(task, u, v, labels):
    """Return a loss that compares rows."""
    if task["loss"] == "cosent":
        return cosent(F.cosine_similarity(u, v), labels, scale=7)
    return reference_ranking(F.cosine_similarity(u[:, None], v, dim=-1), labels)


def reference_loss(model, task, vectors, labels):
    """Return the loss, written with torch's own loss functions."""
    u, v = vectors[::2], vectors[1::2]
    if LOSSES[task["loss"]].compares_rows:
        return reference_in_batch(task, u, v, labels)
    unit = (labels - LOW) / (HIGH - LOW) if task["problem_type"] == "similarity" else labels
    if task["loss"] == "cosine_embedding":
        return F.cosine_embedding_loss(u, v, 2 * labels - 1, margin=0.2)
    if task["head"] == "cosine":
        prediction = F.cosine_similarity(u, v)
        if task["loss"] == "bce":
            prediction = 7 * (prediction - 0.4)
    else:
        prediction = reference_logits(model, task, vectors)
        if task["loss"] == "cross_entropy":
            return F.cross_entropy(prediction, labels)
        prediction = prediction[:, 0]
    if task["loss"] == "bce":
        return F.binary_cross_entropy_with_logits(prediction, unit)
    return F.mse_loss(prediction, unit)


@every_task
@every_pooling
def test_the_loss_is_the_formula(build_multitask, tiny_batch, task, pooling):
    numbers = {"margin": 0.2, "cosine_scale": 7, "threshold": 0.4}
    known = KINDS[task["problem_type"]].__dataclass_fields__
    numbers = {name: number for name, number in numbers.items() if name in known}
    model = build_multitask({"mine": task | numbers | {"pooling": pooling}})
    batch, labels = make_batch(tiny_batch, task)

    actual = model(**batch, labels=labels).loss

    vectors = reference_vectors(model, pooling, batch)
    assert_close(actual, reference_loss(model, task, vectors, labels), atol=1e-5, rtol=1e-5)


@every_task
def test_the_gradient_reaches_the_encoder_and_that_head_only(build_multitask, tiny_batch, task):
    model = build_multitask({"mine": task, "other": task})
    batch, labels = make_batch(tiny_batch, task)

    model(**batch, labels=labels, task="mine").loss.backward()

    reached = {key for key, weight in model.named_parameters() if weight.grad is not None}
    every = {key for key, _ in model.named_parameters()}
    pooler = {key for key in every if ".pooler." in key}
    unused = set() if model.config.task("mine").pooling == "pooler" else pooler
    assert reached == {key for key in every if not key.startswith("heads.other.")} - unused


@every_task
def test_decoding_stays_in_range(build_multitask, task):
    model = build_multitask({"mine": task})
    width = model.config.task("mine").num_logits
    logits = 10 * torch.randn(101, width, generator=torch.Generator().manual_seed(0))

    decoded = model.decode("mine", logits.numpy())

    assert decoded.shape == (101,)
    if task["problem_type"] == "similarity":
        assert decoded.min() >= LOW
        assert decoded.max() <= HIGH
        assert decoded.min() < 2 < 4 < decoded.max()
    else:
        assert set(decoded.tolist()) == set(range(max(width, 2)))


def test_a_paraphrase_is_a_cosine_above_the_threshold(build_multitask, tiny_batch):
    task = {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "cosine"}
    model = build_multitask({"mine": task | {"threshold": 0.9}})
    batch, _ = make_batch(tiny_batch, task)

    decoded = model.decode("mine", model(**batch).logits)

    u, v = reference_vectors(model, "mean", batch).unflatten(0, (-1, 2)).unbind(dim=1)
    assert decoded.tolist() == (F.cosine_similarity(u, v) > 0.9).long().tolist()


def test_inputs_of_a_wrong_shape_are_refused(build_multitask, tasks):
    model = build_multitask(tasks)
    one, three = torch.ones(4, 7, dtype=torch.long), torch.ones(4, 3, 7, dtype=torch.long)

    with pytest.raises(ValueError, match=r"'near' takes input of shape \(batch, 2, length\), got"):
        model(one, task="near")
    with pytest.raises(ValueError, match=r"\(batch, 2, length\), got \(4, 3, 7\)"):
        model(three, task="near")
    with pytest.raises(ValueError, match=r"'tone' takes input of shape \(batch, length\)"):
        model(three, task="tone")
    with pytest.raises(ValueError, match="exactly one of input_ids and inputs_embeds"):
        model()


def test_dropout_before_the_head_is_on_in_training_only(build_multitask, tiny_batch, tasks):
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = build_multitask({"mine": tasks["tone"] | {"dropout": 0.5}}, **settings)

    expected = model(**tiny_batch).logits

    assert_close(model(**tiny_batch).logits, expected)
    assert not torch.allclose(model.train()(**tiny_batch).logits, expected)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_row_of_padding_alone_has_a_finite_gradient(build_multitask, tiny_batch, pooling):
    model = build_multitask({"mine": {"problem_type": "paraphrase", "pooling": pooling}}).train()
    mask = tiny_batch["attention_mask"].clone()
    mask[1] = 0
    labels = torch.ones(len(mask)).index_fill(0, torch.tensor(1), -100)

    outputs = model(**tiny_batch | {"attention_mask": mask}, labels=labels)

    outputs.loss.backward()
    assert outputs.logits.isfinite().all()
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)


@pytest.mark.parametrize("every", [1, 2])
def test_activation_checkpointing_changes_no_gradient(build_multitask, tiny_batch, tasks, every):
    plain = build_multitask(tasks).train()
    saving = copy.deepcopy(plain)
    # transformers 5.17 has the older name only
    enable = getattr(saving, "activation_checkpointing_enable", None)
    (enable or saving.gradient_checkpointing_enable)(every_n_layers=every)
    batch, labels = make_batch(tiny_batch, tasks["near"])

    for model in (plain, saving):
        torch.manual_seed(3)  # the same dropout
        model(**batch, labels=labels, task="near").loss.backward()

    assert [layer.gradient_checkpointing for layer in saving.bert.encoder.layer] == [
        True,
        every == 1,
    ]
    assert_equal_gradients(saving, plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weights_of_classes_go_with_a_model_that_is_cast(build_multitask, tiny_batch, dtype):
    task = {"problem_type": "classification", "labels": ["a", "b"], "class_weights": [1.0, 3.0]}
    model = build_multitask({"only": task}).eval()
    labels = torch.arange(len(tiny_batch["input_ids"])) % 2
    exact = model(**tiny_batch, labels=labels).loss

    assert_close(model.to(dtype)(**tiny_batch, labels=labels).loss, exact, atol=0.05, rtol=0.05)


def test_the_plain_trainer_waits_for_labels_alone():
    """It evaluates no batch that lacks an argument which is called a label."""
    assert find_labels(MinBertForMultiTask) == ["labels"]


WRONG_LABELS = {
    "paraphrase": ({}, [-1, 7, 0.5], "whole number from 0 to 1"),
    "classification": ({"labels": ["a", "b", "c"]}, [-1, 3, 0.9], "whole number from 0 to 2"),
    "multi_label_classification": ({"labels": ["a", "b"]}, [3, 0.5], "whole number from 0 to 1"),
    "token_classification": ({"labels": ["a", "b"]}, [-1, 2], "whole number from 0 to 1"),
    "similarity": ({"score_range": [1, 5]}, [0, 5.5, float("nan")], "score from 1 to 5"),
}


@pytest.mark.parametrize("kind", WRONG_LABELS)
def test_a_label_that_a_task_does_not_have_is_refused(build_multitask, kind):
    fields, values, message = WRONG_LABELS[kind]
    model = build_multitask({"x": {"problem_type": kind, **fields}})
    ids = torch.tensor([[2, 7, 8, 3], [2, 9, 7, 3]])
    shapes = {"multi_label_classification": (2, 2), "token_classification": (2, 4)}
    labels = torch.ones(shapes.get(kind, 2))
    missing = labels.clone()
    missing[0] = -100
    for given in (labels, missing):
        fitting = given.long() if kind == "token_classification" else given
        assert model(ids, labels=fitting).loss.isfinite()
    for value in values:
        labels[1:] = value
        with pytest.raises(ValueError, match=rf"'x': the label {value:g} must be a {message}"):
            model(ids, labels=labels)
