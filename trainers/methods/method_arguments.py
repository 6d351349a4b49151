"""Recipe keys of the training methods, and the order in which the methods apply."""

from dataclasses import dataclass
from typing import Any

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
    r_drop: float | None = option(None, "Weight of R-Drop's divergence between two passes.")
    lora: dict[str, Any] | None = option(None, "LoRA: fields of peft's LoraConfig, such as {r: 8}.")

    def __post_init__(self) -> None:
        self.make_methods()
        if self.freeze_layers is not None and self.lora is not None:
            raise ValueError("freeze_layers and lora both choose what to train; give one of them")

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
        return methods
