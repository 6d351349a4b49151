"""Recipe keys of the training methods, and the order in which the methods apply."""

from dataclasses import dataclass
from typing import Any, Literal

from datasets_scripts.checking import Part, Positive, option

from .base import Method


@dataclass(kw_only=True)
class MethodArguments:
    """Flags and recipe keys of the training methods.

    Raises:
        ValueError: If a value is out of range, or two keys contradict each other.
    """

    teacher: str | list[str] | None = option(
        None, "Distillation: the folder or Hub id of a teacher, or several, as in a,b,c."
    )
    distillation_alpha: Part | None = option(
        None, "Share of the teachers in the loss; by default 0.5, and 1 for vectors."
    )
    distillation_temperature: Positive | None = option(
        None, "Temperature of the teachers' probabilities; 2 by default."
    )
    head_learning_rate: float | None = option(
        None,
        "Learning rate of the heads; by default 100 times learning_rate for a pretrained encoder.",
    )
    freeze_layers: int | None = option(
        None, "Number of lowest layers to freeze together with the embeddings."
    )
    weight_averaging: Literal["ema"] | None = option(
        None, "Evaluate and save a moving average of the weights."
    )
    averaging_decay: float | None = option(
        None, "Weight of the old average in ema; 0.999 by default."
    )
    r_drop: float | None = option(None, "Weight of R-Drop's divergence between two passes.")
    lora: dict[str, Any] | None = option(None, "LoRA: fields of peft's LoraConfig, such as {r: 8}.")
    gradient_surgery: Literal["pcgrad"] | None = option(
        None, "How to resolve gradient conflicts of mixed tasks; null sums them."
    )

    def __post_init__(self) -> None:
        self.make_methods()
        if self.freeze_layers is not None and self.lora is not None:
            raise ValueError("freeze_layers and lora both choose what to train; give one of them")
        if self.averaging_decay is not None and self.weight_averaging != "ema":
            raise ValueError("averaging_decay has no effect without weight_averaging: ema")

    def make_methods(self) -> list[Method]:
        """Build the chosen methods in the order in which they apply; the others are not loaded.

        Distillation, which comes before all, is made with its teachers.
        """
        methods: list[Method] = []
        if self.r_drop is not None:
            from .r_drop import RDrop

            methods.append(RDrop(self.r_drop))
        if self.head_learning_rate is not None:
            from .layers import HeadLearningRate

            methods.append(HeadLearningRate(self.head_learning_rate))
        if self.freeze_layers is not None:
            from .layers import FreezeLayers

            methods.append(FreezeLayers(self.freeze_layers))
        if self.weight_averaging is not None:
            from .averaging import WeightAveraging

            decay = 0.999 if self.averaging_decay is None else self.averaging_decay
            methods.append(WeightAveraging(decay))
        if self.gradient_surgery is not None:
            from .gradient_surgery import GradientSurgery

            methods.append(GradientSurgery())
        return methods
