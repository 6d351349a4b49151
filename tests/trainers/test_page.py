"""report.html: the numbers of the run, complete, self-contained, and harmless for any data."""

import json
import pickle
import random
import re

import datasets
import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn.metrics import confusion_matrix

from tests.trainers import tiny
from tests.trainers.pages import PageReader, read_blocks
from trainers import (
    Annealed,
    RunFacts,
    evaluate_run,
    report_run,
    spread,
    write_report,
    write_results,
)
from trainers.problems.base import MAX_QUOTED_CHARACTERS
from trainers.reports.page import write_evidence
from trainers.reports.texts import count, printable

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


@pytest.fixture(scope="module")
def encoded():
    """Return rows of three tasks."""
    return {
        task: {
            "train": spread(tiny.make_rows(task, 40), 23),
            "validation": tiny.make_rows(task, 23, seed=1),
        }
        for task in tiny.SIZES
    }


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory, encoded):
    """Return a trainer and its results."""
    trainer = tiny.make_trainer(tmp_path_factory.mktemp("evaluated"))
    trainer.state.global_step = 2
    return trainer, *evaluate_run(trainer, encoded)


@pytest.fixture
def found(evaluated, tmp_path):
    """Return them with a history and a folder of the test's own."""
    trainer = evaluated[0]
    trainer.args.output_dir = str(tmp_path / "run")
    trainer.state.log_history = HISTORY
    return evaluated


@pytest.fixture
def write(found, encoded):
    """Write the results and the report of the run; gives the folder."""
    trainer, results, outputs = found

    def write(text="", examples=4, **facts):
        known = {"command": "accelerate launch finetune.py", "recipe": "seed: 1\n"}
        known |= {"model_name_or_path": None, "data": dict.fromkeys(tiny.SIZES, "own")}
        known |= {"bad_rows": {"moods": ["a.tsv:3: no label"], "pairs": []}} | facts
        history, trainer.state.log_history = trainer.state.log_history, []
        write_results(trainer, encoded, results, outputs, RunFacts(**known))  # without its plot
        trainer.state.log_history = history
        texts = {task: make_texts(task, 23, text) for task in tiny.SIZES}
        return report_run(trainer, encoded, outputs, texts, examples).parent

    return write


def read(folder):
    return PageReader((folder / "report.html").read_text(encoding="utf-8"))


def replace_strings(content, new):
    """Put another text in the place of every string that a user or a data set decides about."""
    if isinstance(content, dict):
        return {key: replace_strings(value, new) for key, value in content.items()}
    if isinstance(content, list):
        return [replace_strings(value, new) for value in content]
    return new if isinstance(content, str) else content


def make_nasty(folder, nasty=NASTY):
    """Make every text and name of a run nasty."""
    metrics = json.loads((folder / "metrics.json").read_text())
    evidence = json.loads((folder / "report.json").read_text())
    for name in ("command", "recipe", "data", "bad_rows", "versions", "model_name_or_path"):
        metrics[name] = replace_strings(metrics[name], nasty)
    evidence["environment"] = replace_strings(evidence["environment"], nasty)
    for block in (block for blocks in evidence["blocks"].values() for block in blocks):
        if "rows" in block:
            block["rows"] = replace_strings(block["rows"], nasty)
    text = json.dumps([metrics, evidence])
    # tasks and their logs also have names
    text = text.replace("moods", json.dumps(nasty)[1:-1])
    for name, content in zip(("metrics.json", "report.json"), json.loads(text), strict=True):
        (folder / name).write_text(json.dumps(content))


def test_every_task_has_a_section_and_every_anchor_its_target(write):
    page = read(write())

    assert page.faults == []
    titles = [title.strip() for title in page.texts["h2"]]
    assert titles == ["Results", "moods", "pairs", "scores", "Training", "Data", "Environment"]
    names = {found["id"] for _, found in page.elements if "id" in found}
    assert {link.removeprefix("#") for link in page.links if link.startswith("#")} <= names
    sections = page.find("section")
    assert all(section["aria-labelledby"] in names for section in sections)


def test_the_page_needs_nothing_but_itself(write):
    text = (write() / "report.html").read_text()
    page = PageReader(text)

    assert all(link.startswith("#") or link == "data:," for link in page.links)
    assert not re.search(r"url\((?!#)|@import|https?:|//[a-z]", text)
    assert not page.find("script")
    (policy,) = page.find("meta", **{"http-equiv": "Content-Security-Policy"})
    assert policy["content"].startswith("default-src 'none'")


def test_plots_have_names_and_tables_have_headers(write):
    page = read(write())

    plots = [svg for svg in page.find("svg") if svg.get("aria-hidden") != "true"]
    assert plots
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in plots)
    for table in re.findall(
        r"<table.*?</table>", write().joinpath("report.html").read_text(), re.DOTALL
    ):
        assert '<th scope="col"' in table
    assert all(found["scope"] in ("row", "col") for found in page.find("th"))


def test_the_numbers_equal_metrics_json(write):
    folder = write()
    metrics = json.loads((folder / "metrics.json").read_text())

    rows = [" ".join(row.split()) for row in read(folder).texts["tr"]]

    for name, value in metrics["validation"]["metrics"].items():
        if name in ("mean", "leaderboard"):
            task, metric = "all tasks", name
        else:
            task, metric = name.split("_", 1)
        error = metrics["validation"]["standard_errors"].get(task)
        is_primary = metric in ("accuracy", "pearson")
        begin = f"{task}{metric}{value:.4f}" + (f" ± {error:.4f}" if is_primary else "")
        (row,) = [row for row in rows if row.startswith(f"{task}{metric}")]
        assert row.startswith(begin)
        assert f"{metrics['train']['metrics'][name]:.4f}" in row


def test_the_confusion_matrix_matches_the_predictions(write, found, encoded):
    folder = write()

    predictions = found[2]["moods", "validation"].predictions
    expected = confusion_matrix(encoded["moods"]["validation"]["labels"], predictions)

    cells = re.findall(r'<td class="n cell"[^>]*>([\d,]+)<', (folder / "report.html").read_text())
    assert [int(cell) for cell in cells[:9]] == expected.flatten().tolist()


def test_the_calibration_error_matches_the_predictions(write, found, encoded):
    outputs = found[2]["moods", "validation"]
    said = torch.softmax(torch.as_tensor(outputs.logits), dim=1).amax(dim=1).double().numpy()
    is_right = outputs.predictions == np.asarray(encoded["moods"]["validation"]["labels"])
    bins = np.ceil(said * 10)  # (0, 0.1], (0.1, 0.2], ...
    parts = [bins == number for number in np.unique(bins)]
    error = sum(abs(is_right[part].mean() - said[part].mean()) * part.mean() for part in parts)

    texts = [text for text in read(write()).texts["figcaption"] if "calibration error" in text]

    assert f"error {error:.3f}: mean confidence {said.mean():.3f}, accuracy" in texts[0]


def test_the_worst_errors_are_quoted_with_the_texts_of_their_rows(write, found, encoded):
    folder = write(examples=3)

    errors = read_blocks(folder, "scores")["Worst errors"]["rows"]

    outputs = found[2]["scores", "validation"]
    distances = np.abs(outputs.predictions - np.asarray(encoded["scores"]["validation"]["labels"]))
    row = int(distances.argmax())
    assert len(errors) == 3
    assert errors[0]["id"] == f"scores-{row}"
    assert errors[0]["texts"] == [f"sentence1 of {row}", f"sentence2 of {row}"]
    assert errors[0]["size"] == pytest.approx(distances.max())
    assert f"sentence2 of {row}</p>" in (folder / "report.html").read_text()


def test_without_examples_no_text_leaves_the_data(write):
    folder = write(examples=0)

    for name in ("report.json", "report.html"):
        assert "sentence1 of" not in (folder / name).read_text()
    assert read(folder).faults == []


def test_a_long_text_is_folded_and_a_very_long_one_cut(write):
    folder = write(" and on" * 1000)

    page = read(folder)

    assert page.faults == []
    errors = read_blocks(folder, "moods")["Worst errors"]["rows"]
    assert len(errors[0]["texts"][0]) < MAX_QUOTED_CHARACTERS + 10
    folded = page.find("details", **{"class": "text", "dir": "auto"})
    assert len(folded) == sum(
        len(row["texts"])
        for task in tiny.SIZES
        for block in read_blocks(folder, task).values()
        if block["kind"] == "examples"
        for row in block["rows"]
    )
    assert (folder / "report.html").stat().st_size < 300_000


def test_what_comes_from_data_is_text_and_nothing_else(write):
    folder = write(model_name_or_path="owner/model")
    before = read(folder)
    make_nasty(folder)

    write_report(folder)

    text = (folder / "report.html").read_text(encoding="utf-8")
    page = PageReader(text)
    assert page.faults == []
    assert [tag for tag, _ in page.elements] == [tag for tag, _ in before.elements]
    # no attribute came out of a quoted text
    assert [sorted(found) for _, found in page.elements] == [
        sorted(found) for _, found in before.elements
    ]
    assert "<script" not in text
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", text)
    shown = NASTY.replace("\x00", "\u2400").replace("\x07", "\u2407").replace("\x85", "\ufffd")
    assert shown in [name.strip() for name in page.texts["h2"]]
    assert any(shown in svg.get("aria-label", "") for svg in page.find("svg"))
    assert shown in page.texts["bdi"]


@pytest.mark.parametrize("count", [15, pytest.param(60, marks=pytest.mark.slow)])
def test_any_text_is_text_and_nothing_else(write, count):
    folder = write(model_name_or_path="owner/model", recipe="seed: 1")
    files = {name: (folder / name).read_bytes() for name in ("metrics.json", "report.json")}
    before = [tag for tag, _ in read(folder).elements if tag != "wbr"]

    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    @given(st.text(LETTERS, min_size=1, max_size=30).filter(str.strip))
    def check(text):
        for name, content in files.items():
            (folder / name).write_bytes(content)
        make_nasty(folder, text)
        write_report(folder)

        page = read(folder)
        assert page.faults == []
        assert [tag for tag, _ in page.elements if tag != "wbr"] == before
        shown = [" ".join(one.split()) for one in page.texts["bdi"]]
        assert " ".join(printable(text).split()) in shown

    check()


def test_lone_surrogates_and_controls_become_printable():
    assert printable({"a\ud800": ["\x1b[0m", 1.5, None]}) == {"a\ufffd": ["\u241b[0m", 1.5, None]}
    assert printable("line\n\ttab\U0001f600") == "line\n\ttab\U0001f600"


def test_a_surrogate_in_the_command_does_not_cost_the_page(write):
    folder = write(command="finetune.py --output_dir \udcff")

    assert "--output_dir \ufffd" in (folder / "report.html").read_text(encoding="utf-8")


def test_a_run_with_tasks_alone_in_its_log_is_drawn_by_its_steps(write):
    folder = write()

    labels = [svg.get("aria-label", "") for svg in read(folder).find("svg")]

    assert any("training: 1.25 at 1," in label for label in labels)
    assert "Nothing was logged" in (folder / "report.html").read_text()  # of scores


def test_the_step_whose_weights_were_kept_is_marked_if_it_is_not_the_last(
    write, found, monkeypatch
):
    assert "The vertical line" not in (write() / "report.html").read_text()
    monkeypatch.setattr(found[0].state, "best_global_step", 1)
    monkeypatch.setattr(found[0].args, "load_best_model_at_end", True)

    text = (write() / "report.html").read_text()

    assert text.count("The vertical line marks step 1, whose weights were evaluated.") == 3
    assert "Evaluated at step 1, whose weights were the best." in text
    assert re.search(r"the best\. That was after [\d.]+ of [\d.]+ epochs?\.", text)


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("out/base/seed-1", "base, seed 1"),
        ("run", "run"),
        ("a/seed-x", "seed-x"),
        ("a/my-seed-1", "my-seed-1"),
    ],
)
def test_a_run_of_many_seeds_is_named_after_its_row(write, folder, name):
    written = write()
    moved = written.parent / "moved" / folder
    moved.parent.mkdir(parents=True)
    written.rename(moved)

    write_report(moved)

    assert read(moved).texts["h1"] == [name]


@pytest.mark.parametrize(
    ("epochs", "title", "steps"),
    [(3.0, "all 3 epochs", 90), (1.0, "the only epoch", 30), (2.5, "epoch 1 if it were whole", 30)],
)
def test_changing_shares_are_of_the_whole_run(tmp_path, encoded, epochs, title, steps):
    sampling = Annealed()
    trainer = tiny.make_trainer(tmp_path, own={"sampling": sampling, "steps_per_epoch": 30})
    trainer.state.epoch = epochs

    write_evidence(trainer, encoded, {})

    evidence = json.loads((tmp_path / "report.json").read_text())
    assert evidence["shares_of"] == title
    assert sum(share["steps"] for share in evidence["shares"].values()) == steps


def test_the_page_explains_the_shares(write):
    folder = write()
    for title in ("an epoch", "all 4 epochs"):
        evidence = json.loads((folder / "report.json").read_text())
        evidence["shares_of"] = title
        (folder / "report.json").write_text(json.dumps(evidence))

        write_report(folder)

        assert f"Share of each task in {title}" in read(folder).texts["h3"]


def test_the_page_can_be_made_again_of_the_folder_alone(write):
    folder = write()
    before = (folder / "report.html").read_bytes()
    (folder / "report.html").unlink()

    assert write_report(folder) == folder / "report.html"

    assert (folder / "report.html").read_bytes() == before


def test_one_task_has_no_mean_of_its_metric(write):
    folder = write()
    assert "all tasks" in [text.strip() for text in read(folder).texts["bdi"]]
    for name in ("metrics.json", "report.json"):
        content = json.loads((folder / name).read_text())
        for part in ("problem_types", "tasks", "curves"):
            if part in content:
                content[part] = {"moods": content[part]["moods"]}
        (folder / name).write_text(json.dumps(content))

    write_report(folder)

    rows = [" ".join(row.split()) for row in read(folder).texts["tr"]]
    assert any(row.startswith("moodsaccuracy") for row in rows)
    assert "all tasks" not in [text.strip() for text in read(folder).texts["bdi"]]


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1 row"), (1.0, "1 row"), (0, "0 rows"), (2.5, "2.5 rows"), (1e4, "1")]
)
def test_one_is_singular(number, text):
    assert count(number, "row").startswith(text)
    assert count(number, "row").endswith("row" if number == 1 else "rows")


def test_the_header_counts_epochs(write):
    folder = write()
    content = json.loads((folder / "metrics.json").read_text())
    for steps, epochs, expected in ((1, 1.0, "1 optimizer step, 1 epoch,"), (9, 3, "9 optimizer")):
        content |= {"steps": steps, "epochs": epochs}
        (folder / "metrics.json").write_text(json.dumps(content))
        write_report(folder)
        assert any(text.startswith(expected) for text in read(folder).texts["p"])


def test_errors_are_rows_of_a_table_and_most_are_folded(write):
    folder = write(examples=7)

    text = (folder / "report.html").read_text()

    errors = read_blocks(folder, "scores")["Worst errors"]["rows"]
    section = text[text.index('id="section-4"') :]
    shown, folded = re.findall(r'<table class="errors">.*?</table>', section, re.DOTALL)
    assert len(errors) == 7
    assert shown.count('<td class="quoted">') == 5
    assert folded.count('<td class="quoted">') == 2
    assert all(error["id"] in shown for error in errors[:5])
    assert "<summary>2 more</summary>" in section


def test_the_best_evaluation_is_named_with_its_epoch(write, found, monkeypatch):
    found[0].state.log_history = [
        {"step": step, "eval_moods_accuracy": value, "eval_moods_loss": 1 - value}
        for step, value in ((1, 0.25), (2, 0.75), (3, 0.5))
    ]
    monkeypatch.setattr(found[0].state, "global_step", 3)
    monkeypatch.setattr(found[0].state, "epoch", 1.5)

    text = (write() / "report.html").read_text()

    assert "Ringed: the best accuracy, 0.75 at step 2, epoch 1." in text
    assert "Ringed: the best held-out loss, 0.25 at step 2, epoch 1." in text


def test_a_loss_that_is_no_number_is_shown_as_such(write, found):
    found[0].state.log_history = [{"step": 1, "loss_moods": float("nan")}]

    folder = write()

    assert "No finite value was logged." in (folder / "report.html").read_text()


@pytest.mark.parametrize("name", ["metrics.json", "report.json"])
@pytest.mark.parametrize(("content", "message"), [(None, "has no {}"), ("{", "{}' cannot be read")])
def test_a_folder_that_is_no_run_is_named(write, name, content, message):
    folder = write()
    (folder / name).unlink()
    if content:
        (folder / name).write_text(content)

    with pytest.raises(ValueError, match=message.format(name)):
        write_report(folder)


def test_a_report_that_fails_costs_neither_run_nor_results(found, encoded, write, caplog):
    folder = write()
    (folder / "report.html").unlink()
    (folder / "report.html").mkdir()  # nobody can write a page there
    before = (folder / "metrics.json").read_bytes()

    assert report_run(found[0], encoded, found[2]) is None

    assert "report.html could not be written" in caplog.text
    assert (folder / "metrics.json").read_bytes() == before
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_evaluating_training_rows_leaves_every_random_state(found, encoded):
    def read_states():
        of_numpy = np.random.get_state()  # noqa: NPY002  the one that the Trainer saves
        return random.getstate(), pickle.dumps(of_numpy), torch.get_rng_state().tolist()

    before = read_states()

    evaluate_run(found[0], {task: {"train": rows["train"]} for task, rows in encoded.items()})

    assert read_states() == before


def test_the_training_rows_are_spread_and_always_the_same():
    rows = tiny.make_rows("moods", 40)

    chosen = spread(rows, 4)

    assert chosen["id"][:] == ["moods-0", "moods-13", "moods-26", "moods-39"]
    assert spread(rows, 40) is rows
