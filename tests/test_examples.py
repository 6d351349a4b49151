"""The scripts in examples/ run as they stand, on tiny models."""

import runpy
import sys
from pathlib import Path

import pytest
from huggingface_hub.constants import HF_HUB_CACHE
from transformers import AutoConfig

from tests.small_hub import add_model

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name, monkeypatch, tmp_path, *argv):
    """Run an example in an empty folder."""
    add_model(Path(HF_HUB_CACHE), "sentence-transformers/all-MiniLM-L6-v2")
    add_model(Path(HF_HUB_CACHE), "google-bert/bert-base-uncased")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *argv])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")


def test_every_example_is_tested():
    tested = {"several_tasks", "own_file", "search", "masked_words"}

    assert {path.stem for path in EXAMPLES.glob("*.py")} == tested


def test_several_tasks(monkeypatch, tmp_path, capsys):
    run("several_tasks", monkeypatch, tmp_path)

    last = capsys.readouterr().out.splitlines()[-2:]
    assert all("'label'" in line and "'score'" in line for line in last)
    tasks = AutoConfig.from_pretrained(tmp_path / "runs/several_tasks").tasks
    assert set(tasks) == {"mood", "kind"}


def test_own_file(monkeypatch, tmp_path, capsys):
    run("own_file", monkeypatch, tmp_path)

    assert "report.html" in capsys.readouterr().out.splitlines()[-1]
    assert (tmp_path / "runs/own_file/report.html").is_file()


def test_search(monkeypatch, tmp_path, capsys):
    run("search", monkeypatch, tmp_path, "--query", "Somebody has lunch.")

    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "  1.000  Somebody has lunch."
    assert lines.count("most similar pairs:") == 1


# of torch, with any loader of transformers' Trainer on a machine without a GPU
@pytest.mark.filterwarnings("ignore:'pin_memory' argument is set as true")
def test_masked_words(monkeypatch, tmp_path, capsys):
    run("masked_words", monkeypatch, tmp_path)

    assert "a BERT that has seen your text" in capsys.readouterr().out
    assert AutoConfig.from_pretrained(tmp_path / "runs/masked_words").model_type == "bert"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 70
