"""The files of a killed run, and the start of the next one."""

import errno
import logging
from pathlib import Path

import pytest

from trainers import WriteError, checkpoint_problem, last_complete_checkpoint
from trainers.training import multitask


@pytest.fixture
def run(make_trainer, tmp_path):
    """A run with the checkpoints 2 and 4."""
    make_trainer(max_steps=4, save_strategy="steps", save_steps=2).train()
    return tmp_path / "run"


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda folder: (folder / "trainer_state.json").unlink(), "trainer_state.json is missing"),
        (lambda folder: (folder / "optimizer.pt").unlink(), "optimizer.pt is missing"),
        (lambda folder: (folder / "scheduler.pt").unlink(), "scheduler.pt is missing"),
        (lambda folder: (folder / "rng_state.pth").unlink(), "rng_state.pth is missing"),
        (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
        (
            lambda folder: cut(folder / "trainer_state.json", 50),
            "trainer_state.json cannot be read",
        ),
        (lambda folder: cut(folder / "optimizer.pt", 1000), "optimizer.pt is damaged"),
        (lambda folder: cut(folder / "model.safetensors", 5000), "model.safetensors is damaged"),
        (lambda folder: (folder / "rng_state_1.pth").touch(), "not written by 1 process"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_its_reason(run, damage, reason, caplog):
    damage(run / "checkpoint-4")

    with caplog.at_level(logging.WARNING):
        found = last_complete_checkpoint(run, 1)

    assert found == str(run / "checkpoint-2")
    assert f"skipping {run / 'checkpoint-4'}: " in caplog.text
    assert reason in caplog.text


def test_every_rank_needs_its_random_state(run, caplog):
    with caplog.at_level(logging.WARNING):
        found = last_complete_checkpoint(run, 2)

    assert found is None
    assert "rng_state_0.pth is missing" in caplog.text


def flip(path, position):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[position * len(content) // 100] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", ["model.safetensors", "optimizer.pt", "scheduler.pt", "rng_state.pth", "config.json"]
)
def test_a_flipped_bit_is_named_and_the_checkpoint_before_is_taken(run, caplog, name):
    flip(run / "checkpoint-4" / name, 50)

    with caplog.at_level(logging.WARNING):
        found = last_complete_checkpoint(run, 1)

    assert found == str(run / "checkpoint-2")
    assert f"skipping {run / 'checkpoint-4'}: {name} is" in caplog.text


@pytest.mark.parametrize("content", ["", "[]", "{", "null"])
def test_damaged_checksums_are_named(run, content):
    (run / "checkpoint-4" / "checksums.json").write_text(content)

    problem = checkpoint_problem(run / "checkpoint-4", 1)

    assert problem is not None
    assert problem.startswith("checksums.json cannot be read")


def test_a_checkpoint_that_was_killed_before_its_checksums_is_complete(run):
    (run / "checkpoint-4" / "checksums.json").unlink()

    assert last_complete_checkpoint(run, 1) == str(run / "checkpoint-4")


def test_a_checkpoint_stays_if_only_its_checksums_cannot_be_written(make_trainer, monkeypatch):
    """The one before is deleted by then."""

    def fail(folder):
        if folder.name == "checkpoint-4":
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(multitask, "write_checksums", fail)
    trainer = make_trainer(save_strategy="steps", save_steps=2, save_total_limit=1)

    with pytest.raises(WriteError, match=r"checkpoint-4' cannot be written: No space"):
        trainer.train()

    (folder,) = Path(trainer.args.output_dir).glob("checkpoint-*")
    assert folder.name == "checkpoint-4"
    assert checkpoint_problem(folder, 1) is None
