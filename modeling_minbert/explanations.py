# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Why a prediction: the share of every word in a decision, by integrated gradients.

Source: Sundararajan, Taly and Yan 2017, Axiomatic Attribution for Deep Networks, section 3.

Shapes: S points between a text without words and the text, of T tokens; D hidden size, K logits.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers.utils import logging

from .inference import PooledPredictor, evaluating, make_batch
from .names import unknown
from .rows import Batching, check_container
from .texts import Encoded, Encoding, own_tokenizer

logger = logging.get_logger(__name__)

# Points at first and at most, and the error of the sum at which they suffice: a share of the
# difference, or of 1 for a small one.
FEWEST, MOST, TOLERANCE = 16, 256, 0.01
# Tokens of all points that are computed together.
TOKENS = 8_192


@torch.inference_mode(mode=False)
def explain(
    model: Any, task: str, sentences: Sequence[Any], label: str | None = None
) -> list[dict[str, Any]]:
    """See `MinBertForMultiTask.explain`."""
    predictor = model._predictor(task, None)
    names = _check_task(model.tokenizer, predictor)
    if label is not None and label not in names:
        raise ValueError(f"task {task!r}: {unknown('label', label, names)}")
    check_container(sentences, task)
    rows = list(sentences)
    explained = []
    # in the precision of the decisions below
    encoder = model.base_model
    is_same = encoder.precision is None and not encoder.is_int8  # which gradients do not compute
    precision = None if is_same else "float32"
    options: Batching = {"show_progress": False, "precision": precision}
    for row, predicted in zip(rows, model.predict(task, rows, **options), strict=True):
        (encoded,) = predictor.encode([row], 0)
        tokens = _find_tokens(model.tokenizer, predictor.plan.encoding, row, encoded)
        name = label
        if label is None and names and isinstance(predicted, dict):
            name = str(predicted.get("label", names[0]))
        elif label is None and names:  # of several labels the most probable one
            ((best,),) = model.predict(task, [row], top_k=1, **options)
            name = str(best["label"])
        place = names.index(name) if name is not None else 0
        decide = Decision(model, predictor, encoded, place, [token is not None for token in tokens])
        with evaluating(model):
            shares, baseline, decision = decide.share()
        found = {
            "decision": decision,
            "baseline": baseline,
            "words": _join_words([row] if isinstance(row, str) else list(row), tokens, shares),
        }
        known = predicted if isinstance(predicted, dict) else {"labels": predicted}
        explained.append({**known, **({} if name is None else {"explained": name}), **found})
    return explained


def _check_task(tokenizer: Any, predictor: Any) -> list[str]:
    """Return the labels or targets that shares can be about, none if there is one number a row."""
    name = predictor.name
    is_pooled = isinstance(predictor, PooledPredictor)
    spec: Any = predictor.head.task if is_pooled else None
    if spec is None or spec.is_unlabelled:
        raise ValueError(f"task {name!r}: explain takes tasks that score texts, or pairs of them")
    if spec.truncation != "head":
        raise ValueError(
            f"task {name!r} reads its texts by truncation={spec.truncation!r}; explain takes tasks "
            "that read the head of a text"
        )
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} does not report the characters of tokens; use a fast "
            "tokenizer (tokenizer.json)"
        )
    if spec.num_logits == 1:
        return []
    names = getattr(spec, "labels", None) or getattr(spec, "targets", None)
    if not names:
        raise ValueError(f"task {name!r} is {spec.kind}: explain takes tasks with one decision")
    return list(names)


class Decision:
    """A number that the prediction of a row goes by, between no word and all words of it.

    Args:
        model: The model.
        predictor: That of a task.
        encoded: The row.
        place: The logit that it is about.
        is_word: Which tokens are of the texts, and not special, (T,).
    """

    def __init__(
        self,
        model: Any,
        predictor: PooledPredictor,
        encoded: Encoded,
        place: int,
        is_word: Sequence[bool],
    ) -> None:
        self.model, self.predictor, self.encoded, self.place = model, predictor, encoded, place
        embeddings = model.base_model.embeddings.word_embeddings
        mask, padding = model.tokenizer.mask_token_id, model.config.pad_token_id or 0
        ids = torch.tensor(list(chain.from_iterable(encoded.input_ids)), device=model.device)
        hidden = torch.tensor(is_word, device=model.device)
        with torch.no_grad():
            self.first = embeddings(ids.masked_fill(hidden, padding if mask is None else mask))
            self.path = embeddings(ids) - self.first  # (T, D)

    def share(self) -> tuple[list[float], float, float]:
        """Return the share of each token, and the decisions about no word and about the text."""
        # with gradients as below: without them, another precision may be computed
        with torch.enable_grad():
            baseline, decision = self.decide(torch.tensor([0.0, 1.0]))[0].tolist()
        difference, points = decision - baseline, FEWEST
        while True:
            shares = self.integrate(points)
            error = abs(float(shares.sum()) - difference)
            if error <= TOLERANCE * max(1.0, abs(difference)) or points == MOST:
                break
            points *= 2
        if error > TOLERANCE * max(1.0, abs(difference)):
            message = "the shares of the words add up to %.3f instead of %.3f"
            logger.warning(message, float(shares.sum()), difference)
        return shares.tolist(), baseline, decision

    def integrate(self, points: int) -> Tensor:
        """Integrate the gradient along the way from no word to all words, (T,)."""
        shares = torch.zeros(len(self.path), dtype=torch.float64)
        size = max(1, TOKENS // len(self.path))
        places, weights = choose_points(points)
        for some, factors in zip(places.split(size), weights.split(size), strict=True):
            with torch.enable_grad():
                decisions, mixed = self.decide(some)
                (grads,) = torch.autograd.grad(decisions.sum(), mixed)
            shares += factors @ (grads * self.path).sum(dim=-1).double().cpu()
        return shares

    def decide(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Decide at points from 0, no word, to 1: the decisions, (S,), and embeddings (S, T, D)."""
        mixed = self.first + points.to(self.path)[:, None, None] * self.path
        mixed.requires_grad_(torch.is_grad_enabled())
        rows, model = [self.encoded] * len(points), self.model
        inputs = make_batch(model, rows)
        if model.supports_packed_input():
            vectors = mixed.view(1, -1, mixed.shape[-1])
        else:
            parts = mixed.split([len(ids) for ids in self.encoded.input_ids], dim=1)
            padded = [
                F.pad(x, (0, 0, 0, inputs["input_ids"].shape[-1] - x.shape[1])) for x in parts
            ]
            vectors = torch.stack(padded, dim=1).view(*inputs["input_ids"].shape, -1)
        inputs["inputs_embeds"] = vectors
        del inputs["input_ids"]
        outputs = self.predictor.run(inputs, [self.predictor.name])
        logits = outputs[self.predictor.name].logits.float()
        chosen = logits[:, self.place]
        if self.predictor.head.outputs == "classes" and logits.shape[1] > 1:
            # softmax does not change where all logits do alike
            chosen = chosen - (logits.sum(dim=1) - chosen) / (logits.shape[1] - 1)
        return chosen, mixed


def choose_points(count: int) -> tuple[Tensor, Tensor]:
    """Return points of [0, 1] and their weights in an integral (Golub and Welsch 1969), (S,)."""
    numbers = torch.arange(1, count, dtype=torch.float64)
    beside = numbers / (4 * numbers**2 - 1).sqrt()
    places, vectors = torch.linalg.eigh(torch.diag(beside, 1) + torch.diag(beside, -1))
    return (places + 1) / 2, vectors[0] ** 2


# A token of a text: the text, the word in it, and the characters; None for a special token.
Token = tuple[int, int, tuple[int, int]] | None


def _find_tokens(tokenizer: Any, encoding: Encoding, row: Any, encoded: Encoded) -> list[Token]:
    """Find the words and characters of all tokens of a row."""
    given = [row] if isinstance(row, str) else list(row)
    texts = [text.strip() for text in given]
    before = [len(text) - len(text.lstrip()) for text in given]
    parts = [[text] for text in texts] if encoding.pair_encoding == "separate" else [texts]
    tokens: list[Token] = []
    for number, (part, ids) in enumerate(zip(parts, encoded.input_ids, strict=True)):
        found = own_tokenizer(tokenizer)(
            *([text] for text in part),
            return_offsets_mapping=True,
            truncation="longest_first",
            max_length=encoding.max_length,
        )
        if found["input_ids"][0] != ids:
            raise ValueError(f"{type(tokenizer).__name__} reads {part!r} in two ways")
        columns = (found.sequence_ids(0), found.word_ids(0), found["offset_mapping"][0])
        for side, word, (start, end) in zip(*columns, strict=True):
            if side is None or word is None:
                tokens.append(None)
            else:
                shift = before[number + side]
                tokens.append((number + side, word, (start + shift, end + shift)))
    return tokens


def _join_words(
    texts: Sequence[str], tokens: Sequence[Token], shares: Sequence[float]
) -> list[dict[str, Any]]:
    """Add the shares of the tokens of each word, in the order of the texts."""
    known: dict[tuple[int, int], tuple[int, int, float]] = {}
    for token, share in zip(tokens, shares, strict=True):
        if token is not None:
            number, word, (start, end) = token
            first, last, total = known.get((number, word), (start, end, 0.0))
            known[number, word] = (min(first, start), max(last, end), total + share)
    words: list[dict[str, Any]] = []
    for (number, _), (start, end, share) in known.items():
        text = texts[number][start:end]
        first = start + len(text) - len(text.lstrip())  # some tokenizers write spaces into words
        described = {"word": text.strip(), "start": first, "end": first + len(text.strip())}
        described["share"] = share
        words.append(described if len(texts) == 1 else {"text": number + 1, **described})
    return words
