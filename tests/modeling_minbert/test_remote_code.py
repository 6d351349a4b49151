"""A saved folder carries its code: it loads where this package is not installed."""

import json
import os
import sys
from pathlib import Path

import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers.dynamic_module_utils import HF_MODULES_CACHE

import modeling_minbert
from modeling_minbert import MinBertConfig
from tests.modeling_minbert.test_packed import PAIRS
from tests.processes import run_python

# Each is found through its own Auto class.
NAMES = [*PAIRS, "MinBertForMultiTask"]

# One process for all classes: importing transformers takes longer than all the rest.
SCRIPT = """
import importlib.util, json, sys
import torch, transformers

assert importlib.util.find_spec("modeling_minbert") is None
folders, ids, out = json.loads(sys.argv[1]), torch.tensor(json.loads(sys.argv[2])), sys.argv[3]
results = {}
for name, (auto_class, folder) in folders.items():
    auto = getattr(transformers, auto_class)
    model = auto.from_pretrained(folder, trust_remote_code=True).eval()
    assert type(model).__name__ == name, type(model)
    assert type(model.config).__name__ == "MinBertConfig"
    again = f"{out}/{name}"
    model.save_pretrained(again)
    reloaded = auto.from_pretrained(again, trust_remote_code=True).eval()
    encoder = transformers.AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
    assert type(encoder).__name__ == "MinBertModel", type(encoder)
    with torch.no_grad():
        found = [model(ids), reloaded(ids), encoder(ids)]
    results[name] = [list(each.to_tuple()) for each in found]
config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=True)
results["tasks"] = config.tasks
tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
results["tokenizer"] = [type(tokenizer).__name__, dict(tokenizer("the cat", "a dog"))]
masked = transformers.AutoModelForMaskedLM.from_pretrained(folder, trust_remote_code=True).eval()
with torch.no_grad():
    results["masked"] = [masked(ids).logits, model(ids, task="text").prediction_logits]
results["prediction"] = model.predict("tone", ["the cat sat"])
tags = transformers.pipeline("token-classification", f"{out}/tags", trust_remote_code=True)
results["tags"] = [(token["entity"], token["score"].item()) for token in tags("the cat sat")]
torch.save(results, f"{out}/results.pt")
"""


@pytest.fixture
def folders(tiny_sizes, tasks, tokenizer, tmp_path):
    """Return a saved model of every class and its folder, by class name."""
    saved = {}
    for name in NAMES:
        torch.manual_seed(0)
        every = tasks | {"text": {"problem_type": "pretraining"}}
        more = {"tasks": every} if name == "MinBertForMultiTask" else {}
        model = getattr(modeling_minbert, name)(MinBertConfig(**tiny_sizes, **more)).eval()
        model.save_pretrained(tmp_path / name)
        saved[name] = (model, tmp_path / name)
    tokenizer.save_pretrained(tmp_path / "MinBertForMultiTask")
    return saved


def run_without_this_project(script, *arguments, folder):
    """Run a script where neither the checkout nor an installation of it can be imported.

    Nor the folder to which transformers has copied the code of checkpoints, if an earlier test has
    loaded any: the copies of the new process would be looked for there.
    """
    others = (Path(modeling_minbert.__file__).parents[1], Path(HF_MODULES_CACHE))
    packages = [entry for entry in sys.path if entry and Path(entry).resolve() not in others]
    script = f"import sys; sys.path[:] = {packages!r}\n{script}"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["HF_MODULES_CACHE"] = str(folder / "modules")
    # -S: an editable installation would be found through its .pth file
    run_python("-I", "-S", "-c", script, *arguments, folder=folder, environment=environment)


def test_a_fresh_process_loads_every_class_without_the_package(
    folders, tiny_sizes, tokenizer, tasks, tmp_path
):
    elsewhere = tmp_path / "elsewhere"
    kind = {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]}
    tags = modeling_minbert.MinBertForMultiTask(MinBertConfig(**tiny_sizes, tasks={"tags": kind}))
    tags.eval().save_pretrained(elsewhere / "tags")
    tokenizer.save_pretrained(elsewhere / "tags")
    ids = torch.tensor([[2, 8, 9, 10, 3], [2, 7, 6, 5, 3]])
    places = {name: (model._auto_class, str(path)) for name, (model, path) in folders.items()}

    arguments = [json.dumps(places), str(ids.tolist()), str(elsewhere)]
    run_without_this_project(SCRIPT, *arguments, folder=elsewhere)

    results = torch.load(elsewhere / "results.pt")
    for name, (model, _) in folders.items():
        expected = list(model(ids).to_tuple())
        remote, reloaded, encoder = results[name]
        assert_close(remote, expected)
        assert_close(reloaded, expected)
        assert_close(encoder[0], model.base_model(ids).last_hidden_state)
    assert results["tasks"] == folders["MinBertForMultiTask"][0].config.tasks
    assert results["tokenizer"] == ["BertTokenizer", dict(tokenizer("the cat", "a dog"))]
    assert results["prediction"][0]["label"] in tasks["tone"]["labels"]
    assert_close(*results["masked"])
    scores, labels = tags(**tokenizer("the cat sat", return_tensors="pt"))[0].softmax(-1).max(-1)
    shown = zip(labels[0, 1:-1].tolist(), scores[0, 1:-1].tolist(), strict=True)
    shown = [(kind["labels"][label], score) for label, score in shown if label]
    assert results["tags"] == [(name, pytest.approx(score)) for name, score in shown]
    assert shown
    written_again = {path.name for path in (elsewhere / "MinBertForMultiTask").glob("*.py")}
    assert written_again == {path.name for path in folders["MinBertForMultiTask"][1].glob("*.py")}


def test_with_the_package_no_trust_is_asked(folders):
    for name, (model, folder) in folders.items():
        loaded = getattr(transformers, model._auto_class).from_pretrained(folder)

        assert type(loaded) is getattr(modeling_minbert, name)
        assert type(transformers.AutoConfig.from_pretrained(folder)) is MinBertConfig
        assert type(transformers.AutoModel.from_pretrained(folder)) is modeling_minbert.MinBertModel


def test_a_folder_with_only_a_vocabulary_gives_segment_ids(folders, tokenizer):
    _, folder = folders["MinBertModel"]
    words = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    (folder / "vocab.txt").write_text("\n".join(words))

    loaded = transformers.AutoTokenizer.from_pretrained(folder)

    assert type(loaded) is transformers.BertTokenizer
    assert loaded("the cat", "a dog")["token_type_ids"] == [0, 0, 0, 0, 1, 1, 1]
