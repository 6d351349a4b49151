"""``minbert export``: a checkpoint as a plain BERT, as ONNX, as a Space."""

import ast
import gc
import importlib.util
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml
from transformers import AutoModel, AutoTokenizer, BertModel, BertTokenizer

from minbert_cli import __main__ as minbert, exporting
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel
from tests.modeling_minbert.test_in_and_out import make_stock

TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "up"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
    "triples": {"problem_type": "contrastive", "num_sentences": 3},
    "text": {"problem_type": "pretraining"},
}
TRUST = "trust_remote_code"
HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime")))


@pytest.fixture
def checkpoint(tiny_sizes, tmp_path):
    """Return the folder of a multi-task model."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "garden", "is", "warm", "."]
    MinBertForMultiTask(MinBertConfig(**tiny_sizes, tasks=TASKS)).save_pretrained(tmp_path / "own")
    BertTokenizer(vocab={word: index for index, word in enumerate(words)}).save_pretrained(
        tmp_path / "own"
    )
    return tmp_path / "own"


def export(checkpoint, form, folder, *flags):
    """Export a checkpoint; return the new folder."""
    words = [str(checkpoint), "--format", form, "--output_dir", str(folder), *flags]
    minbert.main(["export", *words])
    return folder


@pytest.fixture
def build_page(monkeypatch):
    """Return a function that makes the page of a Space."""

    def build(space):
        monkeypatch.chdir(space.parent)  # the page finds its model from everywhere
        return runpy.run_path(str(space / "app.py"))["build"]()

    yield build
    gc.collect()  # gradio leaves event loops open, which would warn after the tests


def test_a_plain_bert_has_the_encoder_and_the_tokenizer(checkpoint, tmp_path, capsys):
    folder = export(checkpoint, "transformers", tmp_path / "a" / "bert")

    bert = AutoModel.from_pretrained(folder).eval()
    tokens = AutoTokenizer.from_pretrained(folder)("the garden .", "warm")
    batch = {name: torch.tensor([ids]) for name, ids in tokens.items()}
    own = MinBertForMultiTask.from_pretrained(checkpoint).bert
    assert type(bert) is BertModel
    torch.testing.assert_close(bert(**batch).pooler_output, own(**batch).pooler_output)
    assert "MinBertForMultiTask as a plain bert" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["bert"]


def test_sentence_transformers_get_the_vectors_of_a_task(checkpoint, tmp_path, capsys):
    export(checkpoint, "sentence-transformers", tmp_path / "st", "--task", "near")

    found = MinBertModel.from_pretrained(tmp_path / "st").encode(["the garden is warm"])
    model = MinBertForMultiTask.from_pretrained(checkpoint)
    expected = model.encode(["the garden is warm"], task="near")
    torch.testing.assert_close(found, expected)
    assert (tmp_path / "st" / "modules.json").exists()
    assert "opens it without trust_remote_code" in capsys.readouterr().out


def test_a_space_brings_the_checkpoint_and_names_it(checkpoint, tmp_path):
    space = export(checkpoint, "space", tmp_path / "space")

    header = yaml.safe_load((space / "README.md").read_text().split("---")[1])
    assert (header["sdk"], header["app_file"]) == ("gradio", "app.py")
    assert header["title"] == "own"
    assert 'TITLE = "own"' in (space / "app.py").read_text()
    assert 'os.environ.get("MODEL", "model")' in (space / "app.py").read_text()
    page = ast.parse((space / "app.py").read_text())
    imported = {
        name.name if isinstance(node, ast.Import) else node.module
        for node in ast.walk(page)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
    }
    needed = (space / "requirements.txt").read_text()
    assert imported == {
        *("functools", "os", "pathlib", "typing"),
        *("gradio", "modeling_minbert", "torch", "transformers"),
    }
    assert (space / "modeling_minbert" / "__init__.py").is_file()
    trust = [node.value for node in ast.walk(page) if getattr(node, "arg", "") == TRUST]
    assert [ast.literal_eval(value) for value in trust] == [False] * 2
    assert all(name in needed for name in ("gradio", "torch", "transformers"))
    loaded = MinBertForMultiTask.from_pretrained(space / "model")
    rows = ["the garden is warm"]
    expected = MinBertForMultiTask.from_pretrained(checkpoint).predict("tone", rows)
    assert loaded.predict("tone", rows)[0]["score"] == pytest.approx(expected[0]["score"])
    assert list((space / "model").glob("multitask.py"))


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec("gradio"), reason="needs pip install gradio")
@pytest.mark.filterwarnings("default")  # of gradio, about others
def test_a_space_has_a_tab_for_every_head(checkpoint, tmp_path, build_page):
    space = export(checkpoint, "space", tmp_path / "space")

    page = build_page(space)

    blocks = page.get_config_file()["components"]
    tabs = [block["props"]["label"] for block in blocks if block["type"] == "tabitem"]
    assert tabs == ["near", "tone", "triples", "Embeddings"]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ONNX, reason="needs pip install -e '.[onnx]'")
def test_every_task_is_written_as_onnx_and_compared(checkpoint, tmp_path, capsys):
    export(checkpoint, "onnx", tmp_path / "onnx")

    names = {path.name for path in (tmp_path / "onnx").iterdir()}
    assert {f"{task}.onnx" for task in TASKS} | {"model.onnx", "config.json"} <= names
    assert "tokenizer.json" in names
    printed = capsys.readouterr()
    assert printed.out.count("equals the model within") == 5
    assert printed.err == ""

    code = """
import sys
sys.modules["modeling_minbert"] = sys.modules["torch"] = None
import onnxruntime
from transformers import AutoConfig, AutoTokenizer
tokens = AutoTokenizer.from_pretrained("onnx")(["a lovely film"], return_tensors="np")
session = onnxruntime.InferenceSession("onnx/tone.onnx")
(logits,) = session.run(None, dict(tokens))
print(logits.shape, AutoConfig.from_pretrained("onnx").tasks["tone"]["labels"])
"""

    # without code of minBERT
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert done.stdout == "(1, 2) ['down', 'up']\n"
    assert "model of type" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ONNX, reason="needs pip install -e '.[onnx]'")
def test_int8_has_the_same_files_and_is_compared(checkpoint, tmp_path, capsys):
    export(checkpoint, "onnx", tmp_path / "onnx")
    capsys.readouterr()

    export(checkpoint, "onnx", tmp_path / "int8", "--precision", "int8")

    printed = capsys.readouterr()
    assert printed.out.count(" of the size; differs from the model by ") == 1 + len(TASKS)
    assert printed.err == ""
    files = {path.name: path.stat().st_size for path in (tmp_path / "int8").iterdir()}
    assert files.keys() == {path.name for path in (tmp_path / "onnx").iterdir()}
    for name in ("model.onnx", *(f"{task}.onnx" for task in TASKS)):
        assert b"MatMulInteger" in (tmp_path / "int8" / name).read_bytes()
        assert files[name] < (tmp_path / "onnx" / name).stat().st_size


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ONNX, reason="needs pip install -e '.[onnx]'")
def test_an_int8_file_that_differs_too_much_is_not_written(
    checkpoint, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(exporting, "INT8_TOLERANCE", 1e-6)

    with pytest.raises(SystemExit) as stopped:
        export(checkpoint, "onnx", tmp_path / "out", "--task", "tone", "--precision", "int8")

    assert stopped.value.code == 1
    assert "tone.onnx in int8 differs from the model by" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(
    importlib.util.find_spec("onnxruntime") is not None, reason="onnxruntime is installed"
)
def test_int8_without_onnxruntime_names_it(checkpoint, tmp_path, capsys):
    with pytest.raises(SystemExit):
        export(checkpoint, "onnx", tmp_path / "out", "--precision", "int8")

    assert "onnxruntime is not installed" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_in_int8_is_small_and_has_its_heads(checkpoint, tmp_path, capsys):
    export(checkpoint, "minbert", tmp_path / "int8", "--precision", "int8")

    printed = capsys.readouterr()
    assert "MinBertForMultiTask with weights in int8, 0.0 MB" in printed.out
    assert printed.err == ""
    loaded = MinBertForMultiTask.from_pretrained(tmp_path / "int8")
    plain = MinBertForMultiTask.from_pretrained(checkpoint)
    assert loaded.bert.is_int8
    assert torch.equal(loaded.heads.get("tone").out.weight, plain.heads.get("tone").out.weight)
    assert AutoTokenizer.from_pretrained(tmp_path / "int8").vocab_size == 10


@pytest.mark.parametrize("name", ["transformers", "sentence-transformers"])
def test_a_checkpoint_in_int8_is_exported_in_float32(checkpoint, tmp_path, name):
    small = export(checkpoint, "minbert", tmp_path / "int8", "--precision", "int8")
    out = export(small, name, tmp_path / "out")

    bert, int8 = BertModel.from_pretrained(out), MinBertModel.from_pretrained(small)
    int8.dequantize()
    expected = int8.state_dict()
    for key, value in bert.state_dict().items():
        assert torch.equal(value, expected[key]), key


def test_an_empty_folder_is_filled_and_stays(checkpoint, tmp_path):
    """It may be where another disk is mounted, or the working directory."""
    folder = tmp_path / "bert"
    folder.mkdir()
    before = folder.stat().st_ino

    export(checkpoint, "transformers", folder)

    assert folder.stat().st_ino == before
    assert {"config.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
    assert not [path for path in folder.iterdir() if path.is_dir()]


LONG = {
    "tone": {"labels": ["down", "up"], "max_length": 9},
    "last": {"labels": ["down", "up"], "max_length": 9, "truncation": "tail"},
    "pairs": {"labels": ["down", "up"], "pair_encoding": "joint", "max_length": 11},
    "ends": {"labels": ["a", "b"], "pair_encoding": "joint", "max_length": 10}
    | {"truncation": "tail"},
    "free": {"labels": ["down", "up"]},  # as long as the positions
}
ROWS = [
    ("the garden is warm . " * 5, "is it . " * 9),
    ("warm " * 30, "the garden"),
    (". " * 7, "garden " * 40),
    ("the garden is", "warm"),
]


@pytest.fixture
def long_checkpoint(checkpoint, tiny_sizes, tmp_path):
    """Return the folder of a model whose tasks read different parts of long texts."""
    tasks = {name: {"problem_type": "classification"} | keys for name, keys in LONG.items()}
    torch.manual_seed(0)
    sizes = tiny_sizes | {"initializer_range": 0.5}
    MinBertForMultiTask(MinBertConfig(**sizes, tasks=tasks)).save_pretrained(tmp_path / "long")
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path / "long")
    return tmp_path / "long"


def page_snippet():
    """Return the code of the page that runs an ONNX file."""
    page = (Path(__file__).parents[1] / "docs/tutorials/sharing.md").read_text(encoding="utf-8")
    return next(part for part in page.split("```python")[1:] if "import json" in part).split("```")[
        0
    ]


def predictions_of(folder, task):
    model = MinBertForMultiTask.from_pretrained(folder)
    rows = ROWS if model.config.task(task).num_texts == 2 else [first for first, _ in ROWS]
    return rows, [row["label"] for row in model.predict(task, rows)]


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ONNX, reason="needs pip install -e '.[onnx]'")
def test_the_code_of_the_page_answers_as_predict(long_checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export(long_checkpoint, "onnx", "onnx")

    for task in LONG:
        rows, expected = predictions_of(long_checkpoint, task)
        code = page_snippet().replace("sst", task)
        has_pairs = isinstance(rows[0], tuple)
        texts = [list(column) for column in zip(*rows, strict=True)] if has_pairs else [rows]
        code = code.replace('["what a lovely film"]', f"*{texts!r}")
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == str(expected)


@pytest.mark.parametrize(
    "name",
    ["AutoModel", "AutoModelForQuestionAnswering", "AutoModelForSequenceClassification"],
)
def test_a_stock_model_of_another_type_is_exported_as_its_class(tmp_path, checkpoint, capsys, name):
    stock = make_stock("distilbert", name)
    stock.save_pretrained(tmp_path / "in")
    AutoTokenizer.from_pretrained(checkpoint).save_pretrained(tmp_path / "in")
    own = export(tmp_path / "in", "minbert", tmp_path / "mine")
    again = export(own, "transformers", tmp_path / "again")

    found = type(stock).from_pretrained(again).state_dict()
    assert all(torch.equal(found[key], value) for key, value in stock.state_dict().items())
    make_stock("modernbert", "AutoModelForSequenceClassification").save_pretrained(tmp_path / "in")
    with pytest.raises(SystemExit):
        export(tmp_path / "in", "minbert", tmp_path / "other")
    assert "behind a layer that is not BERT's pooler" in capsys.readouterr().err
