"""The speeds in the output of ``train``, compared with rows and steps counted; memory."""

import os
import platform

import pytest
from transformers import TrainerCallback

from tests.processes import run_python
from trainers import MultiTaskTrainer, TaskSampling

from . import tiny


class Counting(MultiTaskTrainer):
    """Counts the rows of every training batch."""

    rows = 0

    def compute_loss(self, model, inputs, *args, **kwargs):
        if model.training:
            self.rows += len(inputs["labels"])
        return super().compute_loss(model, inputs, *args, **kwargs)


class StopAt(TrainerCallback):
    """Ends the training after a step, as early stopping does."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):  # noqa: ARG002  its signature
        control.should_training_stop = state.global_step >= self.step


def check(trainer, output):
    metrics = output.metrics
    runtime = metrics["train_runtime"]
    assert trainer.rows
    assert metrics["train_samples_per_second"] == pytest.approx(trainer.rows / runtime, abs=1e-3)
    logged = trainer.state.log_history[-1]
    assert logged["train_samples_per_second"] == metrics["train_samples_per_second"]


@pytest.mark.parametrize(
    ("own", "arguments"),
    [
        ({"steps_per_epoch": "longest"}, {"gradient_accumulation_steps": 4}),
        ({"tasks": {"moods": {"batch_size": 2}, "pairs": {"batch_size": 7}}}, {"max_steps": 7}),
        ({"sampling": "proportional", "steps_per_epoch": 5}, {"max_steps": 8}),
    ],
)
def test_the_rows_that_were_trained_are_counted(tmp_path, monkeypatch, own, arguments):
    monkeypatch.setattr(tiny, "MultiTaskTrainer", Counting)
    own = dict(own)
    if "tasks" in own:
        own["tasks"] = tiny.make_tasks(**own["tasks"])
    if "sampling" in own:
        own["sampling"] = TaskSampling(own["sampling"])
    trainer = tiny.make_trainer(tmp_path, own=own, **arguments)

    check(trainer, trainer.train())


def test_a_part_of_the_run_counts_only_its_own_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(tiny, "MultiTaskTrainer", Counting)
    arguments = {"max_steps": 9, "save_strategy": "steps", "save_steps": 4}
    first = tiny.make_trainer(tmp_path, callbacks=[StopAt(4)], **arguments)
    stopped = first.train()
    check(first, stopped)
    second = tiny.make_trainer(tmp_path, **arguments)

    output = second.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))

    check(second, output)
    runtime = output.metrics["train_runtime"]
    assert output.metrics["train_steps_per_second"] == pytest.approx(5 / runtime, rel=0.1)


FREED = """
import torch
from transformers import TrainerControl, TrainerState, TrainingArguments
from trainers.training.callbacks import FreedMemory

memory = FreedMemory()
given = TrainingArguments("unused", use_cpu=True), TrainerState(), TrainerControl()
memory.on_train_begin(*given)
tensors = [torch.ones(10_000_000) for _ in range(8)]
del tensors
pages = [memory._count_pages()]
for memory.limit in (memory.limit, 0):
    memory.least = memory.limit
    memory.on_step_end(*given)
    pages.append(memory._count_pages())
print(*pages)
"""


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="only glibc is told")
def test_freed_memory_is_kept_until_it_is_too_much():
    before, kept, returned = map(int, run_python("-c", FREED).stdout.split())
    large = 8 * 40_000_000 // os.sysconf("SC_PAGE_SIZE")
    assert kept > before - large / 10
    assert returned < before - large * 0.9
