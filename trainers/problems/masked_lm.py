"""Masked language modeling."""

from .base.text import MLM_METRICS, TextProblem


class MaskedLM(TextProblem):
    """Predict masked tokens of single sequences."""

    problem_type = "masked_lm"
    metrics = MLM_METRICS
    is_masked = True
    predicts_tokens = True
    hub_task = "fill-mask"
    objectives = ("masked language modelling",)
