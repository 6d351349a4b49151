"""Target ratios of speed and memory of minBERT over each peer."""

from typing import NamedTuple


class Target(NamedTuple):
    """A floor, a target and a stretch goal."""

    floor: float
    target: float
    stretch: float


PAIRS = Target(1.8, 2.2, 2.6)
MEMORY = Target(1.0, 0.7, 0.5)
# (workload, size, peer) -> minBERT's tokens per second over the peer's
TARGETS: dict[tuple[str, str, str], Target] = {
    ("sst", "minilm", "trainer"): Target(1.7, 2.1, 2.5),
    ("sst", "base", "trainer"): Target(1.7, 2.0, 2.3),
    ("sst_grouped", "minilm", "trainer"): Target(1.05, 1.2, 1.35),
    **{
        (workload, "minilm", peer): PAIRS
        for workload in ("quora", "sts")
        for peer in ("trainer", "bare", "sentence-transformers")
    },
    ("mlm128", "minilm", "trainer"): Target(1.8, 2.2, 2.5),
    ("mlm128", "base", "trainer"): Target(1.2, 1.35, 1.5),
    ("encode", "minilm", "sentence-transformers"): Target(1.0, 1.15, 1.3),
}


def verdict(value: float, target: Target | None) -> str:
    """Return what a value reaches; larger is better unless the floor is above the target."""
    if target is None:
        return ""
    sign = 1 if target.stretch > target.floor else -1
    reached = [name for name in target._fields if sign * value >= sign * getattr(target, name)]
    return reached[-1] if reached else "below the floor"
