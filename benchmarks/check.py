"""Check that contenders compute the same; a speed counts only if they do.

Training: without dropout, in float32, on a few rows of each batch, the first loss, the first
gradients, and losses and weights over 20 steps of AdamW, each against BERT of transformers in a
plain loop. In bfloat16, the error against that loop in float32 is compared with the error of the
same loop in bfloat16. Encoders and classifiers: vectors or classes against the baseline; in other
precisions than float32 their errors are only reported.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
LIMITS = {
    "first loss": 1e-5, "losses": 1e-3, "gradients": 1e-4, "weights": 1e-4, "vectors": 1e-3,
    "classes": 2e-3,
    # The error of 20 losses of few rows was 0.96 to 1.35 times that of transformers with other rows
    # of the same task, so its limit is wider than that of the gradients.
    "bf16 gradients": 1.2, "bf16 losses": 2.0,
}  # fmt: skip
# Softmax is invariant to the bias of the keys: its gradient is rounding noise, which AdamW scales
# up to full steps.
UNDETERMINED = "attention.self.key.bias"


def compare_training(arrays: Arrays, exact: Arrays) -> dict[str, Any]:
    """Compare a record of training with that of the plain loop.

    Returns:
        ``errors``: the largest by name of a limit, and ``reason``: None, or why it is void.
    """
    losses, expected = arrays["losses"], exact["losses"]
    relative = np.abs(losses - expected) / np.abs(expected)
    errors = {"first loss": float(relative[0]), "losses": float(relative.max())}
    where = {}
    for what, prefix in (("gradients", "gradient "), ("weights", "weight ")):
        errors[what], where[what] = find_worst(arrays, exact, prefix)
    surplus = [
        f"{int(value)} {name.removeprefix('surplus ')} too many"
        for name, value in arrays.items()
        if name.startswith("surplus ") and value
    ]
    return judge(errors, where, surplus)


def find_worst(arrays: Arrays, exact: Arrays, prefix: str) -> tuple[float, str]:
    """Return the largest relative error (2-norm) of all parameters with a gradient, and its name.

    The norm of a weight counts as at least 0.01 per element, since new biases are zero.
    """
    worst, where = 0.0, ""
    for key in _gradients(exact):
        name = key.removeprefix("gradient ")
        expected = exact[prefix + name].astype(np.float64)
        values = arrays.get(prefix + name)
        if values is None or values.shape != expected.shape:
            return float("inf"), f"{name} (missing)"
        norm = float(np.linalg.norm(expected))
        if prefix == "weight ":
            norm = max(norm, 0.01 * expected.size**0.5)
        error = float(np.linalg.norm(values - expected)) / max(norm, 1e-30)
        if not error <= worst:
            worst, where = error, name
    return worst, where


def compare_half(arrays: Arrays, half: Arrays, exact: Arrays) -> dict[str, Any]:
    """Compare the error of a record in bfloat16 with that of transformers in bfloat16.

    Args:
        arrays: Record of the contender.
        half: Record of the plain loop in bfloat16.
        exact: Record of the plain loop in float32.
    """

    def find_errors(record: Arrays) -> dict[str, float]:
        names = _gradients(exact)
        error = sum(float(np.square(record[name] - exact[name]).sum()) for name in names)
        norm = sum(float(np.square(exact[name]).sum()) for name in names)
        losses = (record["losses"] - exact["losses"]) / exact["losses"]
        return {"gradients": (error / norm) ** 0.5, "losses": float(np.sqrt(np.mean(losses**2)))}

    errors, expected = find_errors(arrays), find_errors(half)
    ratios = {f"bf16 {what}": errors[what] / max(expected[what], 1e-5) for what in errors}
    return judge(ratios, dict.fromkeys(ratios, "of the error of transformers"), [])


def _gradients(exact: Arrays) -> list[str]:
    return [
        name for name in exact if name.startswith("gradient ") and not name.endswith(UNDETERMINED)
    ]


def compare_outputs(arrays: Arrays, baseline: Arrays, precision: str) -> dict[str, Any]:
    """Compare vectors, scaled to length 1, or the share of other classes."""
    ((what, values),) = arrays.items()
    expected = baseline[what]
    if values.shape != expected.shape:
        return {"errors": {}, "reason": f"shape {values.shape} instead of {expected.shape}"}
    if what == "classes":
        error = float((values != expected).mean())
    else:
        unit, other = (
            array / np.linalg.norm(array, axis=-1, keepdims=True) for array in (values, expected)
        )
        error = float(np.linalg.norm(unit - other) / np.linalg.norm(other))
    if precision != "float32":
        return {"errors": {what: error}, "reason": None}
    return judge({what: error}, {}, [])


def judge(
    errors: Mapping[str, float], where: Mapping[str, str], faults: list[str]
) -> dict[str, Any]:
    """Compare errors with their limits."""
    reasons = [
        f"{what}: {error:.1e} {where.get(what, '')}".rstrip()
        for what, error in errors.items()
        if not error <= LIMITS[what]
    ]
    return {"errors": dict(errors), "reason": "; ".join([*reasons, *faults]) or None}
