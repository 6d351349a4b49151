"""The expected time of a run, from its first steps."""

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from tqdm.auto import tqdm
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from trainers.reports.wording import format_duration

from .workload import Workload

WARM_UP_STEPS = 2  # slower than the others
TIMED_STEPS = 20
EVALUATION_COST = 1 / 3  # of a row, compared with that of a training row: the forward pass
LONG_RUN, LONG_REST = 120.0, 60.0  # seconds of a run, and of its rest, that are worth a line


class TimeLeft(NamedTuple):
    """Seconds from a step of a run to its end."""

    training: float
    evaluations: float  # those after training included

    @property
    def total(self) -> float:
        """The sum."""
        return self.training + self.evaluations


class TimeEstimate(TrainerCallback):
    """Prints once how long a run will take, evaluations included, unless it is short.

    The first steps are timed, and the time of each is that of its task. A row of an evaluation
    costs a third of a training row of its task until an evaluation has been timed. Saving and
    loading are not included.

    Args:
        workload: What the run does.
        clock: Returns the time in seconds.
        timed_steps: Steps to time; fewer if the run is shorter.

    Attributes:
        left: The time from the last timed step on; None before it.
    """

    def __init__(
        self,
        workload: Workload,
        clock: Callable[[], float] | None = None,
        timed_steps: int = TIMED_STEPS,
    ) -> None:
        self.workload = workload
        self._timed_steps = timed_steps
        self.left: TimeLeft | None = None
        self._clock = _synchronized_time if clock is None else clock
        self._began = self._mark = 0.0
        self._first_step = self._last_step = 0
        self._times: list[float] | None = []  # of the micro-steps; None once it has been printed
        self._evaluation_costs: dict[str, float] = {}  # seconds of a row, by task

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._times, self.left, self._evaluation_costs = [], None, {}
        steps = self.workload.steps - state.global_step
        self._first_step = state.global_step + min(WARM_UP_STEPS, max(0, steps - 1))
        self._last_step = min(self._first_step + self._timed_steps, self.workload.steps)
        self._began = self._mark = self._clock()

    def on_substep_end(self, *args: Any, **kwargs: Any) -> None:
        if self._times is not None:
            now = self._clock()
            self._times.append(now - self._mark)
            self._mark = now

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._times is None:
            return
        self.on_substep_end()
        if state.global_step == self._first_step:
            self._times.clear()
        if state.global_step == self._last_step:
            self.left = self._estimate(self._times)
            self._times = None
            whole = self._mark - self._began + self.left.total
            is_long = whole >= LONG_RUN and self.left.total >= LONG_REST
            if state.is_world_process_zero and is_long:
                tqdm.write(self._describe(self.left))

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        metrics: Mapping[str, float] = kwargs["metrics"]
        for task, rows in self.workload.evaluation_rows.items():
            if rows and f"eval_{task}_runtime" in metrics:
                self._evaluation_costs[task] = metrics[f"eval_{task}_runtime"] / rows
        self._skip()

    def on_save(self, *args: Any, **kwargs: Any) -> None:
        self._skip()

    def _skip(self) -> None:
        """Leave out the time since the last step."""
        if self._times is not None:
            self._mark = self._clock()

    def _estimate(self, times: list[float]) -> TimeLeft:
        """Estimate the time after the timed steps from those of their micro-steps."""
        workload, step = self.workload, self._last_step
        costs = measure_costs(workload, self._first_step, step, times)
        done, whole = workload.count_rows(step), workload.count_rows(workload.steps)
        training = sum(costs[task] * (whole[task] - done[task]) for task in whole)
        evaluated = (*workload.evaluation_rows, *workload.final_rows)
        leaders = {task: workload.leaders.get(task, task) for task in evaluated}
        own = {task: EVALUATION_COST * costs[leader] for task, leader in leaders.items()}
        own |= self._evaluation_costs
        count = sum(end >= step for end in workload.evaluated_steps)
        evaluation = sum(own[task] * rows for task, rows in workload.evaluation_rows.items())
        final = sum(own[task] * rows for task, rows in workload.final_rows.items())
        return TimeLeft(training, count * evaluation + final)

    def _describe(self, left: TimeLeft) -> str:
        most = "at most " if self.workload.may_stop_early else ""
        line = f"about {most}{format_duration(left.total)} to the end of the run"
        if left.evaluations:
            line += f", {format_duration(left.evaluations)} of it for evaluations"
        return f"{line}, on {self.workload.hardware}"


def measure_costs(
    workload: Workload, first: int, last: int, times: list[float]
) -> dict[str, float]:
    """Return the seconds of a training row of each task.

    A step with batches of several tasks is divided between them by their rows. A task that had no
    step has the mean of all rows.

    Args:
        workload: What the run does.
        first: Optimizer steps before the timed ones.
        last: Optimizer steps up to the last timed one.
        times: Seconds of each micro-step between them.
    """
    before, after = workload.count_rows(first), workload.count_rows(last)
    rows = {task: after[task] - before[task] for task in after}
    listed = workload.list_tasks(workload.count_micro_steps(first), len(times))
    batches = dict.fromkeys(rows, 0)
    for tasks in listed:
        for task in tasks:
            batches[task] += 1
    seconds = dict.fromkeys(rows, 0.0)
    for tasks, time_of_step in zip(listed, times, strict=True):
        sizes = [rows[task] / batches[task] for task in tasks]
        for task, size in zip(tasks, sizes, strict=True):
            seconds[task] += time_of_step * size / sum(sizes)
    mean = sum(times) / sum(rows.values())
    return {task: seconds[task] / rows[task] if rows[task] else mean for task in rows}


def _synchronized_time() -> float:
    """Return the time at which the accelerator, if there is one, has done its work."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
    return time.monotonic()
