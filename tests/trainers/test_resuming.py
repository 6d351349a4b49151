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


def cut(path):
    path.write_bytes(path.read_bytes()[:50])


def flip(path):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


WEIGHTS, STATE = "model.safetensors", "trainer_state.json"
TORCH = ("optimizer.pt", "scheduler.pt", "rng_state.pth")


@pytest.mark.parametrize(
    ("name", "damage", "reason"),
    [
        *((name, Path.unlink, "is missing") for name in (WEIGHTS, STATE, *TORCH)),
        *((name, cut, "is damaged") for name in (WEIGHTS, *TORCH)),
        *((name, flip, "is damaged") for name in (WEIGHTS, "config.json", *TORCH)),
        (STATE, cut, "cannot be read"),
        ("rng_state_1.pth", Path.touch, "not written by 1 process"),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_its_reason(run, name, damage, reason, caplog):
    damage(run / "checkpoint-4" / name)

    with caplog.at_level(logging.WARNING):
        found = last_complete_checkpoint(run, 1)

    assert found == str(run / "checkpoint-2")
    (message,) = [text for text in caplog.messages if text.startswith("skipping ")]
    assert message.startswith(f"skipping {run / 'checkpoint-4'}: ")
    assert reason in message
    assert name in message or "process" in reason


@pytest.mark.parametrize(
    ("sharded", "gone"),
    [
        ("optimizer.bin", TORCH[:1]),  # of FSDP, with a full state and with one of each rank
        ("optimizer_0/__0_0.distcp", TORCH[:1]),
        ("global_step4/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", TORCH[:2]),  # of DeepSpeed
    ],
)
def test_optimizers_of_sharded_runs_have_files_of_their_own(run, make_trainer, sharded, gone):
    folder = run / "checkpoint-4"
    for name in (*gone, "checksums.json"):
        (folder / name).unlink()
    assert last_complete_checkpoint(run, 1) == str(run / "checkpoint-2")
    (folder / sharded).parent.mkdir(exist_ok=True)
    (folder / sharded).touch()

    assert last_complete_checkpoint(run, 1) == str(folder)
    with pytest.raises(ValueError, match="written with FSDP or DeepSpeed, whose optimizer"):
        make_trainer(max_steps=8).train(resume_from_checkpoint=str(folder))


def test_every_rank_needs_its_random_state(run, caplog):
    with caplog.at_level(logging.WARNING):
        found = last_complete_checkpoint(run, 2)

    assert found is None
    assert "rng_state_0.pth is missing" in caplog.text


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
