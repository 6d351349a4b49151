"""Predictions of several tasks from one pass equal those of `predict`, task by task."""

import pytest
import torch
from torch.testing import assert_close

from datasets_scripts import Encoding
from modeling_minbert import inference, tokenize
from tests.same_predictions import assert_same

TEXTS = ["the cat sat", "a dog", "the bird sang in the tree", "very far", "a cat is not a dog"]
PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))
LABELS = ["down", "level", "up"]

CLASSES = {"problem_type": "classification", "labels": LABELS}
SINGLE = {
    "pooled": CLASSES,
    "mean": {**CLASSES, "pooling": "mean"},
    "max": {**CLASSES, "pooling": "max", "head": "mlp"},
    "lower": {**CLASSES, "pooling": "cls", "pooling_layer": 1},
    "embedded": {**CLASSES, "pooling": "mean", "pooling_layer": 0},
    "topics": {"problem_type": "multi_label_classification", "labels": LABELS},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
}
JOINT = {
    "same": {"problem_type": "paraphrase"},
    "close": {"problem_type": "similarity", "score_range": [0, 5], "pooling": "mean"},
}
SEPARATE = {
    "near": {"problem_type": "similarity", "score_range": [1, 5], "pair_encoding": "separate"},
    "echo": {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "concat"},
    "one": {"problem_type": "contrastive", "num_sentences": 1},
    "three": {"problem_type": "contrastive", "num_sentences": 3},
}
OTHERS = {
    "facts": {"problem_type": "question_answering", "max_question_length": 5},
    "words": {"problem_type": "masked_lm"},
}


@pytest.fixture
def model(build_multitask, tokenizer):
    """Return a model with tasks of every problem type and pooling."""
    return build_multitask({**SINGLE, **JOINT, **SEPARATE, **OTHERS}, tokenizer)


@pytest.fixture
def count_passes(model):
    """Return a function that returns how many batches the encoder has computed since."""
    calls = []
    model.bert.register_forward_pre_hook(lambda *_: calls.append(1))

    def count():
        number = len(calls)
        calls.clear()
        return number

    return count


def predict_each(model, names, rows, **options):
    """Predict task by task."""
    return {name: model.predict(name, rows, **options) for name in names}


@pytest.mark.parametrize("precision", [None, "float32", "bfloat16", "int8"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("rows", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_all_predictions_equal_those_of_each_task(model, rows, attention, precision):
    model.set_attn_implementation(attention)

    found = model.predict_all(rows, precision=precision)

    names = sorted(SINGLE) if rows is TEXTS else sorted({**JOINT, **SEPARATE, "facts": {}})
    assert list(found) == names
    assert found == predict_each(model, names, rows, precision=precision)
    if precision is None:  # a sum in another order rounds otherwise
        model.set_attn_implementation("sdpa")
        assert_same(found, predict_each(model, names, rows))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("tasks", "rows", "passes"),
    # by the layer and by whether all tokens are read or only the first ones
    [(SINGLE, TEXTS, 4), (JOINT, PAIRS, 2), (SEPARATE, PAIRS, 1)],
    ids=["texts", "pairs", "separate"],
)
def test_the_encoder_runs_once_for_what_tasks_read(
    model, count_passes, tasks, rows, passes, attention
):
    model.set_attn_implementation(attention)

    model.predict_all(rows, [*tasks])
    assert count_passes() == passes
    predict_each(model, tasks, rows)
    assert count_passes() == len(tasks)


@pytest.mark.parametrize("packed", [False, True])
def test_outputs_of_several_tasks_equal_those_of_one(model, tokenizer, packed):
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    if packed:
        rows = tokenize(tokenizer, [(text,) for text in TEXTS], Encoding(20))
        batch = inference.pack(rows)

    with torch.no_grad():
        together = model(**batch, task=[*SINGLE, "words"])
        apart = {name: model(**batch, task=name) for name in together}

    for name, outputs in apart.items():
        for key, value in outputs.items():
            assert_close(together[name][key], value, rtol=0, atol=0)


def test_tasks_that_truncate_otherwise_share_what_they_do_not_truncate(build_multitask, tokenizer):
    tasks = {
        "long": CLASSES,
        "short": {**CLASSES, "max_length": 8},
        "end": {**CLASSES, "max_length": 8, "truncation": "tail"},
        "topics": {**SINGLE["topics"], "max_length": 8, "truncation": "head_tail"},
    }
    model = build_multitask(tasks, tokenizer)
    calls = []
    model.bert.register_forward_pre_hook(lambda *_: calls.append(1))

    for rows, passes in (
        (TEXTS, 1),
        ([*TEXTS, "the bird sang in the tree, very far, and a dog sat on a mat"], 4),
    ):
        calls.clear()
        found = model.predict_all(rows)
        assert len(calls) == passes
        assert found == predict_each(model, tasks, rows)


def test_tasks_may_split_texts_to_equal_windows(build_multitask, tokenizer):
    windows = {**CLASSES, "truncation": "windows", "max_length": 8, "window_overlap": 2}
    model = build_multitask({"one": windows, "other": {**windows, "pooling": "mean"}}, tokenizer)

    assert model.predict_all(TEXTS) == predict_each(model, ["one", "other"], TEXTS)


def test_words_that_the_tokenizer_drops_are_tagged_apart(model, count_passes):
    texts = ["the cat \u0301 sat", "a dog"]  # an accent alone

    found = model.predict_all(texts, ["pooled", "tags"])

    assert count_passes() == 2
    assert found == predict_each(model, found, texts)


@pytest.mark.parametrize(
    ("rows", "tasks", "message"),
    [
        (TEXTS, ["pooled", "same", "near"], "row 0 is a single text, but same takes pairs, near"),
        (PAIRS, ["pooled", "same", "mean"], "but pooled takes single texts, mean takes single"),
        ([*TEXTS, PAIRS[0]], ["pooled", "mean"], "pooled: row 5 must be a sentence"),
        (TEXTS, ["pooled", "tone"], "tone"),
        (TEXTS, ["words"], "'words' is a masked_lm task"),
        (TEXTS, [], "name at least one task"),
    ],
)
def test_rows_that_do_not_fit_are_refused(model, rows, tasks, message):
    with pytest.raises(ValueError, match=message):
        model.predict_all(rows, tasks)
