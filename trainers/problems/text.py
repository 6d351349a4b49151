"""Tasks without labels: masked tokens and next sentences (Devlin et al. 2019, 3.1), and vectors."""

import math
from collections.abc import Mapping
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from datasets import Dataset
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from transformers.utils.generic import ModelOutput

from modeling_minbert.scores import ContrastiveTask
from trainers.data.rows import IGNORED_LABEL, Batch, FlatRows, Rows, TextSource

from .base import Decode, Problem, find_output
from .metrics import Array, Metric, binomial_error

# What is summed up for every row.
SCORES = ("mlm_nll", "mlm_correct", "mlm_targets", "nsp_nll", "nsp_correct")
MAX_LOSS = 700.0  # the exponential of a larger loss overflows


class TextProblem(Problem[Array]):
    """Sums for each row, ``SCORES``, (N, 5); all logits would not fit in memory."""

    objectives: ClassVar[tuple[str, ...]]  # the names of its heads in the card of a model

    def check(self, where: str, rows: Rows) -> None:
        if isinstance(rows, TextSource):
            return
        if self.kind.predicts_next_sentence:
            raise ValueError(
                f"{where} has no segment pairs; problem_type {self.problem_type!r} needs a text "
                "source whose rows are pairs"
            )
        if FlatRows(rows).is_separate:
            raise ValueError(f"{where} cannot be masked: masks need rows of one sequence each")

    def gather(self, inputs: Batch, outputs: ModelOutput) -> tuple[Tensor, Tensor | None]:
        """Sum up likelihoods and counts of each row, (B, 5), with zeros for what is not predicted.

        The labels have no meaning, but without any the Trainer computes no metrics.
        """
        ids, offsets = inputs["input_ids"], inputs.get("cu_seq_lens_q")
        rows, device = len(ids) if offsets is None else len(offsets) - 1, ids.device
        scores = torch.zeros(rows, len(SCORES), device=device)
        if self.kind.predicts_masked_tokens:
            tokens = find_output(outputs, "prediction_logits", "logits")
            labels, positions = inputs["labels"].flatten(), inputs.get("label_positions")
            if positions is None:
                positions = (labels != IGNORED_LABEL).nonzero().flatten()
            if tokens.dim() == 3:
                tokens = tokens.flatten(0, 1)[positions]
            labels = labels[positions]
            if offsets is None:
                row = positions // ids.shape[1]
            else:
                row = torch.bucketize(positions, offsets[1:].to(positions.dtype), right=True)
            nll = F.cross_entropy(tokens.float(), labels, reduction="none")  # 0 for a label of -100
            is_right = tokens.argmax(dim=-1) == labels
            sums = torch.stack([nll, is_right.float(), (labels >= 0).float()], dim=1)
            scores[:, :3] = torch.zeros(rows, 3, device=device).index_add_(0, row, sums)
        if self.kind.predicts_next_sentence:
            logits = find_output(outputs, "seq_relationship_logits", "logits").float()
            labels = inputs["next_sentence_label" if self.parts else "labels"]
            scores[:, 3] = F.cross_entropy(logits, labels, reduction="none")
            scores[:, 4] = (logits.argmax(dim=-1) == labels).float()
        return scores, torch.zeros(rows, device=device)

    def compute_metrics(self, outputs: Array) -> dict[str, float]:
        """Compute the metrics from sums, (N, 5); losses are means in nats over tokens or rows."""
        sums = dict(zip(SCORES, outputs.astype(np.float64).sum(axis=0).tolist(), strict=True))
        targets, rows = max(1.0, sums["mlm_targets"]), max(1, len(outputs))
        values = {
            "mlm_accuracy": sums["mlm_correct"] / targets,
            "mlm_loss": sums["mlm_nll"] / targets,
            "perplexity": math.exp(min(MAX_LOSS, sums["mlm_nll"] / targets)),
            "nsp_accuracy": sums["nsp_correct"] / rows,
            "nsp_loss": sums["nsp_nll"] / rows,
        }
        return {metric.name: values[metric.name] for metric in self.metrics}

    def standard_error(self, outputs: Array, metrics: Mapping[str, float]) -> float:
        """Of tokens, that of a ratio of sums over rows: tokens of a row are not independent."""
        if not self.kind.predicts_masked_tokens:
            return binomial_error(float(np.mean(outputs[:, 4] > 0.5)), len(outputs))
        correct, targets = np.asarray(outputs, dtype=np.float64)[:, 1:3].T
        residuals = correct - correct.sum() / targets.sum() * targets
        return float(np.sqrt((residuals**2).sum()) / targets.sum())

    @property
    def loss_curves(self) -> dict[str, dict[str, str]]:
        curves = {}
        for metric in self.metrics:
            if metric.is_loss:
                part = metric.name.removesuffix("_loss")
                trained = f"loss_{self.task}" + (f"_{part}" if self.parts else "")
                held_out = f"eval_{self.task}_{metric.name}"
                curves[f"{part.upper()} loss"] = {"training": trained, "held out": held_out}
        return curves


class MaskedLM(TextProblem):
    """Predict masked tokens of single sequences."""

    problem_type = "masked_lm"
    metrics = (
        Metric("mlm_accuracy"),
        Metric("mlm_loss", lower_is_better=True, is_loss=True),
        Metric("perplexity", lower_is_better=True, is_plotted=False),
    )
    predicts_tokens = True
    hub_task = "fill-mask"
    objectives = ("masked language modelling",)


class NextSentence(TextProblem):
    """Decide whether the second segment of a pair follows the first."""

    problem_type = "next_sentence"
    metrics = (Metric("nsp_accuracy"), Metric("nsp_loss", lower_is_better=True, is_loss=True))
    objectives = ("next-sentence prediction",)


class Pretraining(TextProblem):
    """Predict masked tokens of segment pairs, and whether the second segment follows the first."""

    problem_type = "pretraining"
    metrics = (*MaskedLM.metrics, *NextSentence.metrics)
    predicts_tokens = True
    hub_task = "fill-mask"
    parts = {  # noqa: RUF012  declared in Problem
        "mlm": ("mlm_loss", "labels"),
        "nsp": ("nsp_loss", "next_sentence_label"),
    }
    objectives = (*MaskedLM.objectives, *NextSentence.objectives)


BLOCK = 1024  # rows whose similarities to all others are in memory at a time
ROUNDING = 1e-5  # equal texts in different batches have cosines that differ by rounding


class Vectors(NamedTuple):
    """Vectors for the S sentences of each row: anchor, positive, and a negative that is ignored."""

    values: NDArray[np.float32]  # of length 1, (N, S, D)
    texts: NDArray[np.int64]  # (N, S), equal for equal texts only


class Contrastive(Problem[Vectors]):
    """Vectors for the S sentences of each row."""

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

    def gather(self, inputs: Batch, outputs: ModelOutput) -> tuple[Tensor, Tensor | None]:
        vectors = find_output(outputs, "logits").detach()
        return vectors, torch.zeros(len(vectors), device=vectors.device)

    def collect(self, values: Array, rows: Dataset, decode: Decode | None = None) -> Vectors:
        numbers: dict[str, int] = {}
        texts = [
            [numbers.setdefault(str(ids), len(numbers)) for ids in row]
            for row in rows.with_format(None)["input_ids"]
        ]
        return Vectors(np.asarray(values), np.asarray(texts))

    def compute_metrics(self, outputs: Vectors) -> dict[str, float]:
        """Compute the metrics of vectors.

        - ``accuracy``: share of anchors to which no wrong positive is nearer than their own, in
          [0, 1]. Right ones are also those of rows with the same anchor, and texts equal to the
          anchor, which the losses leave out, too. Ties count only if they are the majority:
          collapsed vectors must not score well.
        - ``mrr``: mean reciprocal rank of an anchor's own positive among wrong ones, in (0, 1].
          Equal texts of several rows count once.
        - ``alignment``: mean squared distance of anchor and positive, in [0, 4]; lower is better.
        - ``uniformity``: logarithm of the mean of exp(-2 d^2) over the distances d of all pairs of
          first sentences, in [-8, 0], 0 for a single one; lower is better. It is the only one for
          S = 1.

        Source: Wang and Isola 2020, sections 4.1.1 and 4.1.2.
        """
        first, count = outputs.values[:, 0].astype(np.float32), len(outputs.values)
        blocks = [slice(start, start + BLOCK) for start in range(0, count, BLOCK)]
        metrics = {}
        if outputs.values.shape[1] > 1:
            second = outputs.values[:, 1].astype(np.float32)
            cosines = (first * second).sum(axis=1, keepdims=True)
            alignment = float(((first - second) ** 2).sum(axis=1).mean())
            anchors, positives = outputs.texts[:, :2].T
            positives, places = np.unique(positives, return_index=True)
            second, most = second[places], len(places)
            right: dict[int, set[int]] = {}  # the texts that are right for each anchor
            for anchor, positive in outputs.texts[:, :2].tolist():
                right.setdefault(anchor, {anchor}).add(positive)
            parts = []
            for block in blocks:
                gaps = first[block] @ second.T - cosines[block]
                is_broken = np.isnan(gaps).any(axis=1)
                for anchor in np.unique(anchors[block]).tolist():
                    is_right = np.isin(positives, [*right[anchor]])
                    gaps[np.ix_(anchors[block] == anchor, is_right)] = -np.inf
                nearer = (gaps > ROUNDING).sum(axis=1)
                # the first of ties, or if these are more than half of the others, in their middle
                equal = (np.abs(gaps) <= ROUNDING).sum(axis=1)
                equal[2 * equal <= most - 1] = 0
                ranks = 1 + nearer + equal // 2 + equal % 2
                parts.append(np.where(is_broken, most, ranks))
            reciprocal = 1 / np.concatenate(parts)
            metrics = {"accuracy": float((reciprocal == 1).mean()), "mrr": float(reciprocal.mean())}
            metrics["alignment"] = alignment
        cosine_blocks = ((first[block] @ first.T).astype(np.float64) for block in blocks)
        total = sum(float(np.exp(4 * (cosines - 1)).sum()) for cosines in cosine_blocks)
        # without the pairs of a vector with itself, whose distance is 0
        pairs = count * (count - 1)
        return metrics | {"uniformity": float(np.log((total - count) / pairs)) if pairs else 0.0}

    def standard_error(self, outputs: Vectors, metrics: Mapping[str, float]) -> float | None:
        name = self.headline[0]
        return binomial_error(metrics[name], self.count(outputs)) if name in metrics else None

    def count(self, outputs: Vectors) -> int:
        return len(outputs.values)
