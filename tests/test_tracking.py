"""``report_to``: losses and metrics of every task reach the trackers, in one run of theirs."""

import json

import pytest

from minbert_cli import finetune
from tests import small_run

METRICS = {"eval/moods_accuracy", "eval/pairs_f1", "eval/scores_pearson", "eval/mean"}
LOSSES = {"train/loss_moods", "train/loss_pairs", "train/loss_scores"}


def test_tensorboard_hears_of_every_task(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path) | {"report_to": "tensorboard", "report_examples": 0}
    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    results = json.loads((tmp_path / "out" / "metrics.json").read_text("utf-8"))
    expected = results["validation"]["metrics"]["scores_pearson"]  # of the last weights
    (folder,) = (tmp_path / "out" / "runs").iterdir()
    events = EventAccumulator(str(folder)).Reload()

    assert set(events.Tags()["scalars"]) >= METRICS | LOSSES
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith("test/")]
    values = events.Scalars("eval/scores_pearson")
    assert [value.step for value in values] == [3, 6]
    assert values[-1].value == pytest.approx(expected)
