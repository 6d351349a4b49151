"""Early stopping on a metric over all tasks, divergence, memory, and logs of the last step."""

import ctypes
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    EarlyStoppingCallback,
    ProgressCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_callback import CallbackHandler
from transformers.trainer_utils import get_last_checkpoint

from trainers.methods.base import Batch, ComputeLoss, Method, OwnTrainer, StepLoss

TRIM_THRESHOLD, MOST_MAPPED_BLOCKS = -1, -4  # options of glibc's mallopt, in malloc.h


def find_kept_step(args: TrainingArguments, state: TrainerState) -> int | None:
    """Return the step of the checkpoint that is loaded at the end; None for the last weights."""
    if not (args.load_best_model_at_end and state.best_model_checkpoint):
        return None
    return int(state.best_model_checkpoint.rpartition("-")[2])


class AggregateEarlyStopping(EarlyStoppingCallback):
    """Early stopping that counts anew in a new training, and stops a resumed one that was over.

    An evaluation before the first step does not count, since a resumed run has one more.
    """

    first_step: int | None = None  # None before a training

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        super().on_train_begin(args, state, control, **more)
        self.first_step = state.global_step
        if state.global_step == 0:  # a new training, not one that is resumed
            self.early_stopping_patience_counter = 0
        if self.early_stopping_patience_counter >= self.early_stopping_patience:
            control.should_training_stop = True

    def on_evaluate(self, *given: Any, **more: Any) -> None:
        state: TrainerState = given[1]
        if state.global_step != self.first_step:
            super().on_evaluate(*given, **more)


@contextmanager
def keeping_patience(handler: CallbackHandler) -> Iterator[None]:
    """Let a checkpoint restore the counters of early stopping, not its patience and threshold."""
    given = defaultdict[type, list[Any]](list)
    for callback in handler.callbacks:
        if isinstance(callback, EarlyStoppingCallback):
            given[type(callback)].append(callback.state().get("args", {}))
    yield
    for callback in handler.callbacks:
        if states := given[type(callback)]:
            vars(callback).update(states.pop(0))


class LastStep(TrainerCallback):
    """Logs and evaluates at the last step too, whose number is seldom a multiple of the interval.

    Without it a run shorter than ``logging_steps`` would have no loss, and the last weights could
    not be chosen as the best.
    """

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        if state.global_step >= state.max_steps:
            control.should_log |= args.logging_strategy == "steps"
            is_late = args.eval_delay <= state.global_step  # for epochs it is their number
            control.should_evaluate |= args.eval_strategy == "steps" and is_late


class FreedMemory(TrainerCallback):
    """Lets glibc keep the memory of large tensors on the CPU, as long as that is not too much.

    By default it returns them to the system and fetches them again at every step. But where it
    keeps them, tensors of ever other sizes leave holes, without an end. So it returns all of them
    where the processes of a run have a quarter of the memory of the machine (or of its container),
    and twice what it needed then. See benchmarks/TRAINING_CPU.md.
    """

    def __init__(self) -> None:
        self.libc: ctypes.CDLL | None = None
        self.limit = self.least = 0.0  # pages

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        if args.device.type != "cpu":
            return
        with suppress(AttributeError, OSError, TypeError, ValueError):  # another C library
            libc = ctypes.CDLL(None)
            pages = [os.sysconf("SC_PHYS_PAGES")]
            with suppress(OSError, ValueError):  # no container, or one without a limit
                most = Path("/sys/fs/cgroup/memory.max").read_text("ascii")
                pages.append(int(most) // os.sysconf("SC_PAGE_SIZE"))
            libc.malloc_trim(0)  # what reading the rows has left
            libc.mallopt(TRIM_THRESHOLD, -1)
            libc.mallopt(MOST_MAPPED_BLOCKS, 0)
            processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            self.libc, self.least = libc, min(pages) / 4 / processes
            self.limit = self.least

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **more: object
    ) -> None:
        if self.libc is not None and self._count_pages() > self.limit:
            self.libc.malloc_trim(0)
            self.limit = max(self.least, 2 * self._count_pages())

    on_prediction_step = on_step_end

    def end(self) -> None:
        """Return to glibc's defaults, since what comes after may be no training."""
        if self.libc is not None:
            self.libc.mallopt(TRIM_THRESHOLD, 64 << 20)
            self.libc.mallopt(MOST_MAPPED_BLOCKS, 1 << 16)
            self.libc.malloc_trim(0)
            self.libc = None

    def _count_pages(self) -> int:
        """Return the memory of this process, without files such as those of the rows."""
        _, resident, shared, *_ = Path("/proc/self/statm").read_text("ascii").split()
        return int(resident) - int(shared)


@contextmanager
def keeping_weights(model: Any) -> Iterator[None]:
    """Undo that bf16_full_eval and fp16_full_eval cast the weights in place."""
    weights = [(weight, weight.data) for weight in model.parameters()]
    buffers = [
        (module, name, buffer)
        for module in model.modules()
        for name, buffer in module.named_buffers(recurse=False)
    ]
    try:
        yield
    finally:
        for weight, data in weights:
            if weight.dtype != data.dtype:
                weight.data = data.to(weight.device)
        for module, name, buffer in buffers:
            setattr(module, name, buffer.to(getattr(module, name).device))


# What accelerate sets on a model that it has prepared, and the trainer for which it did.
PREPARED, OWNER = ("_is_accelerate_prepared", "_original_forward", "forward"), "_prepared_for"


def prepare_again(trainer: Any) -> None:
    """Let accelerate prepare a model that it prepared to evaluate, or for another trainer.

    It would leave such a model as it is: with weights of its own on every rank, and in the
    precision of before.
    """
    state, forward = vars(trainer.model), type(trainer.model).forward
    if trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled:  # sharded in place
        return
    if state.pop("_is_accelerate_prepared", False):
        trainer.accelerator._models.clear()
    if (own := state.pop("_original_forward", None)) is not None:
        state["forward"] = own
        if getattr(own, "__func__", None) is forward:
            del state["forward"]


@contextmanager
def preparing(trainer: Any) -> Iterator[None]:
    """Prepare a model of another trainer, which may train it, for one evaluation in between."""
    state, models = vars(trainer.model), trainer.accelerator._models
    if state.keys().isdisjoint({OWNER, *PREPARED[:2]}):
        state[OWNER] = trainer.stage
    if state.get(OWNER) is trainer.stage:
        yield
        return
    before, prepared = {name: state[name] for name in PREPARED if name in state}, models[:]
    is_sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    prepare_again(trainer)
    if not is_sharded:
        models.clear()
    try:
        yield
    finally:
        if not is_sharded:
            for name in PREPARED:
                state.pop(name, None)
            state.update(before)
            models[:] = prepared


@contextmanager
def told_to_bars(handler: CallbackHandler) -> Iterator[None]:
    """Keep evaluations and predictions of one task from all callbacks but progress bars.

    Callbacks count evaluations of all tasks. Services for logs would log the loss of a prediction
    without the name of its task, and Trackio, which ends its run with the training, begin another.
    """
    if "on_evaluate" in vars(handler):  # a prediction within an evaluation
        yield
        return

    def tell(event: str, args: object, state: object, control: object, metrics: object) -> object:
        for callback in handler.callbacks:
            if isinstance(callback, ProgressCallback):
                getattr(callback, event)(args, state, control, metrics=metrics)
        return control

    vars(handler).update({event: partial(tell, event) for event in ("on_evaluate", "on_predict")})
    try:
        yield
    finally:
        del handler.on_evaluate, handler.on_predict


class TrainingDivergedError(RuntimeError):
    """The loss, the gradients or the weights of a run are NaN or infinite."""


class DivergenceCheck(Method):
    """Stop training at the first value that is not finite, before it reaches a checkpoint.

    On the CPU losses and gradient norms are checked at every step. On other devices that would
    wait for the device: there a step with such a value is noted on the device, and the note is read
    when losses are logged, and before evaluations and checkpoints. Weights are checked before
    they are saved. The trainer always has this method, at the end of its list.
    """

    def attach(self, trainer: OwnTrainer) -> None:
        self.trainer = trainer
        self.begin()

    def begin(self) -> None:  # also after a training that was stopped
        self.step_tasks: list[str] = []
        # by the name of a value: the first step at which it was not finite, 0 for none
        self.notes: dict[str, Tensor] = {}

    def loss(self, compute: ComputeLoss, task: str, inputs: Batch) -> StepLoss:
        step = compute()
        self.step_tasks.append(task)
        self._check(f"the loss of task {task!r}", step.loss.detach())
        return step

    def check_gradients(self, norm: Tensor | float | None) -> None:
        """Check the norm of the gradients of an optimizer step; DeepSpeed may have none."""
        tasks, self.step_tasks = self.step_tasks, []
        # the scaler of fp16 skips steps with infinite gradients, and continues with a lower scale
        if norm is not None and self.trainer.args.mixed_precision != "fp16":
            names = ", ".join(map(repr, dict.fromkeys(tasks)))
            self._check(f"the gradient norm (task {names})", torch.as_tensor(norm))

    def check_weights(self, model: nn.Module) -> None:
        """Check all weights, which are about to be saved."""
        self.check_notes()
        for name, value in model.named_parameters():
            if not value.isfinite().all():
                raise self._error(self.trainer.state.global_step, f"the weight {name}")

    def before_evaluation(self, task: str) -> None:
        self.check_notes()

    def check_notes(self) -> None:
        """Read what was noted on the device, in one copy."""
        if not self.notes:
            return
        device = next(iter(self.notes.values())).device
        steps = torch.stack([note.to(device) for note in self.notes.values()]).tolist()
        found = {step: name for name, step in zip(self.notes, steps, strict=True) if step}
        if found:
            raise self._error(min(found), found[min(found)])

    def _check(self, name: str, value: Tensor) -> None:
        step = self.trainer.state.global_step + 1
        if value.device.type == "cpu":
            if not value.isfinite().all():
                raise self._error(step, name)
            return
        note = self.notes.get(name, torch.zeros((), dtype=torch.int64, device=value.device))
        self.notes[name] = torch.where((note == 0) & ~value.isfinite().all(), step, note)

    def _error(self, step: int, name: str) -> TrainingDivergedError:
        args = self.trainer.args
        folder = Path(str(args.output_dir))
        last = get_last_checkpoint(str(folder)) if folder.is_dir() else None
        kept = f"the last checkpoint is {last}" if last else "there is no checkpoint before"
        return TrainingDivergedError(
            f"training diverged at step {step}: {name} is not finite; {kept}. Use a learning_rate "
            f"below {args.learning_rate:g}, more warmup_steps, or a lower max_grad_norm"
        )
