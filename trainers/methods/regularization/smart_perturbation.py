"""SMART's search for the small change of the embeddings that changes predictions most."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainers.options import is_count, is_positive

# Keeps the gradient of a tiny divergence away from zero in half precision.
SCALE = 2.0**16
MAX_STEPS = 10_000


@dataclass(frozen=True, kw_only=True)
class SmartConfig:
    """Settings of SMART.

    The change is added to the output of the embeddings, after layer norm and dropout. All passes
    have the same dropout masks: without a change the divergence is 0.

    In mode ``paper`` the change is noise plus gradient steps, each scaled to ``step_size`` in its
    largest element per sequence and clipped to ``epsilon``. Sizes are in units of the root mean
    square of the embeddings. The absolute values of the paper, 1e-5 and 1e-3, give a divergence
    of about 1e-8; the default here is larger.

    In mode ``mtdnn`` the step is that of the authors' public code: noise plus the unscaled gradient
    of the sum over rows, divided by its largest element token by token. Nothing is clipped, and
    the result is close to random noise whose largest element is 1. The divergence between classes
    is the symmetric one of the paper; their code treats every class as an outcome of its own and
    holds the logarithms constant.

    Args:
        weight: Weight of the smoothness term, lambda in the paper; 0 leaves it out.
        bregman_weight: Weight of the divergence from the moving average of the weights, mu in the
            paper; 0 leaves it out.
        mode: ``paper`` or ``mtdnn``.
        epsilon: Largest change of an element; mode ``paper``.
        noise: Standard deviation of the initial noise.
        step_size: Size of a gradient step.
        steps: Number of gradient steps.

    Raises:
        ValueError: If a value is out of range, or both weights are 0.

    Source: Jiang et al. 2020, sections 3.1 and 3.2.
    """

    weight: float = 1.0
    bregman_weight: float = 0.0
    mode: Literal["paper", "mtdnn"] = "paper"
    epsilon: float = 0.1
    noise: float = 1e-5
    step_size: float = 0.1
    steps: int = 1

    def __post_init__(self) -> None:
        for name in ("weight", "bregman_weight"):
            check_number(name, getattr(self, name), above=False)
        for name in ("epsilon", "noise", "step_size"):
            check_number(name, getattr(self, name), above=True)
        if self.mode not in ("paper", "mtdnn"):
            raise ValueError(f"smart: mode={self.mode!r}; expected 'paper' or 'mtdnn'")
        if not is_count(self.steps, 1, MAX_STEPS):
            raise ValueError(
                f"smart: steps={self.steps!r}; expected a whole number from 1 to {MAX_STEPS:,}"
            )
        if not self.weight and not self.bregman_weight:
            raise ValueError("smart: weight and bregman_weight are both 0; leave smart out")


def smoothness(
    config: SmartConfig,
    model: Any,
    inputs: Mapping[str, Any],
    logits: Tensor,
    embeddings: Tensor,
    noise: Tensor,
    replay: "DropoutReplay",
) -> dict[str, Tensor]:
    """Compute how much a small change of the embeddings, (..., D), changes the predictions.

    ``replay`` repeats the dropout masks of the pass without a change. Returns the divergence, with
    its graph; the largest element of the change; and the mean cosine of change and gradient.
    """
    shape = embeddings.shape
    given, target = unlabeled(inputs), logits.detach()
    if _autocast_forward(model) is not None:
        with torch.no_grad(), replay.again(), whole_precision(model):
            target = model(**given).logits
    sequences = number_sequences(inputs).flatten()
    if len(sequences) != shape[:-1].numel():  # the model takes padding out by itself
        sequences = sequences[sequences >= 0]

    def gradient_at(change: Tensor) -> Tensor:
        change = change.detach().requires_grad_()
        with replay.again(), whole_precision(model), perturbed(model, change.view(shape), []):
            moved = model(**given).logits
        divergence = SCALE * model.divergence(inputs["task"], moved, target)
        (gradient,) = torch.autograd.grad(divergence, change)
        rows = len(target) if config.mode == "mtdnn" else 1
        return torch.nan_to_num(gradient / SCALE * rows)

    flat = (embeddings.flatten(0, -2), sequences, noise.flatten(0, -2))
    change, gradient = take_steps(config, *flat, gradient_at)
    with replay.again(), perturbed(model, change.detach().view(shape), []):
        moved = model(**given).logits
    real = sequences >= 0
    cosines = torch.cosine_similarity(change[real], gradient[real], dim=-1, eps=1e-30)
    return {
        "smart_divergence": model.divergence(inputs["task"], moved, logits),
        "smart_change": change.abs().amax(),
        "smart_cosine": cosines.mean(),
    }


def unlabeled(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the labels from a batch: a pass without them computes no loss."""
    return {name: value for name, value in inputs.items() if name not in ("labels", "num_rows")}


def _autocast_forward(model: Any) -> Any:
    """Return the forward that accelerate has wrapped in autocast; None if it has not."""
    return vars(model).get("_original_forward")


@contextmanager
def whole_precision(model: Any) -> Iterator[None]:
    """Compute in the precision of the weights, without the autocast of mixed precision.

    bfloat16 rounds a change of 1e-5 away: for many rows divergence and gradient would be 0.
    """
    original = _autocast_forward(model)
    if original is None:
        yield
        return
    wrapped = model.forward
    model.forward = original
    try:
        with torch.autocast(next(model.parameters()).device.type, enabled=False):
            yield
    finally:
        model.forward = wrapped


class DropoutReplay:
    """Repeats the dropout masks that are drawn on a device after this object is made."""

    def __init__(self, device: torch.device) -> None:
        self._kind = device.type
        self._module: Any = torch.get_device_module(device)
        self._devices = [device] if device.type != "cpu" else []
        self._state = torch.get_rng_state()
        self._states = [self._module.get_rng_state(device) for device in self._devices]

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw the same random numbers again, and restore the random state afterwards."""
        with torch.random.fork_rng(self._devices, device_type=self._kind):
            torch.set_rng_state(self._state)
            for device, state in zip(self._devices, self._states, strict=True):
                self._module.set_rng_state(state, device)
            yield


@contextmanager
def perturbed(model: nn.Module, change: Tensor | None, seen: list[Tensor]) -> Iterator[None]:
    """Record the output of the embeddings, (..., D), in ``seen``, and add a change to it."""
    embeddings: Any = model.base_model.embeddings  # type: ignore[union-attr]

    def hook(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:  # noqa: ARG001
        seen.append(output.detach())
        return output if change is None else output + change.to(output.dtype)

    handle = embeddings.register_forward_hook(hook)
    try:
        yield
    finally:
        handle.remove()


def take_steps(
    config: SmartConfig,
    embeddings: Tensor,
    sequences: Tensor,
    noise: Tensor,
    gradient_at: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Search for the change, (T, D), that changes predictions most, and the last gradient."""
    real = (sequences >= 0).unsqueeze(1)
    count = int(sequences.max()) + 1
    unit = torch.ones((), device=embeddings.device)
    if config.mode == "paper":
        kept = embeddings.float().masked_fill(~real, 0)
        unit = (kept.square().sum() / (real.sum() * embeddings.shape[1])).sqrt()
    change = (noise * config.noise * unit).masked_fill(~real, 0)
    gradient = torch.zeros_like(change)
    for _ in range(config.steps):
        gradient = gradient_at(change).float().masked_fill(~real, 0)
        if config.mode == "paper":
            limit = config.epsilon * unit
            step = gradient / _largest(gradient, sequences, count)
            change = (change + config.step_size * unit * step).clamp(-limit, limit)
        else:
            change = change + config.step_size * gradient
            # 1e-6 as in the public code
            change = change / (change.abs().amax(dim=1, keepdim=True) + 1e-6)
    return change, gradient


def _largest(values: Tensor, sequences: Tensor, count: int) -> Tensor:
    """Return for each token the largest absolute value in its sequence, (T, 1)."""
    by_token = values.abs().amax(dim=1)
    index = sequences.clamp(min=0)
    largest = by_token.new_zeros(count).scatter_reduce(0, index, by_token, "amax")
    return largest[index].unsqueeze(1).clamp(min=torch.finfo(values.dtype).tiny)


def number_sequences(inputs: Mapping[str, Any]) -> Tensor:
    """Return the sequence of each token of a batch, packed or padded; -1 for padding."""
    ids = inputs["input_ids"]
    bounds = inputs.get("cu_seq_lens_q")
    if bounds is not None:
        places = torch.arange(ids.numel(), device=ids.device)
        sequences = torch.searchsorted(bounds.to(places.dtype), places, right=True) - 1
        return sequences.masked_fill(places >= bounds[-1], -1).view(ids.shape)
    rows = ids.flatten(0, -2)
    sequences = torch.arange(len(rows), device=ids.device).unsqueeze(1).expand(rows.shape)
    mask = inputs.get("attention_mask")
    return sequences if mask is None else sequences.masked_fill(mask.flatten(0, -2) == 0, -1)


def check_number(name: str, value: Any, *, above: bool) -> None:
    """Check that a value is a finite number >= 0, or > 0 if ``above``."""
    if not is_positive(value, or_zero=not above):
        raise ValueError(f"{name}={value!r}; expected a number {'> 0' if above else '>= 0'}")
