"""The real Trainer gives the gradient of the one big batch."""

import pytest
import torch
from torch.testing import assert_close
from transformers import Trainer, TrainingArguments

import modeling_minbert
from modeling_minbert import MinBertConfig
from tests.trainers.tiny import Spy

NAMES = [
    "MinBertForMaskedLM",
    "MinBertForTokenClassification",
    "MinBertForSequenceClassification",
    "MinBertForNSP",
    "MinBertForMultiTask",
]


def build(name, sizes):
    """Make a model without dropout, always with the same weights."""
    torch.manual_seed(0)
    task = {"problem_type": "classification", "labels": ["down", "up"], "dropout": 0.0}
    config = MinBertConfig(
        **sizes,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        tasks={"tone": task} if name == "MinBertForMultiTask" else None,
    )
    return getattr(modeling_minbert, name)(config)


def make_rows(name, words):
    """Make eight rows; labels of tokens are few in some of them and many in others."""
    torch.manual_seed(1)
    ids = torch.randint(1, words, (8, 7))
    labels = torch.arange(8) % 2
    if name in {"MinBertForMaskedLM", "MinBertForTokenClassification"}:
        labels = torch.where(torch.arange(7) <= torch.arange(8)[:, None] // 2, ids % 2, -100)
    return [{"input_ids": row, "labels": label} for row, label in zip(ids, labels, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_four_micro_batches_give_the_gradient_of_the_big_batch(tiny_sizes, tmp_path, name):
    rows = make_rows(name, tiny_sizes["vocab_size"])
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    reference = build(name, tiny_sizes)
    loss = reference(**batch).loss
    loss.backward()

    for size, accumulated in ((8, 1), (2, 4)):
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=size,
            gradient_accumulation_steps=accumulated,
            max_grad_norm=0,
            max_steps=1,
            train_sampling_strategy="sequential",
            logging_steps=1,
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
        )
        spy = Spy()
        trainer = Trainer(build(name, tiny_sizes), arguments, train_dataset=rows, callbacks=[spy])
        trainer.train()

        assert trainer.state.log_history[0]["loss"] == pytest.approx(loss.item(), abs=1e-4)
        (gradients,) = spy.gradients
        for key, parameter in reference.named_parameters():
            if parameter.grad is not None:
                assert_close(gradients[key], parameter.grad, atol=1e-6, rtol=1e-4)
