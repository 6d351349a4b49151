"""BERT of transformers in a plain loop, without the Trainer."""

from typing import Any

import torch
from torch import Tensor, nn

from .common import (
    CLIP,
    Job,
    Probe,
    collate_columns,
    make_optimizer,
    make_schedule,
)
from .pairs import make_model
from .trainer_base import OneAfterTheOther, fixed_batches


class BarePeer:
    """A loop of forward, backward, clip, fused AdamW and schedule.

    Args:
        job: What to do.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = make_model(job).to(job.device)
        self.rows = OneAfterTheOther(job)
        self.batches = fixed_batches(job, self.rows.starts)

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        job = self.job
        optimizer = make_optimizer(self.model)
        schedule = make_schedule(optimizer, job.steps)
        forward: Any = torch.compile(self.model, mode=job.compile) if job.compile else self.model
        self.model.train()
        for batch in self.batches:
            inputs = to_device(collate_columns(self.rows.__getitems__(batch)), job.device)
            probe.on_batch(inputs)
            with torch.autocast(job.device, torch.bfloat16, enabled=job.bf16):
                loss = forward(**inputs).loss
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP)
            probe.on_gradients()
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            probe.on_loss(loss)
            probe.on_step()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by name."""
        return dict(self.model.named_parameters())


def to_device(batch: dict[str, Any], device: str) -> dict[str, Any]:
    """Move all tensors of a batch, including both sides of pairs."""
    moved: dict[str, Any] = {}
    for name, value in batch.items():
        if isinstance(value, dict):
            moved[name] = to_device(value, device)
        else:
            moved[name] = value.to(device) if isinstance(value, Tensor) else value
    return moved
