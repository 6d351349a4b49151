"""Targets of the precisions: what is measured, of whom, against whom."""

from typing import NamedTuple

from benchmarks.targets import Target

from .contenders import REFERENCE


class Goal(NamedTuple):
    """One target.

    Args:
        what: Its name in the report.
        workload: The workload.
        own: The contender whose value it is.
        value: ``ratio`` (of speeds), ``single`` (ratio of the p50 of one sentence), ``share`` (of
            the matrix rate), ``memory`` (ratio of peaks) or ``loss`` (of quality, percent).
        other: The contender it is compared with; None for those that need none.
        target: Floor, target and stretch.
    """

    what: str
    workload: str
    own: str
    value: str
    other: str | None
    target: Target


SHARES = {"bfloat16": Target(0.55, 0.65, 0.75), "float32": Target(0.75, 0.85, 0.9)}
LOSSES = {"int8": Target(0.4, 0.2, 0.0), "bfloat16": Target(0.1, 0.05, 0.0)}
SINGLE = Target(1.0, 0.7, 0.5)
PRECISIONS = ("float32", "bfloat16", "int8")


def _speeds() -> list[Goal]:
    speeds = (
        ("int8", REFERENCE, Target(3, 4, 5)),
        ("int8", "onnx int8", Target(1.3, 1.6, 2.0)),
        ("bfloat16", REFERENCE, Target(2.3, 2.8, 3.3)),
    )
    encode = [
        Goal(f"encode {own}, speed / {other}", "encode", f"minbert {own}", "ratio", other, target)
        for own, other, target in speeds
    ]
    trainers = (("sst", Target(2.0, 2.5, 3.0)), ("sst_grouped", Target(1.2, 1.4, 1.6)))
    return encode + [
        Goal(
            f"training bfloat16, {name}, speed / Trainer bfloat16",
            f"{name} bfloat16", "minbert", "ratio", "trainer", target,
        )
        for name, target in trainers
    ]  # fmt: skip


def _others() -> list[Goal]:
    losses = [
        Goal(
            f"encode {own}, loss of Spearman, % of {REFERENCE}",
            "encode", f"minbert {own}", "loss", REFERENCE, target,
        )
        for own, target in LOSSES.items()
    ]  # fmt: skip
    shares = [
        Goal(f"{what} {name}, share of the matrix rate", workload, own, "share", None, target)
        for name, target in SHARES.items()
        for what, workload, own in (
            ("encode", "encode", f"minbert {name}"),
            ("training", f"sst {name}", "minbert"),
            ("training grouped", f"sst_grouped {name}", "minbert"),
        )
    ]
    singles = [
        Goal(
            f"one sentence {name}, p50 / {REFERENCE}",
            "encode", f"minbert {name}", "single", REFERENCE, SINGLE,
        )
        for name in PRECISIONS
    ]  # fmt: skip
    memory = Goal(
        f"encode int8, peak memory / {REFERENCE}",
        "encode", "minbert int8", "memory", REFERENCE, Target(0.8, 0.6, 0.5),
    )  # fmt: skip
    return [*losses, *shares, *singles, memory]


GOALS = (*_speeds(), *_others())
