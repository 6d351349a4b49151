"""Checks of the arguments of the Trainer, which itself would fail late, or train nonsense."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import get_available_reporting_integrations

from trainers.errors import named_errors
from trainers.options import MAX_ROWS, is_count, is_positive

MAX_STEPS = 10**9  # of a run and between two evaluations
MAX_WORKERS = 256  # of a data loader
MAX_SECONDS = 10**7  # of waiting for another process


@dataclass(frozen=True)
class Range:
    """The values that an argument may have."""

    description: str
    contains: Callable[[Any], bool]


def _whole_numbers(least: int, most: int) -> Range:
    description = f"a whole number from {least} to {most:,}"
    return Range(description, lambda value: is_count(value, least, most))


POSITIVE = Range("a finite number > 0", is_positive)
NOT_NEGATIVE = Range("a finite number >= 0", lambda value: is_positive(value, or_zero=True))
FRACTION = Range(
    "a number >= 0 and < 1", lambda value: is_positive(value, or_zero=True) and value < 1
)
COUNT = _whole_numbers(1, MAX_STEPS)
DURATION = Range(
    f"a number of steps from 0 to {MAX_STEPS:,}, or a fraction of all steps",
    lambda value: is_positive(value, or_zero=True) and value <= MAX_STEPS,
)
INTERVAL = Range(
    f"a number of steps from 1 to {MAX_STEPS:,}, or a fraction of all steps",
    lambda value: is_positive(value) and value <= MAX_STEPS,
)
EPOCHS = Range(
    f"a number > 0 and at most {MAX_STEPS:,}",
    lambda value: is_positive(value) and value <= MAX_STEPS,
)
ROWS = _whole_numbers(1, MAX_ROWS)
WORKERS = _whole_numbers(0, MAX_WORKERS)
SECONDS = _whole_numbers(1, MAX_SECONDS)
SEED = _whole_numbers(0, 2**32 - 1)

RANGES = {
    "learning_rate": NOT_NEGATIVE,
    "weight_decay": NOT_NEGATIVE,
    "adam_beta1": FRACTION,
    "adam_beta2": FRACTION,
    "adam_epsilon": POSITIVE,
    "max_grad_norm": NOT_NEGATIVE,
    "label_smoothing_factor": FRACTION,
    "warmup_steps": DURATION,
    "eval_delay": DURATION,
    "gradient_accumulation_steps": ROWS,
    "per_device_train_batch_size": ROWS,
    "per_device_eval_batch_size": ROWS,
    "dataloader_num_workers": WORKERS,
    "ddp_timeout": SECONDS,
    "seed": SEED,
}
# Arguments that count only under a strategy, which does not depend on them.
INTERVALS = {
    "logging_steps": "logging_strategy",
    "eval_steps": "eval_strategy",
    "save_steps": "save_strategy",
}
OPTIONAL = {
    "data_seed": SEED,
    "eval_accumulation_steps": COUNT,
    "dataloader_prefetch_factor": ROWS,
    "neftune_noise_alpha": NOT_NEGATIVE,
    "save_total_limit": COUNT,
}


def check_numbers(args: TrainingArguments) -> None:
    """Refuse numbers with which training fails late or learns nothing.

    Raises:
        ValueError: Names the argument, its value and what is expected.
    """
    ranges = dict(RANGES)
    ranges |= {name: own for name, own in OPTIONAL.items() if getattr(args, name) is not None}
    if args.max_steps <= 0:
        ranges["num_train_epochs"] = EPOCHS
    _check(args, ranges)
    if args.dataloader_persistent_workers and not args.dataloader_num_workers:
        raise ValueError("dataloader_persistent_workers=True needs dataloader_num_workers above 0")
    if args.max_steps > MAX_STEPS:
        raise ValueError(f"max_steps={args.max_steps}; expected at most {MAX_STEPS:,}")


def check_schedules(args: TrainingArguments) -> None:
    """Refuse intervals and schedules of the learning rate that fail late.

    Raises:
        ValueError: Names the argument, its value and what is expected.
    """
    strategies = {name: getattr(args, strategy) for name, strategy in INTERVALS.items()}
    _check(args, {name: INTERVAL for name, kind in strategies.items() if kind == "steps"})
    if not args.lr_scheduler_kwargs:
        return
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    kwargs: Any = args.lr_scheduler_kwargs
    try:
        get_scheduler(args.lr_scheduler_type, optimizer, 1, 10, scheduler_specific_kwargs=kwargs)
    except (TypeError, ValueError) as error:
        kind = str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
        raise ValueError(
            f"lr_scheduler_kwargs={kwargs!r} do not fit lr_scheduler_type={kind!r}: {error}"
        ) from error


def check_libraries(args: TrainingArguments, model: nn.Module) -> None:
    """Check optimizer, compiler and services for logs, without computing anything.

    Raises:
        ValueError: Names the argument, its value and what is expected.
    """
    optimizer = str(getattr(args.optim, "value", args.optim))
    where = f"optim={optimizer!r}" + (
        f", optim_args={args.optim_args!r}" if args.optim_args else ""
    )
    advice = "optim_args are written name=value,name=value"
    kinds = (ImportError, LookupError, NotImplementedError, RuntimeError, TypeError, ValueError)
    with named_errors(where, advice, kinds):
        Trainer.get_optimizer_cls_and_kwargs(args, model)  # type: ignore[arg-type]
    if args.torch_compile:
        where = (
            f"torch_compile_backend={args.torch_compile_backend!r}, "
            f"torch_compile_mode={args.torch_compile_mode!r}"
        )
        with named_errors(where, "leave one out for its default", (RuntimeError, ValueError)):
            backend = args.torch_compile_backend or "inductor"
            torch.compile(nn.Identity(), backend=backend, mode=args.torch_compile_mode)
    installed = get_available_reporting_integrations()
    for service in args.report_to or ():
        if service not in installed:
            known = ", ".join(installed) or "none"
            raise ValueError(
                f"report_to={service!r} is not a service whose library is installed ({known}); "
                "install it, or use report_to: none"
            )


def _check(args: TrainingArguments, ranges: Mapping[str, Range]) -> None:
    for name, own in ranges.items():
        value = getattr(args, name)
        if not own.contains(value):
            raise ValueError(f"{name}={value!r}; expected {own.description}")
