"""Recipe keys of the training methods, and the order in which the methods apply."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from datasets_scripts.checking import option
from modeling_minbert import unknown

from .base import Method
from .distillation import DistillationArguments


@dataclass(kw_only=True)
class MethodArguments(DistillationArguments):
    """Flags and recipe keys of the training methods.

    Raises:
        ValueError: If a value is out of range, or two keys contradict each other.
    """

    layerwise_lr_decay: float | None = option(
        None, "Learning rate factor from a layer to the one below."
    )
    layerwise_lr_decay_embeddings: bool = option(
        True, "Whether the embeddings count as the lowest layer."
    )
    head_learning_rate: float | None = option(
        None,
        "Learning rate of the heads; by default 100 times learning_rate for a pretrained encoder.",
    )
    freeze_layers: int | None = option(
        None, "Number of lowest layers to freeze together with the embeddings."
    )
    unfreeze_layer_every: float | None = option(
        None, "Train the heads first; epochs until each further layer is unfrozen."
    )
    weight_averaging: Literal["ema", "swa"] | None = option(
        None, "Evaluate and save a moving (ema) or plain (swa) average of weights."
    )
    averaging_decay: float | None = option(
        None, "Weight of the old average in ema; 0.999 by default."
    )
    averaging_start: float | None = option(
        None, "Share of steps before averaging; by default 0, for swa 0.75."
    )
    r_drop: float | None = option(None, "Weight of R-Drop's divergence between two passes.")
    smart: dict[str, Any] | None = option(
        None, "SMART: fields of SmartConfig, such as {weight: 1.0, mode: paper}."
    )
    lora: dict[str, Any] | None = option(None, "LoRA: fields of peft's LoraConfig, such as {r: 8}.")
    gradient_surgery: Literal["pcgrad", "gradvac"] | None = option(
        None, "How to resolve gradient conflicts of mixed tasks; null sums them."
    )
    exponential_lr_gamma: float | None = option(
        None, "Factor on the learning rate after every epoch."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.make_methods()
        if self.layerwise_lr_decay is None and not self.layerwise_lr_decay_embeddings:
            raise ValueError(
                "layerwise_lr_decay_embeddings has no effect without layerwise_lr_decay; leave it "
                "out"
            )
        freezing = ("freeze_layers", "unfreeze_layer_every", "lora")
        given = [name for name in freezing if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} both choose what to train; give one of them")
        self._check_averaging()

    def _check_averaging(self) -> None:
        if self.weight_averaging is None:
            for name in ("averaging_decay", "averaging_start"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no effect without weight_averaging; leave it out")
        if self.weight_averaging == "swa" and self.averaging_decay is not None:
            raise ValueError("averaging_decay is for ema; swa is a plain mean: leave it out")

    def make_methods(self) -> list[Method]:
        """Build the chosen methods in the order in which they apply; the others are not loaded.

        SMART wraps R-Drop: it perturbs the first of the two passes.
        """
        methods: list[Method] = []
        if self.r_drop is not None:
            from .regularization import RDrop

            methods.append(RDrop(self.r_drop))
        if self.smart is not None:
            from .regularization import Smart, SmartConfig

            known = [entry.name for entry in fields(SmartConfig)]
            for key in self.smart:
                if key not in known:
                    raise ValueError(f"smart: {unknown('key', key, known)}")
            methods.append(Smart(SmartConfig(**self.smart)))
        if self.layerwise_lr_decay is not None or self.head_learning_rate is not None:
            from .layers import LayerwiseLearningRates

            decay = 1.0 if self.layerwise_lr_decay is None else self.layerwise_lr_decay
            methods.append(
                LayerwiseLearningRates(
                    decay, self.layerwise_lr_decay_embeddings, self.head_learning_rate
                )
            )
        if self.freeze_layers is not None:
            from .layers import FreezeLayers

            methods.append(FreezeLayers(self.freeze_layers))
        if self.unfreeze_layer_every is not None:
            from .layers import GradualUnfreezing

            methods.append(GradualUnfreezing(self.unfreeze_layer_every))
        if self.weight_averaging is not None:
            from .averaging import WeightAveraging

            start = 0.75 if self.weight_averaging == "swa" else 0.0
            methods.append(
                WeightAveraging(
                    self.weight_averaging,
                    decay=0.999 if self.averaging_decay is None else self.averaging_decay,
                    start=start if self.averaging_start is None else self.averaging_start,
                )
            )
        if self.gradient_surgery is not None:
            from .gradient_surgery import GradientSurgery

            methods.append(GradientSurgery(self.gradient_surgery))
        if self.exponential_lr_gamma is not None:
            from .layers import ExponentialDecay

            methods.append(ExponentialDecay(self.exponential_lr_gamma))
        return methods
