"""Distillation on a simulated CUDA device; see ``simulated_cuda.py`` for what this checks."""

import json

import numpy as np
import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from minbert_cli import ProgramTrainingArguments, finetune
from tests import small_run
from tests.problem_examples import EXAMPLES
from tests.simulated_cuda import use_cuda
from tests.test_simulated_cuda import SIZES, CudaArguments, cuda  # noqa: F401  a fixture
from tests.trainers import tiny
from trainers import Distillation, MultiTaskTrainer

pytestmark = pytest.mark.usefixtures("cuda")


def train(folder, **options):
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "learning_rate": 0.01,
        "logging_steps": 100,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }
    sizes = {"moods": (40, 3), "pairs": (100, 1), "scores": (30, 1)}
    outputs = {task: np.random.default_rng(0).uniform(size=size) for task, size in sizes.items()}
    trainer = MultiTaskTrainer(
        tiny.make_model(**SIZES),
        CudaArguments(**(defaults | options)),
        tiny.make_tasks(),
        methods=[Distillation(outputs)],
    )
    trainer.train()


def test_a_step_waits_for_nothing(cuda, tmp_path):  # noqa: F811  the fixture
    counts = []
    for steps in (3, 9):
        cuda.clear()
        train(tmp_path / str(steps), max_steps=steps)
        counts.append(dict(cuda))
    assert counts[0] == counts[1]


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
