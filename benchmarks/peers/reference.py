"""A plain BERT as in a course: padding, eager attention, one forward pass per sentence.

Its AdamW is a loop over the parameters in Python. Nothing here is fast; it is the other end of the
scale.
"""

from collections.abc import Iterable
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig

from .bare import to_device
from .common import (
    CLASSES,
    CLIP,
    LEARNING_RATE,
    WEIGHT_DECAY,
    Job,
    Probe,
    collate_columns,
    scale_labels,
    set_classifier,
)
from .trainer_base import OneAfterTheOther, fixed_batches

BETAS = (0.9, 0.999)
EPSILON = 1e-8


def dense(inputs: int, outputs: int, **parts: nn.Module) -> nn.Module:
    """Create a module with a linear layer ``dense`` and other parts."""
    return nn.ModuleDict({"dense": nn.Linear(inputs, outputs), **parts})


class Layer(nn.Module):
    """Self-attention and feed-forward, each with dropout, residual and norm.

    Args:
        config: Sizes.
        rate: Probability of dropping an element.
    """

    def __init__(self, config: BertConfig, rate: float) -> None:
        super().__init__()
        width, inner = config.hidden_size, config.intermediate_size
        self.heads = config.num_attention_heads
        self.rate = rate
        own = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value")})
        self.attention = nn.ModuleDict({"self": own, "output": self._output(width, config)})
        self.intermediate = dense(width, inner)
        self.output = self._output(inner, config)

    @staticmethod
    def _output(inputs: int, config: BertConfig) -> nn.Module:
        norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        return dense(inputs, config.hidden_size, LayerNorm=norm)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Compute a layer of states (B, L, D) with an additive mask (B, 1, 1, L)."""
        attention: Any = self.attention
        own = attention["self"]
        query, key, value = (
            own[name](hidden).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5 + mask
        weights = F.dropout(scores.softmax(dim=-1), self.rate, self.training)
        context = (weights @ value).transpose(1, 2).flatten(2)
        attended = self._add_norm(attention["output"], context, hidden)
        intermediate: Any = self.intermediate
        return self._add_norm(self.output, F.gelu(intermediate["dense"](attended)), attended)

    def _add_norm(self, part: Any, inputs: Tensor, residual: Tensor) -> Tensor:
        dropped = F.dropout(part["dense"](inputs), self.rate, self.training)
        return part["LayerNorm"](dropped + residual)


class Bert(nn.Module):
    """The encoder with its pooler.

    Args:
        config: Sizes.
        rate: Probability of dropping an element.
    """

    def __init__(self, config: BertConfig, rate: float) -> None:
        super().__init__()
        width = config.hidden_size
        self.rate = rate
        self.embeddings = nn.ModuleDict(
            {
                "word_embeddings": nn.Embedding(config.vocab_size, width, padding_idx=0),
                "position_embeddings": nn.Embedding(config.max_position_embeddings, width),
                "token_type_embeddings": nn.Embedding(config.type_vocab_size, width),
                "LayerNorm": nn.LayerNorm(width, eps=config.layer_norm_eps),
            }
        )
        layers = [Layer(config, rate) for _ in range(config.num_hidden_layers)]
        self.encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        self.pooler = dense(width, width)

    def forward(self, side: dict[str, Tensor]) -> Tensor:
        """Encode a padded batch, (B, L, D)."""
        parts: Any = self.embeddings
        ids = side["input_ids"]
        hidden = parts["word_embeddings"](ids) + parts["token_type_embeddings"](
            side["token_type_ids"]
        )
        hidden = hidden + parts["position_embeddings"](
            torch.arange(ids.shape[1], device=ids.device)
        )
        hidden = F.dropout(parts["LayerNorm"](hidden), self.rate, self.training)
        mask = (1.0 - side["attention_mask"][:, None, None].float()) * -10000.0
        encoder: Any = self.encoder
        for layer in encoder["layer"]:
            hidden = layer(hidden, mask)
        return hidden


class Model(nn.Module):
    """BERT with a classifier, the cosine of pairs, or the masked-language-model head.

    Args:
        job: Names model and tasks.
    """

    def __init__(self, job: Job) -> None:
        super().__init__()
        config = BertConfig.from_pretrained(job.model_dir)
        width = config.hidden_size
        self.tasks, self.rate = job.tasks, job.dropout_rate
        self.bert = Bert(config, self.rate)
        self.classifier = nn.Linear(width, CLASSES)
        norm = nn.LayerNorm(width, eps=config.layer_norm_eps)
        head = nn.ModuleDict({"transform": dense(width, width, LayerNorm=norm)})
        head.bias = nn.Parameter(torch.zeros(config.vocab_size))
        self.cls = nn.ModuleDict({"predictions": head})
        set_classifier(self.classifier)
        weights = load_file(job.model_dir / "model.safetensors")
        missing = self.load_state_dict(weights, strict=False).missing_keys
        if {name.split(".")[0] for name in missing} - {"classifier"}:
            raise ValueError(f"{job.model_dir} lacks {', '.join(missing)}")

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Compute the loss of a batch of one task."""
        labels = batch["labels"]
        kind = self.tasks[batch.get("task", next(iter(self.tasks)))].kind
        if "first" in batch:
            first, second = self._embed(batch["first"]), self._embed(batch["second"])
            cosine = F.cosine_similarity(first, second)
            return F.mse_loss(cosine, scale_labels(kind, labels))
        hidden = self.bert(batch)
        if kind == "mlm":
            return F.cross_entropy(self._score(hidden).flatten(0, 1), labels.flatten())
        pooled = torch.tanh(self.bert.pooler["dense"](hidden[:, 0]))  # type: ignore[index]
        return F.cross_entropy(self.classifier(F.dropout(pooled, self.rate, self.training)), labels)

    def _embed(self, side: dict[str, Tensor]) -> Tensor:
        mask = side["attention_mask"].unsqueeze(-1).float()
        return (self.bert(side) * mask).sum(dim=1) / mask.sum(dim=1)

    def _score(self, hidden: Tensor) -> Tensor:
        cls: Any = self.cls
        head = cls["predictions"]
        transform = head["transform"]
        hidden = transform["LayerNorm"](F.gelu(transform["dense"](hidden)))
        embeddings: Any = self.bert.embeddings
        return hidden @ embeddings["word_embeddings"].weight.T + head.bias


class LoopAdamW:
    """AdamW as in the paper (Loshchilov and Hutter 2019, algorithm 2), one parameter at a time.

    Args:
        named: Parameters by name; biases and norms do not decay.
    """

    def __init__(self, named: Iterable[tuple[str, nn.Parameter]]) -> None:
        self.named = list(named)
        self.state: dict[str, dict[str, Any]] = {}

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Update the parameters with a learning rate."""
        for name, parameter in self.named:
            if parameter.grad is None:
                continue
            new = {"step": 0, "m": torch.zeros_like(parameter), "v": torch.zeros_like(parameter)}
            state = self.state.setdefault(name, new)
            state["step"] += 1
            state["m"] = BETAS[0] * state["m"] + (1 - BETAS[0]) * parameter.grad
            state["v"] = BETAS[1] * state["v"] + (1 - BETAS[1]) * parameter.grad**2
            mean = state["m"] / (1 - BETAS[0] ** state["step"])
            variance = state["v"] / (1 - BETAS[1] ** state["step"])
            if not name.endswith(("bias", "LayerNorm.weight")):
                parameter.sub_(rate * WEIGHT_DECAY * parameter)
            parameter.sub_(rate * mean / (variance.sqrt() + EPSILON))
            parameter.grad = None


class ReferencePeer:
    """The plain BERT and a plain loop.

    Args:
        job: What to do.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.model = Model(job).to(job.device)
        self.rows = OneAfterTheOther(job)
        self.batches = fixed_batches(job, self.rows.starts)

    def train(self, probe: Probe) -> None:
        """Run all steps of the job."""
        optimizer = LoopAdamW(self.model.named_parameters())
        self.model.train()
        for step, rows in enumerate(self.batches):
            batch = to_device(collate_columns(self.rows.__getitems__(rows)), self.job.device)
            probe.on_batch(batch)
            loss = self.model(batch)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), CLIP, foreach=False)
            probe.on_gradients()
            optimizer.step(LEARNING_RATE * (1 - step / self.job.steps))
            probe.on_loss(loss)
            probe.on_step()

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the parameters by name."""
        return dict(self.model.named_parameters())
