"""Texts of any Unicode: trained on, predicted, written, read again and shown as what they are."""

import json

from hypothesis import strategies as st

from datasets_scripts import TaskData, load_task
from tests import small_run
from tests.any_input import attempt, check
from trainers import TaskCollator, TaskDataset

HEADS = {
    "classification": {"labels": ["bad", "good"], "pooling": "mean"},
    "multi_label_classification": {"labels": ["far", "near"]},
    "multi_output_classification": {"outputs": ["y"], "classes": [["low", "high"]]},
    "paraphrase": {},
    "similarity": {"score_range": [0, 5], "pair_encoding": "separate"},
    "regression": {"targets": ["y"], "mean": [1]},
    "contrastive": {"num_sentences": 2},
    "token_classification": {"labels": ["O", "B-X", "I-X"]},
    "question_answering": {"max_length": 24, "max_question_length": 8, "doc_stride": 4},
}
PAIRS = ("paraphrase", "similarity", "contrastive", "question_answering")
ODD = "\u200b\u200d\ufeff\u202e\u0301\u2028\x85\x00\x1b\r\n\t \xa0\U0001f600\U0001f469中<&\"'"
LETTERS = st.characters(codec="utf-8") | st.sampled_from(ODD + "ab.1")
TEXTS = st.text(LETTERS, max_size=20)
# Lists in memory may have halves of characters, which no file can hold.
MEMORY_TEXTS = st.text(LETTERS | st.sampled_from(["\ud800", "\udfff"]), max_size=20)
KINDS = st.sampled_from(sorted(HEADS))
LEARNED = KINDS.filter(lambda kind: kind != "multi_output_classification")  # needs two classes


PIECES = [*"ab.1<&中", "##a", "##b", "##1"]
TASKS = {name: {"problem_type": name, **keys} for name, keys in HEADS.items()}
MODEL = small_run.make_model(TASKS, PIECES, max_position_embeddings=40)


def make_row(kind, first, second):
    """Make a record of a type with two texts; its words and its answer are in them."""
    if kind == "token_classification":
        return {"tokens": [first, second], "tags": ["O", "B-X"]}
    if kind == "question_answering":
        answers = {"text": [second[1:3]], "answer_start": [1]}
        return {"question": first, "context": second, "answers": answers}
    labels = {"classification": "bad", "multi_label_classification": ["far"]}
    return {"a": first, "b": second, "y": labels.get(kind, 1)}


def describe(folder, kind, rows):
    """Write rows, the last of which is plain; return their task."""
    path = small_run.write_jsonl(folder / "rows.jsonl", rows)
    keys = {"problem_type": kind, "train_file": path, "validation_file": path}
    keys |= {"max_invalid_fraction": 0.99}
    if kind not in ("token_classification", "question_answering"):
        keys["text_columns"] = ["a", "b"] if kind in PAIRS else ["a"]
        keys |= {} if kind == "contrastive" else {"label_column": "y"}
    keys |= {name: HEADS[kind][name] for name in ("labels", "score_range") if name in HEADS[kind]}
    return TaskData.from_recipe(kind, keys)


@check(20, st.tuples(LEARNED, st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3)))
def test_any_text_is_trained_on_or_an_invalid_row(tmp_path, drawn):
    kind, texts = drawn
    rows = [make_row(kind, *pair) for pair in [*texts, ("a b", "b a 1")]]

    loaded = load_task(describe(tmp_path, kind, rows))
    encoding = MODEL.config.task(kind).encoding(24)
    encoded = loaded.encode(MODEL.tokenizer, encoding)["train"]
    dataset = TaskDataset({kind: encoded})
    batch = TaskCollator(0)(dataset.__getitems__(list(range(len(encoded)))))
    loss = MODEL(**batch).loss

    assert len(loaded.splits["train"]) + len(loaded.bad_rows) // 2 == len(rows)
    assert loss.isfinite()


def make_question(kind, pair):
    """Make a row for `predict` of two texts."""
    return pair if kind in PAIRS else pair[0]


def is_unicode(text):
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


@check(120, st.tuples(KINDS, st.lists(st.tuples(MEMORY_TEXTS, MEMORY_TEXTS), max_size=3)))
def test_any_text_is_predicted_or_an_error_that_names_its_row(tmp_path, drawn):
    del tmp_path
    kind, texts = drawn
    rows = [make_question(kind, pair) for pair in texts]

    found, message = attempt(lambda: MODEL.predict(kind, rows), ValueError)

    if message is None:
        assert len(found) == len(rows)
        json.dumps(found, allow_nan=False)
    else:
        assert message.startswith(f"{kind}: row ")
        assert "not valid Unicode" in message
        assert not all(is_unicode("".join(pair)) for pair in texts)
    whole = [row for row in texts if is_unicode("".join(row))]
    rows = [make_question(kind, pair) for pair in whole]
    assert len(MODEL.predict(kind, rows)) == len(whole)
