"""What a run prints: plain lines in a log, one bar on a terminal, and no library noise."""

import io
import re
import sys

import pytest
import transformers
from transformers import TrainerCallback

from minbert_cli import console, finetune
from minbert_cli.console import describe_size, measure_training
from tests import small_run
from tests.trainers import tiny

NOISE = ("LOAD REPORT", "Writing model shards", "'loss'", "'eval_", "train_runtime", "it/s")


def run(tmp_path, capfd, **changes):
    """Train on a checkpoint with new heads; return what was printed."""
    recipe = small_run.make_recipe(tmp_path)
    small_run.write_files(tmp_path)
    keys = {"eval_strategy": "epoch", "save_strategy": "epoch", "num_train_epochs": 2, **changes}
    finetune.main([small_run.write_recipe(tmp_path, recipe | keys)])
    printed = capfd.readouterr()
    return printed.out, printed.err


def test_a_log_has_plain_lines_and_nothing_of_the_libraries(tmp_path, capfd):
    level = transformers.utils.logging.get_verbosity()

    out, err = run(tmp_path, capfd, load_best_model_at_end=True, metric_for_best_model="mean")

    assert not [noise for noise in NOISE if noise in out + err]
    assert "\r" not in out
    assert "\x1b" not in out
    assert out.startswith("MinBertForMultiTask: ")
    evaluations = re.findall(
        r"^epoch (\S+)/2  .*mean (\d\.\d{3})( \(best\))?  \d+ s$", out, re.MULTILINE
    )
    assert [epoch for epoch, *_ in evaluations] == ["1", "2"]
    assert evaluations[0][2] == " (best)"
    assert re.search(r"^step \d+/\d+  loss .*  lr \d\.\de-\d\d  .* left$", out, re.MULTILINE)
    assert re.search(r"^trained in \d+ s, and kept the weights of step \d+$", out, re.MULTILINE)
    first, last = out.index("\nvalidation\n"), out.index("\ntrain (as many")
    assert first < last
    assert re.search(
        rf"^next: minbert predict {tmp_path}/out --task \w+ \"A sentence\.\"", out, re.MULTILINE
    )
    assert transformers.utils.logging.get_verbosity() == level


def test_single_sentences_beside_an_auxiliary_task_keep_the_last_weights(tmp_path, capfd):
    texts = tmp_path / "texts.csv"
    texts.write_text("text\n" + "".join(f"the river {place} is cold\n" for place in range(60)))
    near = {"problem_type": "contrastive", "text_columns": ["text"], "train_file": str(texts)}
    moods = small_run.make_recipe(tmp_path)["tasks"]["moods"] | {"auxiliary": True}
    tasks = {"near": near | {"validation_share": 0.5}, "moods": moods}

    out, _ = run(tmp_path, capfd, tasks=tasks, max_steps=2)

    assert re.search(r"^trained in \d+ s$", out, re.MULTILINE)


class Terminal(io.StringIO):
    """A screen."""

    def isatty(self):
        return True


def test_a_terminal_has_one_bar_that_goes_away(tmp_path, capfd, monkeypatch):
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("COLUMNS", "80")

    run(tmp_path, capfd, disable_tqdm=False)

    lines = screen.getvalue().replace("\r", "\n").splitlines()
    assert any(re.match(r"training: .*\d+/\d+ .*loss ", line) for line in lines)
    assert sum(line.startswith("epoch ") for line in lines) == 2
    assert not [line for line in lines if line.startswith("step ")]


class Interruption(TrainerCallback):
    """Interrupts the training, as Ctrl-C does."""

    def on_step_end(self, *args, **kwargs):  # noqa: ARG002  its signature
        raise KeyboardInterrupt


def test_an_interrupted_run_leaves_the_terminal_as_it_was(tmp_path, capfd, monkeypatch):
    show = console.show_progress

    def show_and_interrupt(trainer):
        progress = show(trainer)
        trainer.add_callback(Interruption())
        return progress

    monkeypatch.setattr("minbert_cli.run.show_progress", show_and_interrupt)
    before = sys.stdout, transformers.utils.logging.get_verbosity()

    with pytest.raises(SystemExit, match="130"):
        run(tmp_path, capfd, disable_tqdm=False)

    assert capfd.readouterr().err.endswith(
        "minbert finetune: interrupted; --resume_from_checkpoint true continues from the last "
        "checkpoint\n"
    )
    assert (sys.stdout, transformers.utils.logging.get_verbosity()) == before


@pytest.mark.parametrize(
    ("arguments", "size"),
    [
        ({"num_train_epochs": 1.2}, "90 steps (1.2 epochs, 360 rows) on cpu in float32"),
        (
            {"max_steps": 21, "gradient_accumulation_steps": 4, "bf16": True},
            "21 steps (1.11 epochs, 332 rows) on cpu in bfloat16",
        ),
        ({"max_steps": 1611}, "1,611 steps (21.48 epochs, 6,444 rows) on cpu in float32"),
    ],
)
def test_the_announced_size_is_that_of_the_training(tmp_path, arguments, size):
    trainer = tiny.make_trainer(tmp_path, **arguments)
    steps, epochs, _ = measure_training(trainer)
    assert describe_size(trainer).endswith(f"\n\n{size}")
    if steps < 100:
        trainer.train()
        assert (steps, pytest.approx(epochs)) == (trainer.state.global_step, trainer.state.epoch)
