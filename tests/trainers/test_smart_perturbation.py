"""SMART: the search of the perturbation and its side effects."""

import pytest
import torch
from torch import Tensor

from trainers import SmartConfig
from trainers.methods.regularization import DropoutReplay, number_sequences, take_steps

ROW = torch.zeros(1, dtype=torch.int64)  # one sequence of one token


def linear(weights: Tensor) -> tuple[Tensor, object]:
    """Give embeddings (1, D) and the gradient of the squared change of w.x, 2 (w.d) w."""
    embeddings = torch.ones(1, len(weights))
    return embeddings, lambda change: 2 * (change @ weights).unsqueeze(1) * weights


def test_one_step_is_the_clipped_gradient_step() -> None:
    embeddings, gradient_at = linear(torch.tensor([1.0, -2.0, 0.5]))
    smart = SmartConfig(epsilon=0.05, noise=0.01, step_size=0.06)
    noise = torch.tensor([[1.0, -1.0, 2.0]])

    change, gradient = take_steps(smart, embeddings, ROW, noise, gradient_at)

    # by hand: d0 = .01 n = (.01, -.01, .02), w.d0 = .04, g = (.08, -.16, .04), g / .16
    torch.testing.assert_close(gradient, torch.tensor([[0.08, -0.16, 0.04]]))
    torch.testing.assert_close(change, torch.tensor([[0.04, -0.05, 0.035]]))


def test_many_steps_reach_the_corner_of_the_ball() -> None:
    weights = torch.tensor([0.3, -2.0, 0.01, 5.0])
    embeddings, gradient_at = linear(weights)
    smart = SmartConfig(epsilon=0.05, noise=1e-3, step_size=0.05, steps=2000)

    change, _ = take_steps(smart, embeddings, ROW, torch.randn(1, 4), gradient_at)

    # the maximum of (w.d)^2 over the ball: Jiang et al. 2020, section 3.1
    corner = 0.05 * weights.sign()
    assert torch.allclose(change, corner[None]) or torch.allclose(change, -corner[None])


def test_sizes_are_in_units_of_the_embeddings() -> None:
    embeddings, gradient_at = linear(torch.tensor([1.0, 1.0]))
    smart = SmartConfig(epsilon=0.05, noise=1e-3, step_size=1.0)

    change, _ = take_steps(smart, 7 * embeddings, ROW, torch.ones(1, 2), gradient_at)

    torch.testing.assert_close(change, torch.full((1, 2), 0.35))


def test_the_gradient_is_scaled_by_the_largest_of_its_sequence() -> None:
    embeddings = torch.ones(3, 2)
    sequences = torch.tensor([0, 0, 1])
    gradient = torch.tensor([[4.0, 1.0], [2.0, 0.0], [1e-6, 0.0]])
    smart = SmartConfig(epsilon=1.0, noise=1e-12, step_size=0.1)

    change, _ = take_steps(smart, embeddings, sequences, torch.ones(3, 2), lambda _: gradient)

    expected = torch.tensor([[0.1, 0.025], [0.05, 0.0], [0.1, 0.0]])
    torch.testing.assert_close(change, expected)


def test_padding_is_not_changed() -> None:
    embeddings = torch.ones(2, 2)
    sequences = torch.tensor([0, -1])

    smart = SmartConfig(noise=0.5)
    change, _ = take_steps(smart, embeddings, sequences, torch.ones(2, 2), torch.ones_like)

    assert change[0].abs().min() > 0
    assert not change[1].any()


def test_tokens_of_padded_and_packed_batches_are_numbered_alike() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 1, 1]])
    padded = {"input_ids": torch.ones(2, 3), "attention_mask": mask}
    packed = {"input_ids": torch.ones(1, 7), "cu_seq_lens_q": torch.tensor([0, 2, 5])}

    assert number_sequences(padded).tolist() == [[0, 0, -1], [1, 1, 1]]
    assert number_sequences(packed).tolist() == [[0, 0, 1, 1, 1, -1, -1]]
    pairs = {"input_ids": torch.ones(1, 2, 2)}
    assert number_sequences(pairs).tolist() == [[0, 0], [1, 1]]


def test_the_same_pass_draws_alike_and_leaves_the_state() -> None:
    same = DropoutReplay(torch.device("cpu"))
    first = torch.rand(3)
    with same.again():
        again = torch.rand(3)
    after = torch.rand(3)

    assert torch.equal(first, again)
    assert not torch.equal(after, first)
    with same.again():
        torch.rand(3)
        torch.testing.assert_close(torch.rand(3), after)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"weight": -1.0}, "weight=-1.0; expected a number >= 0"),
        ({"epsilon": 0}, "epsilon=0; expected a number > 0"),
        ({"noise": "much"}, "noise='much'"),
        ({"step_size": True}, "step_size=True"),
        ({"steps": 0}, "steps=0; expected a whole number from 1 to 10,000"),
        ({"weight": 0}, "leave smart out"),
    ],
)
def test_settings_are_checked(keys: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SmartConfig(**keys)  # type: ignore[arg-type]
