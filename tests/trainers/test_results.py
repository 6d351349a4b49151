"""Results of a run: computed once, written whole."""

import json

import pytest
from huggingface_hub import ModelCard

from tests.trainers import tiny
from trainers import FinishedRun, RunFacts, evaluate_run, write_card, write_results

TEMPLATE = "---\n{{ card_data }}\n---\n{{ path }}\n{{ results }}\n{{ rows.pairs.test }}\n"
FACTS = RunFacts(
    command="accelerate launch finetune.py",
    recipe="seed: 1",
    model_name_or_path=None,
    data=dict.fromkeys(tiny.SIZES, "own"),
    bad_rows={"moods": ["a.tsv:3: no label"]},
)


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


def test_results_are_written(trainer, encoded, tmp_path):
    rows = select(encoded, "validation")
    write_results(FinishedRun(trainer, rows, *evaluate_run(trainer, rows), FACTS))

    metrics = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert set(metrics["versions"]) == {"torch", "transformers", "accelerate", "datasets"}
    assert metrics["bad_rows"] == {"moods": ["a.tsv:3: no label"]}
    assert set(metrics["tasks"]) == set(tiny.SIZES)


@pytest.mark.parametrize(
    ("start", "base"), [(None, None), ("owner/bert", "owner/bert"), ("{folder}", None)]
)
def test_a_card_names_the_base_model_if_the_hub_has_it(trainer, encoded, tmp_path, start, base):
    template = tmp_path / "template.md"
    template.write_text(TEMPLATE)
    start = None if start is None else start.format(folder=tmp_path)
    known = RunFacts(**{**vars(FACTS), "model_name_or_path": start})
    found = evaluate_run(trainer, select(encoded))

    write_card(template, FinishedRun(trainer, encoded, *found, known))

    text = (tmp_path / "run" / "README.md").read_text()
    card = ModelCard(text)
    assert card.data.base_model == base
    # all tasks have the same data, but none takes the results of another
    assert {result.task_name for result in card.data.eval_results} == set(tiny.SIZES)
    assert str(tmp_path / "run") in text
    assert text.rstrip().endswith("7")
