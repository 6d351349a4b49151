"""The communication of two processes at a step."""

import pytest
import torch
from torch.testing import assert_close

from tests.processes import run_python

from .two_ranks import PARTS, TASKS, compare


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run_python(*launch, "-m", "tests.trainers.two_ranks", folder)
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("task", TASKS)
def test_a_loss_that_compares_rows_uses_the_whole_batch(ranks, task):
    loss, gradient = compare(task)

    for rank, part in zip(ranks, PARTS, strict=True):
        own_loss, own_gradient = rank[task]
        assert_close(own_loss, loss)
        # of which the mean over the two processes is taken
        assert_close(own_gradient / 2, gradient[part])
    assert gradient.any()


def test_ranks_that_evaluate_first_train_one_model(ranks):
    first, second = (rank["trained"] for rank in ranks)

    assert torch.equal(first, second)
