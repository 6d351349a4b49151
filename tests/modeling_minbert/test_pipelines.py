"""Pipelines of transformers on our checkpoints equal stock BERT; and pipelines of every task."""

import json
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
import transformers
from transformers import pipeline
from transformers.pipelines import AggregationStrategy

import modeling_minbert
from modeling_minbert import MinBertForMultiTask
from modeling_minbert.prediction import MinBertMultiTaskPipeline
from tests.modeling_minbert.test_remote_code import packages_without_this_project

TEXTS = ["the cat sat on a mat", "far", "a bird sang very well in the tree"]
PAIRS = [{"text": "the cat ran", "text_pair": "a dog was not far"}, {"text": TEXTS[0]}]
MASKED = ["the [MASK] sat on a mat", "a bird [MASK] very well"]
# task of transformers, class, inputs, options
STOCK = {
    "fill-mask": ("ForMaskedLM", MASKED, {"top_k": 4}),
    "targets": ("ForMaskedLM", MASKED[:1], {"targets": ["cat", "dog"]}),
    "text-classification": ("ForSequenceClassification", TEXTS, {"top_k": None}),
    "pairs": ("ForSequenceClassification", PAIRS, {"top_k": None}),
    "token-classification": ("ForTokenClassification", TEXTS, {}),
    "feature-extraction": ("Model", TEXTS, {}),
} | {
    f"{strategy.value} entities": (
        "ForTokenClassification",
        TEXTS,
        {"aggregation_strategy": strategy.value},
    )
    for strategy in AggregationStrategy
}
TASKS_OF = {
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "Model": "feature-extraction",
}
LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}

# One process for all: importing transformers takes longer than all the rest.
SCRIPT = """
import importlib.util, json, sys
from transformers import pipeline

assert importlib.util.find_spec("modeling_minbert") is None
results = []
for task, folder, inputs, options in json.loads(sys.stdin.read()):
    pipe = pipeline(task, model=folder, trust_remote_code=True, device="cpu")
    results.append(pipe(inputs, **options))
print(json.dumps(results, default=float))
"""


def assert_close(found, expected):
    """Compare nested results; scores up to rounding."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(expected, float | np.floating):
        assert found == pytest.approx(expected, abs=1e-5)
    else:
        assert found == expected


@pytest.fixture
def save_stock(tiny_sizes, tokenizer, tmp_path):
    """Return a function that saves a stock BERT, and ours with its weights, for a class."""

    def save(name):
        torch.manual_seed(0)
        more = {"id2label": LABELS, "label2id": {v: k for k, v in LABELS.items()}}
        bert = getattr(transformers, f"Bert{name}")
        config = transformers.BertConfig(**tiny_sizes, **more, initializer_range=0.5)
        bert(config).save_pretrained(tmp_path / f"stock-{name}")
        own = getattr(modeling_minbert, f"MinBert{name}")
        own.from_pretrained(tmp_path / f"stock-{name}").save_pretrained(tmp_path / f"own-{name}")
        for kind in ("stock", "own"):
            tokenizer.save_pretrained(tmp_path / f"{kind}-{name}")
        return str(tmp_path / f"stock-{name}"), str(tmp_path / f"own-{name}")

    return save


@pytest.fixture
def multitask(build_multitask, tasks, tokenizer, tmp_path):
    """Return a saved model of several tasks, and its folder."""
    model = build_multitask(tasks)
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "tasks")
    tokenizer.save_pretrained(tmp_path / "tasks")
    return model, str(tmp_path / "tasks")


def run_remote(calls, folder):
    """Run pipelines where the package is not installed."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["HF_MODULES_CACHE"] = str(folder / "modules")
    script = f"import sys; sys.path[:] = {packages_without_this_project()!r}\n{SCRIPT}"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", script],
        input=json.dumps(calls),
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(run.stdout.splitlines()[-1])


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("case", STOCK)
def test_pipelines_equal_stock_bert(save_stock, case, batch_size):
    name, inputs, options = STOCK[case]
    stock, own = save_stock(name)

    found, expected = (
        pipeline(TASKS_OF[name], model=folder, device="cpu")(
            inputs, batch_size=batch_size, **options
        )
        for folder in (own, stock)
    )

    if name == "Model":  # features of padding are arbitrary
        words = [len(text.split()) + 2 for text in inputs]
        found, expected = (
            [[row[0][:count]] for row, count in zip(rows, words, strict=True)]
            for rows in (found, expected)
        )
    assert_close(found, expected)


def test_pipelines_without_the_package_equal_stock_bert(save_stock, multitask, tmp_path):
    model, folder = multitask
    saved = {name: save_stock(name) for name in TASKS_OF}
    cases = [(TASKS_OF[name], *saved[name], *rest) for name, *rest in STOCK.values()]
    calls = [(task, own, inputs, options) for task, _, own, inputs, options in cases]
    calls.append(("minbert-multi-task", folder, TEXTS, {"task": "tone"}))
    calls.append((None, folder, TEXTS, {}))  # the only one that the folder brings

    *found, named, inferred = run_remote(calls, tmp_path)

    for result, (task, stock, _, inputs, options) in zip(found, cases, strict=True):
        assert_close(result, pipeline(task, model=stock, device="cpu")(inputs, **options))
    assert_close(named, model.predict("tone", TEXTS))
    assert_close(inferred, named)


def test_no_pipeline_calls_our_models_unsupported(save_stock, multitask, caplog):
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        for name, task in TASKS_OF.items():
            pipeline(task, model=save_stock(name)[1], device="cpu")
        pipeline("text-classification", model=multitask[1], device="cpu")
    finally:
        logger.removeHandler(caplog.handler)

    assert "not supported" not in caplog.text


def test_the_multi_task_pipeline_predicts_as_the_model(multitask):
    model, folder = multitask
    pipe = pipeline("minbert-multi-task", model=folder, device="cpu")
    pairs = [("the cat ran", "a dog sat"), ("far", "a tree is far")]

    assert_close(pipe(TEXTS[0]), model.predict("tone", TEXTS[:1])[0])
    assert_close(pipe(TEXTS), model.predict("tone", TEXTS))
    for task in ("same", "near", "echo"):
        expected = model.predict(task, pairs)
        rows = [dict(zip(("text", "text_pair"), pair, strict=True)) for pair in pairs]
        assert_close(pipe(rows, task=task), expected)
        assert_close(pipe(pairs, task=task), expected)
        assert_close(pipe(pairs[0], task=task), model.predict(task, pairs[:1])[0])
        assert_close(pipe(rows[1], task=task, max_tokens_per_batch=1), expected[1])


def test_a_question_needs_no_name_of_its_task(build_multitask, tasks, tokenizer):
    span = {"problem_type": "question_answering", "max_question_length": 5}
    model = build_multitask(tasks | {"span": span})
    model.tokenizer = tokenizer
    pipe = MinBertMultiTaskPipeline(model=model, tokenizer=tokenizer, device="cpu")
    row = {"question": "the cat ran", "context": "a dog was not far"}

    found = pipe(row)

    assert_close(found, model.answer(**row))
    assert_close(pipe([row, TEXTS[0]]), [found, model.predict("tone", TEXTS[:1])[0]])
    assert_close(pipe({**row, "task": "span"}, top_k=2), model.answer(**row, top_k=2))
    with pytest.raises(ValueError, match="task 'tone' answers no questions"):
        pipe({**row, "task": "tone"})
    with pytest.raises(ValueError, match="unknown key 'text'"):
        pipe({**row, "text": "the cat"})
    with pytest.raises(ValueError, match="span: row 0 must be a pair"):
        pipe({"question": "the cat ran"})


def test_rows_of_several_tasks_come_back_in_their_order(multitask):
    model, folder = multitask
    pipe = pipeline("minbert-multi-task", model=folder, device="cpu")
    pair = {"text": "the cat ran", "text_pair": "a dog sat"}
    rows = [TEXTS[0], {**pair, "task": "near"}, {"text": TEXTS[1]}, {**pair, "task": "same"}]

    found = pipe(rows)

    assert_close(found, list(pipe(row for row in rows)))
    assert_close([found[0], found[2]], model.predict("tone", TEXTS[:2]))
    texts = tuple(pair.values())
    assert_close([found[1], found[3]], [model.predict(x, [texts])[0] for x in ("near", "same")])
    assert pipe([]) == []


def test_the_pipeline_gives_every_label_if_asked_to(multitask):
    model, folder = multitask
    pipe = pipeline("minbert-multi-task", model=folder, device="cpu")

    (every,) = pipe(TEXTS[:1], top_k=99)

    assert {row["label"] for row in every} == {"down", "level", "up"}
    assert sum(row["score"] for row in every) == pytest.approx(1)
    assert_close(every[0], pipe(TEXTS[0]))
    assert_close(pipe(TEXTS[0], top_k=2), every[:2])
    assert len(model.predict("same", [("a", "b")], top_k=5)[0]) == 2
    assert model.predict("near", [("a", "b")], top_k=5) == [model.predict("near", [("a", "b")])]


@pytest.mark.parametrize(
    ("row", "options", "message"),
    [
        ("the cat", {"task": "moods"}, "unknown task 'moods'; known: echo, near, same, tone"),
        ("the cat", {"task": "same"}, "same: row 0 must be a pair of sentences, got 'the cat'"),
        ({"txt": "the cat"}, {}, "unknown key 'txt'; did you mean 'text'"),
        ([{"text": "a"}, {"text_pair": "b", "text": "c"}], {}, "tone: row 1 must be a sentence"),
        ("the cat", {"top_k": 0}, "top_k=0 must be 1 or more"),
    ],
)
def test_a_bad_row_is_named(multitask, row, options, message):
    pipe = pipeline("minbert-multi-task", model=multitask[1], device="cpu")

    with pytest.raises(ValueError, match=message):
        pipe(row, **options)


def test_a_model_without_named_tasks_is_refused(save_stock):
    _, own = save_stock("ForSequenceClassification")

    with pytest.raises(ValueError, match="MinBertForSequenceClassification has no named tasks"):
        pipeline("minbert-multi-task", model=own, device="cpu")


def test_a_folder_names_its_pipeline_only_if_the_model_has_tasks(multitask, tmp_path):
    _, folder = multitask
    own = json.loads((tmp_path / "tasks" / "config.json").read_text())["custom_pipelines"]
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.AutoModel.from_pretrained(folder).save_pretrained(tmp_path / "encoder")

    assert own["minbert-multi-task"]["impl"] == "prediction.MinBertMultiTaskPipeline"
    assert not hasattr(config, "custom_pipelines")  # no trust is asked where the package is
    assert "custom_pipelines" not in (tmp_path / "encoder" / "config.json").read_text()
    pipe = pipeline("minbert-multi-task", model=folder, device="cpu")
    pipe.save_pretrained(str(tmp_path / "again"))
    again = MinBertForMultiTask.from_pretrained(tmp_path / "again")
    assert_close(again.predict("tone", TEXTS), pipe(TEXTS))
