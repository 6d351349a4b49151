"""What a run shows: a header, one progress bar, and one line per evaluation."""

import logging
import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import datasets
import transformers
from tqdm import tqdm
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    ProgressCallback,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from trainers.problems.base import AnyProblem
from trainers.reports.texts import PRECISIONS, count, format_time
from trainers.training.callbacks import find_kept_step
from trainers.training.multitask import MultiTaskTrainer


def measure_training(trainer: Any) -> tuple[int, float, int]:
    """Count the optimizer steps, the epochs and the rows of a training before it starts."""
    args, sampler = trainer.args, trainer.train_sampler
    group = args.gradient_accumulation_steps
    steps = args.max_steps
    if steps <= 0:
        steps = math.ceil(args.num_train_epochs * math.ceil(sampler.steps / group))
    micro_steps = sampler.count_micro_steps(steps, group)
    return steps, micro_steps / sampler.steps, sampler.count_rows(micro_steps)


def describe_size(trainer: Any) -> str:
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
    if args.mixed_precision != "no":
        precision = PRECISIONS.get(args.mixed_precision, args.mixed_precision)
    size += f" on {device} in {precision.removeprefix('torch.')}"
    return f"{trainer.describe_training()}\n\n{size}"


@contextmanager
def quiet_libraries(args: TrainingArguments, *, verbose: bool) -> Iterator[None]:
    """Hide what libraries report while they load and save; errors stay.

    With ``verbose`` the first process prints all of it.
    """
    logs, accelerate = transformers.utils.logging, logging.getLogger("accelerate")
    root, hub = logging.getLogger(), logging.getLogger("huggingface_hub")
    is_first = args.process_index == 0
    with ExitStack() as restoring:
        restoring.callback(setattr, hub, "propagate", hub.propagate)
        hub.propagate = False  # it has a handler of its own
        if not root.handlers:  # else the messages go where the caller wants them
            level = logging.WARNING if is_first else logging.ERROR
            restoring.callback(root.setLevel, root.level)
            logging.basicConfig(format="%(levelname)s: %(message)s", level=level)
            restoring.callback(root.removeHandler, root.handlers[0])
        if not is_first and not datasets.are_progress_bars_disabled():
            restoring.callback(datasets.enable_progress_bars)
            datasets.disable_progress_bars()
        if not (verbose and is_first):
            restoring.callback(accelerate.setLevel, accelerate.level)
            restoring.callback(logs.set_verbosity, logs.get_verbosity())
            if logs.is_progress_bar_enabled():
                restoring.callback(logs.enable_progress_bar)
            accelerate.setLevel(logging.ERROR)
            logs.set_verbosity_error()
            logs.disable_progress_bar()
        yield


def show_progress(trainer: MultiTaskTrainer) -> "RunProgress":
    """Replace the progress bars of transformers by one; the caller closes it."""
    # the module of the last one can be imported in notebooks only
    shown = (ProgressCallback.__name__, PrinterCallback.__name__, "NotebookProgressCallback")
    for callback in list(trainer.callback_handler.callbacks):
        if type(callback).__name__ in shown:
            trainer.remove_callback(type(callback))
    progress = RunProgress(measure_training(trainer)[1], trainer.problems)
    if trainer.is_world_process_zero():
        trainer.add_callback(progress)
    return progress


class RunProgress(TrainerCallback):
    """Shows the progress of a training: a bar on a terminal, else lines.

    It reads only what the Trainer logs, so it never waits for the device. Of several processes the
    first one has it.
    """

    def __init__(self, epochs: float, problems: Mapping[str, AnyProblem]) -> None:
        self._epochs, self._problems = epochs, problems
        self._bar: Any = None
        self._began = self._mark = 0.0  # seconds, of training and of the last step
        self._first_step = 0

    def close(self) -> None:
        """Remove the bar, also after an error."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object
    ) -> None:
        self._began = self._mark = time.monotonic()
        self._first_step = state.global_step
        if sys.stdout.isatty() and not args.disable_tqdm:
            options: Any = {"leave": False, "dynamic_ncols": True, "file": sys.stdout}
            options |= {"total": state.max_steps, "initial": state.global_step}
            self._bar = tqdm(desc="training", **options)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object
    ) -> None:
        self._mark = time.monotonic()
        if self._bar is not None:
            self._bar.update(state.global_step - self._bar.n)

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: Any
    ) -> None:
        logs = kwargs.get("logs") or {}
        if "loss" not in logs:
            return
        names = [name for name in self._problems if logs.get(f"loss_{name}") is not None]
        losses = [f"{name} {float(logs[f'loss_{name}']):.3f}" for name in names]
        shown = "  ".join(losses) if len(losses) > 1 else f"{float(logs['loss']):.3f}"
        if self._bar is not None:
            self._bar.set_postfix_str(f"loss {shown}", refresh=False)
            return
        step, steps = state.global_step, state.max_steps
        left = (self._mark - self._began) / max(1, step - self._first_step) * (steps - step)
        rate = f"lr {logs['learning_rate']:.1e}  " if "learning_rate" in logs else ""
        self._print(f"step {step:,}/{steps:,}  loss {shown}  {rate}{format_time(left)} left")

    def on_evaluate(
        self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: Any
    ) -> None:
        """Print the headline metric of each task, and what says which evaluation is best."""
        seconds, metrics = time.monotonic() - self._mark, kwargs["metrics"]
        best = str(args.metric_for_best_model or "").removeprefix("eval_")
        # with one task the metrics have their own names, else those of the tasks
        is_alone = len(self._problems) == 1
        titles = {}
        for name, problem in self._problems.items():
            metric = problem.headline[0]
            titles[f"eval_{name}_{metric}"] = metric if is_alone else name
        extra = best if f"eval_{best}" in metrics else "mean"
        if not (is_alone and extra == "mean"):
            titles.setdefault(f"eval_{extra}", extra)
        values = [f"{title} {metrics[key]:.3f}" for key, title in titles.items() if key in metrics]
        value, before = metrics.get(f"eval_{best}", math.nan), state.best_metric
        is_best = before is None or (value > before if args.greater_is_better else value < before)
        mark = " (best)" if is_best and state.global_step and not math.isnan(value) else ""
        epochs = (state.epoch or 0, self._epochs)
        epoch = "/".join(f"{number:.2f}".rstrip("0").rstrip(".") for number in epochs)
        self._print(f"epoch {epoch}  {'  '.join(values)}{mark}  {format_time(seconds)}")

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: object, **kwargs: object
    ) -> None:
        self.close()
        if state.global_step > self._first_step:
            line = f"trained in {format_time(time.monotonic() - self._began)}"
            if (best := find_kept_step(args, state)) is not None:
                line += f", and kept the weights of step {best:,}"
            self._print(line)

    def _print(self, line: str) -> None:
        if self._bar is None:
            print(line, flush=True)
        else:
            self._bar.write(line, file=sys.stdout)
