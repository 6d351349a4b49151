"""Contrastive learning: sentence vectors from pairs without labels, or from single sentences."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from modeling_minbert.pooled_types import ContrastiveTask
from trainers.data.dataset import Rows
from trainers.data.rows import FlatRows, TextSource

from .base import Problem, find_output
from .metrics import Array, Metric, binomial_error, embedding_metrics


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

    def is_defined(self, metric: Metric) -> bool:
        return not metric.needs_pairs or self.spec is None or self.spec.num_sentences != 1

    def gather(self, inputs: Mapping[str, Any], outputs: Any) -> tuple[Tensor, Tensor | None]:
        vectors = find_output(outputs, "logits").detach()
        return vectors, torch.zeros(len(vectors), device=vectors.device)

    def compute_metrics(self, outputs: Array) -> dict[str, float]:
        return embedding_metrics(outputs)

    def standard_error(self, outputs: Array, metrics: Mapping[str, float]) -> float | None:
        name = self.headline[0]
        return binomial_error(metrics[name], len(outputs)) if name in metrics else None
