"""Methods of training beside the plain one: their flags and keys."""

from dataclasses import dataclass, field, fields
from typing import Any, Literal

from .averaging import Averaging
from .layers import GradualUnfreezing
from .perturbation import Smart
from .regularization import RDrop


@dataclass(kw_only=True)
class MethodArguments:
    """Flags and keys of how a model is trained.

    Raises:
        ValueError: If a value is out of range, or two flags contradict each other.
    """

    layerwise_lr_decay: float | None = field(
        default=None,
        metadata={"help": "Factor on the learning rate from a layer to the one below."},
    )
    layerwise_lr_decay_embeddings: bool = field(
        default=True, metadata={"help": "Whether the embeddings are a layer of it, the lowest."}
    )
    freeze_layers: int | None = field(
        default=None,
        metadata={"help": "Layers from the bottom that do not learn, beside the embeddings."},
    )
    unfreeze_layer_every: float | None = field(
        default=None,
        metadata={"help": "Begin with the heads; after so many epochs one layer more learns."},
    )
    weight_averaging: Literal["ema", "swa"] | None = field(
        default=None,
        metadata={"help": "Evaluate and save a moving (ema) or plain (swa) average of weights."},
    )
    averaging_decay: float | None = field(
        default=None, metadata={"help": "What ema keeps of itself at a step; by default 0.999."}
    )
    averaging_start: float | None = field(
        default=None,
        metadata={"help": "Share of the steps before averaging; by default 0, of swa 0.75."},
    )
    r_drop: float | None = field(
        default=None, metadata={"help": "Weight of R-Drop's divergence between two passes."}
    )
    smart: dict[str, Any] | None = field(
        default=None, metadata={"help": "Fields of Smart, such as {weight: 1.0, mode: paper}."}
    )
    lora: dict[str, Any] | None = field(
        default=None, metadata={"help": "Fields of peft's LoraConfig, such as {r: 8}."}
    )

    def __post_init__(self) -> None:
        self._check_layers()
        self.make_averaging()
        self.make_smart()
        self.make_r_drop()
        if self.weight_averaging is None:
            for name in ("averaging_decay", "averaging_start"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} means nothing without weight_averaging; leave it out")
        if self.weight_averaging == "swa" and self.averaging_decay is not None:
            raise ValueError("averaging_decay is of ema; swa takes the plain mean: leave it out")

    def _check_layers(self) -> None:
        """Check what learns, and how fast."""
        decay, freeze = self.layerwise_lr_decay, self.freeze_layers
        if decay is not None and not 0 < decay <= 1:
            raise ValueError(f"layerwise_lr_decay={decay!r}; expected in (0, 1]")
        if decay is None and not self.layerwise_lr_decay_embeddings:
            raise ValueError(
                "layerwise_lr_decay_embeddings means nothing without layerwise_lr_decay; leave it "
                "out"
            )
        if freeze is not None and freeze < 0:
            raise ValueError(f"freeze_layers={freeze}; expected 0 or more")
        if self.unfreeze_layer_every is not None:
            GradualUnfreezing(self.unfreeze_layer_every)
        ways = ("freeze_layers", "unfreeze_layer_every", "lora")
        given = [name for name in ways if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} say in two ways what learns; give one of them")

    def make_averaging(self) -> Averaging | None:
        """Make the settings of averaging, if it is asked for."""
        if self.weight_averaging is None:
            return None
        start = 0.75 if self.weight_averaging == "swa" else 0.0
        return Averaging(
            self.weight_averaging,
            decay=0.999 if self.averaging_decay is None else self.averaging_decay,
            start=start if self.averaging_start is None else self.averaging_start,
        )

    def make_smart(self) -> Smart | None:
        """Make the settings of SMART, if it is asked for."""
        if self.smart is None:
            return None
        known = [entry.name for entry in fields(Smart)]
        if unknown := sorted(set(self.smart) - set(known)):
            raise ValueError(
                f"smart: unknown key {', '.join(map(repr, unknown))}; known keys: "
                f"{', '.join(known)}"
            )
        return Smart(**self.smart)

    def make_r_drop(self) -> RDrop | None:
        """Make the settings of R-Drop, if it is asked for."""
        if self.r_drop is None:
            return None
        try:
            return RDrop(alpha=self.r_drop)
        except ValueError as error:
            raise ValueError(f"r_drop: {error}") from None
