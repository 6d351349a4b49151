"""Two runs side by side on one page."""

import json
import re
import shutil
from pathlib import Path

import pytest

from minbert_cli import finetune
from minbert_cli.experiments.compare import compare, differing_settings
from tests import small_run
from tests.trainers.pages import PageReader

NASTY = "</style><script>alert('a')</script>\"' onload=\"b\" &"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Train twice, with different learning rates and lengths; gives the folders."""
    files = tmp_path_factory.mktemp("runs")
    small_run.write_files(files)
    recipe = small_run.make_recipe(files)
    for name, changes in (("low", {"learning_rate": 0.001}), ("high", {"num_train_epochs": 1})):
        path = small_run.write_recipe(files, recipe | {"output_dir": str(files / name)} | changes)
        finetune.main([path])
    return files / "low", files / "high"


@pytest.fixture
def copies(runs, tmp_path):
    """Copy what a page is made from."""
    for folder in runs:
        (tmp_path / folder.name).mkdir()
        for name in ("metrics.json", "report.json", "run.json"):
            shutil.copy(folder / name, tmp_path / folder.name)
        shutil.copytree(folder / "predictions", tmp_path / folder.name / "predictions")
    return [tmp_path / folder.name for folder in runs]


def write(folders, resamples=50):
    """Compare two runs; gives what is printed, and the page."""
    path = folders[0].parent / "page.html"
    flags = ["--resamples", str(resamples), "--html", str(path)]
    printed = compare([*map(str, folders), *flags])
    return printed, PageReader(path.read_text(encoding="utf-8"))


def cells(page):
    """Return the rows of the tables, each a list of texts."""
    return [" ".join(row.split()) for row in page.texts["tr"]]


def test_the_page_has_the_metrics_and_the_paired_differences(copies):
    printed, page = write(copies)

    assert page.faults == []
    assert printed.endswith(f"page: {copies[0].parent / 'page.html'}")
    found = [json.loads((folder / "metrics.json").read_text()) for folder in copies]
    before, after = (one["validation"]["metrics"]["scores_pearson"] for one in found)
    (row,) = [row for row in cells(page) if row.startswith("scorespearson")]
    assert row.startswith(f"scorespearson{before:.4f} ± ")
    assert f"{after:.4f} ± " in row
    assert f"{after - before:+.4f}" in row
    for line in printed.splitlines():
        if re.match(r"\| (moods|pairs|scores|all tasks) ", line):
            task, metric, *_, interval, p_value, _ = (part.strip() for part in line.split("|")[1:])
            (row,) = [row for row in cells(page) if row.startswith(f"{task}{metric}")]
            assert interval.replace("\\", "") in row
            assert row.endswith(p_value)
    # the aggregates are paired too, but not the other metrics
    assert sum("[" in row for row in cells(page)) == 5


def test_only_settings_that_differ_are_listed(copies):
    _, page = write(copies)

    assert [title.strip() for title in page.texts["h2"]][1:3] == [
        "Metrics on validation rows",
        "Settings that differ",
    ]
    assert "learning_rate0.0010.01" in cells(page)
    assert "num_train_epochs21" in cells(page)
    assert not any("output_dir" in row or row.startswith("weight_decay") for row in cells(page))


def test_every_loss_and_headline_has_a_line_for_each_run(copies):
    _, page = write(copies)

    labels = [svg["aria-label"] for svg in page.find("svg", role="img")]
    (loss,) = [label for label in labels if label.startswith("Loss, held out of moods.")]
    assert re.search(r"\. first: .* at 3, .* at 6, .*; second: .* at 3, ", loss)
    titles = [label.partition(" of ")[0] for label in labels if " of moods." in label]
    assert titles == ["Loss, training", "Loss, held out", "accuracy"]


def test_runs_without_common_predictions_are_still_shown(copies):
    shutil.rmtree(copies[1] / "predictions")

    printed, page = write(copies)

    assert printed.startswith("No paired difference: ")
    assert any("is missing; repeat the run" in text for text in page.texts["p"])
    assert not any("[" in row for row in cells(page))
    assert any(row.startswith("moodsaccuracy") for row in cells(page))


def test_runs_with_the_same_name_are_told_apart(copies, tmp_path):
    other = tmp_path / "other" / copies[0].name
    shutil.copytree(copies[1], other)

    _, page = write([copies[0], other])

    assert [" ".join(title.split()) for title in page.texts["h1"]] == [f"{copies[0]} and {other}"]


def test_what_comes_from_data_is_text_and_nothing_else(copies):
    _, before = write(copies)
    for name in ("metrics.json", "report.json", "run.json"):
        path = copies[1] / name
        text = path.read_text().replace('"random"', json.dumps(NASTY))
        content = json.loads(text.replace("cpu (", json.dumps(NASTY)[1:-1] + "cpu ("))
        if "settings" in content:
            content["settings"]["data_dir"] = NASTY
        path.write_text(json.dumps(content))

    _, page = write(copies)

    assert page.faults == []
    assert page.find("script") == []
    assert any(NASTY in text for text in page.texts["td"])
    assert NASTY in page.texts["bdi"]
    assert page.links == before.links


def test_a_folder_that_is_no_run_is_named_and_no_page_written(copies, tmp_path):
    (copies[1] / "report.json").unlink()

    with pytest.raises(ValueError, match=r"has no report.json; expected a finished run"):
        write(copies)

    assert not (tmp_path / "page.html").exists()
    with pytest.raises(ValueError, match=r"is not a run; expected a folder with a run.json"):
        write([copies[0], tmp_path / "nothing"])


def test_settings_are_compared_by_their_dotted_keys():
    first = {"tasks": {"a": {"loss": "mse", "head": "linear"}}, "seed": 1, "output_dir": "x"}
    second = {"tasks": {"a": {"loss": "bce", "head": "linear"}, "b": {"loss": "mse"}}, "seed": 1}

    assert differing_settings(first, second) == [
        ("tasks.a.loss", "mse", "bce"),
        ("tasks.b.loss", None, "mse"),
    ]
    assert differing_settings(first, first) == []


def test_without_a_page_nothing_is_written(copies, tmp_path):
    before = sorted(Path(tmp_path).rglob("*"))

    compare([*map(str, copies), "--resamples", "50"])

    assert sorted(Path(tmp_path).rglob("*")) == before
