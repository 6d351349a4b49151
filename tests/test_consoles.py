"""A console whose encoding lacks the letters of the data ends no command; files are in UTF-8."""

import io
import json
import os
import sys

import pytest
import yaml

from minbert_cli import __main__ as minbert
from tests import small_run
from tests.processes import run_python

LABELS = ("好的", "坏的", "一般")
PREDICT = ["predict", "out", "--device", "cpu"]
COMMANDS = {
    "check": ["check", "recipe.yaml", "--output_dir", "checked"],
    "new": ["new", "rows-train.jsonl", "--output", "new.yaml"],
    "predict": [*PREDICT, "--task", "moods", "--file", "texts.txt"],
    "predict to a file": [*PREDICT, "--file", "rows-train.jsonl", "--output", "found.csv"],
    "embed": [*PREDICT, "--file", "rows-train.jsonl", "--embed", "vectors.npy"],
    "export": ["export", "out", "--format", "sentence-transformers", "--output_dir", "encoder"],
    "a message": ["finetune", "电影.yaml"],
    "an unknown task": [*PREDICT, "--task", "情感", "好"],
    "an unknown command": ["情感"],
}


@pytest.fixture(scope="module")
def console():
    """Return a function that runs a command on a console; it returns status, output and errors."""

    def run(monkeypatch, encoding, *argv):
        streams = [io.BytesIO(), io.BytesIO()]
        errors = ("strict", "backslashreplace")  # as Python opens them
        for name, stream, handler in zip(("stdout", "stderr"), streams, errors, strict=True):
            wrapper = io.TextIOWrapper(stream, encoding, handler, write_through=True)
            monkeypatch.setattr(sys, name, wrapper)
        status = 0
        try:
            minbert.main([*argv])
        except SystemExit as error:
            status = error.code
        sys.stdout.flush()
        sys.stderr.flush()
        return status, *(stream.getvalue() for stream in streams)

    return run


@pytest.fixture(scope="module")
def folder(tmp_path_factory, console):
    """Return the folder of a run with Chinese labels, on a console in ASCII."""
    folder = tmp_path_factory.mktemp("run")
    for split in ("train", "dev"):
        rows = [
            {"文本": f"{text} 电影", "标签": [LABELS[place % 3], LABELS[place // 3 % 3]]}
            for place, (_, text, *_) in enumerate(small_run.make_rows(split))
        ]
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / f"rows-{split}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "texts.txt").write_text("电影很好\n坏的\n", encoding="utf-8")
    recipe = small_run.make_recipe(folder) | {"num_train_epochs": 1}
    recipe["output_dir"] = "out"
    recipe["tasks"] = {
        "moods": {
            "problem_type": "multi_label_classification",
            "train_file": "rows-train.jsonl",
            "validation_file": "rows-dev.jsonl",
            "text_columns": ["文本"],
            "label_column": "标签",
        }
    }
    text = yaml.safe_dump(recipe, allow_unicode=True)
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        status, out, err = console(patch, "ascii", "finetune", "recipe.yaml")
    assert status == 0, (out, err)
    assert b"\\u597d" in out
    return folder


def test_the_files_of_a_run_are_in_utf8(folder):
    report = (folder / "out" / "report.html").read_bytes().decode("utf-8")
    table = (folder / "out" / "predictions" / "moods-dev.csv").read_bytes().decode("utf-8")
    config = json.loads((folder / "out" / "config.json").read_bytes().decode("utf-8"))

    assert all(label in report and label in table for label in LABELS)
    assert config["tasks"]["moods"]["labels"] == sorted(LABELS)


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_console_ends_no_command(console, folder, monkeypatch, tmp_path, kind):
    monkeypatch.chdir(folder)
    (folder / "new.yaml").unlink(missing_ok=True)
    argv = [str(tmp_path / part) if part == "encoder" else part for part in COMMANDS[kind]]

    status, out, err = console(monkeypatch, "ascii", *argv)

    assert b"Traceback" not in err
    if kind.startswith(("a ", "an ")):
        assert status in (1, 2)
        assert err.decode("ascii").count("error: ") == 1
        return
    assert status == 0, err
    if kind == "predict":  # results have the letters that a file would have
        assert "电影很好" in out.decode("utf-8")
    if kind == "predict to a file":
        assert "好的" in (folder / "found.csv").read_bytes().decode("utf-8")


@pytest.mark.slow
def test_a_locale_in_ascii_changes_no_file(folder, tmp_path):
    environment = os.environ | {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    environment["PYTHONCOERCECLOCALE"] = "0"
    flags = ["-X", "warn_default_encoding", "-W", "default::EncodingWarning"]
    for name, *argv in (
        ("finetune", "recipe.yaml", "--output_dir", str(tmp_path / "out")),
        ("predict", str(tmp_path / "out"), "--task", "moods", "--file", "texts.txt"),
        ("export", str(tmp_path / "out"), "--format", "onnx", "--output_dir", str(tmp_path / "s")),
    ):
        words = (*flags, "-m", "minbert_cli", name, *argv)
        error = run_python(*words, folder=folder, environment=environment).stderr
        assert error.isascii(), error
        # our code opens no file in the encoding of the locale
        places = [line for line in error.splitlines() if "EncodingWarning" in line]
        assert not [line for line in places if "site-packages" not in line and "/lib/" not in line]
    with (tmp_path / "out" / "config.json").open(encoding="utf-8") as file:
        assert json.load(file)["tasks"]["moods"]["labels"] == sorted(LABELS)
