"""Calls whose rows share the passes of the encoder have the results of calls alone."""

import random

import pytest

from tests.modeling_minbert.test_predict_all import JOINT, LABELS, PAIRS, SEPARATE, SINGLE, TEXTS
from tests.same_predictions import assert_same

WINDOWS = {
    "problem_type": "classification",
    "labels": LABELS,
    "truncation": "windows",
    "max_length": 8,
    "window_overlap": 2,
}
OTHERS = {
    "facts": {"problem_type": "question_answering", "max_question_length": 5},
    "price": {"problem_type": "regression", "targets": ["low", "high"]},
    "long": WINDOWS,
    "far": {**SEPARATE["near"], "truncation": "windows", "max_length": 8, "window_overlap": 2},
}
KINDS = {"single texts": TEXTS, "pairs": PAIRS}


@pytest.fixture
def model(build_multitask, tokenizer):
    """Return a model with tasks of every type, reading, pooling and layer."""
    return build_multitask({**SINGLE, **JOINT, **SEPARATE, **OTHERS}, tokenizer)


def draw_calls(model, number):
    """Draw calls: names of tasks, or None for vectors, and rows."""
    draw = random.Random(number)
    kinds = {name: facts["rows"] for name, facts in model.list_tasks().items()}
    calls = []
    for _ in range(12):
        kind = draw.choice([*KINDS, "vectors"])
        rows = draw.choices(KINDS.get(kind, TEXTS), k=draw.randint(1, 4))
        names = [name for name in kinds if kinds[name] == kind]
        names = draw.sample(names, draw.randint(1, min(3, len(names)))) if names else None
        calls.append((names, rows))
    return calls


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("max_tokens", [None, 20])
def test_joined_calls_equal_calls_alone(model, attention, max_tokens):
    model.set_attn_implementation(attention)
    for number in range(5):
        calls = draw_calls(model, number)
        started = [
            model.start(names, rows, None) if names else model.start_vectors(rows)
            for names, rows in calls
        ]
        every = [job for jobs in started for job in jobs]
        model.compute(every, max_tokens)
        model.compute(every[::2], max_tokens)  # which changes nothing
        for (names, rows), jobs in zip(calls, started, strict=True):
            if names is None:
                assert_same(jobs[0].describe().tolist(), model.encode(rows).tolist())
                continue
            found = {name: value for job in jobs for name, value in job.describe().items()}
            expected = model.predict_all(rows, names)
            assert_same(sorted(found.items()), sorted(expected.items()))


def test_tasks_that_read_states_of_one_layer_share_a_pass(model):
    passes = []
    model.bert.register_forward_pre_hook(lambda *_: passes.append(1))
    jobs = model.start(["tags", "topics", "mean"], TEXTS, None)
    jobs += model.start(["same", "near"], PAIRS, None) + model.start_vectors(TEXTS)
    model.compute(jobs)
    assert len(passes) == 1


def test_vectors_have_the_options_of_encode(model):
    options = {"pooling": "max", "normalize": True, "truncate_dim": 5, "prompt": "the cat "}
    jobs = model.start_vectors(TEXTS, **options)
    model.compute(jobs)
    assert_same(jobs[0].describe().tolist(), model.encode(TEXTS, **options).tolist())


@pytest.mark.parametrize(
    ("tasks", "rows", "message"),
    [
        (["mean"], [("a", "b")], "row 0 is a pair, but mean takes single texts"),
        (["none"], ["a"], "none"),
        (["same"], [("a", "b"), ("a",)], "same: row 1 must be a pair"),
        (["same"], [], "there are no rows to start"),
    ],
)
def test_bad_rows_are_refused_when_they_are_tokenized(model, tasks, rows, message):
    with pytest.raises(ValueError, match=message):
        model.start(tasks, rows, None)
