"""``minbert pretrain`` from a text to a usable folder, and user errors."""

import json
import re
import shutil

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoTokenizer,
    pipeline,
)

from minbert_cli import pretrain
from minbert_cli.experiment_plan import PlannedRun
from minbert_cli.experiments import find_states
from modeling_minbert import MinBertForPreTraining
from tests import small_run
from tests.runs import WORDS, write_pretraining

EVALUATED = {
    "eval_strategy": "steps",
    "eval_steps": 3,
    "save_steps": 3,
    "load_best_model_at_end": True,
    "metric_for_best_model": "text_mlm_loss",
}


def train(recipe, output, *flags):
    """Run pretrain.py; return its output."""
    return small_run.train(recipe, "--output_dir", output, *flags, program=pretrain)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a recipe."""
    return tmp_path_factory.mktemp("pretrain")


@pytest.fixture(scope="module")
def run(folder):
    """Run the recipe once, with evaluations; return the folder."""
    train(write_pretraining(folder, **EVALUATED), folder / "run")
    return folder / "run"


def test_both_objectives_are_measured_reported_and_on_the_card(run):
    metrics = json.loads((run / "metrics.json").read_text())
    found = {split: metrics[split]["metrics"] for split in ("train", "validation")}
    assert metrics["command"].startswith("minbert pretrain ")
    page = (run / "report.html").read_text()
    for text in ("MLM loss", "NSP loss", f"{found['train']['text_mlm_accuracy']:.4f}"):
        assert text in page

    text = (run / "README.md").read_text()
    card = ModelCard(text)
    results = {result.metric_type: result.metric_value for result in card.data.eval_results}
    assert results["mlm_accuracy"] == found["validation"]["text_mlm_accuracy"]
    assert card.data.pipeline_tag == "fill-mask"
    assert "model = AutoModelForPreTraining.from_pretrained(" in text  # both heads
    assert metrics["command"] in text


def test_the_folder_loads_with_the_auto_classes_and_fills_masks(run):
    model = AutoModelForPreTraining.from_pretrained(run)
    masked = AutoModelForMaskedLM.from_pretrained(run)
    tokenizer = AutoTokenizer.from_pretrained(run)

    assert isinstance(model, MinBertForPreTraining)
    batch = tokenizer("ant bee [MASK] dog", return_tensors="pt")
    torch.testing.assert_close(model(**batch).prediction_logits, masked(**batch).logits)
    assert AutoModel.from_pretrained(run).config.hidden_size == 32
    filled = pipeline("fill-mask", model=str(run), device="cpu")("ant bee [MASK] dog")
    assert len(filled) == 5
    assert all(set(guess["sequence"].split()) & set(WORDS) for guess in filled)


@pytest.mark.parametrize("objective", ["mlm", "nsp"])
def test_one_objective_alone_goes_on_from_a_checkpoint(run, tmp_path, objective):
    recipe = write_pretraining(tmp_path, model=run, objective=objective, max_steps=2)

    train(recipe, tmp_path / "run")

    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert (f"text_{objective}_loss") in found["validation"]["metrics"]
    name = "bert.encoder.layer.0.output.dense.weight"
    before, after = (
        load_file(path / "model.safetensors")[name] for path in (run, tmp_path / "run")
    )
    assert 0 < (before - after).abs().max() < 0.02
    # masked tokens alone do not read the pooler, which fine-tuning does
    name = "bert.pooler.dense.weight"
    before, after = (
        load_file(path / "model.safetensors")[name] for path in (run, tmp_path / "run")
    )
    assert ((before - after).abs().max() == 0) == (objective == "mlm")


def test_a_text_that_changed_is_noticed(run, folder, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    recipe = write_pretraining(folder, **EVALUATED)
    keys = json.loads(recipe.read_text()) | {"output_dir": str(tmp_path / "run")}
    planned = [PlannedRun("pretrain", "own", tmp_path / "run", keys)]
    assert list(find_states(planned).values()) == ["done"]
    text = folder / "text-30.txt"
    text.write_text(text.read_text().replace(".", "!", 1))

    with pytest.raises(ValueError, match=r"own: .* resumes with other data of text"):
        find_states(planned)
    with pytest.raises(SystemExit):
        train(recipe, tmp_path / "run", "--resume_from_checkpoint", "true")

    assert "other data of text: their files have changed or gone since" in capsys.readouterr().err
    assert (tmp_path / "run" / "metrics.json").read_text() == (run / "metrics.json").read_text()


def test_a_plateau_is_one_of_the_loss_that_chooses_the_weights(tmp_path):
    recipe = json.loads(write_pretraining(tmp_path, eval_steps=2).read_text())
    recipe |= {"lr_scheduler_type": "reduce_lr_on_plateau", "output_dir": str(tmp_path / "run")}

    args = pretrain.pretrain(recipe, is_dry=True).args

    assert (args.metric_for_best_model, args.greater_is_better) == ("text_mlm_loss", False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"corpus": {}}, "corpus is empty; name at least one"),
        ({"model_name_or_path": "a/b", "model_config": None}, "has its own sizes and tokenizer"),
        ({"model_config": {"vocab_size": 9}}, "model_config: leave vocab_size out"),
        ({"objective": "mlm", "balanced_pairs": True}, "balanced_pairs=True has no effect"),
        ({"vocab_size": 10**12}, "vocab_size=1000000000000 must be from 1 to 100,000,000"),
    ],
)
def test_what_is_wrong_is_one_line_and_nothing_is_written(tmp_path, capsys, change, message):
    recipe = write_pretraining(tmp_path, **change)

    with pytest.raises(SystemExit) as exited:
        train(recipe, tmp_path / "run")

    lines = capsys.readouterr().err.strip().splitlines()
    assert exited.value.code == 1
    assert lines[-1].startswith("minbert pretrain: error: ")
    assert "Traceback" not in "".join(lines)
    assert re.search(message, lines[-1]), lines[-1]
    assert not (tmp_path / "run").exists()
