"""report.html: the numbers of the run, complete, self-contained, and harmless for any data."""

import pickle
import random
import re

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from tests.trainers import tiny
from tests.trainers.pages import PageReader, read_blocks, read_sections
from trainers import (
    Code,
    Example,
    Examples,
    Figure,
    FinishedRun,
    RunFacts,
    Section,
    Table,
    evaluate_run,
    report_run,
    write_page,
)
from trainers.reports.texts import printable

NASTY = (
    "</style><script>alert('a')</script>\"' onload=\"b\" & \U0001f600 שלום \u202e abc \x00\x07\x85"
)
LETTERS = st.characters() | st.sampled_from("<>&\"'/=-!{}% \x00\x85\u2028\u202e\ud800a_")
HISTORY = [
    {"step": 1, "loss": 1.0, "loss_moods": 1.25, "loss_pairs": 0.75},
    {"step": 2, "eval_moods_accuracy": 0.5, "eval_moods_macro_f1": 0.375},
]
SENTENCES = {"moods": ("sentence1",), "pairs": ("sentence1", "sentence2")}
SENTENCES["scores"] = SENTENCES["pairs"]


def make_texts(task, count, text=""):
    """Write the texts of the rows of a task."""
    columns = {name: [f"{name} of {row}{text}" for row in range(count)] for name in SENTENCES[task]}
    return datasets.Dataset.from_dict({"id": [f"{task}-{row}" for row in range(count)], **columns})


@pytest.fixture
def found(evaluated, tmp_path):
    """Return them with a history and a folder of the test's own."""
    trainer = evaluated[0]
    trainer.state.global_step = 2
    trainer.args.output_dir = str(tmp_path / "run")
    trainer.state.log_history = HISTORY
    return evaluated


@pytest.fixture
def write(found, encoded):
    """Write the report of the run; gives the folder."""
    trainer, results, outputs = found

    def write(text="", examples=4, **facts):
        known = {"command": "accelerate launch finetune.py", "recipe": "seed: 1\n"}
        known |= {"model_name_or_path": None, "data": dict.fromkeys(tiny.SIZES, "own")}
        known |= {"bad_rows": {"moods": ["a.tsv:3: no label"], "pairs": []}} | facts
        texts = {task: {"validation": make_texts(task, 23, text)} for task in tiny.SIZES}
        run = FinishedRun(trainer, encoded, results, outputs, RunFacts(**known), texts, examples)
        return report_run(run).parent

    return write


def read(folder):
    return PageReader((folder / "report.html").read_text(encoding="utf-8"))


def test_every_task_has_a_section_and_every_anchor_its_target(write):
    page = read(write())

    assert page.faults == []
    titles = [title.strip() for title in page.texts["h2"]]
    assert titles == ["Results", "moods", "pairs", "scores", "Training", "Data", "Environment"]
    names = {found["id"] for _, found in page.elements if "id" in found}
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= names
    assert all(section["aria-labelledby"] in names for section in page.find("section"))


def test_the_page_needs_nothing_but_itself_and_everything_has_a_name(write):
    text = (write() / "report.html").read_text()
    page = PageReader(text)

    assert all(link.startswith("#") or link == "data:," for link in page.links)
    assert not re.search(r"url\((?!#)|@import|https?:|//[a-z]", text)
    assert not page.find("script")
    (policy,) = page.find("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'")
    assert page.find("svg")
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in page.find("svg"))
    for table in re.findall(r"<table.*?</table>", text, re.DOTALL):
        assert '<th scope="col"' in table
    assert all(found["scope"] in ("row", "col") for found in page.find("th"))


def test_the_numbers_are_those_of_the_results(write, found):
    results = found[1]

    table = read_blocks(write(), "Results")["All metrics"]

    shown = {}
    for task, metric, *values in table["rows"]:
        shown[metric if task == "all tasks" else f"{task}_{metric}"] = values
    assert shown.keys() == results["validation"].metrics.keys()
    for name, values in shown.items():
        for split, value in zip(("validation", "train"), values, strict=True):
            task, _, metric = name.partition("_")
            error = results[split].standard_errors.get(task)
            is_primary = metric in ("accuracy", "pearson")
            expected = f"{results[split].metrics[name]:.4f}"
            assert value == expected + (f" ± {error:.4f}" if is_primary else "")


def test_the_worst_errors_are_quoted_with_the_texts_of_their_rows(write, found, encoded):
    folder = write(examples=7)

    errors = read_blocks(folder, "scores")["Worst errors"]["rows"]

    outputs = found[2]["scores", "validation"]
    distances = np.abs(outputs.predictions - np.asarray(encoded["scores"]["validation"]["labels"]))
    row = int(distances.argmax())
    assert len(errors) == 7
    assert errors[0]["id"] == f"scores-{row}"
    assert errors[0]["texts"] == [f"sentence1 of {row}", f"sentence2 of {row}"]
    assert errors[0]["size"] == pytest.approx(distances.max())
    text = (folder / "report.html").read_text()
    assert f"sentence2 of {row}</p>" in text
    section = text[text.index('id="section-4"') :]
    shown, folded = re.findall(r'<table class="errors">.*?</table>', section, re.DOTALL)
    assert shown.count('<td class="quoted">') == 5
    assert folded.count('<td class="quoted">') == 2
    assert all(error["id"] in shown for error in errors[:5])
    assert "<summary>2 more</summary>" in section


@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_any_text_is_text_and_nothing_else(tmp_path, examples):
    words = [{"word": "", "start": 0, "end": 99, "share": 0.5}]

    def write(text):
        example = Example(text, [text], text, text, 1.0, words, decision=f"{text}.")
        blocks = [
            Table(text, [(text, ""), ("rows", ",")], [[text, 1]], text, is_folded=True),
            Figure(text, "x", "y", {"a": [[1, 2.0], [2, 3.0]]}, text),
            Examples(text, [example], text, ".1%", text),
            Code(text, text, text),
        ]
        write_page(tmp_path / "a.html", text, text, text, [Section(text, [text], blocks)])
        return PageReader((tmp_path / "a.html").read_text(encoding="utf-8"))

    before = write("a")

    @settings(max_examples=examples, deadline=None, derandomize=True, database=None)
    @given(st.text(LETTERS, min_size=1, max_size=30).filter(str.strip))
    def check(text):
        page = write(text)
        assert page.faults == []
        assert [tag for tag, _ in page.elements] == [tag for tag, _ in before.elements]
        # no attribute came out of a text
        assert [sorted(found) for _, found in page.elements] == [
            sorted(found) for _, found in before.elements
        ]
        shown = [" ".join(part.split()) for part in page.texts["bdi"]]
        assert " ".join(printable(text).split()) in shown

    check()
    page = write(NASTY)
    assert page.faults == []
    assert "script" not in page.texts
    shown = NASTY.replace("\x00", "\u2400").replace("\x07", "\u2407").replace("\x85", "\ufffd")
    assert shown in [name.strip() for name in page.texts["h2"]]
    assert any(shown in svg.get("aria-label", "") for svg in page.find("svg"))


def test_the_step_whose_weights_were_kept_is_marked_if_it_is_not_the_last(
    write, found, monkeypatch
):
    assert "The vertical line" not in (write() / "report.html").read_text()
    monkeypatch.setattr(found[0].state, "best_model_checkpoint", "out/checkpoint-1")
    monkeypatch.setattr(found[0].state, "epoch", 1.5)
    monkeypatch.setattr(found[0].args, "load_best_model_at_end", True)

    text = (write() / "report.html").read_text()

    assert text.count("The vertical line marks step 1, whose weights were evaluated.") == 3
    assert "Evaluated at step 1, whose weights were the best. That was after 0.75 of 1.5" in text
    assert "2 optimizer steps, 1.5 epochs, seed" in text


def test_the_sections_of_a_run_have_its_facts(write):
    sections = read_sections(
        write(
            notes={"pairs": ["a note"]}, splits={"moods": {"test": {"rows": 4, "training_rows": 1}}}
        )
    )

    assert sections["Data"]["notes"] == [
        "pairs: a note",
        "moods: 1 of 4 test rows (25.0%) have the texts of a training row.",
    ]
    rows, skipped = sections["Data"]["blocks"]
    assert rows["rows"][0] == ["moods", "own", 23, 23, None, 1]
    assert skipped["rows"] == [["a.tsv:3: no label"]]
    titles = [block["title"] for block in sections["Training"]["blocks"]]
    assert titles == ["Command", "Recipe"]
    assert sections["Training"]["notes"][0].startswith("Initial weights: random. The training loss")


def test_a_report_that_fails_costs_neither_run_nor_results(write, found, encoded, caplog):
    folder = write()
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()  # nobody can write a page there

    facts = RunFacts("", "", None, {}, {})
    assert report_run(FinishedRun(found[0], encoded, found[1], found[2], facts)) is None

    assert "report.html could not be written" in caplog.text
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_evaluating_training_rows_leaves_every_random_state(found, encoded):
    def read_states():
        of_numpy = np.random.get_state()  # noqa: NPY002  the one that the Trainer saves
        return random.getstate(), pickle.dumps(of_numpy), torch.get_rng_state().tolist()

    before = read_states()

    evaluate_run(found[0], {task: {"train": rows["train"]} for task, rows in encoded.items()})

    assert read_states() == before
