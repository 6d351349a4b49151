"""Arguments that another library must know, checked before training asks it."""

import torch
from torch import nn
from transformers import Trainer, TrainingArguments
from transformers.integrations.integration_utils import get_available_reporting_integrations

from trainers.errors import named_errors


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
