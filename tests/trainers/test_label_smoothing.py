"""Label smoothing: the loss of torch, and the training of transformers' own Trainer."""

import pytest
import torch
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification

from modeling_minbert import MinBertForMultiTask
from tests.trainers.stock import as_stock, losses, train_stock
from tests.trainers.tiny import PROBLEM_TYPES, make_config, make_rows
from trainers import Task

FACTOR = 0.2


def one_task(name="moods"):
    return {"tasks": [Task(name, PROBLEM_TYPES[name], make_rows(name, 32), make_rows(name, 11))]}


@pytest.mark.parametrize(("factor", "is_stock"), [(0.0, False), (FACTOR, False), (FACTOR, True)])
def test_a_run_equals_that_of_transformers(make_trainer, tmp_path, factor, is_stock):
    model = as_stock(make_trainer().model) if is_stock else None
    options = {"max_steps": 8, "label_smoothing_factor": factor}
    trainer = make_trainer(model=model, own=one_task(), **options)
    stock = as_stock(make_trainer().model)
    batches = list(trainer.get_train_dataloader())
    trainer.train()

    expected = train_stock(stock, batches, tmp_path, label_smoothing_factor=factor)

    assert losses(trainer) == pytest.approx(losses(expected), abs=1e-5)
    torch.testing.assert_close(
        trainer.model.bert.state_dict(), stock.bert.state_dict(), atol=1e-5, rtol=1e-4
    )


def test_a_stock_model_with_one_logit_is_refused(make_trainer):
    config = BertConfig(num_labels=1, num_hidden_layers=1)
    stock = BertForSequenceClassification(config)
    with pytest.raises(ValueError, match="spreads labels over classes, but the model has"):
        make_trainer(model=stock, own=one_task("moods"), label_smoothing_factor=FACTOR)
    config = BertConfig(num_labels=2, problem_type="multi_label_classification")
    stock = BertForSequenceClassification(config)
    rows = [{"input_ids": [1, 2], "labels": [0.0, 1.0]}] * 2
    own = {"tasks": [Task("topics", "multi_label_classification", rows)]}
    with pytest.raises(ValueError, match="but the model has several labels for a row; leave"):
        make_trainer(model=stock, own=own, label_smoothing_factor=FACTOR)


def compute(trainer, task, *, training=True):
    """The loss, logits and labels of the first batch of a task."""
    batch = next(each for each in trainer.get_train_dataloader() if each["task"] == task)
    trainer.model.train(training)
    output = trainer.model(**batch)
    return output.loss, output.logits.detach(), batch["labels"]


def test_every_task_with_classes_is_smoothed_in_training_only(make_trainer, caplog):
    trainer = make_trainer(label_smoothing_factor=FACTOR)
    plain = make_trainer()

    loss, logits, labels = compute(trainer, "moods")
    torch.testing.assert_close(loss, F.cross_entropy(logits, labels, label_smoothing=FACTOR))
    loss, logits, labels = compute(trainer, "pairs")
    # a logit z is that of two classes with 0 and z
    two = torch.cat([torch.zeros_like(logits), logits], dim=1)
    expected = F.cross_entropy(two, labels.long(), label_smoothing=FACTOR)
    torch.testing.assert_close(loss, expected)
    assert torch.equal(compute(trainer, "scores")[0], compute(plain, "scores")[0])
    for task in PROBLEM_TYPES:
        assert compute(trainer, task, training=False)[0] == compute(plain, task, training=False)[0]
    assert "scores: trained without label_smoothing_factor" in caplog.text


@pytest.mark.parametrize("accumulation", [1, 2])
def test_tags_are_smoothed_over_all_labeled_tokens(make_trainer, accumulation):
    rows = make_rows("moods", 16).remove_columns("labels")
    rows = rows.add_column(
        "labels", [[-100, *(i % 2 for i in ids[1:])] for ids in rows["input_ids"]]
    )
    heads = {"tags": {"problem_type": "token_classification", "labels": ["a", "b"], "dropout": 0.0}}
    model = MinBertForMultiTask(make_config(heads))
    trainer = make_trainer(
        model=model,
        own={"tasks": [Task("tags", "token_classification", rows, rows)]},
        max_steps=1,
        gradient_accumulation_steps=accumulation,
        label_smoothing_factor=FACTOR,
    )
    batches = list(trainer.get_train_dataloader())[:accumulation]
    outputs = [model.train()(**batch) for batch in batches]
    logits = torch.cat([each.logits.flatten(0, -2) for each in outputs]).detach()
    labels = torch.cat([batch["labels"].flatten() for batch in batches])

    trainer.train()

    expected = F.cross_entropy(logits, labels, label_smoothing=FACTOR)
    assert trainer.state.log_history[0]["loss"] == pytest.approx(float(expected), abs=1e-4)


def test_several_labels_are_smoothed_in_training_only(make_trainer):
    rows = make_rows("moods", 16)
    vectors = [[float(label == number) for number in range(3)] for label in rows["labels"]]
    rows = rows.remove_columns("labels").add_column("labels", vectors)
    head = {"problem_type": "multi_label_classification", "labels": ["a", "b", "c"]}
    model = MinBertForMultiTask(make_config({"moods": {**head, "dropout": 0.0}}))
    tasks = [Task("moods", "multi_label_classification", rows, rows)]
    trainer = make_trainer(model=model, own={"tasks": tasks}, label_smoothing_factor=FACTOR)

    for training in (True, False):
        loss, logits, labels = compute(trainer, "moods", training=training)
        share = FACTOR if training else 0.0
        smooth = labels * (1 - share) + share / 2
        torch.testing.assert_close(loss, F.binary_cross_entropy_with_logits(logits, smooth))


@pytest.mark.parametrize("task", ["scores", "pairs"])
def test_tasks_without_classes_are_refused(make_trainer, tmp_path, task):
    model = None
    if task == "pairs":
        head = {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "cosine"}
        model = MinBertForMultiTask(make_config({"pairs": {**head, "loss": "mse"}}))

    message = (
        "label_smoothing_factor=0.2 spreads labels over classes, in tasks of the types "
        "classification, multi_label_classification, multi_output_classification, paraphrase, "
        f"token_classification with the loss .*: '{task}' "
    )
    with pytest.raises(ValueError, match=message):
        make_trainer(model=model, own=one_task(task), label_smoothing_factor=FACTOR)
    assert not (tmp_path / "run").exists()
