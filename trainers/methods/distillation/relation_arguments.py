"""Recipe keys of relation distillation."""

from dataclasses import dataclass

from trainers.options import option

from .frozen import Frozen
from .relation_distillation import ALPHA, RelationDistillation


@dataclass(kw_only=True)
class RelationArguments:
    """Flags and recipe keys of relation distillation, for labeled tasks and for text.

    Raises:
        ValueError: If a value is out of range, or a key has no effect.
    """

    relation_teacher: str | None = option(
        None, "Relation distillation (MiniLMv2): the folder or Hub id of a teacher."
    )
    relation_alpha: float | None = option(
        None, "Share of the relations of tokens in the loss; 0.5 by default."
    )
    relation_teacher_layer: int | None = option(
        None, "Layer of this teacher, from 1; by default the last."
    )
    relation_heads: int | None = option(
        None, "Relation heads; by default those of size 16 of the teacher, if both widths allow it."
    )

    def __post_init__(self) -> None:
        if self.relation_teacher is None:
            for name in ("relation_alpha", "relation_teacher_layer", "relation_heads"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} has no effect without relation_teacher; leave it out")

    def make_relation_distillation(self, teacher: Frozen) -> RelationDistillation:
        """Build the method, which comes after ``Distillation`` and before all others."""
        alpha = ALPHA if self.relation_alpha is None else self.relation_alpha
        return RelationDistillation(
            teacher, alpha, self.relation_teacher_layer, self.relation_heads
        )
