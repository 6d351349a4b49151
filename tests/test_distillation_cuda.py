"""Distillation on a simulated CUDA device; see ``simulated_cuda.py`` for what this checks."""

import json

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from minbert_cli import ProgramTrainingArguments, finetune
from tests import small_run
from tests.problem_examples import EXAMPLES
from tests.simulated_cuda import use_cuda
from tests.test_simulated_cuda import cuda  # noqa: F401  a fixture

pytestmark = pytest.mark.usefixtures("cuda")


@pytest.mark.parametrize("kind", ["contrastive", "question_answering"])
def test_teachers_predict_on_the_device_of_the_run(tmp_path, monkeypatch, kind):
    task = {"problem_type": kind, "batch_size": 4} | EXAMPLES[kind].write(tmp_path)
    recipe = small_run.make_recipe(tmp_path) | {"tasks": {"own": task | {"dropout": 0.0}}}
    recipe |= {"num_train_epochs": 1, "eval_strategy": "no", "evaluate_train": False}
    recipe["optim"] = "sgd"  # Adam would divide rounding errors by their own size
    recipe["model_config"] |= {"hidden_size": 32, "num_attention_heads": 4}
    rates = {f"{name}_dropout_prob": 0.0 for name in ("hidden", "attention_probs")}
    recipe["model_config"] |= rates

    def run(name, **changes):
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps(recipe | {"output_dir": str(tmp_path / name)} | changes))
        finetune.main([str(path)])
        return load_file(tmp_path / name / "model.safetensors")

    run("teacher", seed=1)
    expected = run("cpu", teacher=str(tmp_path / "teacher"))
    monkeypatch.setattr(ProgramTrainingArguments, "_setup_devices", property(use_cuda))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    actual = run("cuda", teacher=str(tmp_path / "teacher"), use_cpu=False)

    assert len(list((tmp_path / "cache" / "minbert_teachers").iterdir())) == 1
    assert_close(actual, expected, atol=1e-5, rtol=1e-4)
