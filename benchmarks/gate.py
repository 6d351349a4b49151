"""Check that all peers compute the same; a speed counts only if they do.

Without dropout, in fp32, on a few rows of each batch: the first loss, the first gradients, and
losses and weights over 20 steps of AdamW, each against BERT of transformers in a plain loop.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .peers import Job, Peer, Probe, make_encoder, make_peer
from .tasks import TASKS

REFERENCE = "bare"
LIMITS = {"first loss": 1e-5, "gradients": 1e-4, "losses": 1e-3, "weights": 1e-4}
HALF_LIMIT = 1.2
# Softmax is invariant to the bias of the keys: its gradient is rounding noise, which AdamW scales
# up to full steps.
UNDETERMINED = "attention.self.key.bias"


class Recorder(Probe):
    """Records what the gate compares.

    Args:
        peer: The peer to record.
    """

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.losses: list[Tensor] = []
        self.gradients: dict[str, Tensor] = {}
        self.counts = {"tokens": 0, "sequences": 0, "masked": 0}

    def on_batch(self, inputs: Mapping[str, Any]) -> None:
        """Count tokens, sequences and masked tokens."""
        for name, count in count_batch(inputs).items():
            self.counts[name] += count

    def on_loss(self, loss: Tensor) -> None:
        """Record the loss."""
        self.losses.append(loss.detach().double().cpu())

    def on_gradients(self) -> None:
        """Record the gradients of the first step."""
        if not self.gradients:
            self.gradients = {
                name: parameter.grad.detach().clone().cpu()
                for name, parameter in self.peer.parameters().items()
                if parameter.grad is not None
            }

    def save(self, file: Path) -> None:
        """Write losses, gradients, weights and counts."""
        tensors = {"losses": torch.stack(self.losses)}
        tensors |= {f"gradient {name}": value for name, value in self.gradients.items()}
        for name, parameter in self.peer.parameters().items():
            tensors[f"weight {name}"] = parameter.detach().cpu().clone()
        tensors |= {f"count {name}": torch.tensor(value) for name, value in self.counts.items()}
        save_file({name: value.contiguous() for name, value in tensors.items()}, file)


def count_batch(inputs: Mapping[str, Any]) -> dict[str, int]:
    """Count the tokens (without padding), sequences and masked tokens of a batch.

    Args:
        inputs: A padded batch (with attention masks, also of two sides) or a packed one.
    """
    counts = {"tokens": 0, "sequences": 0, "masked": 0}
    flat = dict(flatten_names(inputs))
    for name, value in flat.items():
        if "num_rows" in flat and name == "cu_seq_lens_q":  # fillers follow the real rows
            sequences = flat["num_rows"] * ((len(value) - 1) // len(flat["labels"]))
            counts["tokens"] += int(value[sequences])
            counts["sequences"] += sequences
        elif name.endswith("attention_mask"):
            counts["tokens"] += int(value.sum())
            counts["sequences"] += value.shape[:-1].numel()
        elif name.endswith("cu_seq_lens_q"):
            counts["tokens"] += int(value[-1])
            counts["sequences"] += len(value) - 1
        elif name == "labels" and value.dim() == 2:
            counts["masked"] += int((value >= 0).sum())
    return counts


def flatten_names(inputs: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Return the tensors of a possibly nested batch by dotted names."""
    found = []
    for name, value in inputs.items():
        if isinstance(value, Mapping):
            found += flatten_names(value, f"{prefix}{name}.")
        else:
            found.append((prefix + name, value))
    return found


def count_job(job: Job) -> dict[str, int]:
    """Return the expected counts, from the files alone."""
    counts = {"tokens": 0, "sequences": 0, "masked": 0}
    for name, rows in job.batches():
        data = job.data[name]
        counts["tokens"] += int(data.lengths[rows].sum())
        counts["sequences"] += len(rows) * data.per_row
        if TASKS[name].kind == "mlm":
            for row in rows:
                counts["masked"] += sum(label >= 0 for label in data.sequence(data.labels, row))
    return counts


def record(name: str, job: Job, file: Path) -> None:
    """Train a peer for the gate and write its record."""
    torch.manual_seed(0)
    peer = make_peer(name, job)
    recorder = Recorder(peer)
    peer.train(recorder)
    recorder.save(file)


def compare(file: Path, reference: Path, job: Job) -> dict[str, Any]:
    """Compare a record with that of the reference.

    Returns:
        The largest error by name of a limit, and ``reason``: None, or why the peer is void.
    """
    own, other = load_file(file), load_file(reference)
    losses, expected = own["losses"], other["losses"]
    relative = (losses - expected).abs() / expected.abs()
    errors = {"first loss": float(relative[0]), "losses": float(relative.max())}
    reasons = []
    for what, prefix in (("gradients", "gradient "), ("weights", "weight ")):
        worst, where = worst_error(own, other, prefix)
        errors[what] = worst
        if not worst <= LIMITS[what]:
            reasons.append(f"{what}: {worst:.1e} at {where}")
    reasons += [
        f"{what}: {errors[what]:.1e}"
        for what in ("first loss", "losses")
        if not errors[what] <= LIMITS[what]
    ]
    for name, count in count_job(job).items():
        if int(own[f"count {name}"]) != count:
            reasons.append(f"{name}: {int(own[f'count {name}'])} instead of {count}")
    return {"errors": errors, "reason": "; ".join(reasons) or None}


def worst_error(
    own: Mapping[str, Tensor], other: Mapping[str, Tensor], prefix: str
) -> tuple[float, str]:
    """Return the largest relative error (2-norm) of all parameters with a gradient.

    The norm of a weight counts as at least 0.01 per element, since new biases are zero.
    """
    worst, where = 0.0, ""
    for key in other:
        name = key.removeprefix("gradient ")
        if not key.startswith("gradient ") or name.endswith(UNDETERMINED):
            continue
        theirs = other[prefix + name].double()
        ours = own.get(prefix + name)
        if ours is None or ours.shape != theirs.shape:
            return float("inf"), f"{name} (missing)"
        norm = float(theirs.norm())
        if prefix == "weight ":
            norm = max(norm, 0.01 * theirs.numel() ** 0.5)
        error = float((ours.double() - theirs).norm()) / max(norm, 1e-30)
        if not error <= worst:
            worst, where = error, name
    return worst, where


def compare_half(file: Path, half: Path, reference: Path) -> dict[str, Any]:
    """Compare the error of a record in bf16 with that of transformers in bf16.

    Args:
        file: Record of the peer.
        half: Record of the reference in bf16.
        reference: Record of the reference in fp32.

    Returns:
        The relative errors of all gradients and of the losses, each divided by that of
        transformers, and ``reason``.
    """
    exact = load_file(reference)
    own, theirs = (_half_errors(load_file(record), exact) for record in (file, half))
    ratios = {name: own[name] / max(theirs[name], 1e-5) for name in own}
    reasons = [
        f"{name}: {ratio:.2f} times the error of transformers"
        for name, ratio in ratios.items()
        if not ratio <= HALF_LIMIT
    ]
    errors = {f"bf16 {name}": ratio for name, ratio in ratios.items()}
    return {"errors": errors, "reason": "; ".join(reasons) or None}


def _half_errors(own: Mapping[str, Tensor], exact: Mapping[str, Tensor]) -> dict[str, float]:
    names = [
        name for name in exact if name.startswith("gradient ") and not name.endswith(UNDETERMINED)
    ]
    error = sum(float((own[name].double() - exact[name]).square().sum()) for name in names)
    norm = sum(float(exact[name].double().square().sum()) for name in names)
    losses = (own["losses"] - exact["losses"]) / exact["losses"]
    return {
        "gradients": (error / norm) ** 0.5,
        "losses": float(losses.square().mean().sqrt()),
    }


def compare_encoders(name: str, job: Job) -> dict[str, Any]:
    """Compare the embeddings of an encoder with those of the reference."""
    sentences = job.sentences()
    vectors = [
        torch.as_tensor(make_encoder(peer, job)(sentences)).double() for peer in (name, REFERENCE)
    ]
    error = float((vectors[0] - vectors[1]).norm() / vectors[1].norm())
    reason = None if error <= LIMITS["gradients"] else f"vectors: {error:.1e}"
    return {"errors": {"vectors": error}, "reason": reason}
