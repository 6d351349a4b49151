"""PCGrad: a naive reference on vectors, and whole runs."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from transformers import TrainerState

from tests.trainers.test_mixed import MIXED, PCGRAD, WEIGHTS, run
from tests.trainers.tiny import SIZES, make_model, make_tasks
from trainers import GradientSurgery, list_batches


class Encoder(nn.Module):
    """Parameters of three parts of 2, 6 and 3 numbers."""

    def __init__(self):
        super().__init__()
        self.embeddings = nn.Linear(1, 2, bias=False)
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList([nn.Linear(2, 2), nn.Linear(1, 3, bias=False)])


def start(tasks, seed=0):
    """Attach the method to a model of a shared encoder and a head."""
    model = nn.Module()
    model.base_model = Encoder()
    model.head = nn.Linear(2, 1)
    options = {"tasks": dict.fromkeys(tasks), "args": SimpleNamespace(seed=seed)}
    options |= {"is_fsdp_enabled": False, "is_deepspeed_enabled": False}
    surgery = GradientSurgery()
    surgery.attach(SimpleNamespace(model=model, **options))
    return surgery, model.base_model


def set_gradient(encoder, vector):
    parameters = list(encoder.parameters())
    parts = vector.split([parameter.numel() for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.view_as(parameter).clone()


def get_gradient(encoder):
    return torch.cat([parameter.grad.flatten() for parameter in encoder.parameters()])


def merge(vectors, step=0):
    """Merge the gradients of some tasks; gives the result, the method and the conflicts."""
    surgery, encoder = start("abcd"[: len(vectors)])
    for task, vector in zip("abcd", vectors, strict=False):
        set_gradient(encoder, vector)
        surgery.after_backward(task)
    surgery.before_optimizer(TrainerState(global_step=step))
    return get_gradient(encoder), surgery, surgery.conflicts[0]


def naive(vectors, orders):
    """Do the algorithm as the paper writes it: on vectors, one pair after the other."""
    found = [vector.double().clone() for vector in vectors]
    for i, others in enumerate(orders):
        for j in others:
            other = vectors[j].double()
            dot = found[i] @ other
            if dot < 0:
                found[i] -= dot / other.norm() ** 2 * other
    return sum(found)


def draw(count, seed, size=11):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for _ in range(count)]


@pytest.mark.parametrize("agreeing", [False, True], ids=["orthogonal", "agreeing"])
def test_without_a_conflict_it_is_the_plain_sum_to_the_bit(agreeing):
    vectors = draw(3, seed=1)
    if agreeing:
        vectors = [vector.abs() for vector in vectors]
    else:
        for index, vector in enumerate(vectors):
            vector[torch.arange(11) % 3 != index] = 0

    found, _, conflicts = merge(vectors)

    assert torch.equal(found, vectors[0] + vectors[1] + vectors[2])
    assert conflicts == 0.0


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("step", range(4))
def test_pcgrad_follows_the_paper(count, step):
    vectors = draw(count, seed=10 * count + step)

    found, surgery, conflicts = merge(vectors, step=step)

    expected = naive(vectors, surgery.draw_orders(step))
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-6)
    pairs = [(i, j) for j in range(count) for i in range(j)]
    assert conflicts == np.mean([(vectors[i] @ vectors[j] < 0).item() for i, j in pairs])


def test_a_gradient_out_of_range_is_left_to_the_scaler():
    vectors = draw(3, seed=0)
    vectors[1][4] = torch.inf

    found, _, _ = merge(vectors)

    assert not found.isfinite().all()


def test_what_no_task_used_has_no_gradient():
    surgery, encoder = start("ab")
    encoder.embeddings.weight.grad = 100 * torch.ones(2, 1)
    surgery.after_backward("a")
    surgery.begin()  # the run was stopped between two micro-batches

    for task in "ab":
        encoder.embeddings.weight.grad = torch.ones(2, 1)
        surgery.after_backward(task)
        assert encoder.embeddings.weight.grad is None
    surgery.before_optimizer(TrainerState())

    assert encoder.embeddings.weight.grad.tolist() == [[2.0], [2.0]]
    assert all(parameter.grad is None for parameter in encoder.encoder.parameters())


def test_the_order_of_the_tasks_depends_on_seed_and_step():
    surgery, same, other = (start("abcd", seed=seed)[0] for seed in (0, 0, 1))

    orders = [surgery.draw_orders(step) for step in range(20)]

    assert orders == [same.draw_orders(step) for step in range(20)]
    assert orders != [other.draw_orders(step) for step in range(20)]
    assert len({tuple(order[0]) for order in orders}) == 6
    assert all(sorted(others) == [1, 2, 3] for others, *_ in orders)


def gradients_of_tasks(make_trainer, own):
    """The gradient of the weighted loss of each task of the first step, alone."""
    trainer = make_trainer(own=own)
    found = {}
    for batch in list_batches(next(iter(trainer.get_train_dataloader()))):
        trainer.model.zero_grad()
        loss = trainer.model(**batch).loss
        (loss * trainer.tasks[batch["task"]].training.loss_weight).backward()
        found[batch["task"]] = {
            name: parameter.grad.clone()
            for name, parameter in trainer.model.named_parameters()
            if parameter.grad is not None
        }
    return found


def test_a_run_projects_the_encoder_and_leaves_the_heads(make_trainer):
    trainer, (found,) = run(make_trainer, own=PCGRAD | WEIGHTS)
    alone = gradients_of_tasks(make_trainer, MIXED | WEIGHTS)

    names = [name for name, _ in trainer.model.named_parameters() if name.startswith("bert.")]
    shared = [name for name in names if name in found]
    vectors = [
        torch.cat(
            [
                alone[task].get(name, torch.zeros_like(found[name])).flatten()
                for name in shared
            ]
        )
        for task in SIZES
    ]  # fmt: skip
    expected = naive(vectors, trainer.methods[0].draw_orders(0))
    actual = torch.cat([found[name].flatten() for name in shared])
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-6)
    for name in found.keys() - set(shared):
        (task,) = (task for task in SIZES if name in alone[task])
        torch.testing.assert_close(found[name], alone[task][name])
    dots = [vectors[i] @ vectors[j] for i, j in ((0, 1), (0, 2), (1, 2))]
    share = sum(dot.item() < 0 for dot in dots) / 3
    assert trainer.state.log_history[0]["gradient_conflicts"] == pytest.approx(share)
    assert not torch.allclose(actual, sum(vectors), atol=1e-4)  # something was projected


def test_the_merged_gradient_is_clipped(make_trainer):
    _, (free,) = run(make_trainer, own=PCGRAD)
    trainer, (clipped,) = run(make_trainer, own=PCGRAD, max_grad_norm=0.5)

    norm = torch.stack([value.norm() for value in free.values()]).norm()
    assert trainer.state.log_history[0]["grad_norm"] == pytest.approx(norm.item(), rel=1e-5)
    assert norm > 0.5
    torch.testing.assert_close(
        clipped, {name: 0.5 * value / norm for name, value in free.items()}, rtol=1e-4, atol=1e-6
    )


def test_the_log_has_the_mean_share_of_conflicts(make_trainer):
    def conflicts(steps):
        trainer = make_trainer(own=PCGRAD, logging_steps=steps, num_train_epochs=1)
        trainer.train()
        log = trainer.state.log_history
        return [entry["gradient_conflicts"] for entry in log if "loss" in entry]

    assert conflicts(4) == [pytest.approx(sum(conflicts(1)) / 4)]


def freeze(model):
    model.bert.requires_grad_(requires_grad=False)
    return model


@pytest.mark.parametrize(
    ("own", "arguments", "message"),
    [
        ({"methods": PCGRAD["methods"]}, {}, "use task_sampling: mixed instead of round_robin"),
        (PCGRAD, {"model": freeze(make_model())}, r"3 task\(s\) and 0 such parameters"),
        (PCGRAD | {"tasks": make_tasks()[:1]}, {}, r"found 1 task\(s\) and \d+ such parameters"),
    ],
)
def test_what_it_cannot_do_is_refused(make_trainer, own, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(own=own, **arguments)
