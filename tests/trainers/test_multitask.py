"""The trainer: gradients, losses, evaluation, and runs that go on as if nothing had happened."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import datasets
import pytest
import torch
import torch.nn.functional as F
from transformers import BertConfig, BertForSequenceClassification, TrainerCallback

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny
from tests.trainers.tiny import (
    PROBLEM_TYPES,
    SIZES,
    Spy,
    change_task,
    collate,
    make_rows,
    make_tasks,
    weights,
)
from trainers import (
    AggregateEarlyStopping,
    LastStep,
    Task,
    TaskCollator,
    TaskSampling,
    TaskTraining,
    last_complete_checkpoint,
)


@pytest.mark.parametrize("limit", [0, 0.01])
@pytest.mark.parametrize("accumulation", [1, 2])
def test_a_loss_weight_scales_the_gradient_and_not_the_logged_loss(
    make_trainer, limit, accumulation
):
    """Clipping does not take the weight back."""

    def run(weight):
        spy = Spy()
        training = TaskTraining(loss_weight=weight)
        own = {"tasks": [Task("pairs", "paraphrase", make_rows("pairs", 32), training=training)]}
        options = {"max_grad_norm": limit, "gradient_accumulation_steps": accumulation}
        trainer = make_trainer(callbacks=[spy], own=own, max_steps=1, **options)
        trainer.train()
        return spy.gradients[0], trainer.state.log_history[0]

    plain, plain_log = run(1.0)
    weighted, weighted_log = run(3.0)

    torch.testing.assert_close(weighted, {name: 3 * value for name, value in plain.items()})
    assert weighted_log["loss_pairs"] == plain_log["loss_pairs"] == pytest.approx(plain_log["loss"])
    assert weighted_log["loss"] == pytest.approx(3 * plain_log["loss"])


@pytest.mark.parametrize("limit", [0, 0.01])
def test_a_step_of_several_tasks_has_the_mean_of_their_weighted_losses(make_trainer, limit):
    """Weights that differ scale the limit of the gradient by their mean."""
    own = {"tasks": make_tasks(pairs={"loss_weight": 3.0}, scores={"loss_weight": 2.0})}
    spy = Spy()
    options = {"gradient_accumulation_steps": 3, "max_steps": 1, "max_grad_norm": limit}
    trainer = make_trainer(callbacks=[spy], own=own, **options)
    trainer.train()

    fresh = make_trainer(own=own, **options)
    batches = itertools.islice(fresh.get_train_dataloader(), 3)
    losses = {batch["task"]: fresh.model(**batch).loss for batch in batches}
    weighted = [losses["moods"], 3 * losses["pairs"], 2 * losses["scores"]]
    total = sum(weighted) / 3
    total.backward()

    expected = {
        name: value.grad for name, value in fresh.model.named_parameters() if value.grad is not None
    }
    if limit:
        norm = torch.stack([value.norm() for value in expected.values()]).norm()
        expected = {name: 2 * limit * value / norm for name, value in expected.items()}
    assert list(losses) == list(SIZES)
    torch.testing.assert_close(spy.gradients[0], expected, rtol=1e-4, atol=1e-6)
    log = trainer.state.log_history[0]
    assert log["loss"] == pytest.approx(total.item(), rel=1e-5)
    for task, loss in losses.items():
        assert log[f"loss_{task}"] == pytest.approx(loss.item(), rel=1e-5)


def test_the_batch_size_of_a_task_defaults_to_the_run(make_trainer):
    trainer = make_trainer(own={"tasks": make_tasks(moods={"batch_size": 7})})

    counts = {"moods": 7, "pairs": 4, "scores": 4}
    assert {task: trainer.train_sampler.count_batch_rows(task) for task in counts} == counts
    batches = itertools.islice(trainer.get_train_dataloader(), 3)
    assert {batch["task"]: len(batch["labels"]) for batch in batches} == counts


@pytest.mark.parametrize("task", list(PROBLEM_TYPES))
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_logits_come_in_the_order_of_the_rows(make_trainer, task, labelled, packed):
    own = {"data_collator": TaskCollator(0, packed=packed)}
    trainer = make_trainer(per_device_eval_batch_size=4, own=own)
    rows = make_rows(task, 11)
    given = rows if labelled else rows.remove_columns("labels")

    logits = trainer.predict_task(task, given)

    single = [
        trainer.model(**collate(task, rows.remove_columns("labels"), [row])).logits[0]
        for row in range(11)
    ]
    torch.testing.assert_close(torch.from_numpy(logits), torch.stack(single).detach())


RESUMABLE = {
    "dropout": 0.2,
    "own": {"steps_per_epoch": 6},
    "save_strategy": "steps",
    "save_steps": 2,
}


@pytest.mark.parametrize(
    ("options", "checkpoints"),
    [
        # within the first epoch, at its end, within the second
        ({"eval_strategy": "epoch", "label_smoothing_factor": 0.1}, (2, 6, 8)),
        ({"gradient_accumulation_steps": 4, "save_steps": 1}, (1, 2)),
        (
            {
                # several passes over a task in an epoch
                "own": {"steps_per_epoch": 9, "tasks": make_tasks(moods={"batch_size": 30})},
                "train_sampling_strategy": "group_by_length",
                "dataloader_num_workers": 1,
            },
            (8, 18),
        ),
        ({"own": {"methods": {"r_drop": 1.0}, "steps_per_epoch": 4}}, (4,)),
        (
            {
                "own": {
                    "methods": {"head_learning_rate": 0.02, "freeze_layers": 1},
                    "steps_per_epoch": 4,  # the second epoch begins within a round
                }
            },
            (4, 6),
        ),
        (
            {
                "own": {"sampling": TaskSampling("proportional"), "steps_per_epoch": 5},
                "gradient_accumulation_steps": 2,
                "max_steps": 9,
            },
            (4, 8),
        ),
        (
            {
                "eval_strategy": "steps",
                "eval_steps": 1,
                "metric_for_best_model": "mean",
                "load_best_model_at_end": True,
            },
            (2,),
        ),
        ({"max_steps": 4, "lr_scheduler_type": "constant"}, (4,)),  # which takes no step more
        ({"dataloader_num_workers": 1, "dataloader_persistent_workers": True}, (4, 6)),
    ],
    ids=[
        *("rows", "accumulation", "lengths", "r_drop", "rates", "drawn", "best", "over"),
        "persistent workers",
    ],
)
def test_a_resumed_run_ends_as_the_one_that_was_not_stopped(
    make_trainer, tmp_path, options, checkpoints
):
    whole = make_trainer(**(RESUMABLE | options))
    whole.train()
    expected = weights(whole)

    for step in checkpoints:
        resumed = make_trainer(**(RESUMABLE | options))
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / f"checkpoint-{step}"))

        assert resumed.state.global_step == whole.state.global_step
        torch.testing.assert_close(weights(resumed), expected, rtol=0, atol=0)


def test_a_checkpoint_that_a_kill_cut_short_is_not_resumed(make_trainer, tmp_path):
    whole = make_trainer(**RESUMABLE)
    whole.train()
    last = last_complete_checkpoint(tmp_path / "run", 1)
    Path(last, "rng_state.pth").unlink()

    with pytest.raises(ValueError, match=r"cannot be used: rng_state\.pth is missing"):
        make_trainer(**RESUMABLE).train(resume_from_checkpoint=last)
    resumed = make_trainer(**RESUMABLE)
    resumed.train(resume_from_checkpoint=True)  # from the one before
    torch.testing.assert_close(weights(resumed), weights(whole), rtol=0, atol=0)


def test_early_stopping_follows_an_aggregate_also_over_a_restart(make_trainer, tmp_path, caplog):
    options = {
        "own": {"steps_per_epoch": 3},
        "learning_rate": 0.0,
        "num_train_epochs": 9,
        "eval_strategy": "epoch",
        "save_strategy": "epoch",
        "metric_for_best_model": "leaderboard",
        "load_best_model_at_end": True,
    }
    trainer = make_trainer(callbacks=[AggregateEarlyStopping(2)], **options)
    trainer.train()
    assert trainer.state.global_step == 9  # one evaluation sets the mark, two do not pass it
    assert trainer.state.best_global_step == 3
    assert "early stopping" not in caplog.text
    steps = []

    for checkpoint, patience in (("checkpoint-6", 2), ("checkpoint-9", 2), ("checkpoint-6", 4)):
        resumed = make_trainer(callbacks=[AggregateEarlyStopping(patience)], **options)
        resumed.train(resume_from_checkpoint=str(tmp_path / "run" / checkpoint))
        steps.append(resumed.state.global_step)

    resumed = make_trainer(callbacks=[AggregateEarlyStopping(2)], eval_on_start=True, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-6"))
    steps.append(resumed.state.global_step)

    # the counter is that of the checkpoint, the patience is not
    assert steps == [9, 9, 15, 9]


@pytest.mark.parametrize(
    ("tasks", "arguments", "message"),
    [
        ([], {}, "tasks: none; expected one or more"),
        (make_tasks()[:1] * 2, {}, "tasks: moods, moods; expected .* different names"),
        (
            *(change_task("pairs", evaluation=None), {}),
            "pairs without evaluation rows: give them to all of moods, pairs, scores, or to none",
        ),
        (
            *(change_task("pairs", problem_type="similarity"), {}),
            r"'pairs': problem_type='similarity', but the model has a head for 'paraphrase'",
        ),
        (None, {"train_sampling_strategy": "sequential"}, "'sequential' is not supported"),
        (None, {"fp16": True}, "fp16=True .* on a CPU"),
        (None, {"fp16_full_eval": True}, "fp16_full_eval=True"),
        (None, {"auto_find_batch_size": True}, "auto_find_batch_size=True"),
        (None, {"eval_do_concat_batches": False}, "eval_do_concat_batches=False"),
        (None, {"include_for_metrics": ["loss"]}, r"include_for_metrics=\['loss'\]"),
        (None, {"label_names": ["gold"]}, r"label_names=\['gold'\]"),
        (None, {"average_tokens_across_devices": False}, "average_tokens_across_devices=False"),
        (None, {"dataloader_drop_last": True}, "dataloader_drop_last=True"),
        (None, {"dataloader_in_order": False}, "dataloader_in_order=False .* the order of batches"),
        (None, {"accelerator_config": {"dispatch_batches": True}}, "would mix tasks"),
    ],
)
def test_tasks_and_arguments_must_fit(make_trainer, tasks, arguments, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(own={} if tasks is None else {"tasks": tasks}, **arguments)


def test_models_whose_outputs_or_weights_have_no_names_are_refused(make_trainer):
    model = tiny.make_model()
    with pytest.raises(ValueError, match=r"compile it in place, by model\.compile\(\)"):
        make_trainer(model=torch.compile(model, backend="eager"))
    model.config.return_dict = False
    with pytest.raises(ValueError, match=r"config\.return_dict is False"):
        make_trainer(model=model)


def test_names_of_labels_in_another_order_are_refused(make_trainer):
    names, (moods, *others) = ["good", "so-so", "bad"], make_tasks()
    rows = moods.train.cast_column("labels", datasets.ClassLabel(names=names))

    with pytest.raises(ValueError, match="its labels are numbers of good, so-so, bad, in this"):
        make_trainer(own={"tasks": [replace(moods, train=rows), *others]})

    aligned = rows.align_labels_with_mapping({"bad": 0, "so-so": 1, "good": 2}, "labels")
    make_trainer(own={"tasks": [replace(moods, train=aligned), *others]})

    head = {"problem_type": "classification", "labels": ["bad", "so-so", "good"]}
    model = MinBertForMultiTask(tiny.make_config({"moods": head}))
    trainer = make_trainer(own={"tasks": [moods]}, model=model)
    with pytest.raises(ValueError, match="the test set of task 'moods': its labels are numbers of"):
        trainer.predict(rows)


class OwnMean(BertForSequenceClassification):
    """A classifier whose loss is written as people do: of no label it is NaN, and its gradient."""

    def forward(self, labels=None, **inputs):
        outputs = super().forward(**inputs)
        if labels is not None:
            known = labels != -100
            each = F.cross_entropy(outputs.logits, labels, reduction="none")
            outputs.loss = (each * known).sum() / known.sum()
        return outputs


def make_classifier(kind=BertForSequenceClassification, **options):
    """Make a small classifier of transformers."""
    torch.manual_seed(0)
    sizes = {"vocab_size": tiny.VOCABULARY, "hidden_size": 12, "intermediate_size": 13}
    sizes |= {"num_hidden_layers": 1, "num_attention_heads": 3, "max_position_embeddings": 17}
    return kind(BertConfig(**sizes, **options))


@pytest.mark.parametrize("kind", [BertForSequenceClassification, OwnMean])
def test_batches_without_a_label_cost_a_model_of_transformers_nothing(make_trainer, kind):
    (moods, *_) = make_tasks()
    labels = [-100 if number % 2 else label for number, label in enumerate(moods.train["labels"])]
    rows = moods.train.remove_columns("labels").add_column("labels", labels)
    trainer = make_trainer(
        own={"tasks": [replace(moods, train=rows, evaluation=rows)]},
        model=make_classifier(kind, num_labels=3),
        per_device_train_batch_size=1,
        per_device_eval_batch_size=1,
        max_steps=12,
    )

    trainer.train()  # does not diverge

    found = trainer.evaluate(rows)
    known = rows.filter(lambda row: row["labels"] >= 0)
    assert found["eval_moods_loss"] == pytest.approx(trainer.evaluate(known)["eval_moods_loss"])
    with pytest.raises(ValueError, match="no evaluation rows of moods: give some to the Task"):
        trainer.evaluate(rows.select([]))


def test_rows_that_are_not_selected_are_not_read():
    rows = tiny.make_rows("moods", 40)
    missing = rows.remove_columns("labels").add_column("labels", [None, *rows["labels"][1:]])

    task = Task("moods", "classification", missing.filter(lambda row: row["labels"] is not None))

    assert task.train["labels"][:] == rows["labels"][1:]


def test_the_losses_of_an_interrupted_training_are_not_logged_by_the_next(make_trainer):
    trainer = make_trainer(max_steps=3, logging_steps=3)
    trainer._losses._sums["loss_moods"] = torch.tensor(1e6)
    trainer._losses._counts["loss_moods"] = 1

    trainer.train()

    assert trainer.state.log_history[0]["loss_moods"] < 10


def test_a_paraphrase_of_one_number_is_refused(make_trainer):
    tasks = [next(task for task in make_tasks() if task.name == "pairs")]
    with pytest.raises(ValueError, match="load it with num_labels=2, or make the task a simil"):
        make_trainer(own={"tasks": tasks}, model=make_classifier(num_labels=1))


def test_the_best_weights_of_a_resumed_run_are_its_own(tmp_path):
    options = {"eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps"}
    options |= {"save_steps": 1, "load_best_model_at_end": True, "metric_for_best_model": "mean"}
    for name, rate in (("one", 0.01), ("two", 0.02)):
        folder = str(tmp_path / name)
        tiny.make_trainer(folder, max_steps=2, learning_rate=rate, **options).train()
    checkpoint = str(tmp_path / "one" / "checkpoint-2")

    copied = shutil.copytree(checkpoint, tmp_path / "away" / "checkpoint-3")

    for start in (checkpoint, copied):  # whose state names the best one, elsewhere
        with pytest.raises(ValueError, match="choose another output_dir"):
            tiny.make_trainer(tmp_path / "two", max_steps=3, **options).train(str(start))
    trainer = tiny.make_trainer(tmp_path / "three", max_steps=2, **options)
    trainer.train(checkpoint)
    assert trainer.state.best_model_checkpoint.startswith(str(tmp_path / "one"))


def test_the_workers_of_a_loader_start_as_they_are_told_to(make_trainer):
    options = {"dataloader_num_workers": 1, "dataloader_multiprocessing_context": "spawn"}

    loader = make_trainer(**options).get_train_dataloader()

    assert loader.multiprocessing_context.get_start_method() == "spawn"


@pytest.mark.parametrize("interval", [3, 500, 0.4])
def test_the_last_step_is_logged_and_evaluated(make_trainer, interval):
    intervals = {"eval_steps": interval, "logging_steps": interval, "save_steps": interval}
    trainer = make_trainer(callbacks=[LastStep()], max_steps=5, eval_strategy="steps", **intervals)

    trainer.train()

    for name in ("loss", "eval_mean"):
        steps = [entry["step"] for entry in trainer.state.log_history if name in entry]
        assert steps[-1] == 5, name
        assert len(steps) == len(set(steps)), name


def test_the_last_step_is_not_logged_where_the_strategy_is_another(make_trainer):
    trainer = make_trainer(
        callbacks=[LastStep()], max_steps=5, eval_strategy="no", logging_strategy="no"
    )

    trainer.train()

    assert not any({"loss", "eval_mean"} & set(entry) for entry in trainer.state.log_history)


@pytest.mark.parametrize("stage", ["train", "evaluate"])
@pytest.mark.parametrize("bf16", [False, True])
def test_every_trainer_of_a_model_has_its_own_precision(tmp_path, bf16, stage):
    model = tiny.make_trainer(tmp_path).model
    seen = []
    layer = model.bert.encoder.layer[0].intermediate.dense
    layer.register_forward_hook(lambda *given: seen.append(given[-1].dtype))
    getattr(tiny.make_trainer(tmp_path / "first", model=model, bf16=not bf16, max_steps=1), stage)()
    seen.clear()

    getattr(tiny.make_trainer(tmp_path / "second", model=model, bf16=bf16, max_steps=1), stage)()

    assert {*seen} == {torch.bfloat16 if bf16 else torch.float32}


def test_an_evaluation_of_another_trainer_leaves_the_precision_of_a_training(tmp_path):
    model = tiny.make_trainer(tmp_path).model
    seen = []
    layer = model.bert.encoder.layer[0].intermediate.dense
    layer.register_forward_hook(lambda *given: seen.append((model.training, given[-1].dtype)))
    first, second = (
        tiny.make_trainer(tmp_path / str(bf16), model=model, bf16=bf16, max_steps=2)
        for bf16 in (True, False)
    )

    class Evaluate(TrainerCallback):
        def on_step_end(self, *_, **__):
            second.evaluate()

    first.add_callback(Evaluate())
    first.train()
    second.evaluate()
    first.evaluate()
    second.train()
    first.evaluate()

    kinds = [key for key, _ in itertools.groupby(seen)]
    half, full = torch.bfloat16, torch.float32
    expected = [(True, half), (False, full)] * 2 + [(False, half), (True, full), (False, half)]
    assert kinds == expected
