"""The measured tasks: their kinds, batches and lengths."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Lengths(NamedTuple):
    """Tokens of a sequence, special ones included; the log-normal fit where there is no data."""

    mean: float
    sd: float
    longest: int


@dataclass(frozen=True)
class Task:
    """How the batches of one task are drawn.

    Args:
        kind: ``classification``, ``paraphrase``, ``similarity`` or ``mlm``.
        rows: Rows of a batch.
        lengths: What lengths are drawn from where there are no data.
        longest: Tokens at which a sequence is cut.
        full: Whether every sequence has exactly ``longest`` tokens.
        grouped: Whether transformers' ``group_by_length`` composes the batches.
    """

    kind: str
    rows: int
    lengths: Lengths
    longest: int = 128
    full: bool = False
    grouped: bool = False

    @property
    def per_row(self) -> int:
        """Sequences of a row."""
        return 2 if self.kind in ("paraphrase", "similarity") else 1


SST = Lengths(25.0, 11.4, 80)
TASKS = {
    "sst": Task("classification", 32, SST),
    "sst_grouped": Task("classification", 32, SST, grouped=True),
    "quora": Task("paraphrase", 32, Lengths(15.8, 7.2, 86)),
    "sts": Task("similarity", 32, Lengths(14.7, 7.3, 70)),
    "mlm128": Task("mlm", 16, Lengths(126.0, 69.0, 720)),
    "mlm128_full": Task("mlm", 16, Lengths(126.0, 69.0, 720), full=True),
    # 254 is the mean of MLPerf's pre-training data at 512
    "mlm512": Task("mlm", 8, Lengths(254.0, 150.0, 512), longest=512),
    # about 64k real tokens, for a GPU
    "sst_large": Task("classification", 2560, SST),
    "mlm128_large": Task("mlm", 640, Lengths(126.0, 69.0, 720)),
    "mlm512_large": Task("mlm", 256, Lengths(254.0, 150.0, 512), longest=512),
}
# workload -> its tasks, in turn; encode has sentences instead
WORKLOADS: dict[str, tuple[str, ...]] = {
    **{name: (name,) for name in TASKS},
    "mixed": ("sst", "quora", "sts"),
    "encode": (),
}


def draw_lengths(task: Task, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw the tokens of sequences, special ones included, (count,)."""
    if task.full:
        return np.full(count, task.longest)
    mean, sd, longest = task.lengths
    variance = np.log1p((sd / mean) ** 2)
    drawn = np.exp(rng.normal(np.log(mean) - variance / 2, np.sqrt(variance), count))
    return np.clip(np.rint(drawn), 3, min(longest, task.longest)).astype(np.int64)


def draw_labels(kind: str, rows: int, rng: np.random.Generator) -> NDArray[Any]:
    """Draw labels: 5 classes, 0/1, or scores of 0 to 5."""
    if kind == "similarity":
        return rng.uniform(0, 5, rows).astype(np.float32)
    labels = rng.integers(0, 5 if kind == "classification" else 2, rows)
    return labels.astype(np.float32 if kind == "paraphrase" else np.int64)
