"""``minbert export``: a checkpoint for other programs, and as ONNX."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer, BertModel

import minbert as minbert_module
from minbert_cli import __main__ as minbert
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel
from tests import small_run
from tests.minbert_onnx.examples import needs_onnx
from tests.modeling_minbert.test_in_and_out import make_stock
from tests.small_tokenizers import save_start

TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "up"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
    "triples": {"problem_type": "contrastive", "num_sentences": 3},
    "text": {"problem_type": "pretraining"},
}


@pytest.fixture
def checkpoint(tmp_path):
    """Return the folder of a multi-task model."""
    small_run.save_model(tmp_path / "own", TASKS, ["the", "garden", "is", "warm", "."])
    return tmp_path / "own"


def export(checkpoint, form, folder, *flags):
    """Export a checkpoint; return the new folder."""
    words = [str(checkpoint), "--format", form, "--output_dir", str(folder), *flags]
    minbert.main(["export", *words])
    return folder


def test_a_sentence_encoder_that_names_the_class_of_its_start_is_one(tmp_path, capsys, caplog):
    save_start(tmp_path / "start", "roberta")
    AutoModel.from_pretrained(tmp_path / "start").save_pretrained(tmp_path / "start")
    path = tmp_path / "start" / "config.json"
    config = json.loads(path.read_text()) | {"architectures": ["RobertaForMaskedLM"]}
    path.write_text(json.dumps(config))

    export(tmp_path / "start", "transformers", tmp_path / "stock")
    assert "MinBertModel as a plain roberta" in capsys.readouterr().out

    model = MinBertForMultiTask.from_pretrained(tmp_path / "start", tasks={"near": TASKS["near"]})
    model.save_as_sentence_transformers(tmp_path / "st", task="near")
    assert "and this tokenizer reads them: strip your texts" in caplog.text


def test_sentence_transformers_get_no_vectors_that_nobody_chose(
    tiny_sizes, checkpoint, tmp_path, capsys
):
    with pytest.raises(SystemExit):
        export(checkpoint, "sentence-transformers", tmp_path / "st")
    message = "make different vectors, near, triples: name one with --task\n"
    assert message in capsys.readouterr().err
    config = MinBertConfig(**tiny_sizes, tasks={"tone": TASKS["tone"]})
    MinBertForMultiTask(config).save_pretrained(checkpoint)
    export(checkpoint, "sentence-transformers", tmp_path / "st")
    assert "vectors of mean pooling, without the heads of tasks;" in capsys.readouterr().out


@pytest.mark.slow
@needs_onnx
def test_all_heads_are_one_onnx_file_which_is_compared_in_int8_too(checkpoint, tmp_path, capsys):
    export(checkpoint, "onnx", tmp_path / "onnx")

    names = {path.name for path in (tmp_path / "onnx").iterdir()}
    expected = {"model.onnx", "minbert.json", "tokenizer.json", "tokenizer_config.json"}
    assert names == expected | {"config.json"}
    printed = capsys.readouterr()
    assert "model.onnx: equals the model within" in printed.out
    assert printed.err == ""
    model = minbert_module.load(tmp_path / "onnx")
    assert list(model.list_tasks()) == ["near", "tone", "triples"]

    export(checkpoint, "onnx", tmp_path / "int8", "--precision", "int8")

    printed = capsys.readouterr()
    assert " of the size; differs from the model by " in printed.out
    assert printed.err == ""
    files = {path.name: path.stat().st_size for path in (tmp_path / "int8").iterdir()}
    assert files.keys() == names
    assert b"MatMulInteger" in (tmp_path / "int8" / "model.onnx").read_bytes()
    assert files["model.onnx"] < (tmp_path / "onnx" / "model.onnx").stat().st_size


@pytest.mark.parametrize("name", ["transformers", "sentence-transformers"])
def test_a_checkpoint_in_int8_is_exported_in_float32(checkpoint, tmp_path, name):
    small = export(checkpoint, "minbert", tmp_path / "int8", "--precision", "int8")
    flags = ["--task", "near"] if name == "sentence-transformers" else []
    out = export(small, name, tmp_path / "out", *flags)

    bert, int8 = BertModel.from_pretrained(out), MinBertModel.from_pretrained(small)
    int8.dequantize()
    expected = int8.state_dict()
    for key, value in bert.state_dict().items():
        assert torch.equal(value, expected[key]), key


@pytest.mark.parametrize("name", ["minbert", "transformers", "sentence-transformers"])
@pytest.mark.parametrize("is_int8", [False, True])
def test_a_checkpoint_in_bfloat16_is_exported_in_float32(checkpoint, tmp_path, name, is_int8):
    model = MinBertForMultiTask.from_pretrained(checkpoint, dtype=torch.bfloat16)
    if is_int8:
        model.quantize()
    model.save_pretrained(checkpoint)
    flags = ["--task", "near"] if name == "sentence-transformers" else []

    out = export(checkpoint, name, tmp_path / "out", *flags)

    weights = load_file(out / "model.safetensors").values()
    assert {weight.dtype for weight in weights} == {torch.float32}
    assert json.loads((out / "config.json").read_text())["dtype"] == "float32"


def test_an_empty_folder_is_filled_and_stays(checkpoint, tmp_path):
    """It may be where another disk is mounted, or the working directory."""
    folder = tmp_path / "bert"
    folder.mkdir()
    before = folder.stat().st_ino

    export(checkpoint, "transformers", folder)

    assert folder.stat().st_ino == before
    assert {"config.json", "model.safetensors"} <= {path.name for path in folder.iterdir()}
    assert not [path for path in folder.iterdir() if path.is_dir()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bert", "own"]


def page_snippet():
    """Return the code of the page that runs an ONNX file without minBERT."""
    page = (Path(__file__).parents[1] / "docs/tutorials/sharing.md").read_text(encoding="utf-8")
    code = next(part for part in page.split("```python")[1:] if "import onnxruntime" in part)
    return code.split("```")[0]


@pytest.mark.slow
@needs_onnx
def test_the_code_of_the_page_answers_as_predict(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    export(checkpoint, "onnx", "onnx")
    rows = ["the garden is warm", "warm"]

    code = page_snippet().replace("sst", "tone").replace('["what a lovely film"]', str(rows))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    model = MinBertForMultiTask.from_pretrained(checkpoint)
    assert done.stdout.strip() == str([row["label"] for row in model.predict("tone", rows)])


@pytest.mark.parametrize(
    "name", ["AutoModel", "AutoModelForQuestionAnswering", "AutoModelForSequenceClassification"]
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
