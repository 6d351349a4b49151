"""Next-sentence prediction."""

from .base.text import NSP_METRICS, TextProblem


class NextSentence(TextProblem):
    """Decide whether the second segment of a pair follows the first."""

    problem_type = "next_sentence"
    metrics = NSP_METRICS
    is_paired = True
    auto_class = "AutoModelForNextSentencePrediction"
    objectives = ("next-sentence prediction",)
