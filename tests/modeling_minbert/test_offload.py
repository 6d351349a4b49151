"""Weights that accelerate loads from disk when they are needed."""

import pytest
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask

SENTENCES = ["the cat sat", "a dog", "the bird sang in the tree"]
PARTS = {
    "everything": {"": "disk"},
    "a layer and the heads": {
        "bert.embeddings": "cpu",
        "bert.encoder.layer.0": "cpu",
        "bert.encoder.layer.1": "disk",
        "bert.pooler": "disk",
        "heads": "disk",
    },
    "the encoder": {"bert": "disk", "heads": "cpu"},
    "the embeddings": {
        "bert.embeddings": "disk",
        "bert.encoder": "cpu",
        "bert.pooler": "cpu",
        "heads": "cpu",
    },
}


@pytest.fixture
def model(build_multitask, tasks, tokenizer, tmp_path):
    """Return a model of all tasks, which is also saved."""
    tags = {"problem_type": "token_classification", "labels": ["O", "B-X"]}
    facts = {"problem_type": "question_answering", "max_question_length": 5}
    weighed = {**tasks["tone"], "class_weights": [1, 2, 3]}
    tasks = {**tasks, "tone": weighed, "tags": tags, "facts": facts}
    model = build_multitask(tasks)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return model


@pytest.fixture
def load(tmp_path):
    """Return a function that loads the saved model with a map of devices."""

    def load(kind, device_map):
        places = {"device_map": device_map, "offload_folder": tmp_path / "offloaded"}
        return kind.from_pretrained(tmp_path / "model", **places)

    return load


def assert_same(found, expected):
    """Compare predictions of any type, up to rounding."""
    if isinstance(expected, dict):
        assert_same(list(found.items()), list(expected.items()))
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    else:
        is_number = isinstance(expected, float)
        assert found == (pytest.approx(expected, abs=1e-4) if is_number else expected)


@pytest.mark.parametrize("part", PARTS)
def test_an_offloaded_model_predicts_the_same(model, load, tiny_batch, part):
    offloaded = load(MinBertForMultiTask, PARTS[part])
    pairs = list(zip(SENTENCES, SENTENCES[::-1], strict=True))

    for task in ("tone", "tags", "near", "same", "facts"):
        rows = SENTENCES if task in ("tone", "tags") else pairs
        assert_same(offloaded.predict(task, rows), model.predict(task, rows))
    for options in ({}, {"task": "near"}, {"pooling": "pooler"}):
        assert_close(offloaded.encode(SENTENCES, **options), model.encode(SENTENCES, **options))
    logits = offloaded(**tiny_batch, task="tone").logits
    assert_close(logits, model(**tiny_batch, task="tone").logits)
