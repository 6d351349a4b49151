"""Teachers that run on every batch, through the whole trainer."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from tests.trainers import tiny
from tests.trainers.test_distillation import logs_of, train
from trainers import (
    Distillation,
    MethodArguments,
    OnlineDistillation,
    OnlineTeacher,
    RDrop,
    TaskCollator,
)
from trainers.data.collators import FixedShapes
from trainers.data.task_dataset import TaskDataset
from trainers.methods.distillation.online_distillation import hide_fillers, hide_paddings


def make_teacher(seed=5):
    """A teacher that is certain of something."""
    model = tiny.make_model(seed=seed, layers=3, hidden_size=18, dropout=0.3)
    with torch.no_grad():
        for head in model.heads.values():
            head.out.weight.mul_(100)
    return model


def compute(teacher, task):
    """What a teacher teaches of the training rows, each by itself."""
    found, rows = [], tiny.make_rows(task, tiny.SIZES[task])
    teacher.eval()
    for ids in rows["input_ids"]:
        nested = torch.nn.utils.rnn.pad_sequence(
            [torch.tensor(each) for each in (ids if task == "scores" else [ids])], batch_first=True
        )
        given = nested[None] if task == "scores" else nested
        with torch.no_grad():
            logits = teacher(input_ids=given, attention_mask=(given > 0).long(), task=task).logits
        found.append(teacher.to_targets(task, logits)[0].numpy())
    return np.stack(found)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_losses_are_those_of_outputs_that_were_computed_before(make_trainer, attention):
    first, second = make_teacher(), make_teacher(seed=6)
    values = {task: [compute(first, task)] for task in tiny.SIZES}
    values["moods"].append(compute(second, "moods"))
    live = {task: [OnlineTeacher(first)] for task in tiny.SIZES}
    live["moods"].append(OnlineTeacher(second))
    histories = []
    for method in (Distillation(values), OnlineDistillation(live)):
        model = tiny.make_model()
        model.set_attn_implementation(attention)
        trainer = train(make_trainer, method, model=model, max_steps=6)
        histories.append([entry for entry in trainer.state.log_history if "loss" in entry])

    for cached, online in zip(*histories, strict=True):
        assert cached.keys() == online.keys()
        for name, value in cached.items():
            assert online[name] == pytest.approx(value, rel=1e-3, abs=1e-5)


def test_a_teacher_may_have_other_names_and_orders(make_trainer):
    teacher = make_teacher()
    order = [2, 0, 1]
    values = compute(teacher, "moods")[:, order]
    live = OnlineTeacher(lambda: teacher, "moods", lambda logits: logits[..., order])
    found = [
        train(make_trainer, method, max_steps=1)
        for method in (Distillation({"moods": values}), OnlineDistillation({"moods": live}))
    ]
    logs = [logs_of(each)["distillation_moods"] for each in found]
    assert logs[0] == pytest.approx(logs[1], rel=1e-4)


def test_the_teacher_is_neither_trained_nor_saved(make_trainer, tmp_path):
    teacher = make_teacher().train()
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    method = OnlineDistillation({"moods": OnlineTeacher(teacher), "pairs": OnlineTeacher(teacher)})
    trainer = train(make_trainer, method, save_strategy="steps", save_steps=4)

    assert_close(teacher.state_dict(), before, rtol=0, atol=0)
    assert not teacher.training
    assert trainer.model.state_dict().keys() == tiny.make_model().state_dict().keys()
    count = sum(len(group["params"]) for group in trainer.optimizer.param_groups)
    assert count == len(list(trainer.model.parameters()))
    size = (tmp_path / "run" / "checkpoint-4" / "model.safetensors").stat().st_size
    assert size < 1.5 * 4 * sum(value.numel() for value in trainer.model.parameters())


def test_a_loader_runs_once_when_training_starts(make_trainer):
    loaded = []

    def load():
        loaded.append(make_teacher())  # seeds the random numbers
        return loaded[-1]

    method = OnlineDistillation({task: OnlineTeacher(load) for task in tiny.SIZES}, alpha=0.0)
    trainer = make_trainer(own={"methods": [method]}, dropout=0.1, max_steps=4)
    assert not loaded
    trainer.train()
    assert len(loaded) == 1
    plain = train(make_trainer)
    assert_close(trainer.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)


def test_the_teacher_runs_once_for_both_passes_of_r_drop(make_trainer):
    teacher, passes = make_teacher(), []
    teacher.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    method = OnlineDistillation({task: OnlineTeacher(teacher) for task in tiny.SIZES})
    train(make_trainer, method, RDrop(), max_steps=3)

    assert passes == [False] * 3


@pytest.mark.parametrize("others", [{}, {"smart": {"weight": 0.5}}], ids=["alone", "smart"])
def test_a_resumed_run_is_the_same_bit_for_bit(make_trainer, tmp_path, others):
    def build():
        live = {task: OnlineTeacher(make_teacher) for task in tiny.SIZES}
        own = {"methods": [OnlineDistillation(live), *MethodArguments(**others).make_methods()]}
        settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 4}
        return make_trainer(own=own, dropout=0.1, **settings)

    tiny.assert_resumes(build, tmp_path / "run" / "checkpoint-4")


def test_bfloat16_is_near_float32(make_trainer):
    live = {task: OnlineTeacher(make_teacher()) for task in tiny.SIZES}
    found = [
        logs_of(train(make_trainer, OnlineDistillation(live), dropout=0.0, bf16=bf16))
        for bf16 in (False, True)
    ]
    for task in tiny.SIZES:
        name = f"distillation_{task}"
        assert found[1][name] == pytest.approx(found[0][name], rel=0.1)


@pytest.mark.parametrize("kind", ["rows", "windows", "positions"])
def test_what_only_fills_a_batch_has_no_teacher(kind):
    rows = TaskDataset({"moods": tiny.make_rows("moods", 8)}).__getitems__([0, 1])
    shapes = FixedShapes({"moods": 64})
    batch = TaskCollator(0, packed=True, fixed_shapes=shapes)(rows)
    lengths = batch["cu_seq_lens_q"].diff()
    count, longest = len(lengths), batch["max_length_q"]
    assert count > batch["num_rows"] == 2
    if kind == "positions":
        values = hide_paddings(torch.zeros(count, longest, 1, 2), batch)
        values = hide_fillers(values, batch, 0)
        assert (values[:2].isfinite().all((2, 3)).sum(dim=1) == lengths[:2]).all()
    else:
        if kind == "windows":  # the first filler has all filler windows
            batch["num_windows"] = torch.tensor([1, 1, count - 2, *[0] * (count - 3)])
        values = hide_fillers(torch.zeros(count, 1, 3), batch, 0)
        assert values[:2].isfinite().all()
    assert values[2:].isnan().all()


def test_vectors_are_no_wider_than_those_of_the_student(make_trainer):
    method = OnlineDistillation({"moods": OnlineTeacher(make_teacher())})
    train(make_trainer, method, max_steps=1)
    padded = method._fit_width("moods", torch.ones(2, 1, 3, 9))

    assert_close(padded[..., 9:], torch.zeros(2, 1, 3, 3))
    with pytest.raises(ValueError, match=r"vectors of the teacher have the size 18.*cached"):
        method._fit_width("moods", torch.ones(2, 1, 3, 18))
