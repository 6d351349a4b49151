"""Oversampling: the shares of classes, their repetitions, and the same rows after a restart."""

from collections import Counter
from functools import reduce
from operator import add

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard
from transformers import TrainingArguments

from tests.trainers import tiny
from trainers import Task, TaskBatchSampler, TaskDataset, TaskTraining
from trainers.data.sampling.streams import ClassShares
from trainers.data.sampling.task_sampling import RoundRobin
from trainers.task import find_rows
from trainers.training.setup import make_sampler as make_task_sampler, most_tokens

CLASSES = np.asarray([0] * 50 + [1] * 7 + [2] * 13)
NAMES = ("common", "rare", "some")
SHARES = {"common": 0.5, "rare": 0.2, "some": 0.3}
OFFSET = 11  # rows of another task, which come first


def make_shares(wanted="balanced", classes=CLASSES, names=NAMES):
    return ClassShares("task 'it'", classes, names, wanted)


def make_sampler(wanted="balanced", ranks=1, batch=6, **options):
    return TaskBatchSampler(
        {"other": OFFSET, "it": len(CLASSES)},
        {"other": 3, "it": batch},
        num_replicas=ranks,
        oversampled={"it": make_shares(wanted)},
        steps_per_epoch="longest",
        **options,
    )


def rows_of(sampler, epoch=0):
    """The rows of the oversampled task in an epoch, in order."""
    sampler.set_epoch(epoch)
    return [row - OFFSET for batch in sampler for row in batch if row >= OFFSET]


@pytest.mark.parametrize(
    ("wanted", "counts"),
    [("balanced", (50, 50, 50)), (SHARES, (50, 20, 30)), ({0: 0.7, 1: 0.1, 2: 0.2}, (51, 7, 14))],
)
def test_a_pass_is_the_smallest_with_the_wanted_shares_and_every_row(wanted, counts):
    plan = make_shares(wanted).plan()

    assert plan.counts == counts
    for pass_index in range(3):
        drawn = plan.draw(pass_index)
        assert np.bincount(CLASSES[drawn]).tolist() == list(counts)
        assert set(drawn) == set(range(len(CLASSES)))


def test_every_row_of_a_class_is_repeated_equally_often_or_once_more():
    plan = make_shares(SHARES).plan()

    for pass_index in range(5):
        repeats = np.bincount(plan.draw(pass_index))
        for number, count in enumerate(plan.counts):
            own = repeats[number == CLASSES]
            assert set(own) <= {count // len(own), -(-count // len(own))}
    assert plan.most_repeats == 3


def test_each_pass_and_each_seed_repeats_other_rows():
    plan = make_shares(SHARES).plan((0, 1))
    draws = [plan.draw(0), plan.draw(1), make_shares(SHARES).plan((1, 1)).draw(0)]

    extra = [tuple(np.flatnonzero(np.bincount(drawn) == 3)) for drawn in draws]

    assert len(set(extra)) == 3
    assert np.array_equal(plan.draw(0), make_shares(SHARES).plan((0, 1)).draw(0))
    # all rows have their turn
    often = np.sum([np.bincount(plan.draw(number)) for number in range(200)], axis=0)
    rare = often[CLASSES == 1] / 200
    assert rare == pytest.approx([20 / 7] * 7, abs=0.15)


@pytest.mark.parametrize("ranks", [1, 2])
def test_every_epoch_has_whole_passes_with_exact_shares_on_all_ranks(ranks):
    sampler = make_sampler(SHARES, ranks)
    unit = 6 * ranks

    size = sampler.oversampling["it"].size
    assert size % unit == 0
    assert 100 <= size < 100 + unit
    for epoch in range(4):
        rows = rows_of(sampler, epoch)
        assert len(rows) == size
        counts = Counter(CLASSES[rows].tolist())
        assert all(abs(counts[n] - size * share) < 1 for n, share in enumerate(SHARES.values()))
    assert sampler.shares()["it"].passes == 1
    assert sampler.count_task_rows(3 * sampler.steps)["it"] == 3 * size
    shards = [list(BatchSamplerShard(sampler, ranks, rank)) for rank in range(ranks)]
    assert all(len(shard) == sampler.steps for shard in shards)


def test_two_ranks_see_the_rows_of_one_with_twice_the_batch():
    one, two = make_sampler(batch=6), make_sampler(batch=3, ranks=2)

    for epoch in range(3):
        assert rows_of(one, epoch) == rows_of(two, epoch)


def test_an_epoch_has_the_same_rows_whether_or_not_the_earlier_ones_were_read():
    whole = make_sampler(SHARES)
    first, second = rows_of(whole, 0), rows_of(whole, 1)

    assert rows_of(make_sampler(SHARES), 1) == second != first
    assert rows_of(make_sampler(SHARES, seed=1), 1) != second


@pytest.mark.parametrize("ranks", [1, 2])
def test_passes_of_token_batches_have_exact_shares(ranks):
    tokens = np.random.default_rng(0).integers(3, 30, len(CLASSES))
    sampler = TaskBatchSampler(
        {"it": len(CLASSES)},
        {},
        num_replicas=ranks,
        oversampled={"it": make_shares()},
        token_budgets={"it": 90},
        tokens={"it": tokens},
        steps_per_epoch=200,
    )

    batches = list(sampler)
    rows = [row for batch in batches for row in batch]

    assert sum(tokens[batch].sum() <= 90 for batch in batches) == len(batches)
    for first in (0, 150):
        assert np.bincount(CLASSES[rows[first : first + 150]]).tolist() == [50, 50, 50]


def test_rows_of_similar_length_are_repeated_too():
    tokens = np.random.default_rng(0).integers(3, 300, len(CLASSES))
    lengths = {"other": [1] * OFFSET, "it": tokens}

    grouped = make_sampler(lengths=lengths)

    assert np.bincount(CLASSES[rows_of(grouped)]).tolist() == [50, 50, 50]
    plain = make_sampler()
    spread = [
        np.mean(
            [np.ptp(tokens[np.asarray(batch) - OFFSET]) for batch in each if batch[0] >= OFFSET]
        )
        for each in (grouped, plain)
    ]
    assert spread[0] < spread[1] / 2


def test_the_table_tells_the_rows_of_each_class():
    table = make_sampler(SHARES, batch=10).describe()

    assert table.splitlines()[-1] == (
        "it oversampled: a pass has 100 rows, made from 70 training rows: 'common' 50 from 50 "
        "(50.0 %), 'rare' 20 from 7 (20.0 %), 'some' 30 from 13 (30.0 %)"
    )
    assert " 70 " in next(line for line in table.splitlines() if line.startswith("it "))


def test_the_fixed_shapes_of_a_compiled_model_hold_the_longest_rows_several_times():
    tasks = {"moods": one_task(oversample={0: 0.05, 1: 0.9, 2: 0.05})["tasks"][0]}
    problems = {"moods": tasks["moods"].make_problem()}
    args = TrainingArguments(per_device_train_batch_size=4, use_cpu=True)
    rows = find_rows(tasks.values())
    sampler = make_task_sampler(tasks, rows, problems, args, "longest", None, RoundRobin())
    lengths = np.asarray(tasks["moods"].train["length"])

    bound = most_tokens("moods", tasks["moods"].train, sampler)

    assert sampler.oversampling["moods"].most_repeats > 10
    assert bound == 4 * lengths.max()
    assert max(lengths[batch].sum() for batch in sampler) <= bound


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("equal", "oversample='equal'; expected 'balanced', or the share of each label"),
        ({}, "oversample={}; expected"),
        ({"a": 0.5, "b": 0.4}, r"the shares sum up to 0\.9; they must be 1"),
        ({"a": 1.5, "b": -0.5}, "a=1.5; expected a share between 0 and 1"),
        ({"a": "half"}, "a='half'; expected a share"),
        ({True: 0.5, False: 0.5}, "YAML reads the label True of an unquoted word; put the label"),
    ],
)
def test_shares_that_cannot_be_meant_are_refused(wanted, message):
    with pytest.raises(ValueError, match=message):
        TaskTraining(oversample=wanted)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"common": 0.5, "rar": 0.2, "some": 0.3}, "unknown label 'rar'"),
        ({"common": 0.5, "rare": 0.5}, "oversample has no share of 'some'; give one to every"),
        ({"common": 0.5, 0: 0.2, "some": 0.3}, "oversample: 0: given twice"),
    ],
)
def test_labels_must_be_those_of_the_rows(wanted, message):
    with pytest.raises(ValueError, match=message):
        make_shares(wanted)


def test_a_class_without_rows_cannot_be_repeated():
    with pytest.raises(ValueError, match="no training row has the label 'none'; add such rows"):
        make_shares(names=(*NAMES, "none"))
    with pytest.raises(ValueError, match="oversample needs a label for every training row"):
        make_shares(classes=np.asarray([0, 1, 2, -100]))


def test_ten_shares_of_a_tenth_are_a_whole():
    wanted = {f"label{number}": 0.1 for number in range(10)}
    assert reduce(add, wanted.values()) != 1  # for floating point, except in `sum` of Python 3.12

    assert TaskTraining(oversample=wanted).oversample == wanted


def test_tasks_without_classes_are_refused():
    with pytest.raises(ValueError, match="types classification, ordinal, paraphrase; leave"):
        Task("scores", "similarity", training=TaskTraining(oversample="balanced"))


# Training


def class_counts(trainer, epoch):
    sampler, dataset = trainer.train_sampler, trainer.train_dataset
    sampler.set_epoch(epoch)
    assert isinstance(dataset, TaskDataset)
    rows = [row for batch in sampler for row in dataset.__getitems__(batch)]
    return Counter(row["labels"] for row in rows if row["task"] == "moods")


def one_task(**training):
    train = tiny.make_rows("moods", 40)
    return {
        "tasks": [
            Task(
                "moods",
                "classification",
                train,
                tiny.make_rows("moods", 11),
                TaskTraining(**training),
            )
        ]
    }


def test_a_trainer_sees_equally_many_rows_of_each_class(make_trainer):
    trainer = make_trainer(own=one_task(oversample="balanced", batch_size=3))
    given = Counter(tiny.make_rows("moods", 40)["labels"])
    size = trainer.train_sampler.oversampling["moods"].size

    most = max(given.values())
    assert len(set(given.values())) > 1
    for epoch in range(2):
        assert set(class_counts(trainer, epoch).values()) == {most}
    assert size == 3 * most
    trainer.train()
    assert trainer.state.max_steps == 2 * most  # batches of 3 rows
    assert "'good'" in trainer.describe_training()


def test_an_interrupted_run_equals_an_uninterrupted_one(tmp_path):
    options = {"save_strategy": "steps", "save_steps": 5, "dropout": 0.1}
    own = one_task(oversample={"bad": 0.2, "so-so": 0.5, "good": 0.3})
    whole = tiny.make_trainer(tmp_path / "whole", own=own, **options)
    whole.train()

    resumed = tiny.make_trainer(tmp_path / "resumed", own=own, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-15"))

    first, second = tiny.weights(whole), tiny.weights(resumed)
    assert all(first[name].equal(second[name]) for name in first)
