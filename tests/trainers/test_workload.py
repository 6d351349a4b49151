"""The size of a training, announced before it starts, equals what the training does."""

import pytest
from transformers import TrainerCallback

from minbert_cli.console import measure_workload
from tests.trainers import tiny
from tests.trainers.texts import CLS, FIRST, MASK, SEP, VOCABULARY, Pairs
from trainers import (
    AggregateEarlyStopping,
    LastStep,
    Masking,
    MultiTaskTrainer,
    SamplingArguments,
    Task,
    list_batches,
)

from .test_text import make_model

EVALUATED_ROWS = 3 * 11


class Counting(MultiTaskTrainer):
    """Counts the rows and the tasks of training batches, and the rows of evaluations."""

    def __init__(self, *args, **kwargs):
        self.rows, self.evaluated, self.steps = {}, 0, []
        super().__init__(*args, **kwargs)

    def training_step(self, model, inputs, *args, **kwargs):
        self.steps.append([batch["task"] for batch in list_batches(inputs)])
        return super().training_step(model, inputs, *args, **kwargs)

    def compute_loss(self, model, inputs, *args, **kwargs):
        if model.training:
            task, rows = inputs["task"], len(inputs["labels"])
            self.rows[task] = self.rows.get(task, 0) + rows
        return super().compute_loss(model, inputs, *args, **kwargs)


class Evaluations(TrainerCallback):
    """Notes the steps of evaluations of all tasks."""

    def __init__(self):
        self.steps = []

    def on_evaluate(self, args, state, control, metrics, **kwargs):  # noqa: ARG002  its signature
        if "eval_mean" in metrics:
            self.steps.append(state.global_step)


def sampling(name):
    return {"sampling": SamplingArguments(task_sampling=name).make_sampling()}


@pytest.mark.parametrize(
    ("own", "arguments"),
    [
        ({}, {"eval_strategy": "epoch"}),
        ({}, {"num_train_epochs": 1.5, "eval_strategy": "epoch"}),
        ({}, {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 3}),
        ({}, {"max_steps": 6, "eval_strategy": "steps", "eval_steps": 0.5}),
        ({}, {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 2, "eval_delay": 4}),
        ({}, {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 2, "eval_delay": 9}),
        ({}, {"max_steps": 30, "eval_strategy": "epoch", "eval_delay": 1.2}),
        ({}, {"max_steps": 2, "eval_strategy": "no", "eval_on_start": True}),
        ({}, {"gradient_accumulation_steps": 4, "eval_strategy": "epoch"}),
        ({"steps_per_epoch": 5}, {"gradient_accumulation_steps": 3, "max_steps": 7}),
        ({"steps_per_epoch": "longest"}, {"num_train_epochs": 1}),
        (sampling("proportional") | {"steps_per_epoch": 5}, {"max_steps": 8}),
        (sampling("annealed"), {"gradient_accumulation_steps": 2}),
        (sampling("mixed"), {"eval_strategy": "epoch"}),
        (sampling("mixed"), {"max_steps": 5, "gradient_accumulation_steps": 2}),
        ({"tasks": tiny.make_tasks(moods={"max_tokens_per_batch": 40})}, {"max_steps": 41}),
    ],
)
def test_steps_rows_and_evaluations_are_those_of_the_training(
    tmp_path, monkeypatch, own, arguments
):
    monkeypatch.setattr(tiny, "MultiTaskTrainer", Counting)
    seen = Evaluations()
    trainer = tiny.make_trainer(tmp_path, own=own, callbacks=[LastStep(), seen], **arguments)
    workload = measure_workload(trainer)

    trainer.train()

    assert workload.steps == trainer.state.global_step
    assert workload.epochs == pytest.approx(trainer.state.epoch)
    assert workload.count_rows(workload.steps) == dict.fromkeys(trainer.tasks, 0) | trainer.rows
    assert workload.count_micro_steps(workload.steps) == len(trainer.steps)
    assert workload.list_tasks(1, len(trainer.steps) - 1) == trainer.steps[1:]
    assert list(workload.evaluated_steps) == seen.steps
    assert sum(workload.evaluation_rows.values()) == EVALUATED_ROWS


def test_without_the_last_step_a_delayed_evaluation_is_left_out(tmp_path):
    seen = Evaluations()
    arguments = {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 2, "eval_delay": 9}
    trainer = tiny.make_trainer(tmp_path, callbacks=[seen], **arguments)

    assert measure_workload(trainer).evaluated_steps == ()
    trainer.train()
    assert seen.steps == []


def test_the_rows_of_a_text_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "MultiTaskTrainer", Counting)
    masking = Masking(MASK, (0, CLS, SEP, MASK), (), range(FIRST, VOCABULARY), seed=7)
    task = Task("text", "next_sentence", Pairs(50), Pairs(9, seed=1), masking=masking)
    own = {"tasks": [task], "steps_per_epoch": "longest", "max_tokens_per_batch": 60}
    trainer = tiny.make_trainer(tmp_path, model=make_model("next_sentence"), own=own)
    workload = measure_workload(trainer)

    trainer.train()

    assert workload.steps == trainer.state.global_step == len(trainer.steps)
    assert workload.count_rows(workload.steps) == trainer.rows
    assert workload.evaluation_rows == {"text": 9}


def test_it_is_described_in_a_line(tmp_path):
    arguments = {"max_steps": 1611, "eval_strategy": "steps", "eval_steps": 400}
    final = {"moods": {"validation": range(1200), "test": range(34)}}
    trainer = tiny.make_trainer(tmp_path, **arguments)

    assert measure_workload(trainer, final).describe() == (
        "1,611 steps (76.71 epochs, 6,444 rows), 5 evaluations of 33 rows, predictions for 1,234 "
        "rows at the end (validation, test), on cpu in float32"
    )


def test_one_of_each_is_no_plural_and_an_early_stop_is_named(tmp_path):
    stop = AggregateEarlyStopping(2)
    own = {"steps_per_epoch": 1}
    arguments = {"num_train_epochs": 1, "per_device_train_batch_size": 1, "eval_strategy": "no"}
    trainer = tiny.make_trainer(tmp_path, own=own, callbacks=[stop], **arguments, bf16=True)

    assert measure_workload(trainer).describe() == (
        "at most 1 step (1 epoch, 1 row), no evaluations, on cpu in bfloat16"
    )
