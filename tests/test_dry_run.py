"""``minbert experiments --dry_run`` announces what the runs do, and writes nothing."""

import json
from pathlib import Path

import pytest

from minbert_cli.experiments import program as experiments

SMALL = {
    f"tasks.{task}.max_{split}_samples": 20
    for task in ("sst", "quora", "sts")
    for split in ("train", "eval", "test")
}
SETTINGS = {"num_train_epochs": 2, "steps_per_epoch": 7, "per_device_train_batch_size": 4}
MIXED = {"task_sampling": "mixed", "gradient_accumulation_steps": 2}
TEXT = {"corpus.sample.max_documents": 30, "num_train_epochs": 1, "vocab_size": 200}
ROWS = {
    "plain": {},
    "mixed": {"overrides": MIXED, "pretrain": {"base": "pretrain_quickstart", "overrides": TEXT}},
}


def write(folder, **changes):
    content = {
        "output_dir": "out",
        "base": "quickstart",
        "overrides": SMALL | SETTINGS,
        "seeds": [1],
        "rows": ROWS,
    }
    (folder / "experiments.yaml").write_text(json.dumps(content | changes))


def read_table(printed):
    """Return the cells of the table, by row."""
    lines = [line for line in printed.splitlines() if line.startswith("| ")][2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name: rest for name, *rest in cells}


def snapshot(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.slow
def test_the_steps_of_a_dry_run_are_those_of_the_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path)

    assert experiments.run(["experiments.yaml", "--dry_run", "true"]) == 0

    printed = capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["experiments.yaml"]
    assert experiments.run(["experiments.yaml"]) == 0
    (pretrained,) = Path("out/pretrained").glob("*/metrics.json")
    metrics = {
        f"pre-training {pretrained.parent.name}": pretrained,
        **{row: Path("out", row, "seed-1", "metrics.json") for row in ROWS},
    }
    steps = {row: json.loads(path.read_text())["steps"] for row, path in metrics.items()}
    table = read_table(printed)
    assert {row: int(cells[1]) for row, cells in table.items()} == steps
    assert (steps["plain"], steps["mixed"]) == (14, 8)
    assert [table[row][2] for row in ROWS] == ["56", "168"]
    assert f"3 runs, each counted in full: {sum(steps.values())} steps" in printed

    before = snapshot(tmp_path)
    capsys.readouterr()
    assert experiments.run(["experiments.yaml", "--dry_run", "true"]) == 0
    assert capsys.readouterr().out.count("done") == 3
    assert snapshot(tmp_path) == before


def test_without_estimates_the_runs_are_listed_only(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, rows={"plain": {}})
    monkeypatch.setattr(experiments, "try_groups", None)

    status = experiments.run(["experiments.yaml", "--dry_run", "--estimate", "false"])

    assert status == 0
    assert capsys.readouterr().out == "to do    plain, seed 1\n"
    assert [path.name for path in tmp_path.iterdir()] == ["experiments.yaml"]


def test_an_interrupted_dry_run_ends_as_in_a_shell(tmp_path, monkeypatch, capsys):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    write(tmp_path, rows={"plain": {}})
    monkeypatch.setattr(experiments, "try_groups", interrupt)

    assert experiments.run(["experiments.yaml", "--dry_run"]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("interrupted")
    assert not Path("out").exists()
