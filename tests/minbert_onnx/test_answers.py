"""An ONNX export answers as the model that it was made from."""

import numpy as np
import pytest

from modeling_minbert import export_onnx
from tests.minbert_onnx.examples import (
    LONG,
    PAIRS,
    PROMPTS,
    TASKS,
    TEXTS,
    assert_near,
    build,
    needs_onnx,
    rows_of,
)
from tests.same_predictions import assert_same

pytestmark = [needs_onnx, pytest.mark.slow]


@pytest.fixture(scope="module")
def model():
    return build(sentence_embedding={"pooling": "mean", "prompts": PROMPTS, "truncate_dim": 20})


@pytest.fixture(scope="module")
def runtime(model, tmp_path_factory):
    from minbert import load

    folder = tmp_path_factory.mktemp("onnx")
    path = export_onnx(model, folder)
    assert path == folder / "model.onnx"
    return load(folder)


@pytest.mark.parametrize("task", TASKS)
def test_predictions_of_every_task_are_equal(model, runtime, task):
    rows = rows_of(model, task)
    spec = model.config.task(task)
    for top_k in (None,) if spec.problem_type == "token_classification" else (None, 1, 2):
        expected = model.predict(task, rows, top_k=top_k)
        for tokens in (None, 30):
            found = runtime.predict(task, rows, top_k=top_k, max_tokens_per_batch=tokens)
            assert_same(found, expected)
        assert_same(list(runtime.predict_stream(task, iter(rows), top_k=top_k)), expected)
    assert runtime.predict(task, []) == []


@pytest.mark.parametrize("rows", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_predictions_of_all_tasks_are_equal(model, runtime, rows):
    assert runtime.choose_tasks(rows) == model.choose_tasks(rows)
    assert_same(runtime.predict_all(rows), model.predict_all(rows))
    found = list(runtime.predict_all_stream(iter(rows)))
    assert_same(found, list(model.predict_all_stream(iter(rows))))


def test_words_may_be_given(model, runtime):
    rows = [["the", "cat"], [], ["a"] * 60, ["\u200b", "far"]]
    for task in ("names", "marks", "parts"):
        assert_same(runtime.predict(task, rows), model.predict(task, rows))


OPTIONS = [
    *({"pooling": name} for name in ("cls", "mean", "max", "pooler")),
    *({"truncation": name} for name in ("head", "tail", "head_tail", "windows")),
    *({"task": name} for name in ("near", "pages", "deep", "all", "found")),
    {"normalize": True},
    {"normalize": True, "truncate_dim": 5},
    {"prompt": "the cat "},
    {"prompt_name": "query"},
    {"max_tokens_per_batch": 9, "show_progress": True},
]


@pytest.mark.parametrize("options", [{}, *OPTIONS], ids=str)
def test_vectors_are_equal(model, runtime, options):
    expected = model.encode(TEXTS, **options | {"show_progress": False})

    assert_near(runtime.encode(TEXTS, **options), expected)
    assert_near(runtime.encode(LONG, **options), expected[-1])
    assert runtime.encode([], **options).shape == (0, expected.shape[1])
    assert_near(runtime.encode_query(TEXTS, **options), model.encode_query(TEXTS, **options))
    assert_near(runtime.encode_document(TEXTS, **options), model.encode_document(TEXTS, **options))


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_similarities_are_equal(model, runtime, monkeypatch, name):
    monkeypatch.setattr(runtime.config.embedding, "similarity", name)
    embedding = {**model.config.sentence_embedding, "similarity": name}
    monkeypatch.setattr(model.config, "sentence_embedding", embedding)
    vectors = model.encode(TEXTS)

    assert runtime.similarity_fn_name == name
    assert_near(
        runtime.similarity(vectors.numpy(), vectors[:2].numpy()),
        model.similarity(vectors, vectors[:2]),
    )
    assert runtime.similarity(vectors[:0].numpy(), vectors.numpy()).shape == (0, len(TEXTS))


def test_rows_of_several_tasks_share_a_batch(model, runtime):
    asked = {"pages": PAIRS, "near": PAIRS[:3], "tone": TEXTS[:1], "names": TEXTS, "all": TEXTS}
    asked |= {"answer": PAIRS[:1], "close": PAIRS[2:3]}
    jobs = [job for name, rows in asked.items() for job in runtime.start([name], rows)]
    (vectors,) = runtime.start_vectors(TEXTS[:3], pooling="max")

    for tokens in (100_000, 60, None):
        runtime.compute([*jobs, vectors], tokens)

        for job, (name, rows) in zip(jobs, asked.items(), strict=True):
            assert_same(job.describe(), model.predict_all(rows, [name]))
        assert_near(vectors.describe(), model.encode(TEXTS[:3], pooling="max"))
    assert vectors.tokens == sum(len(model.tokenizer(text)["input_ids"]) for text in TEXTS[:3])


def test_equal_sequences_are_computed_once(runtime, monkeypatch):
    batches = []
    run = runtime._run
    monkeypatch.setattr(
        runtime, "_run", lambda units, jobs: batches.append(units) or run(units, jobs)
    )

    runtime.predict_all(TEXTS[:2], ["tone", "top", "topics"])

    assert [len(units) for units in batches] == [2]


def test_tasks_are_listed(runtime):
    listed = runtime.list_tasks()

    assert list(listed) == sorted(TASKS)
    assert listed["tone"] == {
        "problem_type": "classification",
        "rows": "single texts",
        "labels": ["low", "mid", "high"],
    }
    assert (listed["near"]["rows"], listed["price"]["labels"]) == ("pairs", None)


BAD = {
    "one string": lambda model: model.predict("tone", "the cat"),
    "a table": lambda model: model.predict("tone", {"text": TEXTS}),
    "a pair": lambda model: model.predict("tone", [*TEXTS, ("the", "cat")]),
    "no text": lambda model: model.predict("near", [*PAIRS, ("the", 3)]),
    "half a pair": lambda model: model.predict("tone", ["\ud800"]),
    "no words": lambda model: model.predict("names", [3]),
    "no number": lambda model: model.predict("tone", TEXTS, top_k=0),
    "tags": lambda model: model.predict("names", TEXTS, top_k=2),
    "task": lambda model: model.predict("tones", TEXTS),
    "tasks": lambda model: model.predict_all(TEXTS, ["tone", "near"]),
    "no tasks": lambda model: model.predict_all(TEXTS, []),
    "option": lambda model: model.predict("tone", TEXTS, batch_size=3),
    "tokens": lambda model: model.encode(TEXTS, max_tokens_per_batch=0),
    "pooling": lambda model: model.encode(TEXTS, pooling="mode"),
    "truncation": lambda model: model.encode(TEXTS, truncation="middle"),
    "prompt": lambda model: model.encode(TEXTS, prompt_name="poem"),
    "dimension": lambda model: model.encode(TEXTS, truncate_dim=0),
    "vectors of": lambda model: model.encode(TEXTS, task="names"),
    "vectors": lambda model: model.encode([*TEXTS, 3]),
    "similarity": lambda model: model.similarity(
        [[1]], np.asarray(model.encode(TEXTS)).astype("int8")
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_refused_in_the_same_words(model, runtime, name):
    errors = []
    for each in (model, runtime):
        with pytest.raises((TypeError, ValueError)) as caught:
            BAD[name](each)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


def test_a_precision_is_refused_with_the_way_out(runtime):
    with pytest.raises(
        ValueError, match=r"precision='int8': an ONNX file has one .*minbert export"
    ):
        runtime.predict("tone", TEXTS, precision="int8")
