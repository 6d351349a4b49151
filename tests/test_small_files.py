"""Small JSON files of a checkpoint with any content: vectors, or one error that names the file."""

import json
import shutil

import pytest

from minbert_cli.checkpoints import load_encoder
from modeling_minbert import MinBertConfig, MinBertModel
from tests import small_run

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


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A small encoder with its tokenizer and the files of sentence-transformers."""
    folder = tmp_path_factory.mktemp("checkpoint") / "own"
    tokenizer = small_run.make_tokenizer(["a", "sentence"])
    sizes = {"hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8}
    config = MinBertConfig(vocab_size=len(tokenizer), num_hidden_layers=1, **sizes)
    MinBertModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load_with(checkpoint, folder, name, content):
    """Load a copy of the checkpoint in which one file has this content; return its error."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(checkpoint, folder)
    (folder / name).write_text(content)
    try:
        vectors = load_encoder(str(folder), "cpu").encode(["a sentence"], show_progress=False)
    except (OSError, ValueError) as error:
        return str(error)
    assert len(vectors) == 1
    return None


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content[:12])
@pytest.mark.parametrize("name", FILES)
def test_the_file_is_named(checkpoint, tmp_path, name, content):
    message = load_with(checkpoint, tmp_path / "copy", name, content)

    if message is None:  # an empty list of modules
        assert (name, content) == ("modules.json", "[]")
    else:
        assert name in message


@pytest.mark.parametrize("path", ["a/../../x", 3, None])
def test_modules_stay_below_their_folder(checkpoint, tmp_path, path):
    module = {"type": "sentence_transformers.models.Pooling", "path": path}
    message = load_with(checkpoint, tmp_path / "copy", "modules.json", json.dumps([module]))

    assert message is None if path is None else "whose path is a folder below it" in message
