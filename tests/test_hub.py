"""The Hub: files that a run pushes, and loading them without the package."""

import json
import os

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

from datasets_scripts import train_wordpiece
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel
from tests import loopback_hub, small_run
from tests.processes import ROOT, run_python
from tests.same_predictions import assert_same

MODEL = "user/moods"
SENTENCES = ["the garden is warm", "this song was dull"]

LOAD = """
import json, sys
from transformers import AutoModel, AutoModelForSequenceClassification

name, sentences = sys.argv[1], json.loads(sys.argv[2])
model = AutoModelForSequenceClassification.from_pretrained(name, trust_remote_code=True)
encoder = AutoModel.from_pretrained(name, trust_remote_code=True)
assert not any(module == "modeling_minbert" for module in sys.modules)
print(json.dumps({
    "class": type(model).__name__,
    "encoder": type(encoder).__name__,
    "vectors": encoder.encode(sentences).tolist(),
    "predictions": model.predict("moods", sentences),
}))
"""


PUSH = """
import contextlib, json, sys
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel

folder = sys.argv[1]
tone = {"tone": {"problem_type": "classification", "labels": ["calm", "loud"]}}
sizes = {"vocab_size": 9, "hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 1}
MinBertForMultiTask(MinBertConfig(**sizes, num_hidden_layers=1, tasks=tone)).push_to_hub("tone")
model = MinBertForMultiTask.from_pretrained(folder)
model.push_to_hub("user/own")
encoder = MinBertModel.from_pretrained(folder)
encoder.name_or_path = ""  # as if it had come from nowhere
encoder.push_to_hub("bare", commit_message="An encoder")
messages = []
for repo in ("other/refused", "user/full", "user/no-token"):
    try:
        model.push_to_hub(repo, token=False if repo.endswith("token") else None)
    except OSError as error:
        messages.append(str(error))
print(json.dumps(messages))
"""

PUSH_TAGS = """
from modeling_minbert import MinBertConfig, MinBertModel

sizes = {"vocab_size": 9, "hidden_size": 4, "intermediate_size": 4, "num_attention_heads": 1}
model = MinBertModel(MinBertConfig(**sizes, num_hidden_layers=1))
try:
    model.push_to_hub("never", tag=["typo"])
except TypeError:
    model.push_to_hub("fresh", tags=["small", "own"], revision="trial")
    model.push_to_hub("known", tags=["own"])
"""


def run_with(hub, folder, *command, status=0, **more):
    """Run Python in ``folder``, with ``hub`` as the Hub and a separate cache."""
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "cache"),
        "HF_HUB_DISABLE_XET": "1",  # a protocol that the loopback server lacks
        "HF_TOKEN": "hf_loopback",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": str(ROOT) if more.pop("installed", False) else "",
        **more,
    }
    done = run_python(*command, folder=folder, environment=environment, status=status)
    return done.stderr if status else done.stdout


@pytest.fixture(scope="module")
def hub():
    """Serve a Hub."""
    with loopback_hub.serve() as server:
        yield server


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of the run."""
    return tmp_path_factory.mktemp("hub")


@pytest.fixture(scope="module")
def pushed(hub, folder):
    """Train and push; returns the files of the repository."""
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    recipe["tasks"] = {name: recipe["tasks"][name] for name in ("moods", "scores")}
    recipe["card"] = {"language": "en", "license": "apache-2.0", "tags": ["small"]}
    path = small_run.write_recipe(folder, recipe)
    script = str(ROOT / "finetune.py")
    before = ("minbert.json", "model-00001-of-00001.safetensors", "adapter_config.json")
    hub.repos[MODEL] = dict.fromkeys((*before, "notes.txt"), b"{}")
    run_with(hub, folder, script, path, "--push_to_hub", "--hub_model_id", MODEL)
    assert hub.repos[MODEL].keys().isdisjoint(before)
    assert "notes.txt" in hub.repos[MODEL]
    return hub.repos[MODEL]


@pytest.mark.slow
def test_a_run_pushes_all_needed_files_no_checkpoints_and_no_text(pushed):
    assert {
        "model.safetensors",
        "config.json",
        "configuration_minbert.py",
        "modeling_minbert.py",
        "multitask.py",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
        "metrics.json",
        "report.html",
        "predictions/moods-dev-output.csv",
    } <= set(pushed)
    assert not [name for name in pushed if name.startswith("checkpoint-")]
    assert json.loads(pushed["run.json"])["finished"] is True
    page = pushed["report.html"].decode()
    assert "moods" in page
    assert "this garden was" not in page
    assert "the garden is" not in page


@pytest.mark.slow
def test_the_pushed_card_is_ours(pushed):
    text = pushed["README.md"].decode()

    card = ModelCard(text)

    assert f'path = "{MODEL}"\n' in text
    data = card.data
    assert (data.language, data.license) == ("en", "apache-2.0")
    assert data.tags == ["minbert", "multi-task", "small"]
    assert (data.library_name, data.pipeline_tag) == ("transformers", "text-classification")
    assert data.metrics == ["accuracy", "macro_f1", "pearson", "spearman"]
    found = {f"{x.task_name}_{x.metric_type}": x.metric_value for x in data.eval_results}
    metrics = json.loads(pushed["metrics.json"])["validation"]["metrics"]
    assert found == {name: value for name, value in metrics.items() if "_" in name}


@pytest.fixture(scope="module")
def own(hub, folder, pushed):
    """Push models without a run; return the messages of refused ones."""
    assert pushed
    hub.refused = {"user/full/preupload/main": (403, "Private repository storage limit reached")}
    # of an encoder of sentences that was there before
    hub.repos["user/tone"] = {"modules.json": b"[{}]", "notes.txt": b"mine"}
    script = folder / "push.py"
    script.write_text(PUSH)
    before = (folder / "out" / "model.safetensors").read_bytes()
    printed = run_with(hub, folder, str(script), str(folder / "out"), installed=True)
    assert (folder / "out" / "model.safetensors").read_bytes() == before
    hub.refused = {}
    return json.loads(printed.splitlines()[-1])


@pytest.mark.slow
def test_a_model_pushes_itself_with_code_and_tokenizer_or_says_why_not(hub, own, pushed):
    files = hub.repos["user/own"]

    code = {name for name in pushed if name.endswith(".py")}
    assert code | {"model.safetensors", "config.json", "tokenizer.json"} <= set(files)
    others = ("checkpoint", "metrics", "report", "README")
    assert not [name for name in files if name.startswith(others)]
    refused, full, no_token = own
    assert "403" in refused
    assert "do not have the rights" in refused
    assert "Private repository storage limit reached" in full
    assert "401" in no_token


@pytest.mark.slow
def test_tags_are_those_of_the_card_and_a_new_branch_is_created(hub, tmp_path):
    card = "---\nlicense: mit\ntags:\n- small\n---\n\nA text.\n"
    hub.repos["user/known"] = {"README.md": card.encode()}
    (tmp_path / "push.py").write_text(PUSH_TAGS)
    run_with(hub, tmp_path, str(tmp_path / "push.py"), installed=True)

    assert "user/never" not in hub.repos
    assert ("user/fresh", "trial") in hub.branches
    fresh = hub.repos["user/fresh"]["README.md"].decode()
    assert ModelCard(fresh).data.tags == ["small", "own"]
    known = ModelCard(hub.repos["user/known"]["README.md"].decode())
    assert (known.data.tags, known.data.license) == (["small", "own"], "mit")
    assert known.text.strip() == "A text."


@pytest.mark.slow
def test_a_run_that_cannot_be_pushed_fails_at_its_start_or_is_complete(hub, tmp_path):
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    path = small_run.write_recipe(tmp_path, recipe)
    script = str(ROOT / "finetune.py")
    flags = ("--push_to_hub", "--max_steps", "2", "--hub_model_id")

    denied = run_with(hub, tmp_path, script, path, *flags, "other/m", status=1)
    assert not (tmp_path / "out").exists()
    hub.refused = {"/commit/main": (403, "Private repository storage limit reached")}
    late = run_with(hub, tmp_path, script, path, *flags, "user/late", status=1)
    hub.refused = {}

    assert "minbert finetune: error: push_to_hub: 403 " in denied
    assert "do not have the rights" in denied
    assert "Private repository storage limit reached" in late.splitlines()[-1]
    assert "the run is complete; push it with `hf upload user/late " in late
    assert json.loads((tmp_path / "out" / "run.json").read_text())["finished"] is True
    assert (tmp_path / "out" / "README.md").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", [MODEL, "user/own"])
def test_others_load_it_without_the_package(hub, folder, own, tmp_path, name):
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    model = MinBertForMultiTask.from_pretrained(folder / "out")

    printed = run_with(hub, tmp_path, str(script), name, json.dumps(SENTENCES))

    assert own
    assert "[y/N]" not in printed  # trust was given, nobody is asked again
    found = json.loads(printed.splitlines()[-1])
    assert (found["class"], found["encoder"]) == ("MinBertForMultiTask", "MinBertModel")
    assert_same(found["predictions"], model.predict("moods", SENTENCES))
    assert found["vectors"] == model.encode(SENTENCES).tolist()


@pytest.fixture(scope="module")
def versions(hub, tmp_path_factory):
    """Serve a model and a dataset with two versions each; return the tags of the latter's rows."""
    folder = tmp_path_factory.mktemp("versions")
    sizes = small_run.make_recipe(folder)["model_config"]
    tokenizer = train_wordpiece(["the garden is warm", "this song was dull"] * 5, 60)
    tokenizer.save_pretrained(folder / "tokenizer")
    for number, revision in enumerate(("main", "v1")):
        torch.manual_seed(number)
        model = MinBertModel(MinBertConfig(**sizes | {"vocab_size": len(tokenizer)}))
        model.save_pretrained(folder / revision)
        tokenizer.save_pretrained(folder / revision)
        files = {path.name: path.read_bytes() for path in (folder / revision).glob("*.*")}
        hub.versions.setdefault("user/encoder", {})[revision] = files
        rows = {
            f"{split}.jsonl": "".join(
                json.dumps({"text": text, "mood": "good" if good else "bad"}) + "\n"
                for _, text, _, _, good in list(small_run.make_rows(name))[: 9 - number]
            ).encode()
            for split, name in {"train": "train", "validation": "dev"}.items()
        }
        hub.versions.setdefault("datasets/user/rows", {})[revision] = rows
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pin", "commit"), [(None, "main"), ("v1", "v1"), (loopback_hub.to_commit("v1"), "v1")]
)
def test_revisions_of_model_and_data_are_read_and_recorded(hub, versions, tmp_path, pin, commit):
    recipe = small_run.make_recipe(tmp_path)
    task = {"hub_id": "user/rows", "problem_type": "classification", "text_columns": ["text"]}
    text = {"hub_id": "user/rows", "text_column": "text"}
    pinned = {} if pin is None else {"revision": pin}
    recipe |= {"model_name_or_path": "user/encoder", "model_config": {}, **pinned}
    recipe["tasks"] = {
        "moods": {**task, "label_column": "mood", "pooling": "mean", **pinned},
        "text": {"problem_type": "masked_lm", "corpus": {"own": {**text, **pinned}}},
    }
    recipe |= {"learning_rate": 1e-30, "max_steps": 1, "save_strategy": "no", "eval_strategy": "no"}
    path = small_run.write_recipe(tmp_path, recipe)

    run_with(hub, tmp_path, str(ROOT / "finetune.py"), path)

    expected = loopback_hub.to_commit(commit)
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    card = (tmp_path / "out" / "README.md").read_text()
    names = {"model_name_or_path", "moods", "text: own"}
    assert run["commits"] == metrics["commits"] == dict.fromkeys(names, expected)
    assert run["settings"]["revision"] == pin
    assert f"Initial weights: `user/encoder`, commit {expected}." in card
    assert f"Data of moods: commit {expected} on the Hub." in card
    assert metrics["splits"]["moods"]["train"]["rows"] == {"main": 9, "v1": 8}[commit]
    weights, own = (
        load_file(folder / "model.safetensors") for folder in (tmp_path / "out", versions / commit)
    )
    name = "encoder.layer.0.attention.self.query.weight"
    assert torch.allclose(weights[f"bert.{name}"], own[name], atol=1e-6)
