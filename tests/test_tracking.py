"""``report_to``: losses and metrics of every task reach the trackers, in one run of theirs."""

import json
import sqlite3
from importlib.util import find_spec

import pytest

from minbert_cli import finetune
from tests import small_run

METRICS = {"eval/moods_accuracy", "eval/pairs_f1", "eval/scores_pearson", "eval/mean"}
LOSSES = {"train/loss_moods", "train/loss_pairs", "train/loss_scores"}


def needs(library):
    """Skip a test without a library; it is imported later, since it reads the environment then."""
    return pytest.mark.skipif(find_spec(library) is None, reason=f"needs {library}")


def train(folder, service):
    """Run the small recipe, which keeps the last weights; return its final Pearson."""
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder) | {"report_to": service}
    finetune.main([small_run.write_recipe(folder, recipe)])
    results = json.loads((folder / "out" / "metrics.json").read_text("utf-8"))
    return results["validation"]["metrics"]["scores_pearson"]


@needs("tensorboard")
def test_tensorboard(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    expected = train(tmp_path, "tensorboard")
    (folder,) = (tmp_path / "out" / "runs").iterdir()
    events = EventAccumulator(str(folder)).Reload()

    assert set(events.Tags()["scalars"]) >= METRICS | LOSSES
    assert not [tag for tag in events.Tags()["scalars"] if tag.startswith("test/")]
    values = events.Scalars("eval/scores_pearson")
    assert [value.step for value in values] == [3, 6]
    assert values[-1].value == pytest.approx(expected)


@needs("trackio")
def test_trackio(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # read by its import

    expected = train(tmp_path, "trackio")
    with sqlite3.connect(tmp_path / "trackio" / "huggingface.db") as database:
        rows = database.execute("SELECT run_name, metrics FROM metrics ORDER BY id").fetchall()
    names = {name for name, _ in rows}
    logged = {key: value for _, row in rows for key, value in json.loads(row).items()}

    assert names == {"out"}
    assert logged.keys() >= METRICS | LOSSES
    assert logged["eval/scores_pearson"] == pytest.approx(expected)
