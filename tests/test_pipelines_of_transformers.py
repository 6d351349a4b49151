"""Pipelines of transformers give the predictions of a checkpoint, or refuse with the reason."""

import pytest
import torch
from transformers import pipeline

from datasets_scripts import train_wordpiece
from tests import small_run

WORDS = [*small_run.THINGS, *small_run.GOOD, *small_run.BAD]
PAIR = {"pair_encoding": "joint", "pooling": "mean", "max_length": 16}
TEXT = {"pooling": "mean", "max_length": 16, "labels": ["low", "middle", "high"]}
SAME = {
    "classification": TEXT | {"temperature": 2.5},
    "classification of pairs": PAIR | {"problem_type": "classification", "labels": ["no", "yes"]},
}
REFUSED = {
    "multi_label_classification": TEXT,
    "paraphrase": PAIR | {"labels": ["other", "equal"]},
    "similarity": PAIR | {"score_range": [0, 5]},
    "contrastive": {"max_length": 16},
    "regression": {"mean": [900.0], "std": [40.0]},
    "classification": TEXT | {"truncation": "windows"},
    "classification of ends": TEXT | {"truncation": "tail"},
    "classification of vectors": TEXT | {"pair_encoding": "separate"},
    "token_classification": {"labels": ["O", "X"]},
    "question_answering": {"max_length": 16},
}


@pytest.fixture(scope="module")
def tokenizer():
    return train_wordpiece([" ".join(WORDS)] * 9, 100)


@pytest.fixture
def build(tokenizer):
    """Return a function that makes a model of one task, and its pipeline of transformers."""

    def build(name, fields):
        described = {"problem_type": name.split()[0]} | fields
        model = small_run.make_model({"own": described}, tokenizer, max_position_embeddings=40)
        with torch.no_grad():  # so that logits differ
            for head in model.heads.values():
                for weight in head.parameters():
                    weight.normal_()
        pipe = pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
        return model, pipe

    return build


def make_rows(model, words=8):
    """Make rows as the pipeline takes them, and as `predict` does."""
    generator = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(12):
        places = torch.randint(len(WORDS), (2, words), generator=generator).tolist()
        rows.append([" ".join(WORDS[place] for place in one) for one in places])
    if model.config.task("own").num_texts == 1:
        return [first for first, _ in rows], [first for first, _ in rows]
    named = [{"text": first, "text_pair": second} for first, second in rows]
    return named, [tuple(row) for row in rows]


@pytest.mark.parametrize("batch_size", [1, 5])
@pytest.mark.parametrize("name", SAME)
def test_the_answers_are_those_of_predict(build, name, batch_size):
    model, pipe = build(name, SAME[name])
    given, rows = make_rows(model, words=6)

    found = pipe(given, batch_size=batch_size)

    expected = model.predict("own", rows)
    scores = [row["score"] for row in expected]
    assert [row["score"] for row in found] == pytest.approx(scores, rel=1e-4)
    assert [row["label"] for row in found] == [row["label"] for row in expected]
    assert len({row["label"] for row in found}) > 1  # nothing to see otherwise
    (every,) = pipe(given[:1], top_k=None)
    (ranked,) = model.predict("own", rows[:1], top_k=9)
    assert [row["label"] for row in every] == [row["label"] for row in ranked]


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_pipeline_does_not_know_is_refused(build, name):
    _, pipe = build(name, REFUSED[name])

    with pytest.raises(ValueError, match=r"use predict\('own', ...\) of the model"):
        pipe({"text": "a", "text_pair": "b"})


def test_long_texts_are_cut_as_in_training_or_refused(build):
    model, pipe = build("classification", TEXT)
    given, rows = make_rows(model, words=30)

    with pytest.raises(ValueError, match=r"16 tokens of a text.* gives 32: pass truncation=True, "):
        pipe(given)
    with pytest.raises(ValueError, match=r"gives 32"):  # longer than the positions, too
        build("classification", TEXT | {"max_length": 20})[1](given, truncation=True)

    found = pipe(given, truncation=True, max_length=16)
    assert [row["label"] for row in found] == [row["label"] for row in model.predict("own", rows)]


def test_zero_shot_classification_is_calibrated_and_cut_or_refused(build):
    labels = ["contradiction", "entailment"]
    fields = PAIR | {"labels": labels, "temperature": 3.0, "max_length": 24}
    model, _ = build("classification", fields)
    pipe = pipeline("zero-shot-classification", model=model, tokenizer=model.tokenizer)
    text, options = "the river was warm", {"hypothesis_template": "{}"}

    found = pipe(text, candidate_labels=["song"], **options)

    (expected,) = model.predict("own", [(text, "song")], top_k=2)
    scores = {row["label"]: row["score"] for row in expected}
    assert found["scores"] == pytest.approx([scores["entailment"]], abs=1e-5)
    with pytest.raises(ValueError, match="24 tokens of a text"):
        pipe(" ".join(WORDS * 3), candidate_labels=["song"], **options)
