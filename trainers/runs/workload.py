"""The size of a training before it starts: steps, rows and evaluations."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import EarlyStoppingCallback, TrainingArguments

from trainers.data.sampling.task_batch_sampler import TaskBatchSampler
from trainers.data.task_dataset import Rows
from trainers.reports.wording import count
from trainers.training.callbacks import LastStep
from trainers.training.shared_steps import find_leaders


@dataclass(frozen=True)
class Workload:
    """What a training does from its first step to its last.

    Attributes:
        sampler: Chooses the rows of every micro-step.
        accumulation: Micro-steps of an optimizer step.
        steps: Optimizer steps.
        evaluated_steps: The optimizer steps after which all tasks are evaluated.
        evaluation_rows: Rows of one evaluation, by task.
        final_rows: Rows that are predicted after training, by task.
        final_splits: The splits of these rows.
        may_stop_early: Whether the training may end before its last step.
        hardware: The devices and the precision, such as ``cpu in float32``.
        leaders: Tasks whose training rows are those of another task, and that task.
    """

    sampler: TaskBatchSampler
    accumulation: int
    steps: int
    evaluated_steps: tuple[int, ...] = ()
    evaluation_rows: Mapping[str, int] = field(default_factory=dict)
    final_rows: Mapping[str, int] = field(default_factory=dict)
    final_splits: tuple[str, ...] = ()
    may_stop_early: bool = False
    hardware: str = "cpu in float32"
    leaders: Mapping[str, str] = field(default_factory=dict)

    @property
    def epochs(self) -> float:
        """The epochs of the training, which may end within one."""
        return self.count_micro_steps(self.steps) / self.sampler.steps

    def count_micro_steps(self, step: int) -> int:
        """Count the micro-steps of the first optimizer steps."""
        return self.sampler.count_micro_steps(step, self.accumulation)

    def count_rows(self, step: int) -> dict[str, int]:
        """Count the rows of each task, over all processes, in the first optimizer steps."""
        return self.sampler.count_task_rows(self.count_micro_steps(step))

    def list_tasks(self, first: int, count: int) -> list[list[str]]:
        """List the tasks of each of ``count`` micro-steps, the first one at index ``first``."""
        names = list(self.sampler.sizes)
        listed: list[list[str]] = []
        epoch, place = divmod(first, self.sampler.steps)
        while len(listed) < count:
            steps = self.sampler.order.tasks(epoch, self.sampler.epochs)[place:]
            wanted = steps[: count - len(listed)].tolist()
            listed += [[names[index] for index in step] for step in wanted]
            epoch, place = epoch + 1, 0
        return listed

    def describe(self) -> str:
        """Describe the size in one line."""
        rows = sum(self.count_rows(self.steps).values())
        most = "at most " if self.may_stop_early else ""
        # an epoch count such as 12345.67 must not become 1.23457e+04
        epochs = f"{self.epochs:,.2f}".rstrip("0").rstrip(".")
        epochs += " epoch" if epochs == "1" else " epochs"
        evaluations = _count(len(self.evaluated_steps), "evaluation")
        if self.evaluated_steps:
            evaluations += f" of {_count(sum(self.evaluation_rows.values()), 'row')}"
        parts = [f"{most}{_count(self.steps, 'step')} ({epochs}, {_count(rows, 'row')})"]
        parts.append(evaluations)
        if final := sum(self.final_rows.values()):
            splits = ", ".join(self.final_splits)
            parts.append(f"predictions for {_count(final, 'row')} at the end ({splits})")
        return ", ".join([*parts, f"on {self.hardware}"])


def measure_workload(
    trainer: Any, final: Mapping[str, Mapping[str, Rows]] | None = None
) -> Workload:
    """Measure the training of a ``MultiTaskTrainer`` with training rows, before it starts.

    Args:
        trainer: The trainer.
        final: Rows that are predicted after training, by task and split.
    """
    args, sampler, final = trainer.args, trainer.train_sampler, final or {}
    epoch_steps = math.ceil(sampler.steps / args.gradient_accumulation_steps)
    steps = args.max_steps if args.max_steps > 0 else math.ceil(args.num_train_epochs * epoch_steps)
    callbacks = trainer.callback_handler.callbacks
    has_last = any(isinstance(callback, LastStep) for callback in callbacks)
    return Workload(
        sampler,
        args.gradient_accumulation_steps,
        steps,
        _list_evaluations(args, steps, sampler.steps, has_last=has_last),
        {task: len(rows) for task, rows in (trainer.eval_dataset or {}).items()},
        {task: sum(map(len, splits.values())) for task, splits in final.items()},
        tuple(dict.fromkeys(split for splits in final.values() for split in splits)),
        any(isinstance(callback, EarlyStoppingCallback) for callback in callbacks),
        _describe_hardware(trainer.model, args),
        find_leaders(trainer.tasks),
    )


def _list_evaluations(
    args: TrainingArguments, steps: int, micro_steps: int, *, has_last: bool
) -> tuple[int, ...]:
    """List the steps after which the Trainer evaluates; ``micro_steps`` are those of an epoch."""
    start = [0] if args.eval_on_start else []
    if args.eval_strategy == "no":
        return tuple(start)
    if args.eval_strategy == "epoch":
        group = args.gradient_accumulation_steps
        epoch_steps = math.ceil(micro_steps / group)
        ends = {end: end / epoch_steps for end in range(epoch_steps, steps + 1, epoch_steps)}
        epoch, rest = divmod(steps, epoch_steps)
        ends[steps] = epoch + rest * group / micro_steps
        return (*start, *(end for end, passed in ends.items() if passed >= args.eval_delay))
    interval: Any = args.eval_steps
    if interval < 1:  # a share of all steps
        interval = math.ceil(steps * interval)
    multiples = range(int(interval), steps + 1, int(interval))
    ends = dict.fromkeys([end for end in multiples if end >= args.eval_delay], 0.0)
    if has_last or steps >= args.eval_delay:
        ends[steps] = 0.0
    return (*start, *ends)


def _describe_hardware(model: Any, args: TrainingArguments) -> str:
    devices = args.world_size * max(1, args.n_gpu)
    name = args.device.type if devices == 1 else f"{devices} x {args.device.type}"
    if args.bf16 or args.fp16:
        return f"{name} in {'bfloat16' if args.bf16 else 'float16'}"
    precision = next((str(weight.dtype) for weight in model.parameters()), "torch.float32")
    return f"{name} in {precision.removeprefix('torch.')}"


def _count(number: int, noun: str) -> str:
    return count(number, noun) if number else f"no {noun}s"
