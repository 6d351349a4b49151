"""Training of tasks that share rows: one pass, and the losses of all of them."""

import datasets
import numpy as np
import pytest
import torch
from torch.testing import assert_close
from transformers import TrainingArguments

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny
from trainers import (
    Distillation,
    GradientSurgery,
    Mixed,
    MultiTaskTrainer,
    RDrop,
    Smart,
    SmartConfig,
    Task,
    TaskTraining,
)
from trainers.data.rows import share_rows

COUNT = 24
NAMES = ("mood", "size")
DEFAULTS = {
    "max_steps": 3,
    "per_device_train_batch_size": 8,
    "learning_rate": 1e-2,
    "save_strategy": "no",
}
TYPES = {"mood": "classification", "size": "regression", "same": "classification"}


def make_model(dropout=0.0):
    torch.manual_seed(0)
    tasks = {
        "mood": {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
        "size": {"problem_type": "regression"},
        "same": {"problem_type": "classification", "labels": ["no", "yes"]},
    }
    config = tiny.make_config({k: {**v, "dropout": dropout} for k, v in tasks.items()}, dropout)
    return MinBertForMultiTask(config)


def make_rows(task, places=range(COUNT)):
    """Rows with the texts of these places; those of all tasks are equal."""
    generator = np.random.default_rng(3)
    ids = [
        generator.integers(1, tiny.VOCABULARY, size=3 + place % 7).tolist()
        for place in range(COUNT)
    ]
    labels = {
        "mood": generator.integers(0, 3, size=COUNT).tolist(),
        "size": generator.normal(size=COUNT).tolist(),
        "same": generator.integers(0, 2, size=COUNT).tolist(),
    }[task]
    return datasets.Dataset.from_dict(
        {
            "input_ids": [ids[place] for place in places],
            "token_type_ids": [[0] * len(ids[place]) for place in places],
            "labels": [labels[place] for place in places],
            "length": [len(ids[place]) for place in places],
        }
    )


def make_trainer(
    folder, *, rows=None, training=None, model=None, methods=(), own=None, names=NAMES, **arguments
):
    rows, training = rows or {}, training or {}
    args = TrainingArguments(
        folder,
        report_to=[],
        use_cpu=True,
        logging_steps=1,
        disable_tqdm=True,
        **DEFAULTS | arguments,
    )
    tasks = [
        Task(
            name,
            TYPES[name],
            rows.get(name, make_rows(name)),
            make_rows(name),
            training=TaskTraining(
                **{"shares_rows_with": None if name == "mood" else "mood"} | training.get(name, {})
            ),
        )
        for name in names
    ]
    own = own or {}
    return MultiTaskTrainer(model or make_model(), args, tasks, methods=list(methods), **own)


def train(folder, **options):
    trainer = make_trainer(folder, **options)
    trainer.train()
    return trainer


def logs_of(trainer):
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def test_a_step_is_that_of_a_plain_loop_over_the_summed_losses(tmp_path):
    trainer = make_trainer(
        tmp_path,
        training={"size": {"loss_weight": 0.5}},
        max_grad_norm=0.0,
        weight_decay=0.0,
        lr_scheduler_type="constant",
    )
    batches = list(trainer.get_train_dataloader())
    trainer.train()

    model = make_model().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.0)
    losses = []
    for batch in batches:
        inputs = {k: v for k, v in batch.items() if k not in ("task", "labels", "labelled_rows")}
        both = [
            model(**inputs, task=name, labels=batch["labels"][name]).loss
            for name in ("mood", "size")
        ]
        loss = both[0] + 0.5 * both[1]
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    assert [entry["loss"] for entry in logs_of(trainer)] == pytest.approx(losses, rel=1e-3)
    assert_close(trainer.model.state_dict(), model.state_dict(), rtol=1e-4, atol=1e-5)


def test_each_step_runs_the_encoder_once_and_logs_both_losses(tmp_path):
    model, passes = make_model(), []
    model.bert.register_forward_pre_hook(lambda module, _: passes.append(module.training))

    trainer = train(tmp_path, model=model)

    assert sum(passes) == 3
    assert all({"loss_mood", "loss_size"} <= entry.keys() for entry in logs_of(trainer))
    assert trainer.train_sampler.sizes == {"mood": COUNT}
    metrics = trainer.evaluate()
    assert {"eval_mood_accuracy", "eval_size_pearson"} <= metrics.keys()


def test_a_row_that_one_task_lacks_is_trained_for_the_other(tmp_path):
    few = {"mood": make_rows("mood", range(4, COUNT)), "size": make_rows("size", range(16))}
    trainer = make_trainer(tmp_path, rows=few)

    (batches,) = [list(trainer.get_train_dataloader())]

    found = {name: sum(len(batch["labels"].get(name, ())) for batch in batches) for name in TYPES}
    assert found == {"mood": 20, "size": 16, "same": 0}
    for batch in batches:
        for name, rows in batch["labelled_rows"].items():
            assert len(rows) == len(batch["labels"][name]) < 8
    trainer.train()


def test_labels_stay_with_their_texts():
    order = np.random.default_rng(0).permutation(COUNT)
    shared = share_rows({"mood": make_rows("mood"), "size": make_rows("size", order[:20])})

    wanted = {tuple(row["input_ids"]): row["labels"] for row in make_rows("size", order[:20])}
    for place, row in enumerate(shared.rows):
        label = wanted.get(tuple(row["input_ids"]))
        assert shared.labels["size"].is_given[place] == (label is not None)
        if label is not None:
            assert shared.labels["size"].values[place] == pytest.approx(label)


def test_repeated_texts_are_paired_in_their_order():
    mood, size = (make_rows(name, [0, 0, 1]) for name in ("mood", "size"))
    size = size.remove_columns("labels").add_column("labels", [1.0, 2.0, 3.0])

    shared = share_rows({"mood": mood, "size": size})

    assert len(shared.rows) == 3
    assert shared.labels["size"].values.tolist() == [1.0, 2.0, 3.0]


def test_rows_with_a_format_are_read_as_others(tmp_path):
    plain = train(tmp_path / "plain")
    formatted = {name: make_rows(name).with_format("torch") for name in ("mood", "size")}

    other = train(tmp_path / "other", rows=formatted)

    assert_close(other.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)


def test_r_drop_compares_two_passes_for_all_tasks_together(tmp_path):
    model, passes = make_model(dropout=0.1), []
    model.bert.register_forward_pre_hook(lambda module, _: passes.append(module.training))

    trainer = train(tmp_path, model=model, methods=[RDrop(1.0)])

    assert sum(passes) == 6
    logged = logs_of(trainer)[0]
    assert logged["rdrop_divergence_mood"] > 0
    assert logged["rdrop_divergence_size"] > 0


def test_gradient_surgery_takes_tasks_that_share_rows_as_one(tmp_path):
    trainer = make_trainer(
        tmp_path,
        methods=[GradientSurgery("pcgrad")],
        own={"sampling": Mixed()},
        names=TYPES,
        training={"same": {"shares_rows_with": None}},
    )

    trainer.train()

    assert trainer.methods[0].merger.targets.shape == (1, 2, 2)
    assert {"loss_mood", "loss_size", "loss_same"} <= logs_of(trainer)[0].keys()


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_an_interrupted_run_continues_bit_for_bit(tmp_path, strategy):
    options = {"max_steps": 5, "train_sampling_strategy": strategy}
    options |= {"save_strategy": "steps", "save_steps": 2}
    whole = train(tmp_path / "whole", model=make_model(dropout=0.1), **options)
    part = make_trainer(tmp_path / "part", model=make_model(dropout=0.1), **options)

    part.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))

    assert_close(part.model.state_dict(), whole.model.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"training": {"size": {"shares_rows_with": "moods"}}}, "unknown task 'moods'"),
        ({"training": {"mood": {"shares_rows_with": "size"}}}, "which itself has"),
        ({"training": {"size": {"shares_rows_with": "size"}}}, "names the task itself"),
        ({"training": {"size": {"batch_size": 4}}}, "in the batches of 'mood'; leave it out"),
        ({"training": {"mood": {"oversample": "balanced"}}}, "labels of other tasks, too"),
        ({"own": {"data_collator": lambda rows: rows}}, "a data_collator of your own"),
        ({"methods": [Smart(SmartConfig())]}, "smart perturbs the input of one task"),
        (
            {"methods": [Distillation({"mood": np.zeros((COUNT, 3))})]},
            "teachers have outputs for the rows of one task",
        ),
        (
            {"rows": {"size": make_rows("mood", [0]).map(lambda _: {"input_ids": [1, 1]})}},
            "same texts",
        ),
    ],
)
def test_what_does_not_go_with_shared_rows_is_refused(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, **options)


@pytest.mark.parametrize(("rows", "steps"), [(8, 1), (4, 2), (2, 4)])
def test_a_rare_label_counts_equally_in_all_micro_batches(tmp_path, rows, steps):
    one = {"mood": make_rows("mood", range(8)), "size": make_rows("size", [2])}
    arguments = {"per_device_train_batch_size": rows, "gradient_accumulation_steps": steps}

    trainer = train(tmp_path, rows=one, max_steps=1, max_grad_norm=0.0, optim="sgd", **arguments)

    whole = train(
        tmp_path,
        rows=one,
        max_steps=1,
        max_grad_norm=0.0,
        optim="sgd",
        per_device_train_batch_size=8,
    )
    assert_close(trainer.model.state_dict(), whole.model.state_dict(), rtol=1e-5, atol=1e-6)


def test_tasks_without_common_rows_share_those_of_a_third():
    parts = {"mood": range(12), "same": range(12, 24), "size": range(24)}

    shared = share_rows({name: make_rows(name, places) for name, places in parts.items()})

    assert len(shared.rows) == 24
