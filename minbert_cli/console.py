"""What a run shows: a header, one progress bar, one line per evaluation, and its expected time."""

import logging
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from itertools import groupby
from typing import Any, NamedTuple

import torch
import transformers
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column, Table
from rich.text import Text
from tqdm.auto import tqdm
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from trainers.data.dataset import Rows
from trainers.data.sampling.batches import TaskBatchSampler
from trainers.problems.base import Problem
from trainers.reports.texts import count, format_duration, format_time
from trainers.training.callbacks import LastStep
from trainers.training.multitask import MultiTaskTrainer
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


UNESCAPED = re.compile(r"\\(.)")
NOTEBOOK_CALLBACK = "NotebookProgressCallback"  # its module can be imported in notebooks only


@contextmanager
def quiet_libraries(*, verbose: bool) -> Iterator[None]:
    """Hide what transformers and accelerate report while they load and save; errors stay.

    Args:
        verbose: Whether to leave everything as the libraries print it.
    """
    if verbose:
        yield
        return
    logs, accelerate = transformers.utils.logging, logging.getLogger("accelerate")
    level, had_bars = logs.get_verbosity(), logs.is_progress_bar_enabled()
    own_level = accelerate.level
    logs.set_verbosity_error()
    logs.disable_progress_bar()
    accelerate.setLevel(logging.ERROR)
    try:
        yield
    finally:
        accelerate.setLevel(own_level)
        logs.set_verbosity(level)
        if had_bars:
            logs.enable_progress_bar()


def show_progress(trainer: MultiTaskTrainer, workload: Workload) -> "RunProgress":
    """Replace the progress bars of transformers by one; the caller closes it."""
    for kind in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(kind)
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == NOTEBOOK_CALLBACK:
            trainer.remove_callback(type(callback))
    progress = RunProgress(workload, trainer.problems)
    trainer.add_callback(progress)
    return progress


def describe_model(model: Any, start: str | None) -> str:
    """Describe the size of a model and what it starts from in one line."""
    config = model.config
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    origin = "new weights" if start is None else f"from {start}"
    size = f"{config.num_hidden_layers} layers of width {config.hidden_size}"
    return f"{type(model).__name__}: {size}, {millions:,.1f} million parameters, {origin}"


class RunProgress(TrainerCallback):
    """Shows the progress of a training: a bar on a terminal or in a notebook, else lines.

    It reads only what the Trainer logs, so it never waits for the device.

    Args:
        workload: What the run does.
        problems: The problem of every task, whose headline metrics are shown.
        console: Where to show it; by default the standard output.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        workload: Workload,
        problems: Mapping[str, Problem[Any]],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workload, self._problems = workload, problems
        self._console, self._clock = console, clock
        self._bar: Progress | None = None
        self._began = self._mark = 0.0  # of training, and of the last step
        self._first_step = 0
        self._evaluating: list[float] = []  # seconds of each evaluation
        self._is_trained = False

    def close(self) -> None:
        """Remove the bar, also after an error."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.close()
        self._began = self._mark = self._clock()
        self._first_step, self._evaluating = state.global_step, []
        self._is_trained = False
        self._open_bar("training", args, state, state.max_steps, state.global_step)

    def _open_bar(
        self, title: str, args: TrainingArguments, state: TrainerState, total: int, done: int = 0
    ) -> None:
        console = self._console or Console(file=sys.stdout)
        if state.is_world_process_zero and shows_bars(console) and not args.disable_tqdm:
            self._bar = make_bar(console)
            self._bar.add_task(title, completed=done, total=total, left="", losses="")
            self._bar.start()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._mark = self._clock()
        if self._bar is not None:
            left = format_time(self._estimate_left(state.global_step))
            bar_id = self._bar.task_ids[0]
            self._bar.update(bar_id, completed=state.global_step, left=f"{left} left")

    def _estimate_left(self, step: int) -> float:
        """Estimate the seconds to the end of training, with its evaluations."""
        training = self._mark - self._began - sum(self._evaluating)
        rate = training / max(1, step - self._first_step)
        waiting = sum(end > step for end in self._workload.evaluated_steps)
        mean = sum(self._evaluating) / len(self._evaluating) if self._evaluating else 0.0
        return rate * (self._workload.steps - step) + waiting * mean

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if not logs or "loss" not in logs or not state.is_world_process_zero:
            return
        losses = self._describe_losses(logs)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], losses=losses)
            return
        left = format_time(self._estimate_left(state.global_step))
        rate = f"lr {logs['learning_rate']:.1e}" if "learning_rate" in logs else ""
        parts = (f"step {state.global_step:,}/{state.max_steps:,}", losses, rate, f"{left} left")
        self._print("  ".join(filter(None, parts)))

    def _describe_losses(self, logs: Mapping[str, Any]) -> str:
        losses = {name: logs.get(f"loss_{name}") for name in self._problems}
        known = {name: loss for name, loss in losses.items() if loss is not None}
        if len(known) < 2:
            return f"loss {float(logs['loss']):.3f}"
        return "loss " + "  ".join(f"{name} {float(loss):.3f}" for name, loss in known.items())

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        seconds = self._clock() - self._mark
        self._evaluating.append(seconds)
        if state.is_world_process_zero:
            line = self._describe_evaluation(args, state, kwargs["metrics"])
            self._print(f"{line}  {format_time(seconds)}")

    def _describe_evaluation(
        self, args: TrainingArguments, state: TrainerState, metrics: Mapping[str, float]
    ) -> str:
        """Describe an evaluation by the headline metric of each task, and their mean."""
        best = str(args.metric_for_best_model or "").removeprefix("eval_")
        shown = self._choose_metrics(metrics, best)
        values = "  ".join(f"{name} {value:.3f}" for name, value in shown.items())
        mark = " (best)" if self._is_best(args, state, metrics.get(f"eval_{best}")) else ""
        epochs = (_trim(state.epoch or 0), _trim(self._workload.epochs))
        return f"epoch {'/'.join(epochs)}  {values}{mark}"

    def _choose_metrics(self, metrics: Mapping[str, float], best: str) -> dict[str, float]:
        """Choose what is shown: one metric of each task, and the one that says what is best.

        With one task the metrics have their own names, else those of the tasks.
        """
        headlines = {name: problem.headline[0] for name, problem in self._problems.items()}
        is_alone = len(headlines) == 1
        titles = {
            f"eval_{name}_{metric}": metric if is_alone else name
            for name, metric in headlines.items()
        }
        is_extra = f"eval_{best}" in metrics.keys() - titles.keys()
        if is_alone and is_extra and best != "mean":
            titles[f"eval_{best}"] = best.removeprefix(f"{next(iter(headlines))}_")
        elif not is_alone:
            extra = best if is_extra else "mean"
            titles[f"eval_{extra}"] = extra
        return {title: metrics[key] for key, title in titles.items() if key in metrics}

    def _is_best(self, args: TrainingArguments, state: TrainerState, value: float | None) -> bool:
        """Return whether a value is better than all before; the Trainer compares later."""
        if value is None or math.isnan(value) or state.global_step == 0:
            return False
        if state.best_metric is None:
            return True
        greater = bool(args.greater_is_better)
        return value > state.best_metric if greater else value < state.best_metric

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self.close()
        self._is_trained = True
        if state.is_world_process_zero and state.global_step > self._first_step:
            line = f"trained in {format_time(self._clock() - self._began)}"
            best: Any = state.best_global_step
            if args.load_best_model_at_end and best is not None:
                line += f", and kept the weights of step {best:,}"
            self._print(line)

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Show a bar for each prediction after training; evaluations before are part of its bar."""
        console = self._console or Console(file=sys.stdout)
        if not self._is_trained or console.is_jupyter:  # a notebook keeps an empty line of each bar
            return
        if self._bar is None:
            self._open_bar("predicting", args, state, len(kwargs["eval_dataloader"]))
        if self._bar is not None:
            self._bar.advance(self._bar.task_ids[0])

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, Any],
        **kwargs: Any,
    ) -> None:
        if self._is_trained:
            self.close()

    def _print(self, line: str) -> None:
        console = self._console if self._bar is None else self._bar.console
        if console is None:
            print(line, flush=True)
        else:
            console.print(Text(line), soft_wrap=True)


def print_text(text: str, console: Console | None = None) -> None:
    """Print text as it is; on a terminal, wrap it between words and draw its Markdown tables.

    Args:
        text: Paragraphs and Markdown tables; the tables' columns of numbers have a ``:`` in the
            rule.
        console: Where to print; the standard output if not given.
    """
    console = console or Console(file=sys.stdout)
    if not shows_bars(console) or console.is_jupyter:
        print(text, file=console.file, flush=True)
        return
    for has_cells, group in groupby(text.split("\n"), key=lambda line: line.startswith("| ")):
        lines = list(group)
        if has_cells and len(lines) > 1 and set(lines[1]) <= set("| -:"):
            console.print(_draw_table(lines))
        else:  # as Text: rich would turn a label ":star:" into a picture
            console.print(Text("\n".join(lines)))


def _draw_table(lines: list[str]) -> Table:
    """Turn the lines of a Markdown table into one for a terminal."""
    header, rule, *rows = ([cell.strip() for cell in line[2:-2].split(" | ")] for line in lines)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name, dashes in zip(header, rule, strict=True):
        table.add_column(Text(name), justify="right" if dashes.endswith(":") else "left")
    for row in rows:
        table.add_row(*(Text(UNESCAPED.sub(r"\1", cell)) for cell in row))
    return table


def shows_bars(console: Console) -> bool:
    """Return whether a console can show a bar that moves, and its user wants one."""
    if console.is_jupyter:
        # rich warns at every refresh without it
        return find_spec("ipywidgets") is not None
    is_plain = console.is_dumb_terminal or console.no_color
    return console.is_terminal and not is_plain


def make_bar(console: Console) -> Progress:
    """Make a bar, which leaves no trace on the screen."""
    one_line = Column(no_wrap=True, overflow="ellipsis")
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[left]}", markup=False),
        TextColumn("{task.fields[losses]}", style="dim", markup=False, table_column=one_line),
        console=console,
        transient=True,
        # few frames: a thread draws them, which competes with the training
        refresh_per_second=4,
    )


def _trim(number: float) -> str:
    """Format a number with at most two decimals, as in ``2`` and ``0.25``."""
    return f"{number:.2f}".rstrip("0").rstrip(".")


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
