"""Masked language modelling and next sentences: what a step of them reads, and what it scored.

Source: Devlin et al. 2019, section 3.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .masking import IGNORED_LABEL, Masking
from .rows import Joined

MASKED = ("masked_lm", "pretraining")
PAIRED = ("next_sentence", "pretraining")
# Problem types that learn from text without labels.
TEXT_TYPES = ("masked_lm", "next_sentence", "pretraining")
# What `score_text` says of every row.
SCORES = ("mlm_nll", "mlm_correct", "mlm_targets", "nsp_nll", "nsp_correct")


@dataclass(frozen=True)
class TextTask:
    """How the batches of a task that learns from text are made.

    Args:
        problem_type: One of ``TEXT_TYPES``.
        masking: Chooses what is predicted; None for ``next_sentence``.
        position: Of the task among all tasks.
    """

    problem_type: str
    masking: Masking | None
    position: int = 0

    def prepare(self, joined: Joined) -> Joined:
        """Draw the masks of a batch, or make the label of the pairs its label.

        Raises:
            ValueError: If the rows do not say which they are, or are no pairs.
        """
        if self.problem_type in PAIRED and joined.next_sentence_label is None:
            raise ValueError(
                f"task {joined.task!r} is to learn whether one segment follows the other, but its "
                "rows are no segment pairs"
            )
        if self.masking is None:
            return joined._replace(labels=joined.next_sentence_label, next_sentence_label=None)
        if joined.places is None:
            raise ValueError(
                f"masks of task {joined.task!r} are drawn for the rows of a TaskDataset without a "
                "format, whose number is known"
            )
        numbers, rows = joined.places
        draws = self.masking.draw(self.position, numbers, rows, joined.lengths)
        ids, labels = self.masking.apply(joined.input_ids, joined.lengths, draws)
        follows = joined.next_sentence_label if self.problem_type in PAIRED else None
        return joined._replace(
            input_ids=ids, labels=None, token_labels=labels, next_sentence_label=follows
        )


def score_text(problem_type: str, inputs: Mapping[str, Any], outputs: Any) -> Tensor:
    """Sum up what a batch scored, row by row; logits of a whole evaluation would not fit anywhere.

    Args:
        problem_type: One of ``TEXT_TYPES``.
        inputs: The batch, padded or packed.
        outputs: What the model gave for it in evaluation.

    Returns:
        ``SCORES`` of each row, fillers included, (B, 5), float32: sums of negative log likelihoods,
        and counts; zeros for what the task does not have.
    """
    rows = count_rows(inputs)
    device = inputs["input_ids"].device
    scores = torch.zeros(rows, len(SCORES), device=device)
    if problem_type in MASKED:
        logits = find_output(outputs, "prediction_logits", "logits")
        scores[:, :3] = _score_tokens(inputs, logits, rows)
    if problem_type in PAIRED:
        name = "next_sentence_label" if problem_type == "pretraining" else "labels"
        logits = find_output(outputs, "seq_relationship_logits", "logits").float()
        labels = inputs[name]
        scores[:, 3] = F.cross_entropy(logits, labels, reduction="none")
        scores[:, 4] = (logits.argmax(dim=-1) == labels).float()
    return scores


def count_rows(inputs: Mapping[str, Any]) -> int:
    """Count the rows of a batch of single sequences, padded or packed."""
    offsets = inputs.get("cu_seq_lens_q")
    return int(inputs["input_ids"].shape[0] if offsets is None else len(offsets) - 1)


def find_output(outputs: Any, *names: str) -> Tensor:
    """Take the first of some outputs that is there."""
    return next(outputs[name] for name in names if outputs.get(name) is not None)


def _score_tokens(inputs: Mapping[str, Any], logits: Tensor, rows: int) -> Tensor:
    """Sum up the labelled tokens of each row: (B, 3)."""
    labels = inputs["labels"].flatten()
    positions = inputs.get("label_positions")
    if positions is None:
        positions = (labels != IGNORED_LABEL).nonzero().flatten()
    if logits.dim() == 3:
        logits = logits.flatten(0, 1)[positions]
    labels = labels[positions]
    if "cu_seq_lens_q" in inputs:
        ends = inputs["cu_seq_lens_q"][1:].to(positions.dtype)
        row = torch.bucketize(positions, ends, right=True)
    else:
        row = positions // inputs["input_ids"].shape[1]
    nll = F.cross_entropy(logits.float(), labels, reduction="none", ignore_index=IGNORED_LABEL)
    found = torch.stack([nll, (logits.argmax(dim=-1) == labels).float(), (labels >= 0).float()])
    return torch.zeros(rows, 3, device=labels.device).index_add_(0, row, found.T)
