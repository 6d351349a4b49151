"""A damaged checkpoint is named and not used, whatever the damage."""

import logging
import shutil

import pytest
from torch.testing import assert_close

from minbert_cli import find_checkpoint
from tests.damage import SEEDS, copy, damage
from tests.trainers.tiny import make_trainer


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the folder of a run with the checkpoints 2 and 4, and its final weights."""
    folder = tmp_path_factory.mktemp("damaged") / "run"
    weights = train(folder)
    shutil.rmtree(folder / "checkpoint-5")  # as if the run had been killed before its end
    return folder, weights


def train(folder, checkpoint=None):
    """Train to step 5, and return the weights."""
    trainer = make_trainer(folder, dropout=0.1, max_steps=5, save_strategy="steps", save_steps=2)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer.model.state_dict()


def same_files(left, right):
    """Whether two folders have the same files, apart from checksums."""
    names = {path.relative_to(left) for path in left.rglob("*") if path.name != "checksums.json"}
    return all(
        (right / name).is_file() and (right / name).read_bytes() == (left / name).read_bytes()
        for name in names
        if (left / name).is_file()
    )


def check_found(source, folder, seed, caplog):
    """Damage the newest of two checkpoints; return the one that is found."""
    copy(source, folder)
    newest, before = folder / "checkpoint-4", folder / "checkpoint-2"
    done = damage(newest, seed)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        found = find_checkpoint(folder, "true", 1)
    if same_files(source / "checkpoint-4", newest) and found == str(newest):
        return found
    assert found == str(before), done
    assert f"skipping {newest}: " in caplog.text, done
    return found


def check_alone(source, folder, seed):
    """Damage the only checkpoint: it is refused in one line, or was never complete."""
    copy(source, folder)
    shutil.rmtree(folder / "checkpoint-2")
    only = folder / "checkpoint-4"
    done = damage(only, seed)
    try:
        found = find_checkpoint(folder, "true", 1)
    except ValueError as error:
        message = str(error)
        assert f"no checkpoint of output_dir={str(folder)!r} can be used: {only}: " in message
        assert "\n" not in message, done
        return
    # as after a kill during the first save, or unchanged
    assert found is None or same_files(source / "checkpoint-4", only), done
    assert found is not None or not (only / "checksums.json").is_file(), done


@pytest.mark.parametrize("seeds", SEEDS)
def test_the_checkpoint_before_a_damaged_one_is_taken(run, tmp_path, caplog, seeds):
    for seed in seeds:
        check_found(run[0], tmp_path / "run", seed, caplog)
        check_alone(run[0], tmp_path / "run", seed)


@pytest.mark.parametrize("seed", [1000, 1001])
def test_the_run_ends_as_if_there_had_been_no_damage(run, tmp_path, caplog, seed):
    source, weights = run
    found = check_found(source, tmp_path / "run", seed, caplog)

    assert_close(train(tmp_path / "run", found), weights, rtol=0, atol=0)
