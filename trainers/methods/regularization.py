"""Regularisers that compare what a model says of the same rows twice: R-Drop and SMART.

A model that is trained with them has ``divergence(task, logits, other)``, the mean over rows of a
distance between two sets of logits.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from .averaging import WeightAverage
from .perturbation import (
    SamePass,
    Smart,
    check_number,
    diverge,
    perturbed,
    smoothness,
    unlabelled,
)

# Of the moving average, before and after so much of the training: Jiang et al. 2020, section 4.1.
EARLY, MOMENTUM, LATE_MOMENTUM = 0.1, 0.99, 0.999


@dataclass(frozen=True, kw_only=True)
class RDrop:
    """R-Drop: two passes with other dropout masks, whose outputs are to be alike.

    The loss is the mean of that of both passes, plus ``alpha`` times half of the symmetric
    divergence between them. The published code has this mean; the paper has the sum, which is
    twice that with twice the alpha.

    Args:
        alpha: Weight of the divergence, above 0; 0.5 to 5 in the paper.

    Raises:
        ValueError: If it is not above 0.

    Source: Wu et al. 2021, section 2.2.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        check_number("alpha", self.alpha, above=True)


@dataclass(frozen=True)
class Regularized:
    """What a step with regularisers gave.

    Args:
        loss: With all terms.
        plain: Of the first pass, without them.
        outputs: Of the first pass.
        facts: What the logs say of it, scalars by name.
    """

    loss: Tensor
    plain: Tensor
    outputs: Any
    facts: dict[str, Tensor]


class Regularizer:
    """Adds the terms of R-Drop and SMART to the loss of a task.

    Nothing of it changes the random state: masks of dropout are those of a run without SMART.

    Args:
        rdrop: None for none.
        smart: None for none.
        model: The model, not wrapped.
        seed: Of the noise, which is a function of it, the rank and the step.
        rank: Of this process.

    Raises:
        ValueError: If the model cannot tell how far outputs are apart.
    """

    def __init__(
        self, rdrop: RDrop | None, smart: Smart | None, model: nn.Module, *, seed: int, rank: int
    ) -> None:
        if not hasattr(model, "divergence"):
            name = "r_drop" if rdrop is not None else "smart"
            raise ValueError(
                f"{name} needs a model with divergence(task, logits, other), as "
                f"MinBertForMultiTask; {type(model).__name__} has none"
            )
        self.rdrop, self.smart, self.model = rdrop, smart, model
        self.seeds = (seed, rank)
        bregman = smart is not None and smart.bregman_weight > 0
        self.average = WeightAverage(model, from_start=True) if bregman else None

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the facts of a step."""
        found = ["rdrop_divergence"] if self.rdrop is not None else []
        if self.smart is not None and self.smart.weight:
            found += ["smart_divergence", "smart_change", "smart_cosine"]
        if self.average is not None:
            found += ["bregman_divergence"]
        return tuple(found)

    def update(self, step: int, steps: int) -> None:
        """Take the weights after a step into the moving average.

        Args:
            step: Steps done.
            steps: Of the whole training.
        """
        if self.average is not None:
            self.average.update("ema", MOMENTUM if step <= EARLY * steps else LATE_MOMENTUM)

    def __call__(
        self,
        compute: Callable[[], tuple[Tensor, Any]],
        inputs: Mapping[str, Any],
        step: tuple[int, ...],
    ) -> Regularized:
        """Compute a step.

        Args:
            compute: Gives the loss of the batch and the outputs of the model.
            inputs: The batch, with its ``task``.
            step: What tells this batch from all others of the rank.
        """
        model, smart = self.model, self.smart
        seen: list[Tensor] = []
        same = SamePass(inputs["input_ids"].device)
        with perturbed(model, None, seen):
            plain, outputs = compute()
        loss = plain
        logits, facts = outputs.logits, {}
        if self.rdrop is not None:
            second_loss, second = compute()
            facts["rdrop_divergence"] = diverge(model, inputs, logits, second.logits)
            loss = (loss + second_loss) / 2 + self.rdrop.alpha / 2 * facts["rdrop_divergence"]
        if smart is not None and smart.weight:
            noise = self._draw(seen[0], step)
            found = smoothness(smart, model, inputs, logits, seen[0], noise, same)
            facts |= found
            loss = loss + smart.weight * found["smart_divergence"]
        if smart is not None and self.average is not None:
            with torch.no_grad(), same.again():
                averaged = functional_call(model, self.average.averages, (), unlabelled(inputs))
            facts["bregman_divergence"] = diverge(model, inputs, logits, averaged.logits)
            loss = loss + smart.bregman_weight * facts["bregman_divergence"]
        return Regularized(
            loss, plain, outputs, {name: fact.detach() for name, fact in facts.items()}
        )

    def _draw(self, embeddings: Tensor, step: tuple[int, ...]) -> Tensor:
        """Draw noise of standard deviation 1 in the shape of the embeddings."""
        state = np.random.SeedSequence((*self.seeds, *step)).generate_state(1, np.uint64)
        generator = torch.Generator().manual_seed(int(state[0] >> np.uint64(1)))
        return torch.randn(embeddings.shape, generator=generator).to(embeddings.device)
