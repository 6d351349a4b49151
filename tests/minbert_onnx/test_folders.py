"""Folders of ONNX exports: without torch, with one task, of other encoders, damaged."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import pytest

import minbert
from modeling_minbert import MinBertForMultiTask, MinBertModel, export_onnx
from tests.minbert_onnx.examples import (
    PAIRS,
    TASKS,
    TEXTS,
    assert_near,
    build,
    needs_onnx,
    rows_of,
)
from tests.processes import run_python
from tests.same_predictions import assert_same
from tests.small_tokenizers import TOKENIZERS, list_texts, save_start

pytestmark = needs_onnx
FEW = {name: TASKS[name] for name in ("tone", "near", "names")}


@pytest.fixture(scope="module")
def model():
    return build(FEW)


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("onnx")
    export_onnx(model, folder)
    return folder


WITHOUT_TORCH = """
import json, sys
for name in ("torch", "transformers", "huggingface_hub", "datasets"):
    sys.modules[name] = None
import minbert
model = minbert.load(sys.argv[1])
texts, pairs = json.loads(sys.argv[2])
found = [model.predict("tone", texts), model.predict("near", pairs), model.predict("names", texts)]
print(json.dumps([*found, model.encode(texts).tolist()]))
try:
    minbert.load(sys.argv[3])
except ImportError as error:
    print(error, file=sys.stderr)
"""


def test_neither_torch_nor_transformers_is_needed(model, exported, tmp_path):
    model.save_pretrained(tmp_path / "checkpoint")
    rows = json.dumps([TEXTS, PAIRS])

    done = run_python("-c", WITHOUT_TORCH, exported, rows, tmp_path / "checkpoint")

    *found, vectors = json.loads(done.stdout)
    for name, answers in zip(("tone", "near", "names"), found, strict=True):
        assert_same(answers, model.predict(name, rows_of(model, name)))
    assert vectors == pytest.approx(model.encode(TEXTS).numpy(), abs=1e-5)
    assert "is no ONNX export, and a checkpoint needs torch, transformers" in done.stderr
    assert "minbert export" in done.stderr
    assert "--format onnx" in done.stderr


def test_they_are_not_imported_where_they_are_installed(exported):
    code = (
        "import sys, minbert; minbert.load(sys.argv[1]).predict('tone', ['the cat']); "
        "print([x for x in ('torch', 'transformers', 'modeling_minbert') if x in sys.modules])"
    )

    assert run_python("-c", code, exported).stdout == "[]\n"


def test_vectors_that_leave_out_a_prompt_are_exported_without_it(tmp_path):
    own = {"prompts": {"query": "is the "}, "default_prompt_name": "query", "pools_prompt": False}
    model = build(FEW, sentence_embedding=own)

    export_onnx(model, tmp_path)

    read = minbert.load(tmp_path)
    assert_near(read.encode(TEXTS, prompt=""), model.encode(TEXTS, prompt=""))
    for each in (model, read):
        with pytest.raises(ValueError, match='pass prompt=""'):
            each.encode(TEXTS)


def test_a_checkpoint_gets_no_export_of_other_weights(model, tmp_path):
    model.save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="safetensors: a checkpoint is here; export to another"):
        export_onnx(model, tmp_path)


def test_one_task_keeps_the_default_vectors_of_the_checkpoint(tmp_path):
    model = build({name: TASKS[name] for name in ("tone", "pages")})
    export_onnx(model, tmp_path, task="tone")
    runtime = minbert.load(tmp_path)

    assert list(runtime.list_tasks()) == ["tone"]
    assert_same(runtime.predict("tone", TEXTS), model.predict("tone", TEXTS))
    assert_near(runtime.encode(TEXTS), model.encode(TEXTS))
    with pytest.raises(ValueError, match="unknown task 'pages'; known: tone"):
        runtime.predict("pages", PAIRS)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind == "roberta" else pytest.mark.slow)
        for kind in TOKENIZERS
    ],
)
def test_other_encoders_and_tokenizers(tmp_path, kind):
    save_start(tmp_path / "start", kind)
    texts = [*list_texts()[:5], " ".join(list_texts()[:9])]
    start = MinBertModel.from_pretrained(tmp_path / "start").eval()
    export_onnx(start, tmp_path / "vectors")
    tasks = FEW | {"answer": {"problem_type": "question_answering", "max_length": 20}}
    model = MinBertForMultiTask.from_pretrained(tmp_path / "start", tasks=tasks).eval()
    export_onnx(model, tmp_path / "tasks")

    assert_near(minbert.load(tmp_path / "vectors").encode(texts), start.encode(texts))
    runtime = minbert.load(tmp_path / "tasks")
    pairs = list(zip(texts, texts[::-1], strict=True))
    for name in tasks:
        rows = texts if model.config.task(name).num_texts == 1 else pairs
        assert_same(runtime.predict(name, rows), model.predict(name, rows))
    words = [text.split() for text in texts]
    assert_same(runtime.predict("names", words), model.predict("names", words))


def damage(folder, name, change):
    path = folder / name
    if change is None:
        path.unlink()
    elif isinstance(change, dict):
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
    else:
        path.write_bytes(change)


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("model.onnx", None, "no such file"),
        ("model.onnx", b"x", "InvalidProtobuf"),
        ("tokenizer.json", None, "no such file"),
        ("tokenizer.json", b"{", "Exception"),
        ("minbert.json", b"{", "JSONDecodeError"),
        ("minbert.json", b"[]", "TypeError"),
        ("minbert.json", {"version": 7}, r"version 7, but this minBERT reads \d"),
        ("minbert.json", {"tasks": {"other": {}}}, "KeyError"),
    ],
)
def test_what_is_damaged_is_named(exported, tmp_path, name, change, reason):
    folder = shutil.copytree(exported, tmp_path / "copy")
    damage(folder, name, change)

    with pytest.raises(ValueError, match=reason) as caught:
        minbert.load(folder)

    file = "model.onnx" if reason == "KeyError" else name
    assert str(folder / file) in str(caught.value)
    assert "minbert export" in str(caught.value)


def test_it_runs_on_the_cpu_and_from_python(exported, capsys):
    from minbert_cli.__main__ import main

    with pytest.raises(ValueError, match="device='cuda': an ONNX export runs on the CPU"):
        minbert.load(exported, "cuda")
    with pytest.raises(SystemExit):
        main(["predict", str(exported), "--task", "tone", "the cat"])
    assert "is an ONNX export, which minbert.load runs in Python" in capsys.readouterr().err


def test_rows_are_read_in_several_threads(model, exported):
    runtime = minbert.load(exported)
    asked = [("tone", TEXTS), ("near", PAIRS), ("names", TEXTS)] * 20

    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(lambda each: runtime.start([each[0]], each[1])[0], asked))
    runtime.compute(jobs)

    for job, (name, rows) in zip(jobs, asked, strict=True):
        assert_same(job.describe(), model.predict_all(rows, [name]))
