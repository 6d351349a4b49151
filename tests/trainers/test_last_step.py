"""The last step is logged and evaluated, whatever the intervals are."""

import pytest

from trainers import LastStep

from . import tiny


@pytest.mark.parametrize("interval", [3, 500, 0.4])
def test_the_last_step_is_logged_and_evaluated(tmp_path, interval):
    intervals = {"eval_steps": interval, "logging_steps": interval, "save_steps": interval}
    trainer = tiny.make_trainer(
        tmp_path, callbacks=[LastStep()], max_steps=5, eval_strategy="steps", **intervals
    )

    trainer.train()

    for name in ("loss", "eval_mean"):
        steps = [entry["step"] for entry in trainer.state.log_history if name in entry]
        assert steps[-1] == 5, name
        assert len(steps) == len(set(steps)), name


def test_it_is_not_where_the_strategy_is_another(tmp_path):
    trainer = tiny.make_trainer(
        tmp_path, callbacks=[LastStep()], max_steps=5, eval_strategy="no", logging_strategy="no"
    )

    trainer.train()

    assert not any({"loss", "eval_mean"} & set(entry) for entry in trainer.state.log_history)
