"""LoRA on a plain BERT."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from trainers.methods.adapters import add_lora, merge_lora

pytest.importorskip("peft")


@pytest.fixture
def model() -> BertForSequenceClassification:
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(num_hidden_layers=2, **sizes)).eval()


def test_a_new_adapter_changes_nothing_and_learns_alone(
    model: BertForSequenceClassification,
) -> None:
    ids = torch.randint(0, 20, (2, 5))
    before = model(ids).logits
    add_lora(model, {"r": 2}, trained=("classifier.",))

    torch.testing.assert_close(model(ids).logits, before)
    learns = {name for name, value in model.named_parameters() if value.requires_grad}
    # two layers, query and value, two matrices each
    assert sum("lora_" in name for name in learns) == 8
    assert {name for name in learns if "lora_" not in name} == {
        "classifier.weight",
        "classifier.bias",
    }


def test_a_merged_model_computes_the_same_under_its_old_names(
    model: BertForSequenceClassification,
) -> None:
    ids = torch.randint(0, 20, (2, 5))
    names, before = list(model.state_dict()), model(ids).logits
    add_lora(model, {"r": 2, "lora_alpha": 16}, trained=("classifier.",))
    for name, value in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value)
    with_lora = model(ids).logits
    merge_lora(model)

    assert not torch.allclose(with_lora, before, atol=1e-4)
    torch.testing.assert_close(model(ids).logits, with_lora)
    assert list(model.state_dict()) == names
    assert all(value.requires_grad for value in model.parameters())
    merge_lora(model)  # there is nothing left to merge


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rank": 4}, "lora: .*rank"),
        ({"modules_to_save": ["pooler"]}, "lora: modules_to_save=.*pooler learn anyway"),
        ({"r": 0}, "lora: .*r"),
        ({"target_modules": ["nothing"]}, "lora: .*nothing"),
    ],
)
def test_what_peft_refuses_is_told(
    model: BertForSequenceClassification, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        add_lora(model, keys, trained=())
