"""A tokenizer with ids that the model has no embedding for is refused wherever the two meet."""

import json

import pytest

from minbert_cli import __main__ as minbert
from modeling_minbert import MinBertForMultiTask, MinBertModel
from tests import small_run

WORDS = ["a", "cat", "dog"]
MESSAGE = "gives the token 'dog' the id 1000000, but the model has embeddings for 8 tokens only"


@pytest.fixture
def checkpoint(tmp_path):
    """Return a folder whose tokenizer.json gives one token an id far beyond the others."""
    folder = tmp_path / "checkpoint"
    tasks = {"tone": {"problem_type": "classification", "labels": ["low", "high"]}}
    small_run.save_model(folder, tasks, WORDS)
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["vocab"]["dog"] = 10**6
    path.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize("kind", [MinBertForMultiTask, MinBertModel])
def test_models_refuse_it(checkpoint, kind):
    model = kind.from_pretrained(checkpoint)

    with pytest.raises(ValueError, match=MESSAGE) as error:
        model.encode(["a cat"])
    assert str(checkpoint) in str(error.value)
    if kind is MinBertForMultiTask:
        with pytest.raises(ValueError, match=MESSAGE):
            model.predict("tone", ["a cat"])


@pytest.mark.parametrize(
    ("program", "flags"),
    [
        ("predict", ["a cat", "--device", "cpu"]),
        ("predict", ["a cat", "--device", "cpu", "--embed", "out/vectors.npy"]),
        ("export", ["--format", "transformers", "--output_dir", "out"]),
        ("export", ["--format", "sentence-transformers", "--output_dir", "out"]),
    ],
)
def test_programs_refuse_it(checkpoint, monkeypatch, capsys, program, flags):
    monkeypatch.chdir(checkpoint.parent)

    with pytest.raises(SystemExit):
        minbert.main([program, str(checkpoint), *flags])

    assert MESSAGE in capsys.readouterr().err
    assert not (checkpoint.parent / "out").exists()
