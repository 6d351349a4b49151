"""A learning rate of the heads: trainings equal those with groups made by hand."""

import re

import peft
import pytest
import torch
from transformers import BertConfig, BertModel, get_scheduler

from tests.trainers.tiny import make_model, weights
from trainers import HeadLearningRate, add_lora

BASE, HEADS = 0.01, 0.05


def adapted(model):
    add_lora(model, {"r": 2}, trained=("heads.", "cls.", "bert.pooler."))
    return model


def wrapped(model):
    config = peft.LoraConfig(target_modules=["query"], modules_to_save=["moods", "pairs", "scores"])
    return peft.get_peft_model(model, config)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # of peft
@pytest.mark.parametrize(
    "change", [lambda model: model, adapted, wrapped], ids=["plain", "lora", "peft"]
)
def test_a_run_equals_one_with_an_optimizer_made_by_hand(make_trainer, change):
    def run(methods, make_optimizer=None):
        torch.manual_seed(3)  # of the adapters
        model = change(make_model())
        own = {"methods": methods}
        if make_optimizer is not None:
            own["optimizers"] = make_optimizer(model)
        trainer = make_trainer(model=model, own=own, max_steps=6, weight_decay=0.1)
        trainer.train()
        return trainer

    def by_hand(model):
        groups = []
        for name, value in model.named_parameters():
            if value.requires_grad:
                decayed = value.ndim > 1 and "LayerNorm" not in name
                rate = HEADS if re.search(r"(^|\.)heads\.", name) else BASE
                groups.append(
                    {"params": [value], "lr": rate, "weight_decay": 0.1 if decayed else 0.0}
                )
        optimizer = torch.optim.AdamW(groups, eps=1e-8)
        return optimizer, get_scheduler("linear", optimizer, 0, 6)

    expected = run({}, by_hand)
    found = run({"head_learning_rate": HEADS})

    torch.testing.assert_close(weights(found), weights(expected), atol=1e-6, rtol=1e-5)
    logged = [entry["learning_rate"] for entry in found.state.log_history if "loss" in entry]
    assert logged == pytest.approx([BASE * (6 - step) / 6 for step in range(6)])


def test_a_model_without_heads_is_refused():
    model = BertModel(BertConfig(vocab_size=9, hidden_size=4, num_attention_heads=1))

    with pytest.raises(ValueError, match=r"head_learning_rate=0.05, but BertModel has no"):
        HeadLearningRate(HEADS).prepare(model, None)
