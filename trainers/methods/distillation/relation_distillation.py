"""Relation distillation: a student learns how the tokens of a teacher attend to each other."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from trainers.methods.base import (
    ComputeLoss,
    Method,
    StepLoss,
    count_sequences,
    refuse_sharding,
    refuse_shared_rows,
)
from trainers.options import is_count, is_positive
from trainers.wrapped_models import find_inner

from .distillation import Distillation
from .encoder_pass import EncoderPass, project, watch
from .frozen import Frozen, load_frozen
from .relations import Vectors, choose_relation_heads, compare_relations

ALPHA = 0.5
NOT_SHARED = ("relations belong to the pass of one task", "relation_teacher")
MAX_HEADS = 10_000


class RelationDistillation(Method):
    """Learn the self-attention relations of a teacher (MiniLMv2, Wang et al. 2021, section 3).

    The loss of every task is ``(1 - alpha)`` times its own plus ``alpha`` times the divergence of
    the relations among the queries, keys and values of each sequence: those of a layer of the
    teacher, and of the highest layer that the student computes for the task. Their widths, numbers
    of layers and of attention heads may differ; their tokens must be the same. No label is needed.

    The teacher runs in every step, in evaluation mode and without gradients, on the device and in
    the precision of the student. It is neither trained nor saved, and has no state.

    In the list of methods it comes after ``Distillation`` and before all others. R-Drop then
    averages the whole loss over both of its passes, for which the teacher runs once.

    Args:
        teacher: An encoder such as ``MinBertModel``, or a function that returns it when training
            starts.
        alpha: Share of the relations in the loss, in [0, 1]; with 1 the student learns from nothing
            else.
        teacher_layer: Layer of the teacher, from 1; None for the last. Of 24 layers the paper takes
            one of the upper middle, such as the 21st.
        heads: Relation heads, a divisor of both hidden sizes; None for the most with which those of
            the teacher have a size of 16, as in the paper.

    Raises:
        ValueError: If a value is out of range.
    """

    def __init__(
        self,
        teacher: Frozen,
        alpha: float = ALPHA,
        teacher_layer: int | None = None,
        heads: int | None = None,
    ) -> None:
        if not (is_positive(alpha, or_zero=True) and alpha <= 1):
            raise ValueError(f"relation_alpha={alpha!r}; expected a number from 0 to 1")
        for name, value in (("relation_teacher_layer", teacher_layer), ("relation_heads", heads)):
            if value is not None and not is_count(value, 1, MAX_HEADS):
                raise ValueError(f"{name}={value!r}; expected a whole number from 1")
        self.teacher = teacher
        self.alpha = float(alpha)
        self.teacher_layer = teacher_layer
        self.heads = heads
        self._model: Any = None
        self._known: Vectors | None = None  # of the teacher, for the batch of this step

    # Before training

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if args.torch_compile:
            raise ValueError(
                "relation distillation reads the states of a layer with hooks, which torch_compile "
                "does not follow; leave one of them out"
            )
        if args.n_gpu > 1:
            raise ValueError(
                f"relation distillation needs one process for each of the {args.n_gpu} GPUs; start "
                "it with `accelerate launch --multi_gpu`, or show it one with CUDA_VISIBLE_DEVICES"
            )
        self.student = find_encoder(model)
        if isinstance(self.teacher, nn.Module):
            self._fit(find_encoder(self.teacher))

    def attach(self, trainer: Any) -> None:
        refuse_sharding(trainer, "relation distillation")
        refuse_shared_rows(trainer.tasks, trainer.tasks, *NOT_SHARED)
        self.trainer = trainer
        methods: Sequence[Method] = trainer.methods
        for method in methods[: methods.index(self)]:
            if type(method).loss is not Method.loss and not isinstance(method, Distillation):
                raise ValueError(
                    f"methods: RelationDistillation is part of every pass of "
                    f"{type(method).__name__}; list it first"
                )

    def describe(self) -> str:
        return f"share of the relations of tokens in the loss: {self.alpha:g}"

    def begin(self) -> None:
        self._model = load_frozen(self._find_teacher, self.trainer.args.device)
        self._fit(self._model)

    def _find_teacher(self) -> Any:
        given = self.teacher
        return find_encoder(given if isinstance(given, nn.Module) else given())

    def _fit(self, teacher: Any) -> None:
        """Choose the relations of a teacher; ValueError if it does not fit the student."""
        fitted = fit_relations(self.student.config, teacher.config, self.teacher_layer, self.heads)
        self._layer, self._heads = fitted

    # Training

    def take(self, inputs: dict[str, Any]) -> None:
        del inputs
        self._known = None

    def loss(self, compute: ComputeLoss, task: str, inputs: dict[str, Any]) -> StepLoss:
        del inputs
        with watch(self.student) as seen:
            step = compute()
        relations = self._compare(seen, task)
        weighted = relations * step.weigh("sequences")
        loss = (1 - self.alpha) * step.loss + self.alpha * weighted
        facts = step.facts | {"relations": relations.detach()}
        return replace(step, loss=loss, facts=facts)

    def count_terms(self, task: str, inputs: dict[str, Any]) -> dict[str, Any]:
        return {"sequences": count_sequences(inputs)}

    def _compare(self, seen: EncoderPass, task: str) -> Tensor:
        """Compare the relations of a pass with those of the teacher for the same batch."""
        if seen.attention is None or seen.hidden is None:
            raise ValueError(f"task {task!r} computes no layer, so there are no relations to learn")
        with self.trainer.accelerator.autocast():
            if self._known is None:
                self._known = self._ask(seen)
            student = project(seen.attention, seen.take_tokens(seen.hidden))
        sequences = seen.find_sequences(self.student.config.pad_token_id)
        return compare_relations(student, self._known, sequences, self._heads)

    @torch.no_grad()
    def _ask(self, seen: EncoderPass) -> Vectors:
        """Compute queries, keys and values of the teacher for the batch of a pass, (T, D) each."""
        below = {"read": "tokens", "num_layers": self._layer - 1, "return_dict": True}
        outputs = self._model(**seen.inputs, **below)
        attention = self._model.encoder.layer[self._layer - 1].attention.self
        return project(attention, seen.take_tokens(outputs.last_hidden_state))

    def fact_names(self, task: str) -> tuple[str, ...]:
        del task
        return ("relations",)

    def release(self) -> None:
        self._known = self._model = None


def find_encoder(model: nn.Module) -> Any:
    """Return the encoder of a model; ValueError if it is not one of BERT."""
    inner: Any = find_inner(model)
    encoder: Any = getattr(inner, "base_model", inner)
    if not hasattr(getattr(encoder, "encoder", None), "layer"):
        raise ValueError(
            f"relation distillation needs encoders such as MinBertModel; {type(model).__name__} "
            "has no encoder.layer"
        )
    return encoder


def fit_relations(
    student: Any, teacher: Any, layer: int | None, heads: int | None
) -> tuple[int, int]:
    """Choose the layer of the teacher and the relation heads for two configurations.

    Raises:
        ValueError: If the teacher has no such layer, the heads do not divide both hidden sizes, or
            the teacher does not know all tokens or segments.
    """
    if teacher.vocab_size < student.vocab_size:
        raise ValueError(
            f"the relation teacher has {teacher.vocab_size:,} tokens, but the student "
            f"{student.vocab_size:,}: both need the same tokenizer"
        )
    if teacher.type_vocab_size < student.type_vocab_size:
        raise ValueError(
            f"the relation teacher has {teacher.type_vocab_size} segment(s), but the student "
            f"{student.type_vocab_size}: set type_vocab_size of the student, or take another one"
        )
    count = teacher.num_hidden_layers
    if not 1 <= (layer or count) <= count:
        raise ValueError(f"relation_teacher_layer={layer}, but the teacher has {count} layers")
    widths = (student.hidden_size, teacher.hidden_size)
    if heads is not None and any(width % heads for width in widths):
        raise ValueError(
            f"relation_heads={heads} must divide the hidden sizes of student and teacher, "
            f"{widths[0]} and {widths[1]}; leave it out for {choose_relation_heads(*widths)}"
        )
    return layer or count, heads or choose_relation_heads(*widths)
