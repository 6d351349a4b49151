"""``minbert finetune`` on tags, from files in CoNLL columns to entities in a text."""

import json

import pytest
from huggingface_hub import ModelCard

from tests import small_run

SPLITS = {"train": 24, "testa": 10, "testb": 5}
SENTENCES = (
    "ann X X I-PER\nmet X X O\nbob X X I-PER\n. X X O\n\n",
    "eve X X I-PER\nwent X X O\nto X X O\nrome X X I-LOC\n. X X O\n\n",
)


def write_files(folder):
    """Write a file for every split, with IOB1 tags, the test one without tags."""
    for split, count in SPLITS.items():
        text = "-DOCSTART- -X- O O\n\n" + "".join(SENTENCES[n % 2] for n in range(count))
        if split == "testb":
            text = "\n".join(line.split(" ")[0] for line in text.split("\n"))
        (folder / f"eng.{split}").write_text(text, encoding="utf-8")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Run a recipe with tags beside a classification; return its folder and its output."""
    folder = tmp_path_factory.mktemp("tags")
    write_files(folder)
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    task = {"dataset": "conll2003", "data_dir": str(folder)}
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"], "ner": task}
    recipe |= {"max_length": 14, "load_best_model_at_end": True, "metric_for_best_model": "ner_f1"}
    return folder / "out", small_run.train(small_run.write_recipe(folder, recipe))


def test_entities_are_measured_and_reported(run):
    folder, printed = run
    metrics = json.loads((folder / "metrics.json").read_text())
    found = metrics["validation"]

    assert "ner_f1" in found["metrics"]
    assert found["rows"]["ner"] == SPLITS["testa"]
    assert {one["name"] for one in found["types"]["ner"]} == {"LOC", "PER"}
    assert "| ner  | PER  |" in printed
    assert metrics["splits"]["ner"]["train"]["rows"] == SPLITS["train"]
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<bdi>Types</bdi>" in page
    card = ModelCard.load(folder / "README.md")
    values = {(one.task_type, one.metric_type) for one in card.data.eval_results}
    assert ("token-classification", "f1") in values


def test_predictions_have_every_word(run):
    folder, _ = run
    lines = (folder / "predictions" / "ner-dev-output.txt").read_text().split("\n")
    given = (folder.parent / "eng.testa").read_text().split("\n")
    words = [line.split(" ")[0] for line in given if line and "DOCSTART" not in line]

    assert [line.split(" ")[0] for line in lines if line] == words
    assert {len(line.split(" ")) for line in lines if line} == {3}
    unlabelled = (folder / "predictions" / "ner-test-output.txt").read_text().split("\n")
    assert {len(line.split(" ")) for line in unlabelled if line} == {2}
