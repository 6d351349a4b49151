"""Steps that hold a batch of every task."""

import pytest
import torch

from tests.trainers.tiny import SIZES, Spy, make_tasks
from trainers import TaskSampling, list_batches

MIXED = {"sampling": TaskSampling("mixed"), "steps_per_epoch": 4}
PCGRAD = MIXED | {"methods": {"gradient_surgery": "pcgrad"}}
WEIGHTS = {"tasks": make_tasks(pairs={"loss_weight": 3.0})}


def run(make_trainer, *, own=None, **arguments):
    spy = Spy()
    arguments = {"max_steps": 1, "max_grad_norm": 0.0, **arguments}
    trainer = make_trainer(callbacks=[spy], own=MIXED | (own or {}), **arguments)
    trainer.train()
    return trainer, spy.gradients


def sum_losses(trainer, inputs):
    """Add up the weighted losses of the tasks of a step."""
    losses = {batch["task"]: trainer.model(**batch).loss for batch in list_batches(inputs)}
    weights = {task: trainer.tasks[task].training.loss_weight for task in losses}
    return losses, sum(weights[task] * loss for task, loss in losses.items())


def test_the_gradient_is_of_the_sum_of_weighted_losses(make_trainer):
    trainer, gradients = run(make_trainer, own=WEIGHTS)
    fresh = make_trainer(own=MIXED | WEIGHTS)

    losses, total = sum_losses(fresh, next(iter(fresh.get_train_dataloader())))
    total.backward()

    expected = {
        name: parameter.grad
        for name, parameter in fresh.model.named_parameters()
        if parameter.grad is not None
    }
    assert list(losses) == list(SIZES)
    torch.testing.assert_close(gradients[0], expected)
    log = trainer.state.log_history[0]
    assert log["loss"] == pytest.approx(total.item(), rel=1e-5)
    for task, loss in losses.items():
        assert log[f"loss_{task}"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("own", [WEIGHTS, PCGRAD], ids=["weights", "pcgrad"])
def test_two_micro_batches_give_the_gradient_of_a_batch_twice_as_large(make_trainer, own):
    _, big = run(make_trainer, own=own, max_steps=3, per_device_train_batch_size=8)
    _, small = run(make_trainer, own=own, max_steps=3, gradient_accumulation_steps=2)

    torch.testing.assert_close(small, big, rtol=1e-3, atol=1e-5)


def test_tokens_of_all_tasks_are_counted(make_trainer):
    def count(own, steps):
        trainer = make_trainer(own=own, max_steps=steps, include_num_input_tokens_seen="all")
        trainer.train()
        return trainer.state.num_input_tokens_seen, trainer.state.total_flos

    assert count(MIXED, 2) == count({"steps_per_epoch": 6}, 6)


def test_what_steps_too_early_does_not_mix(make_trainer):
    optimizer = {"optim": "galore_adamw_layerwise", "optim_target_modules": "all"}
    with pytest.raises(ValueError, match="with optim='galore_adamw_layerwise', which steps within"):
        make_trainer(own=MIXED, **optimizer)
