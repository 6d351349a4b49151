"""Tasks without labels whose outputs are vectors of texts."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from modeling_minbert.pairs import ContrastiveTask
from trainers.data.collate import Batch
from trainers.data.rows import FlatRows, Rows, TextSource

from .base import Problem, find_output
from .metrics import Array, Metric, binomial_error

BLOCK = 1024  # rows whose similarities to all others are in memory at a time
# Equal texts in different batches have cosines that differ by rounding.
ROUNDING = 1e-5


def embedding_metrics(vectors: NDArray[np.float32]) -> dict[str, float]:
    """Compute metrics of vectors of length 1, (N, S, D): anchor, positive, an ignored negative.

    - ``accuracy``: share of anchors to which no other positive is nearer, in [0, 1]. Ties count
      only if they are the majority: collapsed vectors must not score well.
    - ``mrr``: mean reciprocal rank of an anchor's own positive, in (0, 1].
    - ``alignment``: mean squared distance of anchor and positive, in [0, 4]; lower is better.
    - ``uniformity``: logarithm of the mean of exp(-2 d^2) over the distances d of all pairs of
      first sentences, in [-8, 0], 0 for a single one; lower is better. It is the only one for
      S = 1.

    Source: Wang and Isola 2020, sections 4.1.1 and 4.1.2.
    """
    first, count = vectors[:, 0].astype(np.float32), len(vectors)
    blocks = [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]
    metrics = {}
    if vectors.shape[1] > 1:
        second = vectors[:, 1].astype(np.float32)
        cosines = (first * second).sum(axis=1, keepdims=True)
        parts = []
        for block in blocks:
            gaps = first[block] @ second.T - cosines[block]
            nearer = (gaps > ROUNDING).sum(axis=1)
            # the first of ties, or if these are more than half of the others, in their middle
            equal = np.maximum((np.abs(gaps) <= ROUNDING).sum(axis=1) - 1, 0)
            equal[2 * equal <= count - 1] = 0
            ranks = 1 + nearer + equal // 2 + equal % 2
            parts.append(np.where(np.isfinite(gaps).all(axis=1), ranks, count))
        reciprocal = 1 / np.concatenate(parts)
        metrics = {
            "accuracy": float((reciprocal == 1).mean()),
            "mrr": float(reciprocal.mean()),
            "alignment": float(((first - second) ** 2).sum(axis=1).mean()),
        }
    total = 0.0
    for block in blocks:
        total += float(np.exp(4 * ((first[block] @ first.T).astype(np.float64) - 1)).sum())
    # without the pairs of a vector with itself, whose distance is 0
    pairs = count * (count - 1)
    return metrics | {"uniformity": float(np.log((total - count) / pairs)) if pairs else 0.0}


class Contrastive(Problem[Array]):
    """Vectors of length 1 for the S sentences of each row, (N, S, D)."""

    problem_type = "contrastive"
    metrics = (
        Metric("accuracy", needs_pairs=True),
        Metric("mrr", needs_pairs=True),
        Metric("alignment", lower_is_better=True, needs_pairs=True),
        Metric("uniformity", lower_is_better=True),
    )
    spec: ContrastiveTask | None
    teaching = "vectors"
    hub_task = pipeline_tag = "sentence-similarity"

    def check(self, where: str, rows: Rows) -> None:
        if isinstance(rows, TextSource) or not FlatRows(rows).is_separate:
            raise ValueError(
                f"{where} is of a contrastive task: input_ids and token_type_ids must have a list "
                "for every sentence of a row"
            )
        if self.is_labelled(rows):
            raise ValueError(
                f"{where} has labels, but contrastive tasks are trained without; remove the column"
            )

    def gather(self, inputs: Batch, outputs: Any) -> tuple[Tensor, Tensor | None]:
        vectors = find_output(outputs, "logits").detach()
        return vectors, torch.zeros(len(vectors), device=vectors.device)

    def compute_metrics(self, outputs: Array) -> dict[str, float]:
        return embedding_metrics(outputs)

    def standard_error(self, outputs: Array, metrics: Mapping[str, float]) -> float | None:
        name = self.headline[0]
        return binomial_error(metrics[name], len(outputs)) if name in metrics else None
