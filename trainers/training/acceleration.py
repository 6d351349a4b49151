"""Faster steps, where it is safe."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import Trainer, TrainingArguments

from .preparation.checks import steps_in_backward

# Compiled programs per task: eight batch sizes, each with two numbers of rows, in training and in
# evaluation. A generous limit: beyond it dynamo gives up and runs the model uncompiled.
PROGRAMS = 32


@contextmanager
def static_shapes(args: TrainingArguments, tasks: int) -> Iterator[None]:
    """With ``torch_compile``, compile one program for each shape and task.

    By default dynamo makes the second shape symbolic, which is slower and which CUDA graphs cannot
    replay, and gives up after eight programs. The settings are global and restored at the end.
    Evaluation during training is not compiled. ``torch_compile_mode: reduce-overhead`` (CUDA only)
    replays CUDA graphs. The backend ``aot_eager`` needs no compiler and is not faster.
    """
    if not args.torch_compile:
        yield
        return
    # importing it takes a second
    from torch._dynamo import config

    limit = max(config.recompile_limit, PROGRAMS * tasks)
    total = max(config.accumulated_recompile_limit, limit)
    with config.patch(
        automatic_dynamic_shapes=False, recompile_limit=limit, accumulated_recompile_limit=total
    ):
        yield


@contextmanager
def reused_gradients(trainer: Trainer) -> Iterator[None]:
    """Let the model reuse the buffer of its largest gradient, which pays only on the CPU.

    Gradient hooks do not run, but DDP and optimizers that step layer by layer need them.
    """
    args = trainer.args
    model: Any = trainer.model
    hooked = steps_in_backward(args)
    sharded = trainer.is_fsdp_enabled or trainer.is_deepspeed_enabled
    alone = args.device.type == "cpu" and args.world_size == 1
    suits = hasattr(model, "reuse_gradients") and not args.torch_compile
    if not (suits and alone) or hooked or sharded:
        yield
        return
    model.reuse_gradients()
    try:
        yield
    finally:
        model.reuse_gradients(enabled=False)
