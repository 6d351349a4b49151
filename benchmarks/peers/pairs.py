"""The usual heads on transformers' BERT: one forward pass per sentence."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertForMaskedLM, BertForSequenceClassification, BertModel
from transformers.utils.generic import ModelOutput

from .common import CLASSES, Job, scale_labels, set_classifier


class TwoForwards(nn.Module):
    """Sentence pairs by the cosine of mean states, single sentences by a classifier.

    Args:
        job: Names model and tasks.
    """

    # the loss is a mean over rows
    accepts_loss_kwargs = False

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.tasks = job.tasks
        single = any(task.per_row == 1 for task in job.tasks.values())
        self.bert = BertModel.from_pretrained(
            job.model_dir, add_pooling_layer=single, **dropout_options(job)
        )
        self.config = self.bert.config
        self.dropout = nn.Dropout(job.dropout_rate)
        self.classifier = nn.Linear(self.config.hidden_size, CLASSES) if single else None
        if self.classifier is not None:
            set_classifier(self.classifier)

    def forward(
        self,
        labels: Tensor,
        task: str | None = None,
        first: dict[str, Tensor] | None = None,
        second: dict[str, Tensor] | None = None,
        **single: Any,
    ) -> ModelOutput:
        """Compute the loss of a batch of one task."""
        if first is None or second is None:
            if self.classifier is None:
                raise ValueError("single sentences, but all tasks are pairs")
            logits = self.classifier(self.dropout(self.bert(**single).pooler_output))
            return ModelOutput(loss=F.cross_entropy(logits, labels), logits=logits)
        cosine = torch.cosine_similarity(self._embed(first), self._embed(second))
        kind = self.tasks[task or next(iter(self.tasks))].kind
        loss = F.mse_loss(cosine, scale_labels(kind, labels))
        return ModelOutput(loss=loss, logits=cosine)

    def _embed(self, side: dict[str, Tensor]) -> Tensor:
        states = self.bert(**side).last_hidden_state
        mask = side["attention_mask"].unsqueeze(-1).to(states.dtype)
        return (states * mask).sum(dim=1) / mask.sum(dim=1)


def dropout_options(job: Job) -> dict[str, Any]:
    """Return the dropout fields of a configuration."""
    rate = job.dropout_rate
    return {"hidden_dropout_prob": rate, "attention_probs_dropout_prob": rate}


def make_model(job: Job) -> nn.Module:
    """Load the model of transformers for a workload."""
    if job.is_mlm:
        return BertForMaskedLM.from_pretrained(job.model_dir, **dropout_options(job))
    if list(job.tasks) in (["sst"], ["sst_grouped"]):
        model = BertForSequenceClassification.from_pretrained(
            job.model_dir, num_labels=CLASSES, **dropout_options(job)
        )
        set_classifier(model.classifier)
        return model
    return TwoForwards(job)
