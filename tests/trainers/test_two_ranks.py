"""The communication of two processes at a step."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from .two_ranks import PARTS, TASKS, compare

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.trainers.two_ranks", str(folder)]
    started = [
        subprocess.Popen([*command, str(rank)], env=environment, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [process.communicate()[1] for process in started]
    assert not any(process.returncode for process in started), "\n".join(errors)[-3000:]
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


@pytest.mark.parametrize("task", TASKS)
def test_a_loss_that_compares_rows_uses_the_whole_batch(ranks, task):
    loss, gradient = compare(task)

    for rank, part in zip(ranks, PARTS, strict=True):
        own_loss, own_gradient = rank["found"][task]
        assert_close(own_loss, loss)
        # of which the mean over the two processes is taken
        assert_close(own_gradient / 2, gradient[part])
    assert gradient.any()


def test_gradients_are_averaged_before_they_are_projected(ranks):
    # the means (1, 0) and (1, 1) do not conflict; the first process's gradients do
    for rank in ranks:
        assert rank["merged"].tolist() == [2, 1]
