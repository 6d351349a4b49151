"""Vectors are compared in float32 or better."""

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel

FORMULAS = {
    "cosine": lambda u, v: u @ v / (u.norm() * v.norm()),
    "dot": lambda u, v: u @ v,
    "euclidean": lambda u, v: -(u - v).square().sum().sqrt(),
    "manhattan": lambda u, v: -(u - v).abs().sum(),
}


def draw(count, size, seed=0):
    """Draw vectors that are close to each other, as those of sentences are."""
    noise = torch.randn(count, size, generator=torch.Generator().manual_seed(seed))
    return 1 + 0.05 * noise


def compare_all(name, first, second):
    """Compare all pairs by a formula, in float64."""
    rows = [[FORMULAS[name](u, v) for v in second.double()] for u in first.double()]
    return torch.tensor(rows)


@pytest.fixture
def make_model(tiny_sizes):
    def make(similarity):
        config = MinBertConfig(**tiny_sizes, sentence_embedding={"similarity": similarity})
        return MinBertModel(config).eval()

    return make


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", FORMULAS)
def test_a_model_compares_vectors_in_float32_also_those_in_half_precision(make_model, name, dtype):
    lengths = torch.arange(1, 6).unsqueeze(1)
    first, second = draw(6, 64).to(dtype), (lengths * draw(5, 64, seed=1)).to(dtype)
    model, expected = make_model(name), compare_all(name, first, second)

    scores = model.similarity(first, second)

    assert scores.dtype == torch.float32
    assert_close(scores.double(), expected, atol=1e-4, rtol=1e-5)
    assert len(scores.unique()) > 20
    # such as an array of numpy
    assert_close(model.similarity(first, second.double()), expected, atol=1e-4, rtol=1e-5)


def test_a_cosine_head_in_bfloat16_compares_in_float32(tiny_sizes):
    torch.manual_seed(0)
    fields = {"problem_type": "similarity", "score_range": [-1, 1], "pair_encoding": "separate"}
    config = MinBertConfig(**tiny_sizes, tasks={"near": fields}, initializer_range=0.2)
    model = MinBertForMultiTask(config).eval().bfloat16()
    ids = torch.randint(5, tiny_sizes["vocab_size"], (64, 2, 6))

    with torch.no_grad():
        pooled = model.bert(ids.flatten(0, 1)).last_hidden_state.mean(dim=1).unflatten(0, (64, 2))
        cosines = model(ids, task="near").logits.squeeze(-1)

    expected = torch.cosine_similarity(*pooled.double().unbind(dim=1), dim=-1)
    assert cosines.dtype == torch.float32
    assert_close(cosines.double(), expected, atol=2e-3, rtol=0)  # the mean is in bfloat16
    assert len(cosines.unique()) == 64


def test_a_model_does_not_compare_bytes_as_numbers(make_model):
    packed = torch.arange(12, dtype=torch.uint8).reshape(3, 4)

    with pytest.raises(ValueError, match=r"8-bit.*packed bits"):
        make_model("dot").similarity(packed, packed)
