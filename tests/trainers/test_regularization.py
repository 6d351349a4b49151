"""R-Drop and SMART on a small model: terms, gradients and side effects."""

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import TrainerState

from modeling_minbert import MinBertConfig, MinBertForMultiTask
from trainers import Method, RDrop, Smart, SmartConfig, Task, make_problems
from trainers.methods import base, regularization

TASKS = {
    "moods": {"problem_type": "classification", "labels": ["bad", "good", "odd"]},
    "pairs": {"problem_type": "paraphrase", "pair_encoding": "joint"},
    "scores": {
        "problem_type": "similarity",
        "pair_encoding": "separate",
        "score_range": [0, 5],
    },
}
LABELS = {
    "moods": torch.tensor([0, 2]),
    "pairs": torch.tensor([0, 1]),
    "scores": torch.tensor([1.0, 4.0]),
}


@pytest.fixture
def model() -> MinBertForMultiTask:
    torch.manual_seed(0)
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_attention_heads": 2}
    sizes |= {"num_hidden_layers": 2, "intermediate_size": 32, "max_position_embeddings": 16}
    return MinBertForMultiTask(MinBertConfig(**sizes, tasks=TASKS, initializer_range=0.3)).train()


def make_inputs(task: str, *, packed: bool = False) -> dict[str, Any]:
    """Make two rows, or four sequences of two pairs, of 6 and 4 tokens in turns."""
    generator = torch.Generator().manual_seed(1)
    count = 4 if task == "scores" else 2
    ids = torch.randint(5, 30, (count, 6), generator=generator)
    mask = torch.ones(count, 6, dtype=torch.int64)
    mask[1::2, 4:] = 0
    labels = {"labels": LABELS[task], "task": task}
    if packed:
        lengths = mask.sum(dim=1)
        positions = torch.cat([torch.arange(int(length)) for length in lengths])
        bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).int()
        more = {"cu_seq_lens_q": bounds, "max_length_q": 6, "position_ids": positions[None]}
        return {"input_ids": ids[mask.bool()][None], **more, **labels}
    shape = (2, 2, 6) if task == "scores" else (2, 6)
    return {"input_ids": ids.view(shape), "attention_mask": mask.view(shape), **labels}


def start(model: Any, *methods: Method) -> None:
    """Prepare methods as a trainer does."""
    args = SimpleNamespace(torch_compile=False, n_gpu=1, seed=3, process_index=0)
    trainer = SimpleNamespace(
        is_fsdp_enabled=False,
        is_deepspeed_enabled=False,
        problems=make_problems({task: spec["problem_type"] for task, spec in TASKS.items()}),
        tasks={task: Task(task, spec["problem_type"]) for task, spec in TASKS.items()},
        state=TrainerState(global_step=7),
    )
    for method in methods:
        method.prepare(model, args)  # type: ignore[arg-type]
        method.attach(trainer)
        method.begin()


def compute_loss(
    model: MinBertForMultiTask, inputs: dict[str, Any], *methods: Method
) -> base.StepLoss:
    """Compute the loss of a batch with methods that were started."""

    def compute() -> base.StepLoss:
        outputs = model(**inputs)
        return base.StepLoss(outputs.loss, outputs.loss, outputs)

    for method in methods:
        compute = partial(method.loss, compute, inputs["task"], inputs)
    return compute()


def run(model: MinBertForMultiTask, inputs: dict[str, Any], *methods: Method) -> base.StepLoss:
    """Compute the loss of the first batch of a training."""
    start(model, *methods)
    return compute_loss(model, inputs, *methods)


@pytest.mark.parametrize("task", list(TASKS))
def test_rdrop_is_the_mean_loss_and_half_of_the_divergence(
    model: MinBertForMultiTask, task: str
) -> None:
    inputs = make_inputs(task)
    torch.manual_seed(5)
    found = run(model, inputs, RDrop(alpha=0.7))
    torch.manual_seed(5)
    first, second = model(**inputs), model(**inputs)

    assert not torch.equal(first.logits, second.logits)  # the masks are other ones
    divergence = model.divergence(task, first.logits, second.logits)
    expected = (first.loss + second.loss) / 2 + 0.35 * divergence
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(found.facts["rdrop_divergence"], divergence)
    assert torch.equal(found.plain, first.loss)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("task", list(TASKS))
def test_smart_adds_a_divergence(model: MinBertForMultiTask, task: str, packed: bool) -> None:
    inputs = make_inputs(task, packed=packed)
    torch.manual_seed(5)
    found = run(model, inputs, Smart(SmartConfig(weight=2.0, epsilon=0.2, step_size=0.2)))

    divergence = found.facts["smart_divergence"]
    assert divergence > 0
    torch.testing.assert_close(found.loss, found.plain + 2 * divergence)


def test_smart_changes_both_sentences_of_a_pair(model: MinBertForMultiTask) -> None:
    inputs, seen = make_inputs("scores", packed=True), []
    model.bert.encoder.register_forward_pre_hook(lambda _, args: seen.append(args[0].detach()))
    torch.manual_seed(5)

    run(model, inputs, Smart())

    moved = (seen[-1] - seen[0]).view(-1, 16).abs().amax(dim=1)  # with the same dropout masks
    assert len(moved) == 20
    assert all(part.max() > 0 for part in moved.split([6, 4, 6, 4]))


@pytest.mark.parametrize("task", list(TASKS))
def test_a_padded_batch_is_smoothed_as_a_packed_one(model: MinBertForMultiTask, task: str) -> None:
    smart = Smart(SmartConfig(epsilon=0.2, step_size=0.2))
    found = [
        run(model.eval(), make_inputs(task, packed=packed), smart).facts for packed in (False, True)
    ]

    assert found[0]["smart_divergence"] > 0
    for name, value in found[0].items():
        torch.testing.assert_close(found[1][name], value, rtol=1e-3, atol=1e-6)


def test_the_search_finds_a_worse_change_than_noise(model: MinBertForMultiTask) -> None:
    inputs = make_inputs("moods")
    searched, random = [], []
    for seed in range(5):
        torch.manual_seed(seed)
        smart = Smart(SmartConfig(epsilon=0.05, noise=1e-3, step_size=0.05, steps=3))
        searched.append(run(model, inputs, smart).facts["smart_divergence"])
        torch.manual_seed(seed)
        # noise alone, cut to the same ball
        smart = Smart(SmartConfig(epsilon=0.05, noise=1e3, step_size=1e-9))
        random.append(run(model, inputs, smart).facts["smart_divergence"])

    assert sum(searched) > 2 * sum(random)


@pytest.mark.parametrize("task", ["moods", "pairs"])
def test_the_search_is_not_rounded_away_by_mixed_precision(
    model: MinBertForMultiTask, task: str
) -> None:
    """A change of 1e-5 is none in bfloat16; accelerate puts the forward into autocast."""
    for module in model.modules():  # a batch in bfloat16 draws other masks
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    inputs, smart = make_inputs(task), Smart(SmartConfig(noise=1e-5))
    torch.manual_seed(1)
    exact = run(model, inputs, smart).facts
    model._original_forward = model.forward
    model.forward = torch.autocast("cpu", torch.bfloat16)(model.forward)
    wrapped = model.forward
    torch.manual_seed(1)

    rounded = run(model, inputs, smart).facts

    assert model.forward is wrapped
    for name, value in exact.items():
        assert float(rounded[name]) == pytest.approx(float(value), rel=0.2), name


def test_without_a_change_nothing_diverges(model: MinBertForMultiTask) -> None:
    smart = Smart(SmartConfig(epsilon=1e-30, noise=1e-30, step_size=1e-30))
    found = run(model, make_inputs("moods"), smart)

    assert model.config.hidden_dropout_prob > 0
    assert found.facts["smart_divergence"] == 0


def test_smart_draws_no_other_numbers_and_touches_no_gradients(model: MinBertForMultiTask) -> None:
    inputs = make_inputs("moods")
    torch.manual_seed(5)
    plain = model(**inputs).loss
    after = torch.rand(1)
    torch.manual_seed(5)
    found = run(model, inputs, Smart(SmartConfig(steps=2, bregman_weight=1.0)))

    assert torch.equal(torch.rand(1), after)
    assert torch.equal(found.plain, plain)
    assert all(value.grad is None for value in model.parameters())


def test_the_gradient_goes_through_both_passes(
    model: MinBertForMultiTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    inputs, change = make_inputs("moods", packed=True), torch.full((10, 16), 0.5)
    monkeypatch.setattr(regularization, "take_steps", lambda *_: change)
    model.eval()  # without dropout
    embedded = model.bert.embeddings.register_forward_hook

    loss = run(model, inputs, Smart(SmartConfig(weight=1.0))).facts["smart_divergence"]
    total = run(model, inputs, Smart(SmartConfig(weight=1.0)))
    (total.loss - total.plain).backward()
    found = model.heads["moods"].out.weight.grad.clone()

    model.zero_grad()
    plain = model(**inputs).logits
    handle = embedded(lambda *args: args[2] + change.view(1, 10, 16))
    divergence = model.divergence("moods", model(**inputs).logits, plain)
    handle.remove()
    divergence.backward()
    torch.testing.assert_close(loss, divergence.detach())
    torch.testing.assert_close(found, model.heads["moods"].out.weight.grad)


def test_both_terms_are_added_and_smart_perturbs_the_first_pass(model: MinBertForMultiTask) -> None:
    inputs = make_inputs("moods")

    def facts(*methods: Method) -> base.StepLoss:
        torch.manual_seed(5)
        return run(model, inputs, *methods)

    rdrop, smart = facts(RDrop(0.7)), facts(Smart(SmartConfig(weight=2.0)))
    both = facts(RDrop(0.7), Smart(SmartConfig(weight=2.0)))
    assert both.facts == rdrop.facts | smart.facts
    assert torch.equal(both.loss, rdrop.loss + 2 * smart.facts["smart_divergence"])


def test_the_proximal_term_pulls_to_the_moving_average(model: MinBertForMultiTask) -> None:
    inputs = make_inputs("moods")
    smart = Smart(SmartConfig(weight=0, bregman_weight=1.0))

    assert run(model, inputs, smart).facts["bregman_divergence"] == 0
    before = model.heads["moods"].out.weight.detach().clone()
    with torch.no_grad():
        model.heads["moods"].out.weight.add_(1.0)
    assert compute_loss(model, inputs, smart).facts["bregman_divergence"] > 0
    smart.after_step(TrainerState(global_step=1, max_steps=100))
    assert smart.average is not None
    average = smart.average.averages["heads.moods.out.weight"]
    torch.testing.assert_close(average, before + 0.01)  # beta = .99 at the beginning
    smart.after_step(TrainerState(global_step=50, max_steps=100))
    torch.testing.assert_close(average, 0.999 * (before + 0.01) + 0.001 * (before + 1))


def test_a_model_without_a_divergence_is_refused() -> None:
    with pytest.raises(ValueError, match="r_drop needs a model with divergence"):
        start(torch.nn.Linear(1, 1), RDrop())


ROW = torch.zeros(1, dtype=torch.int64)  # one sequence of one token


def linear(weights: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Give embeddings (1, D) and the gradient of the squared change of w.x, 2 (w.d) w."""
    embeddings = torch.ones(1, len(weights))
    return embeddings, lambda change: 2 * (change @ weights).unsqueeze(1) * weights


def test_one_step_of_smart_is_the_clipped_gradient_step() -> None:
    embeddings, gradient_at = linear(torch.tensor([1.0, -2.0, 0.5]))
    smart = SmartConfig(epsilon=0.05, noise=0.01, step_size=0.06)
    noise = torch.tensor([[1.0, -1.0, 2.0]])

    change = regularization.take_steps(smart, embeddings, ROW, noise, gradient_at)

    # by hand: d0 = .01 n = (.01, -.01, .02), w.d0 = .04, g = (.08, -.16, .04), g / .16
    torch.testing.assert_close(change, torch.tensor([[0.04, -0.05, 0.035]]))
    # sizes are in units of the embeddings
    change = regularization.take_steps(smart, 7 * embeddings, ROW, noise, gradient_at)
    torch.testing.assert_close(change, 7 * torch.tensor([[0.04, -0.05, 0.035]]))


def test_many_steps_of_smart_reach_the_corner_of_the_ball() -> None:
    weights = torch.tensor([0.3, -2.0, 0.01, 5.0])
    embeddings, gradient_at = linear(weights)
    smart = SmartConfig(epsilon=0.05, noise=1e-3, step_size=0.05, steps=2000)

    change = regularization.take_steps(smart, embeddings, ROW, torch.randn(1, 4), gradient_at)

    # the maximum of (w.d)^2 over the ball: Jiang et al. 2020, section 3.1
    corner = 0.05 * weights.sign()
    assert torch.allclose(change, corner[None]) or torch.allclose(change, -corner[None])


def test_the_gradient_of_smart_is_scaled_by_the_largest_of_its_sequence() -> None:
    sequences = torch.tensor([0, 0, 1, -1])  # the last token is padding
    gradient = torch.tensor([[4.0, 1.0], [2.0, 0.0], [1e-6, 0.0], [9.0, 9.0]])
    smart = SmartConfig(epsilon=1.0, noise=1e-12, step_size=0.1)
    ones = torch.ones(4, 2)

    change = regularization.take_steps(smart, ones, sequences, ones, lambda _: gradient)

    expected = torch.tensor([[0.1, 0.025], [0.05, 0.0], [0.1, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(change, expected)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"weight": -1.0}, "weight=-1.0; expected a number >= 0"),
        ({"epsilon": 0}, "epsilon=0; expected a number > 0"),
        ({"steps": 0}, "steps=0; expected a whole number from 1 to 10,000"),
        ({"weight": 0}, "leave smart out"),
    ],
)
def test_settings_of_smart_are_checked(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SmartConfig(**keys)
