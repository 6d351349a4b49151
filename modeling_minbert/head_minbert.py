# Copyright 2026 The minBERT authors. All rights reserved.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""The head of one task: from pooled vectors to logits, their loss, and what they mean.

Shapes: B rows, S sentences of a row, D hidden size, K logits of a row.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .configuration_minbert import MinBertConfig
from .dropout_minbert import MinBertDropout
from .losses_minbert import (
    cosent,
    count_processes,
    gather_rows,
    multiple_negatives_ranking,
    symmetric_kl,
)
from .task_minbert import IN_BATCH, MinBertTask


class MinBertTaskHead(nn.Module):
    """One task of `MinBertForMultiTask`: from pooled vectors to logits, and its loss.

    Attributes:
        gathers: Whether in training a loss that compares rows sees those of all processes.
    """

    gathers = False

    def __init__(self, config: MinBertConfig, task: MinBertTask) -> None:
        super().__init__()
        self.task = task
        self.score_range = task.score_range or (0, 1)  # paraphrase labels are in [0, 1] already
        self.cosine_scale = float(task.cosine_scale or 1)
        width = 3 * config.hidden_size if task.head == "concat" else config.hidden_size
        self.dropout = MinBertDropout(task.dropout or 0.0)
        self.projection = nn.Linear(width, width) if task.projection else None
        self.dense = nn.Linear(width, config.hidden_size) if task.head == "mlp" else None
        self.out = nn.Linear(width, task.num_logits) if task.head != "cosine" else None
        weights = None if task.class_weights is None else self.make_class_weights()
        self.class_weights = None if weights is None else nn.Buffer(weights, persistent=False)

    def make_class_weights(self) -> Tensor:
        """Make the weights of the classes a tensor, (K,)."""
        return torch.tensor(self.task.class_weights, dtype=torch.float32)

    def forward(self, pooled: Tensor) -> Tensor:
        """Score the vectors of a batch.

        Args:
            pooled: (B, D), or (B, 2, D) for separate pairs, (B, S, D) for a contrastive task.

        Returns:
            (B, K): logits, or cosines in [-1, 1] for the cosine head; for a contrastive task the
            vectors at length 1, (B, S, D).
        """
        return self.score(self.embed(pooled))

    def embed(self, pooled: Tensor) -> Tensor:
        """Make pooled vectors the vectors that are compared, of the same shape."""
        # equal u and v with other holes would differ: `concat` drops from all three together
        vectors = pooled if self.task.head == "concat" else self.dropout(pooled)
        if self.projection is None or (self.task.projection == "training" and not self.training):
            return vectors
        return torch.tanh(self.projection(vectors))

    def score(self, vectors: Tensor) -> Tensor:
        """Score what `embed` gave; see `forward`."""
        if self.task.problem_type == "contrastive":
            return F.normalize(vectors.float(), dim=-1)
        if self.task.pair_encoding == "separate":
            u, v = vectors.unbind(dim=1)
            if self.task.head == "cosine":
                # near 1, where good pairs are, half precision would tell few cosines apart
                return F.cosine_similarity(u.float(), v.float(), dim=-1).unsqueeze(-1)
            vectors = self.dropout(torch.cat([u, v, (u - v).abs()], dim=-1))
        if self.dense is not None:
            vectors = self.dropout(torch.tanh(self.dense(vectors)))
        return vectors if self.out is None else self.out(vectors)

    @property
    def scales(self) -> bool:
        """Whether a cosine is scaled to a logit, or is the prediction itself."""
        task = self.task
        if task.head != "cosine" or task.problem_type == "contrastive":
            return False
        return task.problem_type == "paraphrase" or task.loss == "bce"

    def to_logits(self, scores: Tensor) -> Tensor:
        """Turn what `forward` gave into logits: a cosine is scaled if it is not the prediction."""
        return self.cosine_scale * (scores - self.threshold) if self.scales else scores

    @property
    def threshold(self) -> float:
        """The cosine above which two sentences mean the same.

        In training one that is chosen by rows stays where it begins: to evaluate changes no step.
        """
        chosen = self.task.threshold
        return 0.5 if chosen is None or (self.training and self.task.lacks_border) else chosen

    def fit_threshold(self, logits: Tensor, labels: Tensor) -> float:
        """Choose the threshold by labelled pairs; see `MinBertForMultiTask`."""
        is_labelled = labels != -100
        if not is_labelled.any():
            raise ValueError("no labelled pairs to choose a threshold by")
        real = is_labelled & logits.squeeze(-1).isfinite()
        if real.any():  # not so of a model that has diverged, which keeps what it has
            cosines = logits[real].squeeze(-1).double() / self.cosine_scale + self.threshold
            self.task.threshold = best_border(cosines, labels[real] > 0)
            self.task.threshold_fitted = self.task.lacks_border
        return self.threshold

    def loss(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None = None
    ) -> Tensor:
        """Compute the mean loss of a batch over the rows that have a label.

        Args:
            vectors: What `embed` gave, (B, D) or (B, S, D).
            scores: What `score` made of it, (B, K).
            labels: (B,): class ids, 0/1 for a paraphrase, or similarity scores within their range,
                anything for a contrastive task; -100 for a row that only fills the batch up.
            keys: Numbers that tell texts apart, (B, S), for `multiple_negatives_ranking`; None if
                all texts are different.

        Raises:
            ValueError: If there is not one label for each row.
        """
        if labels.shape != scores.shape[:1]:
            raise ValueError(
                f"labels of shape {tuple(labels.shape)}, expected ({scores.shape[0]},): one a row"
            )
        is_shared = self.gathers and self.training and self.task.loss in IN_BATCH
        processes = count_processes() if is_shared else 1
        if processes == 1:
            return self._compare(vectors, scores, labels, keys)
        vectors, scores, labels = map(gather_rows, (vectors, scores, labels))
        loss = self._compare(vectors, scores, labels, None if keys is None else gather_rows(keys))
        # each process has the gradient of its own rows, and the mean of all is taken
        return loss.detach() + processes * (loss - loss.detach())

    def _compare(
        self, vectors: Tensor, scores: Tensor, labels: Tensor, keys: Tensor | None
    ) -> Tensor:
        """Compute the loss of rows that are all there; see `loss`."""
        if self.task.loss == "multiple_negatives_ranking":
            return self._rank(vectors, labels, keys)
        scores = scores.float()
        if self.task.loss == "cosent":
            return cosent(scores.squeeze(-1), labels, scale=self.cosine_scale)
        low, high = self.score_range
        if self.task.loss == "cross_entropy":
            if self.task.problem_type == "similarity":
                nearest = (labels - low + 0.5).floor()  # torch.round would round halves to even
                labels = nearest.masked_fill(labels == -100, -100)
            return self._classify(scores, labels.long())
        real = labels != -100
        losses = self._losses(scores.squeeze(-1), (labels.float() - low) / (high - low))
        return losses.masked_fill(~real, 0).sum() / real.sum().clamp(min=1)

    def _classify(self, scores: Tensor, labels: Tensor) -> Tensor:
        """Compute the mean of the weighted cross entropy of the rows with a label; 0 without any.

        Divided by the rows and not by their weights, which in a batch of one row would do nothing,
        it is the same however the rows of a step are dealt to batches and processes.
        """
        # a model that was cast as a whole has its weights of classes in half precision, too
        weight = None if self.class_weights is None else self.class_weights.float()
        losses = F.cross_entropy(scores, labels, weight=weight, reduction="sum")
        return losses / (labels != -100).sum().clamp(min=1)

    def _losses(self, scores: Tensor, target: Tensor) -> Tensor:
        """Compute the loss of each row by itself, (B,)."""
        if self.task.loss == "bce":
            logits = self.to_logits(scores)
            return F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        if self.task.loss == "mse":
            return F.mse_loss(scores, target, reduction="none")
        return torch.where(target > 0.5, 1 - scores, F.relu(scores - self.task.margin))

    def _rank(self, vectors: Tensor, labels: Tensor, keys: Tensor | None) -> Tensor:
        """Compare every first sentence with all others of the batch.

        Also the second sentence of a row whose sentences do not belong together is a candidate: a
        hard negative, if the first one stands in another row, too.
        """
        is_real = labels != -100
        least = {"paraphrase": 1.0, "similarity": self.task.positive_score}
        border = least.get(self.task.problem_type)
        is_anchor = is_real if border is None else is_real & (labels >= border)
        return multiple_negatives_ranking(
            vectors[:, 0],
            _candidates(vectors),
            scale=self.cosine_scale,
            symmetric=self.task.symmetric,
            is_anchor=is_anchor,
            is_candidate=is_real.repeat(max(1, vectors.shape[1] - 1)),
            keys=None if keys is None else (keys[:, 0], _candidates(keys)),
        )

    def divergence(self, logits: Tensor, other: Tensor) -> Tensor:
        """Tell how far two predictions of the same rows are apart; see `MinBertForMultiTask`."""
        if logits.shape != other.shape:
            raise ValueError(
                f"logits of {tuple(logits.shape)} and {tuple(other.shape)}: a divergence is of two "
                "predictions for the same rows"
            )
        if self.task.loss in ("cross_entropy", "bce"):
            return symmetric_kl(logits, other).mean()
        differences = logits.float() - other.float()
        if self.scales:
            differences = differences / self.cosine_scale
        return differences.square().sum(dim=-1).mean()

    def decode(self, logits: Tensor) -> Tensor:
        """Turn logits into predictions (B,): class ids, 0/1, scores in the range, or cosines."""
        task = self.task
        if task.problem_type == "contrastive":
            pair = logits[:, :2]
            return (pair[:, 0] * pair[:, -1]).sum(dim=-1)
        if task.problem_type == "classification":
            return logits.argmax(dim=-1)
        low, high = self.score_range
        if task.loss == "cross_entropy":
            return low + logits.argmax(dim=-1).float()
        logits = logits.squeeze(-1)
        if task.problem_type == "paraphrase":
            return (logits > 0).long()
        if task.loss == "bce":
            unit = torch.sigmoid(logits)
        elif task.loss in IN_BATCH:
            # these losses order cosines and give them no meaning: the whole of [-1, 1] is the range
            unit = (logits.clamp(-1, 1) + 1) / 2
        else:
            unit = logits.clamp(0, 1)
        return low + unit * (high - low)


def best_border(values: Tensor, is_above: Tensor) -> float:
    """Find the cosine that parts pairs best, with the most of them on their side of it.

    Args:
        values: Cosines, (N,).
        is_above: Which of them belong above the border, (N,), bool.

    Returns:
        The middle between the two cosines next to it, the lowest one if several are as good.
    """
    ordered, order = values.clamp(-1, 1).sort()
    above = is_above[order].long()
    # what is right if the first n lie below: those of them that belong there, and the others above
    right = F.pad((1 - above).cumsum(0), (1, 0)) + above.sum() - F.pad(above.cumsum(0), (1, 0))
    edges = F.pad(F.pad(ordered, (1, 0), value=-1.0), (0, 1), value=1.0)
    equal = edges[1:] == edges[:-1]  # between which there is no border
    equal[-1] = False  # a cosine of 1 is not above 1
    best = int(right.masked_fill(equal, -1).argmax())
    return float(edges[best : best + 2].mean())


def _candidates(values: Tensor) -> Tensor:
    """List the second sentences of all rows, then the third ones, (B, S, ...) -> (C, ...)."""
    others = values[:, 1:] if values.shape[1] > 1 else values  # alone, it is its own candidate
    return others.transpose(0, 1).flatten(0, 1)


__all__ = ["MinBertTaskHead", "best_border"]
