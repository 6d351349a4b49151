"""The words that decided the errors on the page of a run."""

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.trainers import tiny
from tests.trainers.pages import PageReader, read_blocks
from trainers import Example, Examples, Figure
from trainers.reports.page import explain

LONG = {"truncation": "windows", "max_length": 12}  # which explain does not take


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train the three tasks, and one of windows; return the run."""
    folder = tmp_path_factory.mktemp("explained")
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    recipe["tasks"]["long"] = recipe["tasks"]["moods"] | LONG
    return finetune.finetune(recipe | {"max_steps": 1, "eval_strategy": "no"})


@pytest.fixture(scope="module")
def folder(run):
    return Path(run.output_dir)


@pytest.fixture(scope="module")
def model(folder):
    return MinBertForMultiTask.from_pretrained(folder).eval()


@pytest.fixture
def trainer(run, monkeypatch):
    """Return the trainer; its tokenizer is restored."""
    monkeypatch.setattr(run.trainer, "processing_class", run.trainer.processing_class)
    return run.trainer


@pytest.fixture
def errors():
    rows = [Example("a", ["the garden is dull"], "good", "bad", 0.9)]
    return Examples("Worst errors", rows, "probability", ".1%", "A note.")


@pytest.mark.parametrize("task", ["moods", "pairs", "scores"])
def test_words_of_errors_have_the_shares_of_explain(folder, model, task):
    listed = read_blocks(folder, task)["Worst errors"]

    assert listed["rows"]
    assert "Orange words speak for the decision" in listed["note"]
    for row in listed["rows"]:
        texts = row["texts"]
        (expected,) = model.explain(task, [texts[0] if len(texts) == 1 else texts])
        found = [(word["word"], word["start"], word.get("text")) for word in row["words"]]
        assert found == [
            (word["word"], word["start"], word.get("text")) for word in expected["words"]
        ]
        shares = [word["share"] for word in expected["words"]]
        assert [word["share"] for word in row["words"]] == pytest.approx(shares, abs=1e-6)
    decisions = {row["decision"] for row in listed["rows"]}
    one = {"pairs": "paraphrase", "scores": "a higher number"}
    assert decisions == {one[task]} if task in one else decisions <= {"bad", "good"}


def test_the_page_colors_them(folder):
    page = PageReader((folder / "report.html").read_text("utf-8"))

    rows = read_blocks(folder, "moods")["Worst errors"]["rows"]
    titles = [span["title"] for span in page.find("span") if "title" in span]
    shares = [f"{word['share']:+.3f}" for row in rows for word in row["words"]]
    assert page.faults == []
    assert titles[: len(shares)] == shares
    assert rows[0]["texts"][0] in page.texts["p"]


def test_errors_of_a_task_that_cannot_be_explained_stay(folder, trainer, errors):
    listed = read_blocks(folder, "long")["Worst errors"]
    figure = Figure("Loss", "x", "y", {})

    assert listed["rows"]
    assert not any(row["words"] for row in listed["rows"])
    assert "Orange" not in listed["note"]
    assert explain(trainer, "long", errors) is errors
    assert explain(trainer, "moods", figure) is figure


def test_errors_stay_without_a_tokenizer_or_with_another_model(trainer, errors, tmp_path):
    assert explain(tiny.make_trainer(tmp_path), "moods", errors) is errors
    other = tiny.make_trainer(tmp_path, own={"processing_class": trainer.processing_class})
    other.model = torch.nn.Linear(1, 1)
    assert explain(other, "moods", errors) is errors


def test_explaining_leaves_weights_modes_and_random_states(trainer, errors):
    def read_states():
        modes = [module.training for module in trainer.model.modules()]
        weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
        of_numpy = np.random.get_state()[1].tolist()  # noqa: NPY002  the one that the Trainer saves
        return random.getstate(), of_numpy, torch.get_rng_state().tolist(), modes, weights

    trainer.model.train()
    *before, weights = read_states()

    assert explain(trainer, "moods", errors).rows[0].words

    *after, now = read_states()
    assert after == before
    assert all(torch.equal(now[name], value) for name, value in weights.items())
    assert all(value.grad is None for value in trainer.model.parameters())


def test_a_failure_is_on_the_page_and_costs_no_error(trainer, errors, caplog):
    trainer.processing_class = object()

    found = explain(trainer, "moods", errors)

    assert found.rows == errors.rows
    assert found.note.startswith("A note. Which words decided could not be found: ")
    assert "the words that decided are not on the page" in caplog.text


def test_long_texts_are_not_explained(trainer, errors):
    long = replace(errors.rows[0], texts=["the river is cold " * 30])

    found = explain(trainer, "moods", replace(errors, rows=[long, *errors.rows]))

    assert [bool(row.words) for row in found.rows] == [False, True]
    assert "Without colors: rows above 500 characters" in found.note
