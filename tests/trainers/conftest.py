"""Fixtures of the trainer tests."""

from functools import partial

import pytest

from tests.trainers import tiny
from trainers import evaluate_run, spread


@pytest.fixture
def train_rows():
    """Encoded training rows of three tasks."""
    return {task: tiny.make_rows(task, size) for task, size in tiny.SIZES.items()}


@pytest.fixture(scope="session")
def encoded():
    """Training rows of three tasks, of which as many are chosen as there are for validation."""
    return {
        task: {
            "train": spread(tiny.make_rows(task, 40), 23),
            "validation": tiny.make_rows(task, 23, seed=1),
        }
        for task in tiny.SIZES
    }


@pytest.fixture
def make_trainer(tmp_path):
    """Build trainers that write into the same temporary folder."""
    return partial(tiny.make_trainer, tmp_path / "run")


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, encoded):
    """Return a trainer of three tasks, the results of these rows, and their outputs."""
    trainer = tiny.make_trainer(tmp_path_factory.mktemp("evaluated"))
    return trainer, *evaluate_run(trainer, encoded)
