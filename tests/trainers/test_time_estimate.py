"""The expected time of a run without a progress bar."""

import pytest

from trainers import TimeEstimate

from . import tiny


class Clock:
    """A clock that advances by half a minute between the two readings of a run."""

    now = 0.0

    def __call__(self):
        self.now += 30.0
        return self.now


@pytest.mark.parametrize(
    ("max_steps", "expected"),
    [
        # 20 steps took half a minute
        (62, ["about 1 min for the other 40 of 62 steps, on cpu, without evaluations"]),
        (222, ["about 5 min for the other 200 of 222 steps, on cpu, without evaluations"]),
        (26, ["less than 1 min for the other 4 of 26 steps"]),
        (22, []),
        (5, []),
    ],
)
def test_the_time_of_the_other_steps_is_printed_once(tmp_path, capsys, max_steps, expected):
    callbacks = [TimeEstimate(Clock())]
    trainer = tiny.make_trainer(
        tmp_path, callbacks=callbacks, max_steps=max_steps, logging_steps=500
    )

    trainer.train()

    lines = [line for line in capsys.readouterr().out.splitlines() if " min for the other " in line]
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True))


def test_a_progress_bar_shows_it_itself(tmp_path, capsys):
    trainer = tiny.make_trainer(
        tmp_path, callbacks=[TimeEstimate(Clock())], max_steps=30, disable_tqdm=False
    )

    trainer.train()

    assert "min for" not in capsys.readouterr().out
