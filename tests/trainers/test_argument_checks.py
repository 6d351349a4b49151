"""Numbers with which training would fail late are refused when the arguments are made."""

import math

import pytest
import torch
from transformers import TrainingArguments

from minbert_cli.arguments import FastTrainingArguments
from tests.trainers.tiny import make_trainer
from trainers.training.checks import RANGES, check_numbers

NAN = math.nan
BAD = {
    "learning_rate": NAN,
    "weight_decay": -0.1,
    "adam_beta1": 2.0,
    "adam_beta2": 1.0,
    "adam_epsilon": 0.0,
    "max_grad_norm": math.inf,
    "label_smoothing_factor": 1.0,
    "warmup_steps": 1e20,
    "eval_delay": -1,
    "gradient_accumulation_steps": 0,
    "per_device_train_batch_size": 10**6,
    "per_device_eval_batch_size": 0,
    "dataloader_num_workers": -1,
    "dataloader_prefetch_factor": 0,
    "ddp_timeout": 10**12,
    "num_train_epochs": 0,
    "seed": 2**32,
    "data_seed": -1,
    "eval_accumulation_steps": 0,
    "save_total_limit": 0,
    "max_steps": 10**12,
    "logging_steps": NAN,
    "save_steps": -3,
}


@pytest.mark.parametrize("name", list(BAD))
def test_the_argument_and_its_value_are_named(tmp_path, name):
    with pytest.raises(ValueError, match=name):
        FastTrainingArguments(
            str(tmp_path), use_cpu=True, save_strategy="steps", **{name: BAD[name]}
        )


def test_every_range_has_a_bad_value_here():
    assert RANGES.keys() <= BAD.keys()


def test_the_trainer_checks_arguments_of_transformers(tmp_path):
    with pytest.raises(ValueError, match="learning_rate=nan; expected a number"):
        make_trainer(tmp_path / "run", learning_rate=NAN)

    assert not (tmp_path / "run").exists()


def test_weights_in_half_precision_are_named_unless_they_are_frozen(tmp_path, caplog):
    model = make_trainer(tmp_path / "float32").model
    assert "rounded away" not in caplog.text
    model.bert.to(torch.bfloat16)
    make_trainer(tmp_path / "bfloat16", model=model)
    assert "weights are in torch.bfloat16, where small updates are rounded away" in caplog.text

    caplog.clear()
    model.bert.requires_grad_(requires_grad=False)
    make_trainer(tmp_path / "frozen", model=model)
    assert "rounded away" not in caplog.text


def test_the_defaults_and_a_few_others_are_good(tmp_path):
    check_numbers(TrainingArguments(str(tmp_path), use_cpu=True))
    FastTrainingArguments(
        str(tmp_path),
        use_cpu=True,
        warmup_steps=0.1,
        logging_steps=0.05,
        max_steps=5,
        num_train_epochs=0,
        lr_scheduler_type="cosine_with_restarts",
        lr_scheduler_kwargs={"num_cycles": 2},
    )
