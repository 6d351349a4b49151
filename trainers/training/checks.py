"""What is refused before a training starts, since it would fail late, or train nonsense."""

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any

import datasets
import numpy as np
import torch
from torch import nn
from torch.optim import Optimizer
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.trainer_utils import SchedulerType

from datasets_scripts.checking import NotNegative, Positive, check_value, number, whole_number
from datasets_scripts.row_format import ENCODED_WITH
from modeling_minbert import unknown
from modeling_minbert.tasks import parse_tasks
from trainers.data.rows import IGNORED_LABEL, FlatRows
from trainers.files import find_inner, takes_task
from trainers.methods.base import Method
from trainers.problems import PROBLEMS
from trainers.problems.base import AnyProblem
from trainers.problems.metrics import AGGREGATES, Metric, is_error
from trainers.task import MAX_ROWS, Task, find_rows

from .terms import compares_rows

logger = logging.getLogger(__name__)

MAX_STEPS = 10**9  # of a run and between two evaluations
MAX_WORKERS = 256  # of a data loader
MAX_SECONDS = 10**7  # of waiting for another process

# Kinds of values; an argument may be a number of steps, or a fraction of all steps.
BelowOne = Annotated[float, number("a number >= 0 and < 1", lambda x: 0 <= x < 1)]
UP_TO = f"to {MAX_STEPS:,}, or a fraction of all steps"
Duration = Annotated[
    float, number(f"a number of steps from 0 {UP_TO}", lambda x: 0 <= x <= MAX_STEPS)
]
Interval = Annotated[
    float, number(f"a number of steps from 1 {UP_TO}", lambda x: 0 < x <= MAX_STEPS)
]
Epochs = Annotated[
    float, number(f"a number > 0 and at most {MAX_STEPS:,}", lambda x: 0 < x <= MAX_STEPS)
]
Steps = Annotated[int, whole_number(1, MAX_STEPS)]
BatchRows = Annotated[int, whole_number(1, MAX_ROWS)]
RunSeed = Annotated[int, whole_number(0, 2**32 - 1)]

RANGES: dict[str, Any] = {
    "learning_rate": NotNegative,
    "weight_decay": NotNegative,
    "adam_beta1": BelowOne,
    "adam_beta2": BelowOne,
    "adam_epsilon": Positive,
    "max_grad_norm": NotNegative,
    "label_smoothing_factor": BelowOne,
    "warmup_steps": Duration,
    "eval_delay": Duration,
    "gradient_accumulation_steps": BatchRows,
    "per_device_train_batch_size": BatchRows,
    "per_device_eval_batch_size": BatchRows,
    "dataloader_num_workers": Annotated[int, whole_number(0, MAX_WORKERS)],
    "ddp_timeout": Annotated[int, whole_number(1, MAX_SECONDS)],
    "seed": RunSeed,
    "data_seed": RunSeed | None,
    "eval_accumulation_steps": Steps | None,
    "dataloader_prefetch_factor": BatchRows | None,
    "save_total_limit": Steps | None,
}


def check_numbers(args: TrainingArguments) -> None:
    """Refuse numbers with which training fails late or learns nothing, by a ValueError."""
    for name, kind in RANGES.items():
        check_value("", name, getattr(args, name), kind)
    if args.max_steps <= 0:
        check_value("", "num_train_epochs", args.num_train_epochs, Epochs)
    if args.dataloader_persistent_workers and not args.dataloader_num_workers:
        raise ValueError("dataloader_persistent_workers=True needs dataloader_num_workers above 0")
    if args.max_steps > MAX_STEPS:
        raise ValueError(f"max_steps={args.max_steps}; expected at most {MAX_STEPS:,}")


def check_schedules(args: TrainingArguments) -> None:
    """Refuse intervals that fail late, by a ValueError."""
    for name in ("logging", "eval", "save"):
        if getattr(args, f"{name}_strategy") == "steps":
            check_value("", f"{name}_steps", getattr(args, f"{name}_steps"), Interval)


def follows_evaluations(args: TrainingArguments) -> bool:
    """Return whether the learning rate depends on the metric of evaluations."""
    return args.lr_scheduler_type in (SchedulerType.REDUCE_ON_PLATEAU, SchedulerType.GREEDY)


# What transformers calls the problem types whose labels are numbers, one or several of a row.
NUMBERS = ("regression", "multi_label_classification")
# What Trainer adds to the metrics of an evaluation.
TIMES = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


def check_tasks(
    tasks: Sequence[Task], model: nn.Module
) -> tuple[dict[str, Task], dict[str, AnyProblem]]:
    """Check the names, heads and rows of tasks; return them and their problems by name."""
    by_name = {task.name: task for task in tasks}
    names = ", ".join(task.name for task in tasks)
    if len(by_name) < max(1, len(tasks)):
        raise ValueError(f"tasks: {names or 'none'}; expected one or more with different names")
    if len(tasks) > 1 and not takes_task(model):
        raise ValueError(
            f"{type(model).__name__}.forward has no argument task, so all of {names} would train "
            "one head; use MinBertForMultiTask, or one task"
        )
    inner = find_inner(model)
    config = getattr(inner, "config", None)
    _check_model(model, config)
    specs = parse_tasks(getattr(config, "tasks", None))
    problems = {name: task.make_problem(specs.get(name)) for name, task in by_name.items()}
    _check_names(problems)
    # one head, whose loss is that of transformers
    is_plain = getattr(config, "model_type", None) == "minbert" and not hasattr(inner, "heads")
    is_stock = is_plain or type(inner).__module__.startswith("transformers.")
    _check_rows(by_name, problems, counts_missing=is_stock)
    is_regression = getattr(config, "problem_type", None) != NUMBERS[1]
    if is_stock and is_regression and getattr(config, "num_labels", 2) == 1:
        for name, task in by_name.items():
            if task.problem_type == "paraphrase":
                raise ValueError(
                    f"task {name!r} is a paraphrase, but the model has num_labels=1 and learns "
                    "numbers: load it with num_labels=2, or make the task a similarity"
                )
    if all(task.training.auxiliary for task in tasks):
        raise ValueError(f"auxiliary: all tasks are ({names}); leave it out of those that count")
    return by_name, problems


def _check_model(model: nn.Module, config: object) -> None:
    """Refuse a model whose weights or outputs would have names that nothing reads."""
    if hasattr(model, "_orig_mod"):
        raise ValueError(
            "torch.compile has put the model into another one: compile it in place, by "
            "model.compile()"
        )
    if getattr(config, "return_dict", True) is False:
        raise ValueError(
            "model.config.return_dict is False, but losses and predictions are read by name; set "
            "it to True"
        )


def _check_names(problems: Mapping[str, AnyProblem]) -> None:
    """Check that no two tasks have a metric, a logged loss or a file of the same name."""
    owners: dict[str, str] = {}
    for task, problem in problems.items():
        metrics = ("loss", *TIMES, *(metric.name for metric in problem.reported))
        used = {task.casefold(), *(f"eval_{task}_{metric}" for metric in metrics)}
        used |= {f"loss_{task}", *(f"loss_{task}_{part}" for part in problem.parts)}
        for name in sorted(used):
            if name in owners:
                raise ValueError(
                    f"tasks {owners[name]!r} and {task!r} would both have {name!r}; rename one"
                )
            owners[name] = task


def _check_rows(
    tasks: Mapping[str, Task], problems: Mapping[str, AnyProblem], *, counts_missing: bool
) -> None:
    """Check that all tasks have usable rows of a kind, or none has any.

    ``counts_missing`` says that the losses of the model count a number that is missing, -100.
    """
    for split, title in (("train", "training"), ("evaluation", "evaluation")):
        rows_by_task = find_rows(tasks.values(), split)
        if rows_by_task and (lacking := tasks.keys() - rows_by_task.keys()):
            raise ValueError(
                f"{', '.join(sorted(lacking))} without {title} rows: give them to all of "
                f"{', '.join(tasks)}, or to none"
            )
        for task, rows in rows_by_task.items():
            where = f"the {title} set of task {task!r}"
            if not len(rows):
                raise ValueError(f"{where} is empty; give it rows")
            problems[task].check(where, rows)
            columns: Any = rows
            evaluated = problems[task].evaluated if split == "evaluation" else ()
            if lost := [name for name in evaluated if name not in columns.column_names]:
                raise ValueError(
                    f"{where} has no column {', '.join(lost)}, from which answers are made: take "
                    "rows of datasets_scripts.load_task(...).encode, or give no evaluation rows"
                )
            has_numbers = problems[task].kind.hub_type in NUMBERS
            if counts_missing and has_numbers and IGNORED_LABEL in np.asarray(columns["labels"][:]):
                raise ValueError(
                    f"{where} has labels that are -100, for missing ones, which a model of "
                    "transformers would learn as numbers; leave these rows out, or use "
                    "MinBertForMultiTask"
                )
            if problems[task].calibrates and tasks[task].evaluation is None:
                raise ValueError(
                    f"task {task!r}: its temperature must be fitted to validation rows, and there "
                    "are none; give it some, or leave calibrate out and set temperature to None"
                )


def check_compute_metrics(
    compute_metrics: Any, problems: Mapping[str, AnyProblem]
) -> dict[str, Any]:
    """Return the user's ``compute_metrics`` by task."""
    if compute_metrics is None:
        return {}
    if not isinstance(compute_metrics, Mapping):
        compute_metrics = dict.fromkeys(problems, compute_metrics)
    for task in compute_metrics:
        if task not in problems:
            raise ValueError(f"compute_metrics: {unknown('task', task, problems)}")
    return dict(compute_metrics)


def check_arguments(
    args: TrainingArguments,
    problems: Mapping[str, AnyProblem],
    glue_tasks: Collection[str] = (),
    extended: Collection[str] = (),
    auxiliary: Collection[str] = (),
) -> None:
    """Refuse arguments that would be ignored or would go wrong, by a ValueError.

    ``extended`` are the tasks with metrics of the user; ``auxiliary`` ones are in no average.
    """
    check_numbers(args)
    check_schedules(args)
    config: Any = args.accelerator_config
    strategies = ("random", "group_by_length")
    others = f" or use {' or '.join(map(repr, strategies))}"
    compiles = (
        ": every batch has another number of tokens, for each of which the model would be compiled"
    )
    orders = ": the order of batches is a function of the seed, the same on every device"
    mixes = ": split_batches and dispatch_batches would mix tasks"
    refused = (
        ("use_liger_kernel", args.use_liger_kernel, ""),
        ("save_on_each_node", args.save_on_each_node, ""),  # only the first machine writes weights
        ("auto_find_batch_size", args.auto_find_batch_size, ""),
        ("batch_eval_metrics", args.batch_eval_metrics, ""),
        ("prediction_loss_only", args.prediction_loss_only, ""),
        ("eval_do_concat_batches", not args.eval_do_concat_batches, ""),
        ("include_for_metrics", args.include_for_metrics, ""),
        ("label_names", args.label_names is not None, ""),
        ("average_tokens_across_devices", not args.average_tokens_across_devices, ""),
        ("dataloader_drop_last", args.dataloader_drop_last, ""),
        ("dataloader_in_order", not args.dataloader_in_order, orders),
        # its noise depends on the padding of a batch, and packed batches have none
        ("neftune_noise_alpha", args.neftune_noise_alpha is not None, ""),
        ("train_sampling_strategy", args.train_sampling_strategy not in strategies, others),
        ("torch_compile", args.torch_compile, compiles),
        ("fp16", args.fp16 and args.device.type == "cpu", " on a CPU, which has float32 and bf16"),
        ("fp16_full_eval", args.fp16_full_eval and args.device.type == "cpu", " on a CPU"),
        ("accelerator_config", config.split_batches or config.dispatch_batches, mixes),
    )
    for name, is_refused, reason in refused:
        if is_refused:
            raise ValueError(
                f"{name}={getattr(args, name)!r} is not supported with several tasks; leave it "
                f"out{reason}"
            )
    smooths = any(problem.smooths_labels for problem in problems.values())
    if args.label_smoothing_factor and not smooths:
        types = [name for name, kind in PROBLEMS.items() if kind("any").smooths_labels]
        given = ", ".join(f"{name!r} ({kind.problem_type})" for name, kind in problems.items())
        raise ValueError(
            f"label_smoothing_factor={args.label_smoothing_factor!r} spreads labels over classes, "
            f"in tasks of the types {', '.join(types)} with the loss cross_entropy or bce, which "
            f"none is: {given}; leave it out"
        )
    if args.metric_for_best_model is not None or follows_evaluations(args):
        _direct_best(args, problems, list_metrics(problems, glue_tasks, auxiliary), extended)


def _direct_best(
    args: TrainingArguments,
    problems: Mapping[str, AnyProblem],
    known: Mapping[str, Metric | None],
    extended: Collection[str],
) -> None:
    """Check the metric that chooses the best checkpoint, and set its direction."""
    name = str(args.metric_for_best_model).removeprefix("eval_")
    # it may be one of the user's, whose names are known after an evaluation
    if name not in known and not name.startswith(tuple(f"{task}_" for task in extended)):
        schedule = SchedulerType(args.lr_scheduler_type).value
        needs = f"lr_scheduler_type={schedule!r} needs " if follows_evaluations(args) else ""
        raise ValueError(
            f"{needs}metric_for_best_model: {unknown('metric', args.metric_for_best_model, known)}"
        )
    metric = known.get(name)
    is_lower = metric.lower_is_better if metric else is_error(name)
    # what the Trainer sets if it is left out, and what must be told from the user's value
    default = not name.endswith("loss")
    if args.greater_is_better is is_lower and args.greater_is_better is not default:
        if name in known and not (metric and metric.module):
            raise ValueError(
                f"greater_is_better={is_lower}, but a {'lower' if is_lower else 'higher'} "
                f"{name} is better; leave it out"
            )
        is_lower = not is_lower
        if metric:
            for problem in problems.values():
                problem.direct(metric.module, is_lower)
    args.greater_is_better = not is_lower
    mode, given = "min" if is_lower else "max", args.lr_scheduler_kwargs
    if follows_evaluations(args) and isinstance(given, Mapping) and given.get("mode", mode) != mode:
        raise ValueError(
            f"lr_scheduler_kwargs: mode={given['mode']!r}, but for {name} it is {mode!r}; leave "
            "mode out"
        )


def make_schedule(args: TrainingArguments, optimizer: Optimizer, steps: int) -> Any:
    """Make the schedule of the learning rate, for so many steps."""
    options: Any = args.lr_scheduler_kwargs
    if follows_evaluations(args):  # by default a plateau is one of what should fall
        options = {"mode": "max" if args.greater_is_better else "min"} | {**(options or {})}
    warmup_steps = args.get_warmup_steps(steps)
    return get_scheduler(args.lr_scheduler_type, optimizer, warmup_steps, steps, options)


def check_optimizer(args: TrainingArguments, model: Any, given: tuple[Any, Any]) -> None:
    """Refuse an optimizer and a schedule that cannot be made, by a ValueError."""
    # DeepSpeed has its own, and others hook into the weights of the model when they are made
    if given != (None, None) or args.deepspeed or "layerwise" in str(args.optim):
        return
    keys = ("optim", "optim_args")
    try:
        kind, options = Trainer.get_optimizer_cls_and_kwargs(args, model)
        weight = [nn.Parameter(torch.zeros(1))]
        optimizer: Optimizer = torch.optim.SGD(weight, args.learning_rate)
        is_class = isinstance(kind, type) and issubclass(kind, Optimizer)
        if is_class and not {*options} & {"params", "model", "optimizer_dict"}:  # of a model
            optimizer = kind(weight, **options)
        keys = ("lr_scheduler_type", "lr_scheduler_kwargs")
        make_schedule(args, optimizer, max(1, args.max_steps))
    except Exception as error:
        found = {name: getattr(args, name) for name in keys}
        values = (f"{name}={getattr(value, 'value', value)!r}" for name, value in found.items())
        raise ValueError(f"{', '.join(values)}: {str(error).partition(chr(10))[0]}") from error


def list_metrics(
    problems: Mapping[str, AnyProblem], glue_tasks: Collection[str], auxiliary: Collection[str]
) -> dict[str, Metric | None]:
    """List what an evaluation reports; None for losses and aggregates, without auxiliary tasks."""
    known: dict[str, Metric | None] = {}
    averaged = [problem for task, problem in problems.items() if task not in auxiliary]
    if any(problem.is_defined(problem.reported[0]) for problem in averaged):
        known = dict.fromkeys(name for name in AGGREGATES if name != "glue" or glue_tasks)
    for task, problem in problems.items():
        defined = [metric for metric in problem.reported if problem.is_defined(metric)]
        known |= {f"{task}_{metric.name}": metric for metric in defined}
        known[f"{task}_loss"] = None
    return known


def check_methods(methods: Sequence[Method], optimizers: tuple[Any, Any], model: Any) -> None:
    """Refuse methods, optimizers and schedules that would not train this model as they say."""
    optimizer, schedule = optimizers
    inner = getattr(optimizer, "optimizer", optimizer)  # of accelerate's
    driven = getattr(schedule, "optimizer", inner)
    groups = getattr(optimizer, "param_groups", [])
    shared = {*map(id, groups)} & {*map(id, getattr(driven, "param_groups", []))}  # with a wrapper
    if schedule is not None and driven not in (optimizer, inner) and not shared:
        raise ValueError(
            "optimizers: the schedule changes the rates of an optimizer that is not trained with; "
            "give both, (optimizer, schedule), or leave the schedule out"
        )
    trained = {id(weight) for group in groups for weight in group["params"]}
    if trained and trained.isdisjoint(map(id, model.parameters())):
        raise ValueError(
            "optimizers: the optimizer has no weight of this model; make it from "
            "model.parameters() of the model that is trained"
        )
    kinds = [type(method) for method in methods]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ValueError(f"methods: {kind.__name__} is there twice; give one")
    if optimizer is not None:
        refuse_scaling(methods, f"optimizers has a {type(inner).__name__}")


def warn_of_half(args: TrainingArguments, model: nn.Module) -> None:
    """Warn if weights are trained in half precision, as they are loaded from some checkpoints."""
    trained = (weight.dtype for weight in model.parameters() if weight.requires_grad)
    half = {torch.float16, torch.bfloat16} & {*trained}
    if half and not args.deepspeed:  # which keeps others in float32
        logger.warning(
            "weights are in %s, where small updates are rounded away: load the model with "
            "dtype=torch.float32; bf16=True still computes in bfloat16",
            ", ".join(sorted(map(str, half))),
        )


def refuse_scaling(methods: Sequence[Method], given: str) -> None:
    """Refuse methods that change the optimizer of the trainer, where another one is trained."""
    for method in methods:
        kind = type(method)
        if kind.scale_optimizer is not Method.scale_optimizer:
            raise ValueError(
                f"methods: {kind.__name__} changes the optimizer that the trainer makes, but "
                f"{given}; leave one of them out"
            )


def needs_rows(problem: AnyProblem) -> bool:
    """Whether the loss of a task is about several rows, and there is none of a single one."""
    # a hard negative is in the row itself
    return compares_rows(problem) and getattr(problem.spec, "num_sentences", None) != 3


def keep_row_lengths(model: Any, tasks: Mapping[str, Task], tokenizer: Any) -> None:
    """Store the length at which rows were cut as the ``max_length`` of tasks that have none.

    It is known if minBERT encoded the rows, or if the tokenizer last cut texts to the tokens of the
    longest training row. A model without named heads is left alone.
    """
    cut = getattr(getattr(tokenizer, "backend_tokenizer", None), "truncation", None) or {}
    heads = getattr(model, "heads", None) or {}
    for name, task in tasks.items():
        spec = getattr(heads.get(name), "task", None)
        description = getattr(getattr(task.train, "info", None), "description", None) or ""
        noted = re.fullmatch(rf"{ENCODED_WITH}(\d+)", description)
        length = int(noted[1]) if noted else 0
        if not noted and cut and isinstance(task.train, datasets.Dataset):
            longest = int(FlatRows(task.train).lengths.max(initial=0))
            length = longest if cut["max_length"] == longest else 0
        # fewer tokens than 8 are refused
        if length >= 8 and spec is not None and spec.max_length is None and not spec.has_windows:
            spec.max_length = length
            fields = {**model.config.tasks[name], "max_length": length}
            model.config.tasks = {**model.config.tasks, name: fields}
