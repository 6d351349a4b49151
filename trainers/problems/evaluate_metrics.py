"""Metrics of others: modules of the library evaluate, as ``evaluate/<folder or name>``."""

import os
import random
from functools import cache, partial
from pathlib import Path
from typing import Any

from trainers.data.rows import IGNORED_LABEL

from .metrics import EVALUATE, Array, Metric, is_error


def make_module_metric(name: str) -> Metric:
    """Make a metric of ``evaluate/<folder, file or name on the Hub>``; it is loaded when needed."""
    module = name.removeprefix(EVALUATE)
    title = Path(module).name.removesuffix(".py")
    if not title:
        raise ValueError(f"metrics: {name!r} names no module; expected {EVALUATE}<folder or name>")
    score = partial(_compute_module, module, title)
    return Metric(title, score, lower_is_better=is_error(title), module=module)


@cache
def load_module(module: str) -> Any:
    """Load a module of the library evaluate, whose code is run."""
    # Importing evaluate takes memory that other runs can do without. It also draws from Python's
    # random state, which a checkpoint stores.
    state = random.getstate()
    try:
        import evaluate

        return evaluate.load(os.path.expanduser(module), keep_in_memory=True)  # noqa: PTH111
    except (ImportError, OSError, TypeError, ValueError) as error:
        raise ValueError(
            f"metrics: {EVALUATE + module!r} cannot be loaded ({error}); expected a folder or a "
            "file of this machine, with the code of a metric for the library evaluate, or the "
            "name of one on the Hub"
        ) from error
    finally:
        random.setstate(state)


def _compute_module(module: str, name: str, predictions: Array, labels: Array) -> float:
    """Compute the number that a module returns as ``name``, or its only one."""
    if (labels == IGNORED_LABEL).any():
        raise ValueError(
            f"metrics: {EVALUATE + module!r} cannot leave out single labels of a row, and some are "
            "missing; give all of them, or leave this metric out"
        )
    state = random.getstate()
    values = load_module(module).compute(predictions=predictions, references=labels)
    random.setstate(state)
    if name not in values and len(values) != 1:
        raise ValueError(
            f"metrics: {EVALUATE + module!r} returns {', '.join(values)}; expected {name!r}, or "
            "one number"
        )
    return float(values[name] if name in values else next(iter(values.values())))
