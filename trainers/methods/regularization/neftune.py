"""NEFTune: noise on the word embeddings, scaled by the length of each sequence."""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainingArguments

from trainers.methods.base import ComputeLoss, Method, StepLoss
from trainers.wrapped_models import find_inner

from .smart_perturbation import number_sequences

KEY = "neftune_noise_alpha"


class NoisyEmbeddings(Method):
    """Add uniform noise of at most ``alpha / sqrt(L * D)`` to embeddings of L tokens of size D.

    ``alpha`` is ``neftune_noise_alpha`` of the arguments; without it nothing is done. The trainer
    always has this method, after those of the user: all passes of a step have the noise. The hook
    of transformers takes L from the shape of the batch, which is wrong for packed sequences; models
    that take none keep that hook.

    Source: Jain et al. 2023, section 2.
    """

    alpha: float | None = None

    def prepare(self, model: nn.Module, args: TrainingArguments) -> None:
        if args.neftune_noise_alpha is not None and args.torch_compile and _packs(model):
            raise ValueError(
                f"{KEY}={args.neftune_noise_alpha!r} adds noise by a hook, which torch_compile "
                "does not follow; leave one of them out"
            )

    def attach(self, trainer: Any) -> None:
        alpha = trainer.args.neftune_noise_alpha
        self.model: Any = find_inner(trainer.model)
        self.alpha = alpha if _packs(self.model) else None
        trainer.neftune_noise_alpha = alpha if self.alpha is None else None

    def loss(self, compute: ComputeLoss, task: str, inputs: dict[str, Any]) -> StepLoss:
        if self.alpha is None or inputs.get("input_ids") is None:
            return compute()
        embeddings: nn.Embedding = self.model.get_input_embeddings()
        scales = self.alpha / embeddings.embedding_dim**0.5 * _inverse_roots(inputs)

        def add_noise(module: nn.Module, given: Any, output: Tensor) -> Tensor:  # noqa: ARG001
            # the model may have taken padding out, and encode all sequences twice
            scale = scales if _has_padding(given[0], inputs["input_ids"]) else scales[scales > 0]
            scale = scale.repeat(output.shape[:-1].numel() // len(scale))
            noise = torch.empty_like(output).uniform_(-1, 1)
            return output + noise * scale.view(*output.shape[:-1], 1).to(output.dtype)

        handle = embeddings.register_forward_hook(add_noise)
        try:
            return compute()
        finally:
            handle.remove()


def _has_padding(encoded: Tensor, ids: Tensor) -> bool:
    """Return whether the encoded ids, (B, L) or (1, T), have all tokens of a batch, (..., L)."""
    rows = ids.view(-1, ids.shape[-1])
    if len(encoded) == 1:  # without padding there is one row
        return encoded.shape == rows.shape and torch.equal(encoded, rows)
    return True


def _packs(model: nn.Module) -> bool:
    return hasattr(find_inner(model), "supports_packed_input")


def _inverse_roots(inputs: dict[str, Any]) -> Tensor:
    """Return 1 / sqrt(L) for every token of a sequence of L tokens, 0 for padding, (T,)."""
    sequences = number_sequences(inputs).flatten()
    real = sequences >= 0
    lengths = sequences[real].bincount()
    roots = torch.zeros(len(sequences), device=sequences.device)
    roots[real] = lengths[sequences[real]].float().rsqrt()
    return roots
