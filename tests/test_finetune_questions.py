"""``minbert finetune`` on questions about passages, beside another task, on passages of our own."""

import json
import random
import re

import pytest

from datasets_scripts import TaskData, load_task
from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.trainers.pages import read_blocks

NAMES = ("otto", "ida", "lena", "karl", "vera", "hugo", "mina", "paul")
FILLERS = ("the boat was slow", "rain fell on the hill", "a dog slept", "the road was long")
SIZES = {"train": 48, "dev": 12}


def make_questions(split, *, impossible, count=None):
    """Make an article: the answer is the word behind `named`, anywhere in a long passage."""
    generator = random.Random(split)
    paragraphs = []
    for number in range(count or SIZES[split]):
        name = generator.choice(NAMES)
        sentences = [generator.choice(FILLERS) for _ in range(generator.randint(1, 8))]
        is_impossible = impossible and number % 4 == 3
        if not is_impossible:
            sentences.insert(generator.randrange(len(sentences) + 1), f"a man named {name} came")
        context = ". ".join(sentences) + "."
        start = context.find(name)
        answers = [] if is_impossible else [{"text": name, "answer_start": start}]
        qas = {"id": f"{split}-{number}", "question": "what is the name?", "answers": answers}
        if impossible:
            qas["is_impossible"] = is_impossible
        paragraphs.append({"context": context, "qas": [qas]})
    return {"version": "x", "data": [{"title": "names", "paragraphs": paragraphs}]}


def test_a_run_from_files_to_answers_of_the_saved_model(tmp_path):
    keys = {"problem_type": "question_answering"}
    for split, key in {"train": "train_file", "dev": "validation_file"}.items():
        path = tmp_path / f"names-{split}.json"
        path.write_text(json.dumps(make_questions(split, impossible=True)), encoding="utf-8")
        keys[key] = str(path)
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    names = keys | {"auxiliary": True, "max_length": 28, "max_question_length": 8}
    names |= {"doc_stride": 9, "max_answer_length": 3}
    recipe["tasks"] = {"names": names, "moods": recipe["tasks"]["moods"]}
    recipe |= {"evaluate_train": False, "steps_per_epoch": 8, "num_train_epochs": 1}
    recipe["metric_for_best_model"] = "names_f1"

    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    out = tmp_path / "out"
    metrics = json.loads((out / "metrics.json").read_text())
    found = metrics["validation"]["metrics"]
    assert {"names_f1", "names_exact_match", "names_has_answer_f1"} <= found.keys()
    assert "names_best_f1_threshold" in found
    assert found["mean"] == pytest.approx(found["moods_accuracy"])  # the other one only helps
    written = {path.name for path in (out / "predictions").iterdir()}
    files = ("predictions", "null_odds")
    assert {f"names-dev-{name}.json" for name in files} <= written
    blocks = read_blocks(out, "names")
    errors = blocks["Worst errors"]["rows"]
    assert {error["texts"][0] for error in errors} == {"what is the name?"}

    rows = load_task(TaskData.from_recipe("names", keys)).splits["validation"]
    model = MinBertForMultiTask.from_pretrained(out)
    answers = model.predict("names", list(zip(rows["sentence1"], rows["sentence2"], strict=True)))
    predictions = json.loads((out / "predictions" / "names-dev-predictions.json").read_text())
    assert [answer["answer"] for answer in answers] == list(predictions.values())
    for answer, passage in zip(answers, rows["sentence2"], strict=True):
        assert passage[answer["start"] : answer["end"]] == answer["answer"]


def test_files_of_a_run_that_quotes_nothing_have_no_texts(tmp_path):
    questions = tmp_path / "names.json"
    text = json.dumps(make_questions("dev", impossible=False))
    questions.write_text(re.sub("|".join(NAMES), r"\g<0>zebra", text), encoding="utf-8")
    rows = [{"words": ["a ottozebra", "idazebra"], "tags": ["A", "B"]}] * 2
    tags = small_run.write_jsonl(tmp_path / "tags.jsonl", rows)
    tagged = {"problem_type": "token_classification", "words": "whitespace"}
    tagged |= {"text_columns": ["words"], "label_column": "tags"}
    recipe = small_run.make_recipe(tmp_path) | small_run.QUICK | {"max_steps": 1}
    recipe["tasks"] = {
        "tagged": tagged | dict.fromkeys(("train_file", "validation_file"), tags),
        "asked": {"problem_type": "question_answering"}
        | dict.fromkeys(("train_file", "validation_file"), str(questions)),
    }

    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    out = tmp_path / "out"
    contents = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert b"others are cut otherwise: predict" in contents[out / "metrics.json"]
    assert [path.name for path, text in contents.items() if b"zebra" in text] == ["tokenizer.json"]
