"""Predicting from several threads: every answer is that of one thread, and nothing else changes."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from transformers.dynamic_module_utils import get_class_from_dynamic_module

THREADS = 8
TEXTS = ["a cat sat on the mat", "the bird sang", "not a dog " * 5, "very far in the tree " * 3]
PAIRS = [(first, second) for first in TEXTS for second in TEXTS[:2]]
MORE = {
    "brief": {"problem_type": "classification", "labels": ["no", "yes"], "max_length": 8},
    "ends": {"problem_type": "classification", "labels": ["a", "b"], "truncation": "head_tail"},
    "long": {
        "problem_type": "classification",
        "labels": ["a", "b"],
        "truncation": "windows",
        "window_overlap": 4,
    },
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X"], "max_length": 9},
    "ask": {"problem_type": "question_answering", "max_question_length": 6, "doc_stride": 3},
}


@pytest.fixture
def model(build_multitask, tokenizer, tasks):
    """Return a model with a task of every kind, of several lengths and truncations."""
    own = build_multitask({**tasks, **MORE}, hidden_dropout_prob=0.5)
    own.tokenizer = own.base_model.tokenizer = tokenizer
    return own


def list_calls(model):
    """List calls of every method that predicts, in several precisions and lengths."""
    return [
        lambda: model.encode(TEXTS).tolist(),
        lambda: model.encode(TEXTS, task="near").tolist(),
        lambda: model.encode(TEXTS, truncation="windows", precision="bfloat16").tolist(),
        lambda: model.bert.encode(TEXTS, precision="bfloat16").tolist(),
        lambda: model.encode(TEXTS, precision="int8").tolist(),
        lambda: model.predict("tone", TEXTS, top_k=3),
        lambda: model.predict("brief", TEXTS, precision="bfloat16"),
        lambda: model.predict("ends", TEXTS),
        lambda: model.predict("long", TEXTS),
        lambda: model.predict("tags", TEXTS),
        lambda: model.predict("near", PAIRS, precision="float32"),
        lambda: model.predict_all(PAIRS, ["same", "near", "echo"]),
        lambda: model.predict("ask", [("the cat?", TEXTS[3])]),
    ]


def watch(module, look):
    """Let another thread look at something while a module computes; returns what it saw."""
    seen = []

    def hook(*_):
        handle.remove()
        with ThreadPoolExecutor(1) as other:
            seen.append(other.submit(look).result())

    handle = module.register_forward_hook(hook)
    return seen


@pytest.mark.parametrize("training", [False, True])
def test_eight_threads_give_the_answers_of_one(model, training):
    calls = list_calls(model)
    expected = [call() for call in calls]
    model.train(training)
    start = threading.Barrier(THREADS)

    def run(number):
        order = [(number * 7 + place) % len(calls) for place in range(len(calls))]
        start.wait()
        return [place for _ in range(2) for place in order if calls[place]() != expected[place]]

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(run, range(THREADS))) == [[]] * THREADS

    assert {module.training for module in model.modules()} == {training}
    assert model.base_model.precision is None


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_a_precision_is_seen_by_its_own_call_alone(model, precision):
    batch = model.tokenizer(TEXTS[:2], padding=True, return_tensors="pt")

    def look():
        with torch.no_grad():
            return model.base_model(**batch).last_hidden_state, model.encode(TEXTS)

    expected = look()
    reduced = model.encode(TEXTS, precision=precision)
    seen = watch(model.base_model.embeddings, look)

    assert torch.equal(model.encode(TEXTS, precision=precision), reduced)
    assert all(map(torch.equal, seen[0], expected))


def test_a_call_that_ends_first_does_not_end_the_evaluation_mode_of_another(model):
    expected = model.predict("tone", TEXTS)
    model.train()
    first, begun, ended, other = (
        threading.current_thread(),
        threading.Event(),
        threading.Event(),
        [],
    )

    def hook(*_):
        if threading.current_thread() is not first:
            begun.set()
            ended.wait(60)
        elif not other:
            other.append(pool.submit(model.bert.encode, TEXTS))
            begun.wait(60)

    with ThreadPoolExecutor(1) as pool:
        # before the first dropout
        handle = model.base_model.embeddings.LayerNorm.register_forward_hook(hook)
        try:
            assert model.predict("tone", TEXTS) == expected
        finally:
            ended.set()
        vectors = other[0].result()
    handle.remove()
    assert all(module.training for module in model.modules())
    assert torch.equal(vectors, model.bert.encode(TEXTS))


def test_the_code_of_a_checkpoint_predicts_in_a_precision(model, tmp_path):
    """transformers loads it twice, for the configuration with the tasks and for the model."""
    model.save_pretrained(tmp_path)
    config_class, model_class = (
        get_class_from_dynamic_module(name, tmp_path)
        for name in (
            "configuration_minbert.MinBertConfig",
            "multitask.MinBertForMultiTask",
        )
    )
    config = config_class.from_pretrained(tmp_path)
    other = model_class.from_pretrained(tmp_path, config=config).eval()
    other.tokenizer = other.base_model.tokenizer = model.tokenizer

    own_code = f"{type(other).__module__.rpartition('.')[0]}.pooled"
    assert type(other.heads.get("tone")).__module__ == own_code
    assert type(other.config.task("tone")).__module__ not in ("modeling_minbert", own_code)
    for call, own in zip(list_calls(other), list_calls(model), strict=True):
        assert call() == own()
    assert other.predict("tone", TEXTS, precision="bfloat16") == model.predict(
        "tone", TEXTS, precision="bfloat16"
    )
    assert other.predict("tone", TEXTS, precision="bfloat16") != other.predict("tone", TEXTS)
