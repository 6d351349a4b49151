"""R-Drop and SMART on a small model: terms, gradients and side effects."""

import pytest
import torch
from torch import nn
from transformers.modeling_outputs import SequenceClassifierOutput

from tests.trainers import tiny
from trainers import RDrop, Smart, SmartConfig, Task


@pytest.fixture
def model(request):
    model = tiny.make_model(dropout=getattr(request, "param", 0.1)).train()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.mul_(10)  # predictions that are not all alike
    return model


def make_inputs(task, *, packed=False):
    inputs = tiny.collate(task, tiny.make_rows(task, 4), packed=packed)
    return {name: value for name, value in inputs.items() if name != "num_rows"}


@pytest.fixture
def run(model, tmp_path):
    """Return a function that computes the loss of the first batch, and what is logged of it."""

    def compute(inputs, *methods, model=model, seed=5, **options):
        trainer = tiny.make_trainer(
            tmp_path, model=model, own={"methods": list(methods)} | options, max_steps=100
        )
        for method in trainer.methods:
            method.begin()
        torch.manual_seed(seed)
        loss = trainer.compute_loss(model, dict(inputs))
        trainer.log({"loss": 0.0})
        logs = trainer.state.log_history[-1]
        return loss, {name.rpartition("_")[0]: logs[name] for name in logs}, trainer

    return compute


@pytest.mark.parametrize("task", tiny.SIZES)
def test_rdrop_is_the_mean_loss_and_half_of_the_divergence(model, run, task):
    inputs = make_inputs(task)
    loss, facts, _ = run(inputs, RDrop(alpha=0.7))
    torch.manual_seed(5)
    first, second = model(**inputs), model(**inputs)

    assert not torch.equal(first.logits, second.logits)  # the masks are other ones
    divergence = model.divergence(task, first.logits, second.logits)
    torch.testing.assert_close(loss, (first.loss + second.loss) / 2 + 0.35 * divergence)
    assert facts["rdrop_divergence"] == pytest.approx(divergence.item())
    assert facts["loss"] == pytest.approx(first.loss.item())


@pytest.mark.parametrize("model", [0.0], indirect=True)
@pytest.mark.parametrize("task", tiny.SIZES)
def test_smart_adds_the_divergence_of_a_padded_batch_as_of_a_packed_one(model, run, task):
    values = []
    for packed in (False, True):
        smart = Smart(SmartConfig(weight=2.0, epsilon=0.2, step_size=0.2))
        loss, facts, _ = run(make_inputs(task, packed=packed), smart, model=model)
        values.append(facts["smart_divergence"])
        assert loss.item() == pytest.approx(facts["loss"] + 2 * facts["smart_divergence"], rel=1e-4)

    assert 0 < values[0] == pytest.approx(values[1], rel=1e-3)


def test_the_search_finds_a_worse_change_than_noise(run):
    inputs = make_inputs("moods")

    def sum_divergences(**options):
        smart = [Smart(SmartConfig(epsilon=0.05, **options)) for _ in range(5)]
        return sum(
            run(inputs, method, seed=seed)[1]["smart_divergence"]
            for seed, method in enumerate(smart)
        )

    searched = sum_divergences(noise=1e-3, step_size=0.05, steps=3)
    assert searched > 2 * sum_divergences(noise=1e3, step_size=1e-9)  # cut to the same ball


class Linear(nn.Module):
    """Scores that are w.x, summed over the tokens of a sequence."""

    def __init__(self, weights):
        super().__init__()
        self.embeddings, self.weights = nn.Embedding(tiny.VOCABULARY, len(weights)), weights
        self.seen = []

    @property
    def base_model(self):
        return self

    def forward(self, input_ids, attention_mask, task=None, **_):
        del task
        states = self.embeddings(input_ids)
        self.seen.append(states.detach())
        states = states * attention_mask[..., None]
        logits = (states * self.weights).sum(dim=(1, 2))[:, None]
        return SequenceClassifierOutput(loss=logits.sum(), logits=logits)

    def divergence(self, _, logits, other):
        return (logits - other).square().sum()


@pytest.mark.parametrize(("steps", "step_size"), [(1, 0.06), (50, 0.02)])
def test_the_change_is_that_of_the_paper(run, steps, step_size):
    weights = torch.tensor([1.0, -2.0, 0.5])
    model, inputs = Linear(weights), make_inputs("pairs")
    tasks = [Task("pairs", "paraphrase", tiny.make_rows("pairs", 4))]
    smart = Smart(SmartConfig(epsilon=0.05, noise=1e-6, step_size=step_size, steps=steps))

    run(inputs, smart, model=model, tasks=tasks)

    change, real = model.seen[-1] - model.seen[0], inputs["attention_mask"].bool()
    unit = model.seen[0][real].square().mean().sqrt()
    # the gradient 2 (w.d) w, scaled by its largest element; of many steps a corner of the ball
    moved = steps * step_size * weights / 2
    expected = unit * moved.clamp(-0.05, 0.05)
    for row, mask in zip(change, real, strict=True):
        torch.testing.assert_close(row[mask].abs(), expected.abs().expand(int(mask.sum()), 3),
                                   rtol=1e-3, atol=1e-5)  # fmt: skip
        assert not row[~mask].any()


@pytest.mark.parametrize("model", [0.0], indirect=True)  # a batch in bfloat16 draws other masks
def test_the_search_is_not_rounded_away_by_mixed_precision(model, run):
    """A change of 1e-5 is none in bfloat16; accelerate puts the forward into autocast."""
    inputs = make_inputs("moods")
    _, exact, _ = run(inputs, Smart())
    model._original_forward = model.forward
    model.forward = wrapped = torch.autocast("cpu", torch.bfloat16)(model.forward)

    _, rounded, _ = run(inputs, Smart())

    assert model.forward is wrapped
    assert rounded["smart_divergence"] == pytest.approx(exact["smart_divergence"], rel=0.2)


def test_smart_draws_no_other_numbers_and_touches_no_gradients(model, run):
    inputs = make_inputs("moods")
    torch.manual_seed(5)
    plain = model(**inputs).loss
    after = torch.rand(1)
    config = {"epsilon": 1e-30, "noise": 1e-30, "step_size": 1e-30}
    _, facts, _ = run(inputs, Smart(SmartConfig(steps=2, **config)))

    assert torch.equal(torch.rand(1), after)
    assert facts["loss"] == pytest.approx(plain.item())
    assert facts["smart_divergence"] == 0  # without a change, with the same dropout masks
    assert all(value.grad is None for value in model.parameters())


def test_both_terms_are_added_and_smart_perturbs_the_first_pass(run):
    inputs = make_inputs("moods")
    (rdrop, first, _), (_, second, _) = run(inputs, RDrop(0.7)), run(inputs, Smart())
    both, facts, _ = run(inputs, RDrop(0.7), Smart())

    assert facts == first | second
    assert both.item() == pytest.approx(rdrop.item() + second["smart_divergence"])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"epsilon": 0}, "epsilon=0; expected a number > 0"),
        ({"steps": 0}, "steps=0; expected a whole number from 1 to 10,000"),
        ({"weight": 0}, "weight=0; expected a number > 0"),
    ],
)
def test_settings_of_smart_are_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        SmartConfig(**keys)
