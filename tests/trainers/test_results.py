"""Results of a run: computed once, written whole."""

import json

import numpy as np
import pytest
from huggingface_hub import ModelCard

from tests.trainers import tiny
from trainers import RunFacts, evaluate_run, make_problems, write_card, write_results
from trainers.reports.results import LIBRARIES, Results

TEMPLATE = "---\n{{ card_data }}\n---\n{{ path }}\n{{ results }}\n{{ rows.pairs.test }}\n"


@pytest.fixture
def encoded():
    """Return rows of every split; the test rows of one task have no labels."""
    rows = {task: {"train": tiny.make_rows(task, 12)} for task in tiny.SIZES}
    for task, splits in rows.items():
        splits["validation"] = tiny.make_rows(task, 11, seed=1)
        splits["test"] = tiny.make_rows(task, 7, seed=2)
    rows["moods"]["test"] = rows["moods"]["test"].remove_columns("labels")
    return rows


def select(encoded, *splits):
    """Select some splits of every task; by default the held-out ones."""
    splits = splits or ("validation", "test")
    return {task: {split: rows[split] for split in splits} for task, rows in encoded.items()}


@pytest.fixture
def trainer(make_trainer):
    """Return a trainer whose log holds one loss."""
    trainer = make_trainer()
    trainer.state.log_history = [{"step": 1, "loss_moods": 1.0}]
    return trainer


@pytest.fixture
def facts():
    """Return the facts of a run."""
    return RunFacts(
        command="accelerate launch finetune.py",
        recipe="seed: 1",
        model_name_or_path=None,
        data=dict.fromkeys(tiny.SIZES, "own"),
        bad_rows={"moods": ["a.tsv:3: no label"]},
    )


def test_every_held_out_row_is_predicted(trainer, encoded):
    results, outputs = evaluate_run(trainer, select(encoded))

    assert {key: len(found.predictions) for key, found in outputs.items()} == {
        (task, split): count
        for task in tiny.SIZES
        for split, count in (("validation", 11), ("test", 7))
    }
    assert results["test"].rows == {"pairs": 7, "scores": 7}
    assert set(outputs["pairs", "test"].predictions) <= {0, 1}
    assert outputs["pairs", "test"].logits.shape == (7, 1)
    assert outputs["moods", "test"].labels is None


def test_results_are_the_metrics_of_the_predictions(trainer, encoded):
    results, outputs = evaluate_run(trainer, select(encoded))

    labels = np.asarray(encoded["moods"]["validation"]["labels"])
    accuracy = (outputs["moods", "validation"].predictions == labels).mean()
    assert results["validation"].metrics["moods_accuracy"] == pytest.approx(accuracy)


def test_training_rows_are_measured_but_not_predicted(trainer, encoded, facts, tmp_path):
    rows = select(encoded, "train", "validation")

    results, outputs = evaluate_run(trainer, rows)
    write_results(trainer, encoded, results, outputs, facts)

    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert metrics["train"]["rows"] == dict.fromkeys(tiny.SIZES, 12)
    labels = np.asarray(encoded["moods"]["train"]["labels"])
    accuracy = (outputs["moods", "train"].predictions == labels).mean()
    assert metrics["train"]["metrics"]["moods_accuracy"] == pytest.approx(accuracy)
    names = {path.name for path in (tmp_path / "run" / "predictions").iterdir()}
    assert names == {f"{task}-dev{end}" for task in tiny.SIZES for end in ("-output.csv", ".npz")}


def test_auxiliary_tasks_are_not_compared(make_trainer, encoded, facts, tmp_path):
    trainer = make_trainer(own={"tasks": tiny.make_tasks(moods={"auxiliary": True})})
    rows = select(encoded, "validation")
    write_results(trainer, rows, *evaluate_run(trainer, rows), facts)

    samples = {path.name for path in (tmp_path / "run" / "predictions").glob("*.npz")}
    assert samples == {"pairs-dev.npz", "scores-dev.npz"}


def test_results_are_written(trainer, encoded, facts, tmp_path):
    write_results(trainer, encoded, *evaluate_run(trainer, select(encoded)), facts)

    folder = tmp_path / "run"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert set(metrics["versions"]) == set(LIBRARIES)
    assert metrics["bad_rows"] == {"moods": ["a.tsv:3: no label"]}
    assert set(metrics["tasks"]) == set(tiny.SIZES)
    assert len(list((folder / "predictions").iterdir())) == 9
    first = (folder / "predictions" / "moods-test-output.csv").read_text().splitlines()[1]
    assert first.startswith("moods-0 , ")


def test_the_table_is_markdown_with_the_primary_metric_first():
    metrics = {"moods_accuracy": 0.51234, "moods_macro_f1": 0.4, "my_scores_pearson": -0.125}
    metrics |= {"my_scores_spearman": 0.25, "mean": 0.2, "leaderboard": 0.47}
    results = Results(metrics, {"moods": 0.015}, {"moods": 1101, "my_scores": 9})
    problems = make_problems({"moods": "classification", "my_scores": "similarity"})

    assert results.table(problems).splitlines() == [
        "| task      | metric      |   value | standard error |  rows |",
        "| --------- | ----------- | ------: | -------------: | ----: |",
        "| moods     | accuracy    |  0.5123 |         0.0150 | 1,101 |",
        "| moods     | macro_f1    |  0.4000 |                | 1,101 |",
        "| my_scores | pearson     | -0.1250 |                |     9 |",
        "| my_scores | spearman    |  0.2500 |                |     9 |",
        "| all       | mean        |  0.2000 |                |       |",
        "| all       | leaderboard |  0.4700 |                |       |",
    ]


@pytest.mark.parametrize(
    ("start", "base"), [(None, None), ("owner/bert", "owner/bert"), ("{folder}", None)]
)
def test_a_card_names_the_base_model_if_the_hub_has_it(
    trainer, encoded, facts, tmp_path, start, base
):
    template = tmp_path / "template.md"
    template.write_text(TEMPLATE)
    start = None if start is None else start.format(folder=tmp_path)
    known = RunFacts(**{**vars(facts), "model_name_or_path": start})

    write_card(template, trainer, encoded, evaluate_run(trainer, select(encoded))[0], known)

    text = (tmp_path / "run" / "README.md").read_text()
    card = ModelCard(text)
    assert card.data.base_model == base
    # all tasks have the same data, but none takes the results of another
    assert {result.task_name for result in card.data.eval_results} == set(tiny.SIZES)
    assert str(tmp_path / "run") in text
    assert text.rstrip().endswith("7")
