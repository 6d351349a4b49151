"""The Hub: what a run pushes, and what others load from there without the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

import finetune
from modeling_minbert import MinBertForMultiTask
from tests import loopback_hub, small_run

ROOT = Path(__file__).parents[1]
MODEL = "user/moods"
SENTENCES = ["the garden is warm", "this song was dull"]

LOAD = """
import json, sys
from transformers import AutoModel, AutoModelForSequenceClassification

name, sentences = sys.argv[1], json.loads(sys.argv[2])
model = AutoModelForSequenceClassification.from_pretrained(name, trust_remote_code=True)
encoder = AutoModel.from_pretrained(name, trust_remote_code=True)
assert not any(module == "modeling_minbert" for module in sys.modules)
weights, own = encoder.state_dict(), model.bert.state_dict()
print(json.dumps({
    "class": type(model).__name__,
    "encoder": type(encoder).__name__,
    "vectors": model.encode(sentences).tolist(),
    "predictions": model.predict("moods", sentences),
    "same": all(bool((weights[key] == value).all()) for key, value in own.items()),
}))
"""


def run_with(hub, folder, *command):
    """Run Python in ``folder``, with ``hub`` as the Hub and a cache of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
    environment |= {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(folder / "cache"),
        "HF_HUB_DISABLE_XET": "1",  # a protocol of its own, which the loopback server lacks
        "HF_TOKEN": "hf_loopback",
        "NO_PROXY": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


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
    path = small_run.write_recipe(folder, recipe)
    script = str(ROOT / "finetune.py")
    run_with(hub, folder, script, path, "--push_to_hub", "--hub_model_id", MODEL)
    return hub.repos[MODEL]


@pytest.mark.slow
def test_a_run_pushes_what_others_need_and_no_checkpoints(pushed):
    assert {
        "model.safetensors",
        "config.json",
        "configuration_minbert.py",
        "modeling_minbert.py",
        "modeling_minbert_multitask.py",
        "tokenizer.json",
        "tokenizer_config.json",
        "README.md",
        "metrics.json",
        "history.png",
        "report.html",
        "predictions/moods-dev-output.csv",
    } <= set(pushed)
    assert not [name for name in pushed if name.startswith("checkpoint-")]
    assert json.loads(pushed["run.json"])["finished"] is True


@pytest.mark.slow
def test_a_pushed_report_quotes_no_text(pushed):
    page = pushed["report.html"]
    page = page if isinstance(page, str) else page.decode()

    assert "moods" in page
    assert "this garden was" not in page
    assert "the garden is" not in page


@pytest.mark.slow
def test_the_pushed_configuration_names_the_code_of_every_head(pushed):
    auto_map = json.loads(pushed["config.json"])["auto_map"]

    assert auto_map["AutoModel"] == "modeling_minbert.MinBertModel"
    assert auto_map["AutoModelForSequenceClassification"].endswith("MinBertForMultiTask")


@pytest.mark.slow
def test_the_pushed_card_is_ours(pushed):
    text = pushed["README.md"].decode()

    card = ModelCard(text)

    assert f'from_pretrained("{MODEL}", trust_remote_code=True)' in text
    assert {result.task_name for result in card.data.eval_results} == {"moods", "scores"}


@pytest.mark.slow
def test_others_load_it_without_the_package(hub, folder, pushed, tmp_path):
    script = tmp_path / "load.py"
    script.write_text(LOAD)
    model = MinBertForMultiTask.from_pretrained(folder / "out")

    printed = run_with(hub, tmp_path, str(script), MODEL, json.dumps(SENTENCES))

    assert pushed
    assert "[y/N]" not in printed  # trust was given, nobody is asked again
    found = json.loads(printed.splitlines()[-1])
    assert (found["class"], found["encoder"]) == ("MinBertForMultiTask", "MinBertModel")
    assert found["same"] is True
    assert found["predictions"] == model.predict("moods", SENTENCES)
    assert found["vectors"] == model.encode(SENTENCES).tolist()


def test_a_folder_laid_out_as_on_the_hub_is_a_dataset(tmp_path):
    small_run.write_files(tmp_path)
    data = tmp_path / "dataset"
    data.mkdir()
    for split, name in {"train": "train", "dev": "validation", "test": "test"}.items():
        (tmp_path / f"scores-{split}.jsonl").rename(data / f"{name}.jsonl")
    recipe = small_run.make_recipe(tmp_path)
    scores = recipe["tasks"]["scores"]
    own = {key: value for key, value in scores.items() if not key.endswith("_file")}
    recipe["tasks"] = {"scores": own | {"hub_id": str(data)}}

    finetune.main([small_run.write_recipe(tmp_path, recipe), "--max_steps", "2"])

    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["validation"]["rows"] == {"scores": 9}
