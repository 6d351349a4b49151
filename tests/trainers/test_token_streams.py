"""Batches by tokens: no rank has more than the budget, and every row comes once a pass."""

import numpy as np
import pytest
from accelerate.data_loader import BatchSamplerShard

from trainers import TaskBatchSampler

SIZES = {"a": 211, "b": 90, "c": 7}
STARTS = {"a": 0, "b": 211, "c": 301}
TOKENS = {
    task: np.random.default_rng(index).integers(3, 40, size=size)
    for index, (task, size) in enumerate(SIZES.items())
}
ALL_TOKENS = np.concatenate(list(TOKENS.values()))
BUDGETS = {"a": 200, "b": 90}  # the other task has a number of rows
BOTH = pytest.mark.parametrize("by_length", [False, True], ids=["random", "grouped"])
RANKS = pytest.mark.parametrize("ranks", [1, 2, 3])


def make_sampler(ranks=1, by_length=False, **options):
    defaults = {
        "token_budgets": BUDGETS,
        "tokens": TOKENS,
        "lengths": TOKENS if by_length else None,
    }
    return TaskBatchSampler(SIZES, {"c": 2}, num_replicas=ranks, **(defaults | options))


def task_of(row):
    return "a" if row < 211 else "b" if row < 301 else "c"


def epochs(sampler, count, first=0):
    batches = []
    for epoch in range(first, first + count):
        sampler.set_epoch(epoch)
        batches += list(sampler)
    return batches


@BOTH
@RANKS
def test_no_rank_is_above_the_budget_and_all_have_the_same_rows_and_task(ranks, by_length):
    sampler = make_sampler(ranks, by_length, steps_per_epoch="longest")
    sampler.set_epoch(3)

    shards = [list(BatchSamplerShard(sampler, ranks, rank)) for rank in range(ranks)]

    for step in zip(*shards, strict=True):
        (task,) = {task_of(row) for batch in step for row in batch}
        assert len({len(batch) for batch in step}) == 1
        assert all(ALL_TOKENS[batch].sum() <= BUDGETS.get(task, 80) for batch in step)
    assert all(len(shard) == sampler.steps for shard in shards)


@BOTH
@RANKS
@pytest.mark.parametrize("stop", ["shortest", "longest", 5, 50])
def test_each_row_comes_once_per_pass_and_an_epoch_goes_on(ranks, by_length, stop):
    sampler = make_sampler(ranks, by_length, steps_per_epoch=stop)
    batches = epochs(sampler, 12)

    for task in ("a", "b"):
        # some rows come twice where ranks do not divide them
        whole = -(-SIZES[task] // ranks) * ranks
        rows = [row for batch in batches for row in batch if task_of(row) == task]
        passes = [rows[first : first + whole] for first in range(0, len(rows) - whole + 1, whole)]
        if stop == 50:
            assert len(passes) >= 3
            assert sorted(passes[0]) != passes[0] != passes[1] != passes[2]
        assert all(set(rows) == set(range(SIZES[task]) + np.array(STARTS[task])) for rows in passes)
    assert len(batches) == 12 * len(sampler)
    fresh = make_sampler(ranks, by_length, steps_per_epoch=stop)
    assert epochs(fresh, 1, first=6) == batches[6 * len(sampler) : 7 * len(sampler)]
    assert epochs(sampler, 1, first=2) != epochs(sampler, 1, first=3)
