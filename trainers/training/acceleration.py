"""What makes a step faster where it is safe."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import Trainer, TrainingArguments

from .checks import steps_in_backward

# Programs of one task: eight sizes of a batch, each with two numbers of rows, in training and in
# evaluation. More are compiled than are ever needed, rather than too few: at the limit dynamo gives
# up and runs the model as it is.
PROGRAMS = 32


@contextmanager
def static_shapes(args: TrainingArguments, tasks: int) -> Iterator[None]:
    """Let a compiled model have one program for each shape and task.

    By default dynamo makes the second shape a symbolic one, which is slower and which CUDA graphs
    cannot replay, and gives up after eight programs. The settings are those of the process; they
    are as before when the context ends.

    Args:
        args: Arguments of the Trainer; without ``torch_compile`` nothing is done.
        tasks: How many tasks the model has.
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
    """Let the model keep the buffer of its largest gradient, if nothing else looks at it.

    Only on the CPU the buffer pays. Hooks on the gradient do not run: those of several processes
    and of optimizers that step layer by layer are needed. A compiled model has its own memory.
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
