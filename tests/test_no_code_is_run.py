"""No command runs the code of a checkpoint, or asks whether it may."""

import io
import json
import pickle
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertTokenizer

from minbert_cli import __main__ as minbert, pretrain
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.runs import write_pretraining

# Writes a file beside itself as soon as it is imported.
CODE = """
from pathlib import Path
from transformers import BertConfig, BertModel, BertTokenizer
Path({mark!r}).write_text("ran")
class Config(BertConfig): model_type = "own"
class Model(BertModel): pass
class Tokenizer(BertTokenizer): pass
"""
WORDS = ["the", "garden", "is", "warm", "."]
TASKS = {"tone": {"problem_type": "classification", "labels": ["down", "up"]}}
OWN_MODEL = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
OWN_TOKENIZER = {"AutoTokenizer": ["own.Tokenizer", None]}


@pytest.fixture
def checkpoint(tmp_path):
    """Return the folder of a model with a task, with code that leaves a mark."""
    folder = tmp_path / "checkpoint"
    small_run.save_model(folder, TASKS, WORDS, max_position_embeddings=32)
    (folder / "own.py").write_text(CODE.format(mark=str(tmp_path / "mark")))
    return folder


def change(path, *, drop=(), **values):
    """Change the values of a JSON file."""
    found = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: found[key] for key in found if key not in drop}))


def own_config(folder):
    change(folder / "config.json", auto_map=OWN_MODEL | OWN_TOKENIZER, drop=["model_type"])


def own_type(folder):
    change(folder / "config.json", auto_map=OWN_MODEL, model_type="own")


def own_tokenizer(folder):
    change(folder / "tokenizer_config.json", auto_map=OWN_TOKENIZER, tokenizer_class="Tokenizer")


def write_recipe(folder, name, checkpoint):
    """Write the recipe of a command that trains; returns its path."""
    if name == "finetune":
        small_run.write_files(folder)
        recipe = small_run.make_recipe(folder) | {"model_name_or_path": str(checkpoint)}
        return small_run.write_recipe(folder, recipe | {"model_config": {}})
    changes = {"output_dir": str(folder / "out"), "max_steps": 1}
    changes |= {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
    if name == "tokenizer":
        sizes = {"num_hidden_layers": 1, "hidden_size": 12, "num_attention_heads": 2}
        changes |= {"model_name_or_path": None, "tokenizer_name_or_path": str(checkpoint)}
        changes["model_config"] = sizes | {"intermediate_size": 16, "max_position_embeddings": 32}
    return write_pretraining(folder, model=checkpoint, **changes)


COMMANDS = {
    "predict": ("predict", ["{checkpoint}", "--task", "tone"]),
    "embed": ("predict", ["{checkpoint}", "--embed", "vectors.npy"]),
    "export": ("export", ["{checkpoint}", "--format", "transformers", "--output_dir", "exported"]),
    "finetune": ("finetune", ["{recipe}"]),
    "pretrain": ("pretrain", ["{recipe}"]),
    "tokenizer": ("pretrain", ["{recipe}"]),
}


@pytest.fixture
def run(checkpoint, tmp_path, monkeypatch):
    """Return a function that runs a command whose input says yes; it returns the exit status."""

    def run(name):
        program, words = COMMANDS[name]
        recipe = write_recipe(tmp_path, name, checkpoint) if "{recipe}" in words else None
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"y\n" * 9)))
        try:
            filled = [word.format(checkpoint=checkpoint, recipe=recipe) for word in words]
            minbert.main([program, *filled])
        except SystemExit as stop:
            return stop.code
        return 0

    return run


DAMAGES = {
    "own_config": own_config,
    "own_type": own_type,
    "own_tokenizer": own_tokenizer,
    "both": lambda folder: (own_config(folder), own_tokenizer(folder)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_the_code_of_a_checkpoint(run, checkpoint, tmp_path, capsys, name, damage):
    DAMAGES[damage](checkpoint)

    status = run(name)

    shown = capsys.readouterr()
    assert not (tmp_path / "mark").exists()
    assert "[y/N]" not in shown.out
    if name == "tokenizer" and damage in ("own_config", "own_type"):
        assert status == 0  # the tokenizer needs no code
        return
    assert status == 1
    assert ("is a 'own' checkpoint" if damage == "own_type" else "code of its own") in shown.err


def test_the_tokenizer_of_a_model_in_python_runs_no_code(checkpoint, tmp_path):
    own_tokenizer(checkpoint)
    model = MinBertForMultiTask.from_pretrained(checkpoint)

    with pytest.raises(ValueError, match=r"code of its own .* set model\.tokenizer"):
        model.predict("tone", ["the garden"])

    assert not (tmp_path / "mark").exists()
    model.tokenizer = BertTokenizer.from_pretrained(checkpoint)
    assert model.predict("tone", ["the garden"])


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_configuration_fetches_no_kernel(checkpoint, key):
    expected = MinBertForMultiTask.from_pretrained(checkpoint)
    change(checkpoint / "config.json", **{key: "somebody/kernel"})

    model = MinBertForMultiTask.from_pretrained(checkpoint)

    assert model.config._attn_implementation == expected.config._attn_implementation
    chosen = MinBertForMultiTask.from_pretrained(checkpoint, attn_implementation="eager")
    assert chosen.config._attn_implementation == "eager"


class Evil:
    """Leaves a mark when it is unpickled."""

    def __init__(self, path):
        """Take the path of the mark."""
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize("kind", ["zip", "plain"])
def test_pickled_weights_run_no_code(run, checkpoint, tmp_path, capsys, kind):
    weights = load_file(checkpoint / "model.safetensors")
    (checkpoint / "model.safetensors").unlink()
    content = weights | {"evil": Evil(tmp_path / "mark")}
    if kind == "zip":
        torch.save(content, checkpoint / "pytorch_model.bin")
    else:
        (checkpoint / "pytorch_model.bin").write_bytes(pickle.dumps(content["evil"], protocol=2))

    assert run("predict") == 1

    assert not (tmp_path / "mark").exists()
    assert "checkpoint" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["optimizer.pt", "scheduler.pt", "rng_state.pth"])
def test_a_resumed_run_runs_no_code_of_its_checkpoint(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    recipe = write_pretraining(tmp_path, max_steps=2, save_steps=2, eval_strategy="no")
    pretrain.main([str(recipe), "--output_dir", "run"])
    (folder,) = Path("run").glob("checkpoint-*")
    (folder / "checksums.json").unlink()
    torch.save({"state": Evil(tmp_path / "mark")}, folder / name)

    with pytest.raises(SystemExit):
        pretrain.main([str(recipe), "--output_dir", "run", "--resume_from_checkpoint", str(folder)])

    assert not (tmp_path / "mark").exists()
