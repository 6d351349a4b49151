"""Learning rates by layer, and frozen layers."""

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertForSequenceClassification, TrainingArguments

from trainers import FreezeLayers, LayerwiseLearningRates
from trainers.methods.layers import EMBEDDINGS, layer_of


@pytest.fixture
def model() -> BertForSequenceClassification:
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(num_hidden_layers=3, **sizes))


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("bert.embeddings.word_embeddings.weight", EMBEDDINGS),
        ("embeddings.LayerNorm.bias", EMBEDDINGS),
        ("bert.encoder.layer.0.attention.self.query.weight", 0),
        ("encoder.layer.10.output.dense.bias", 10),
        ("module.bert.encoder.layer.11.attention.self.query.lora_A.default.weight", 11),
        ("bert.pooler.dense.weight", 12),
        ("heads.sst.out.weight", 12),
        ("module.heads.embeddings.out.weight", 12),  # a task of that name
        ("cls.predictions.bias", 12),
    ],
)
def test_layers_are_found_by_the_names_of_bert(name: str, layer: int) -> None:
    assert layer_of(name, 12) == layer


def test_every_layer_has_the_power_of_the_paper(model: nn.Module) -> None:
    factors = LayerwiseLearningRates(0.5).factors(model)

    # eta of a layer is xi times eta of the layer above: Sun et al. 2020, section 5.3.3
    expected = {"layer.2.": 1.0, "layer.1.": 0.5, "layer.0.": 0.25, "embeddings.": 0.125}
    for name, factor in factors.items():
        assert factor == next((f for key, f in expected.items() if key in name), 1.0), name


@pytest.mark.parametrize("decay", [0.0, -0.5, 1.5])
def test_a_decay_out_of_range_is_refused(decay: float) -> None:
    with pytest.raises(ValueError, match=r"layerwise_lr_decay=.*expected in \(0, 1\]"):
        LayerwiseLearningRates(decay)


def test_a_model_without_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="Linear has no num_hidden_layers"):
        LayerwiseLearningRates(0.9).factors(nn.Linear(2, 2))


def test_groups_keep_their_weight_decay_and_all_parameters(model: nn.Module) -> None:
    decayed = [value for name, value in model.named_parameters() if not name.endswith("bias")]
    others = [value for name, value in model.named_parameters() if name.endswith("bias")]
    groups = [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1.0)

    LayerwiseLearningRates(0.5).scale_optimizer(optimizer, model)

    rates = [group["lr"] for group in optimizer.param_groups]
    assert rates == sorted(rates, reverse=True)
    assert set(rates) == {1.0, 0.5, 0.25, 0.125}
    of = {id(v): (g["lr"], g["weight_decay"]) for g in optimizer.param_groups for v in g["params"]}
    assert len(of) == len(list(model.parameters()))
    bias = model.get_parameter("bert.encoder.layer.0.output.dense.bias")
    assert of[id(bias)] == (0.25, 0.0)
    word = model.get_parameter("bert.embeddings.word_embeddings.weight")
    assert of[id(word)] == (0.125, 0.1)


def test_a_step_of_sgd_moves_layers_by_their_factors(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    LayerwiseLearningRates(0.5).scale_optimizer(optimizer, model)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 0.1)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    for value in model.parameters():
        value.grad = torch.ones_like(value)
    optimizer.step()
    schedule.step()

    moved = {name: before[name] - value for name, value in model.named_parameters()}
    for name, factor in LayerwiseLearningRates(0.5).factors(model).items():
        torch.testing.assert_close(moved[name], torch.full_like(moved[name], 0.1 * factor))


def test_frozen_layers_are_those_below(model: nn.Module) -> None:
    FreezeLayers(1).prepare(model, TrainingArguments())

    learns = {name for name, value in model.named_parameters() if value.requires_grad}
    assert not any("embeddings" in name or "layer.0." in name for name in learns)
    assert any("layer.1." in name for name in learns)
    assert any("classifier" in name for name in learns)
