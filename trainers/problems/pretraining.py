"""BERT's pre-training: masked tokens and next sentences in one pass of the encoder."""

from .base.text import TextProblem
from .masked_lm import MaskedLM
from .next_sentence import NextSentence


class Pretraining(TextProblem):
    """Predict masked tokens of segment pairs, and whether the second segment follows the first."""

    problem_type = "pretraining"
    metrics = (*MaskedLM.metrics, *NextSentence.metrics)
    is_masked = True
    is_paired = True
    predicts_tokens = True
    hub_task = "fill-mask"
    part_losses = {"mlm": "mlm_loss", "nsp": "nsp_loss"}  # noqa: RUF012  declared in Problem
    part_labels = {"mlm": "labels", "nsp": "next_sentence_label"}  # noqa: RUF012
    objectives = (*MaskedLM.objectives, *NextSentence.objectives)
    next_sentence_labels = "next_sentence_label"
    plotted = ("mlm_accuracy", "nsp_accuracy")
