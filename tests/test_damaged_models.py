"""``minbert predict`` from a damaged folder: one line, or an answer, but never a traceback."""

import json

import pytest

from minbert import load
from minbert_cli import __main__ as minbert
from tests import small_run
from tests.damage import SEEDS, copy, damage

WORDS = ["a", "bird", "cat", "ran", "the"]
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"},
}
# A bit of these may change a number or a text, and with it the answer.
FREE_KINDS = ("flip", "zeros")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return the folder of a tiny model with its tokenizer."""
    folder = tmp_path_factory.mktemp("models") / "whole"
    small_run.save_model(folder, TASKS, WORDS)
    return folder


def answer(folder, capsys):
    """Predict a text; return the exit status, the output and the lines of errors."""
    status = 0
    try:
        minbert.main(["predict", str(folder), "--task", "tone", "the cat ran", "--device", "cpu"])
    except SystemExit as exited:
        status = exited.code
    captured = capsys.readouterr()
    errors = [line for line in captured.err.splitlines() if line.startswith("minbert predict: ")]
    return status, captured.out, errors


def check(model, folder, seed, capsys):
    expected = answer(model, capsys)
    assert expected[0] == 0
    copy(model, folder)
    done = damage(folder, seed)

    status, output, errors = answer(folder, capsys)

    if status == 0:
        assert done[1] in FREE_KINDS or output == expected[1], done
        return
    assert status == 1, done
    assert output == "", done
    assert len(errors) == 1, done
    assert str(folder) in errors[0] or "task" in errors[0], (done, errors)


@pytest.mark.filterwarnings("ignore")  # libraries warn about what is damaged
@pytest.mark.parametrize("seeds", SEEDS)
def test_a_damaged_model_never_ends_in_a_traceback(model, tmp_path, capsys, seeds):
    for seed in seeds:
        check(model, tmp_path / "model", seed, capsys)


# Small JSON files with any content

FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "model.safetensors.index.json",
)
CONTENTS = ("", "[]", "null", "{", "[" * 100_000, '[{"path": 3}]')


def load_with(model, folder, name, content):
    """Load a copy of the model in which one file has this content; return its error."""
    copy(model, folder)
    (folder / name).write_text(content)
    try:
        vectors = load(folder, "cpu").encode(["a sentence"], show_progress=False)
    except ValueError as error:
        return str(error)
    assert len(vectors) == 1
    return None


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content[:12])
@pytest.mark.parametrize("name", FILES)
def test_the_file_is_named(model, tmp_path, name, content):
    message = load_with(model, tmp_path / "copy", name, content)

    if message is None:  # an empty list of modules
        assert (name, content) == ("modules.json", "[]")
    else:
        assert name in message


@pytest.mark.parametrize("path", ["a/../../x", 3, None])
def test_modules_stay_below_their_folder(model, tmp_path, path):
    module = {"type": "sentence_transformers.models.Pooling", "path": path}
    message = load_with(model, tmp_path / "copy", "modules.json", json.dumps([module]))

    assert message is None if path is None else "whose path is a folder below it" in message
