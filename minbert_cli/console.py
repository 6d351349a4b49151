"""What a run shows: a header, one progress bar, and one line per evaluation."""

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import transformers
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column
from rich.text import Text
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from trainers.problems.base import Problem
from trainers.reports.texts import count, format_time
from trainers.training.multitask import MultiTaskTrainer


def measure_training(trainer: Any) -> tuple[int, float, int]:
    """Count the optimizer steps, the epochs and the rows of a training before it starts."""
    args, sampler = trainer.args, trainer.train_sampler
    group = args.gradient_accumulation_steps
    steps = args.max_steps
    if steps <= 0:
        steps = math.ceil(args.num_train_epochs * math.ceil(sampler.steps / group))
    micro_steps = sampler.count_micro_steps(steps, group)
    rows = sum(sampler.count_task_rows(micro_steps).values())
    return steps, micro_steps / sampler.steps, rows


def describe_training(trainer: Any) -> str:
    """Describe tasks and groups of parameters, and in one line the size of a training."""
    args, callbacks = trainer.args, trainer.callback_handler.callbacks
    steps, epochs, rows = measure_training(trainer)
    # an epoch count such as 12345.67 must not become 1.23457e+04
    shown = f"{epochs:,.2f}".rstrip("0").rstrip(".")
    size = f"{count(steps, 'step')} ({shown} epoch{'s' * (shown != '1')}, {count(rows, 'row')})"
    if any(isinstance(callback, EarlyStoppingCallback) for callback in callbacks):
        size = f"at most {size}"
    devices = args.world_size * max(1, args.n_gpu)
    device = args.device.type if devices == 1 else f"{devices} x {args.device.type}"
    precision = str(next((weight.dtype for weight in trainer.model.parameters()), "float32"))
    if args.bf16 or args.fp16:
        precision = "bfloat16" if args.bf16 else "float16"
    size += f" on {device} in {precision.removeprefix('torch.')}"
    return f"{trainer.describe_training()}\n\n{size}"


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


def show_progress(trainer: MultiTaskTrainer) -> "RunProgress":
    """Replace the progress bars of transformers by one; the caller closes it."""
    for kind in (ProgressCallback, PrinterCallback):
        trainer.remove_callback(kind)
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ == NOTEBOOK_CALLBACK:
            trainer.remove_callback(type(callback))
    progress = RunProgress(measure_training(trainer)[1], trainer.problems)
    trainer.add_callback(progress)
    return progress


class RunProgress(TrainerCallback):
    """Shows the progress of a training: a bar on a terminal or in a notebook, else lines.

    It reads only what the Trainer logs, so it never waits for the device.

    Args:
        epochs: The epochs of the training, which may end within one.
        problems: The problem of every task, whose headline metrics are shown.
        console: Where to show it; by default the standard output.
        clock: Returns the time in seconds.
    """

    def __init__(
        self,
        epochs: float,
        problems: Mapping[str, Problem[Any]],
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._epochs, self._problems = epochs, problems
        self._console, self._clock = console, clock
        self._bar: Progress | None = None
        self._began = self._mark = 0.0  # of training, and of the last step
        self._first_step = 0
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
        self._first_step = state.global_step
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
            left = self._estimate_left(state)
            self._bar.update(self._bar.task_ids[0], completed=state.global_step, left=left)

    def _estimate_left(self, state: TrainerState) -> str:
        """Estimate the time to the end of training, if the rest goes on as the steps so far."""
        rate = (self._mark - self._began) / max(1, state.global_step - self._first_step)
        return f"{format_time(rate * (state.max_steps - state.global_step))} left"

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
        shown = self._describe_losses(logs)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], losses=shown)
            return
        rate = f"lr {logs['learning_rate']:.1e}" if "learning_rate" in logs else ""
        step = f"step {state.global_step:,}/{state.max_steps:,}"
        parts = (step, shown, rate, self._estimate_left(state))
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
        epochs = (state.epoch or 0, self._epochs)
        epoch = "/".join(f"{number:.2f}".rstrip("0").rstrip(".") for number in epochs)
        return f"epoch {epoch}  {values}{mark}"

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
