"""On a simulated CUDA device everything computes what it computes on the CPU.

See ``simulated_cuda.py`` for what this checks and what it cannot.
"""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close
from transformers import TrainingArguments

from minbert_cli import ProgramTrainingArguments, finetune
from modeling_minbert import (
    MinBertConfig,
    MinBertForMultiTask,
    MinBertModel,
    MinBertSequences,
    attention,
)
from tests import small_run
from tests.problem_examples import EXAMPLES
from tests.simulated_cuda import CudaTensor, simulated_cuda, use_cuda
from tests.trainers import tiny
from trainers import Distillation, MethodArguments, MultiTaskTrainer

NEAR = {"atol": 1e-5, "rtol": 1e-4}
SIZES = {"hidden_size": 24}  # three heads of eight: the kernels of CUDA take multiples of eight


class CudaArguments(TrainingArguments):
    _setup_devices = property(use_cuda)


# Most tests need the device and not what it gives
pytestmark = pytest.mark.usefixtures("cuda")


@pytest.fixture
def cuda(monkeypatch):
    """Simulate the device; what only a driver can answer is answered here."""
    attention.has_flash_kernels.cache_clear()
    monkeypatch.setattr(attention, "has_flash_kernels", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "simulated")
    with simulated_cuda() as waits:
        yield waits


def values_of(state):
    return {name: getattr(value, "values", value) for name, value in state.items()}


def move(batch):
    return {
        name: value.to("cuda") if isinstance(value, torch.Tensor) else value
        for name, value in batch.items()
    }


# The simulation


def test_what_the_cpu_waits_for_is_counted(cuda):
    ones = torch.ones(3, device="cuda")
    (ones + ones).sum()
    assert not cuda

    ones.sum().item(), ones.nonzero(), ones.cpu(), bool(ones.all()), ones.tolist()
    assert sum(cuda.values()) == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("select", "window"), [(None, None), ([0, 2, 3, 9, 10], None), (None, 1)])
def test_attention_equals_the_cpu(dtype, select, window):
    """The kernels are ours here; how they are called, and by which offsets, is not."""
    if window and dtype == torch.float32:
        pytest.skip("local attention has no kernel in float32: `can_attend`")
    torch.manual_seed(0)
    chosen = None if select is None else torch.tensor(select)
    rows = (11 if select is None else 5, 11, 11)
    states = [torch.randn(count, 24).to(dtype) for count in rows]
    results = []
    for device in ("cpu", "cuda"):
        offsets = torch.tensor([0, 2, 3, 9, 11], dtype=torch.int32).to(device)
        given = [each.to(device).requires_grad_() for each in states]
        picked = None if chosen is None else chosen.to(device)
        sequences = MinBertSequences(offsets, 6, None, (1, 11))
        context = sequences.attend(*given, 3, select=picked, window=window)
        results.append((context, *torch.autograd.grad(context.float().square().sum(), given)))

    expected, actual = results
    near = NEAR if dtype == torch.float32 else {"atol": 2e-2, "rtol": 2e-2}
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.device.type == "cuda"
        assert_close(ours.values, theirs, **near)


# Models


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["modernbert", "mpnet", "roberta", "distilbert"])
def test_encoders_of_other_types_equal_the_cpu(kind, dtype, packed):
    """ModernBERT takes flash attention, or with float32 masks; MPNet masks always."""
    fields = {"modernbert": {"local_attention": 4, "num_hidden_layers": 4}}
    fields |= {"mpnet": {"relative_attention_num_buckets": 32, "position_offset": 2}}
    fields |= {"roberta": {"position_offset": 2}, "distilbert": {"type_vocab_size": 0}}
    sizes = {"vocab_size": 60, "num_attention_heads": 3, "num_hidden_layers": 2} | SIZES
    config = MinBertConfig(encoder_type=kind, **sizes | fields[kind], intermediate_size=32)
    torch.manual_seed(0)
    models = MinBertModel(config).eval().to(dtype), MinBertModel(config).eval().to(dtype)
    models[1].load_state_dict(models[0].state_dict())
    lengths = torch.tensor([9, 2, 6])
    ids = torch.randint(3, 60, (3, 9))
    real = torch.arange(9) < lengths[:, None]
    batch = {"input_ids": ids.where(real, 0), "attention_mask": real.long()}
    if packed:
        offsets = torch.tensor([0, 9, 11, 17], dtype=torch.int32)
        batch = {"input_ids": ids[real][None], "cu_seq_lens_q": offsets, "max_length_q": 9}
    expected = models[0](**batch).last_hidden_state
    found = models[1].to("cuda")(**move(batch)).last_hidden_state
    weights = torch.randn(expected.shape)
    (expected.float() * weights).sum().backward()
    (found.float() * weights.to("cuda")).sum().backward()
    near = NEAR if dtype == torch.float32 else {"atol": 5e-2, "rtol": 5e-2}
    assert_close(found.values, expected, **near)
    for first, second in zip(models[1].parameters(), models[0].parameters(), strict=True):
        if second.grad is not None:
            assert (first.grad.values - second.grad).norm() <= 1e-5 + 0.05 * second.grad.norm()


WINDOWS = {"truncation": "windows", "max_length": 8, "window_overlap": 2}
LONG = {"problem_type": "classification", "labels": ["a", "b"], "dropout": 0.0, **WINDOWS}


def make_long_rows():
    """Make rows of one, three and two windows."""
    windows = [[[2, 7, 3]], [[2, 5, 6, 7, 3], [2, 8, 3], [2, 9, 9, 9, 3]], [[2, 4, 3], [2, 5, 3]]]
    return [
        {
            "input_ids": ids,
            "token_type_ids": [[0] * len(window) for window in ids],
            "num_windows": [len(ids)],
            "labels": place % 2,
        }
        for place, ids in enumerate(windows)
    ]


def make_long_model():
    torch.manual_seed(0)
    return MinBertForMultiTask(tiny.make_config({"long": LONG}, **SIZES))


@pytest.mark.parametrize("task", ["moods", "pairs", "scores", "long"])
@pytest.mark.parametrize("packed", [False, True])
def test_losses_and_gradients_equal_the_cpu(task, packed):
    rows = make_long_rows() if task == "long" else tiny.make_rows(task, 5)
    batch = tiny.collate(task, rows, packed=packed)
    results = []
    for device in ("cpu", "cuda"):
        model = make_long_model() if task == "long" else tiny.make_model(**SIZES)
        model = model.to(device)
        outputs = model(**(batch if device == "cpu" else move(batch)))
        outputs.loss.backward()
        grads = {name: weight.grad for name, weight in model.named_parameters()}
        results.append((outputs, grads))

    (expected, gradients), (actual, ours) = results
    assert actual.loss.device.type == actual.logits.device.type == "cuda"
    assert_close(actual.logits.values, expected.logits, **NEAR)
    for name, gradient in gradients.items():
        assert (ours[name] is None) == (gradient is None), name
        if gradient is not None:
            assert isinstance(ours[name], CudaTensor), name
            assert_close(ours[name].values, gradient, **NEAR)


# Training


def train(folder, arguments, methods, **options):
    defaults = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 4,
        "learning_rate": 0.01,
        "logging_steps": 2,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
    }
    trainer = MultiTaskTrainer(
        tiny.make_model(dropout=1e-9, **SIZES),  # which drops nothing
        arguments(**(defaults | options)),
        tiny.make_tasks(),
        methods=methods,
    )
    trainer.train()
    return trainer


def measure(trainer):
    return {k: v for k, v in trainer.evaluate().items() if "_s" not in k and "time" not in k}


METHODS = {
    "r_drop": {"r_drop": 1.0},
    "rate of the heads": {"head_learning_rate": 0.01},
    "freezing": {"freeze_layers": 1},
}


@pytest.mark.parametrize("name", METHODS)
def test_training_equals_the_cpu(tmp_path, name):
    arguments = MethodArguments(**METHODS[name])
    cpu = train(tmp_path / "cpu", TrainingArguments, arguments.make_methods(), use_cpu=True)
    gpu = train(tmp_path / "gpu", CudaArguments, arguments.make_methods())

    assert gpu.model.device.type == "cuda"
    assert measure(gpu) == pytest.approx(measure(cpu), rel=1e-3, abs=1e-4)
    assert_close(values_of(gpu.model.state_dict()), cpu.model.state_dict(), atol=1e-4, rtol=1e-3)


def test_a_checkpoint_resumes_on_the_device(tmp_path):
    whole = train(tmp_path, CudaArguments, [], save_strategy="steps", save_steps=2)
    arguments = whole.args
    again = MultiTaskTrainer(tiny.make_model(**SIZES), arguments, tiny.make_tasks())
    again.train(resume_from_checkpoint=str(tmp_path / "checkpoint-2"))

    for first, second in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(first.values, second.values)


def teach():
    shapes = {"moods": (40, 3), "pairs": (100, 1), "scores": (30, 1)}
    outputs = {task: np.random.default_rng(0).uniform(size=size) for task, size in shapes.items()}
    return Distillation(outputs)


@pytest.mark.parametrize("make_methods", [list, lambda: [teach()]], ids=["plain", "taught"])
def test_a_step_waits_for_nothing(cuda, tmp_path, make_methods):
    """What is waited for at the start, when logging and at the end does not grow with the steps."""
    counts = []
    for steps in (3, 6):
        cuda.clear()
        options = {"max_steps": steps, "logging_steps": 100}
        train(tmp_path / str(steps), CudaArguments, make_methods(), **options)
        counts.append(dict(cuda))
    assert counts[0] == counts[1]


@pytest.mark.parametrize("kind", ["contrastive", "question_answering"])
def test_teachers_predict_on_the_device_of_the_run(tmp_path, monkeypatch, kind):
    task = {"problem_type": kind, "batch_size": 4} | EXAMPLES[kind].write(tmp_path)
    recipe = small_run.make_recipe(tmp_path) | {"tasks": {"own": task | {"dropout": 0.0}}}
    recipe |= small_run.QUICK | {"max_steps": 2}
    recipe["optim"] = "sgd"  # Adam would divide rounding errors by their own size
    sizes = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 4}
    recipe["model_config"] |= sizes
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
