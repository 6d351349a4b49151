"""Label smoothing, which our models do themselves: they own their losses."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_pt_utils import LabelSmoother

from trainers.problems import PROBLEMS
from trainers.problems.base import Problem
from trainers.wrapped_models import find_inner

logger = logging.getLogger(__name__)

KEY = "label_smoothing_factor"


def check_smoothing(args: TrainingArguments, problems: Mapping[str, Problem[Any]]) -> None:
    """Raise ValueError if no task has labels to be smoothed."""
    if args.label_smoothing_factor and not any(each.smooths_labels for each in problems.values()):
        types = [name for name, kind in PROBLEMS.items() if kind("any").smooths_labels]
        given = ", ".join(f"{name!r} ({each.problem_type})" for name, each in problems.items())
        raise ValueError(
            f"{KEY}={args.label_smoothing_factor!r} spreads labels over classes, in tasks of the "
            f"types {', '.join(types)} with the loss cross_entropy, bce or focal, which none is: "
            f"{given}; leave it out"
        )


@contextmanager
def without_smoothing(args: TrainingArguments) -> Iterator[None]:
    """Hide the factor: Trainer expects a model with a config, and one problem type in it."""
    factor, args.label_smoothing_factor = args.label_smoothing_factor, 0.0
    try:
        yield
    finally:
        args.label_smoothing_factor = factor


def smooth_labels(
    model: Any, args: TrainingArguments, problems: Mapping[str, Problem[Any]]
) -> LabelSmoother | None:
    """Tell a model the factor of its tasks, or return what smooths the labels of other models."""
    factor = args.label_smoothing_factor
    own: Any = getattr(find_inner(model), "smooth_labels", None)
    if own is None:
        config = getattr(find_inner(model), "config", None)
        if factor and getattr(config, "num_labels", 2) < 2:
            raise ValueError(
                f"{KEY}={factor!r} spreads labels over classes, but the model has num_labels=1; "
                "leave it out"
            )
        return LabelSmoother(epsilon=factor) if factor else None
    smoothed = [task for task, problem in problems.items() if problem.smooths_labels]
    for task in smoothed:
        own(task, factor)
    if factor and (others := [task for task in problems if task not in smoothed]):
        logger.warning("%s: trained without %s", ", ".join(others), KEY)
    return None
