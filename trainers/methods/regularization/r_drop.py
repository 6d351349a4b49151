"""R-Drop: two forward passes with different dropout masks, whose predictions should agree."""

from dataclasses import dataclass, replace
from typing import Any

from trainers.methods.base import ComputeLoss, StepLoss

from .base import Regularizer
from .smart_perturbation import check_number


@dataclass
class RDrop(Regularizer):
    """R-Drop (Wu et al. 2021, section 2.2).

    The loss is the mean over both passes, plus ``alpha`` times half of the symmetric divergence
    between them. This is the mean of the published code; the paper has the sum, which is twice
    that with twice the alpha.

    Args:
        alpha: Weight of the divergence, > 0; 0.5 to 5 in the paper.

    Raises:
        ValueError: If alpha is not a number > 0.
    """

    alpha: float = 1.0
    key = "r_drop"

    def __post_init__(self) -> None:
        check_number("r_drop: alpha", self.alpha, above=True)

    def fact_names(self, task: str) -> tuple[str, ...]:
        return ("rdrop_divergence",) if task in self.tasks else ()

    def regularized(self, compute: ComputeLoss, inputs: dict[str, Any]) -> StepLoss:
        first, second = compute(), compute()
        logits = (first.outputs.logits, second.outputs.logits)
        divergence = self.model.divergence(inputs["task"], *logits)
        weighted = divergence * first.weigh("rows")
        loss = (first.loss + second.loss) / 2 + self.alpha / 2 * weighted
        facts = first.facts | {"rdrop_divergence": divergence.detach()}
        return replace(first, loss=loss, facts=facts)
