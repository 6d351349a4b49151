"""The real Trainer gives the gradient of the one big batch, and the AdamW step of the paper."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Trainer, TrainerCallback, TrainingArguments

import modeling_minbert
from modeling_minbert import MinBertConfig

NAMES = [
    "MinBertForMaskedLM",
    "MinBertForTokenClassification",
    "MinBertForSequenceClassification",
    "MinBertForNSP",
    "MinBertForMultiTask",
]


class KeepGradients(TrainerCallback):
    """Copies the gradients just before the optimizer uses them."""

    def __init__(self):
        self.gradients = {}

    def on_pre_optimizer_step(self, *_, model, **__):
        """Copy them."""
        named = model.named_parameters()
        self.gradients = {key: p.grad.clone() for key, p in named if p.grad is not None}


@pytest.fixture
def build(tiny_sizes, tasks):
    """Return a function that makes a model without dropout, always with the same weights."""

    def build(name):
        torch.manual_seed(0)
        task = {"tone": tasks["tone"] | {"dropout": 0.0}}
        config = MinBertConfig(
            **tiny_sizes,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            initializer_range=0.2,
            tasks=task if name == "MinBertForMultiTask" else None,
        )
        return getattr(modeling_minbert, name)(config)

    return build


@pytest.fixture
def make_rows(tiny_sizes):
    """Return a function that makes eight rows; token labels are few in some and many in others."""

    def make(name):
        torch.manual_seed(1)
        ids = torch.randint(1, tiny_sizes["vocab_size"], (8, 7))
        if name in {"MinBertForMaskedLM", "MinBertForTokenClassification"}:
            labels = torch.where(torch.arange(7) <= torch.arange(8)[:, None] // 2, ids % 2, -100)
        else:
            labels = torch.arange(8) % 2
        return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]

    return make


def train(model, rows, folder, rows_of_a_batch, accumulated, **settings):
    """Train with transformers' Trainer and return the last gradients and the logged losses."""
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=rows_of_a_batch,
        gradient_accumulation_steps=accumulated,
        max_grad_norm=0,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
        **{"max_steps": 1, **settings},
    )
    keep = KeepGradients()
    trainer = Trainer(model, arguments, train_dataset=rows, callbacks=[keep])
    trainer.train()
    return keep.gradients, [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("name", NAMES)
def test_four_micro_batches_give_the_gradient_of_the_big_batch(build, make_rows, tmp_path, name):
    rows = make_rows(name)
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    reference = build(name)
    loss = reference(**batch).loss
    loss.backward()

    for size, accumulated in ((8, 1), (2, 4)):
        gradients, losses = train(build(name), rows, tmp_path, size, accumulated)

        assert losses == [pytest.approx(loss.item(), abs=1e-4)]
        for key, parameter in reference.named_parameters():
            if parameter.grad is not None:
                assert_close(gradients[key], parameter.grad, atol=1e-6, rtol=1e-4)
