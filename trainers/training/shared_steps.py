"""Steps of tasks that share rows: one pass of the encoder, and the losses of all of them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from torch import Tensor, nn
from transformers import TrainingArguments

from modeling_minbert import unknown
from trainers.data.dataset import Rows
from trainers.data.rows import SharedRows, TextSource, share_rows
from trainers.files import find_inner
from trainers.methods.base import Method, StepLoss, nested_loss
from trainers.problems import PROBLEMS
from trainers.task import Task, find_rows

# Arguments of a task that are about its batches, which are those of another task.
BATCH_KEYS = {"batch_size": None, "max_tokens_per_batch": None, "oversample": None}


def find_leaders(tasks: Mapping[str, Any]) -> dict[str, str]:
    """Return the task whose batches each task is in, mostly itself; see ``find_groups``."""
    return {name: task.training.shares_rows_with or name for name, task in tasks.items()}


def find_groups(tasks: Mapping[str, Any]) -> dict[str, list[str]]:
    """List the tasks whose labels are in the batches of each task, itself first.

    Tasks are any objects with ``training``, a ``TaskTraining``.

    Raises:
        ValueError: If a task shares rows with one that does not exist, or that shares rows itself.
    """
    leaders = find_leaders(tasks)
    for name, task in tasks.items():
        leader = leaders[name]
        where = f"task {name!r}: shares_rows_with"
        if leader not in tasks:
            raise ValueError(f"{where}: {unknown('task', leader, tasks)}")
        if task.training.shares_rows_with == name:
            raise ValueError(f"{where} names the task itself; give another one")
        if leaders[leader] != leader:
            raise ValueError(
                f"{where}={leader!r}, which itself has shares_rows_with={leaders[leader]!r}; give "
                "all of them the same task"
            )
    groups: dict[str, list[str]] = {name: [name] for name in tasks if leaders[name] == name}
    for name, leader in leaders.items():
        if name != leader:
            groups[leader].append(name)
    return groups


def check_groups(
    tasks: Mapping[str, Task], model: Any, args: TrainingArguments, collator: Any
) -> None:
    """Raise ValueError if tasks share rows, and this does not go with something else."""
    groups = {name: group for name, group in find_groups(tasks).items() if len(group) > 1}
    if not groups:
        return
    refused = {
        f"a model without compute_several, as {type(find_inner(model)).__name__}": not hasattr(
            find_inner(model), "compute_several"
        ),
        "a data_collator of your own": collator is not None,
        "torch_compile": args.torch_compile,
        f"{args.n_gpu} GPUs in one process (use accelerate launch)": args.n_gpu > 1,
    }
    for reason, is_refused in refused.items():
        if is_refused:
            raise ValueError(f"shares_rows_with does not go with {reason}; leave one of them out")
    for leader, group in groups.items():
        for name in group:
            _check_member(tasks[name], leader)
            _check_loss(name, find_inner(model), args)


def _check_loss(name: str, model: Any, args: TrainingArguments) -> None:
    """Refuse losses for which all processes need labels in every step."""
    function = getattr(model.config.task(name), "loss_function", None)
    if args.world_size > 1 and getattr(function, "compares_rows", False):
        raise ValueError(
            f"task {name!r}: its loss compares the rows of {args.world_size} processes, some of "
            "which may have no label in a batch of tasks that share rows; use another loss, one "
            "process, or leave shares_rows_with out"
        )


def _check_member(task: Task, leader: str) -> None:
    where = f"task {task.name!r}"
    if not PROBLEMS[task.problem_type].shares_rows or isinstance(task.train, TextSource):
        types = ", ".join(name for name, kind in PROBLEMS.items() if kind.shares_rows)
        raise ValueError(
            f"{where} is a {task.problem_type} task, which cannot share its rows with others; "
            f"those that can are of the types {types}"
        )
    for key, default in BATCH_KEYS.items():
        value = getattr(task.training, key)
        if value != default and (task.name != leader or key == "oversample"):
            reason = (
                f"its rows are in the batches of {leader!r}"
                if task.name != leader
                else "its rows have labels of other tasks, too"
            )
            raise ValueError(f"{where}: {key}={value!r}, but {reason}; leave it out")


def merge_rows(tasks: Mapping[str, Task]) -> tuple[dict[str, Rows], dict[str, SharedRows]]:
    """Return the training rows of each group of tasks by its first task, and those it shares."""
    given: dict[str, Any] = find_rows(tasks.values())
    shared = {
        leader: share_rows({name: given[name] for name in group})
        for leader, group in find_groups(tasks).items()
        if len(group) > 1 and given
    }
    rows = {
        name: shared[name].rows if name in shared else own
        for name, own in given.items()
        if tasks[name].training.shares_rows_with is None
    }
    return rows, shared


def list_labelled(batch: Mapping[str, Any]) -> list[str]:
    """List the tasks that have a loss in a batch."""
    labels = batch.get("labels")
    return list(labels) if isinstance(labels, Mapping) else [batch["task"]]


class SharedPasses:
    """The forward passes of a batch, each computed once for all of its tasks.

    A training method that computes the loss of a task twice gets two different passes, and the next
    task the same two.
    """

    def __init__(self, compute: Callable[[], Mapping[str, Any]]) -> None:
        self._compute = compute
        self._passes: list[Mapping[str, Any]] = []

    def of(self, task: str) -> Callable[[], tuple[Tensor, Any]]:
        """Return a function whose n-th call returns loss and outputs of the n-th pass."""
        numbers = count()

        def read() -> tuple[Tensor, Any]:
            number = next(numbers)
            if number == len(self._passes):
                self._passes.append(self._compute())
            outputs = self._passes[number][task]
            return outputs["loss"], outputs

        return read


def step_losses(
    methods: Sequence[Method],
    model: nn.Module,
    compute: Callable[[], tuple[Tensor, Any]],
    task: str,
    inputs: dict[str, Any],
    weigh: Callable[[str, Tensor, Any], StepLoss],
) -> dict[str, StepLoss]:
    """Compute the loss of a batch, or those of all tasks that have a label in it.

    Args:
        methods: The training methods.
        model: The model.
        compute: Computes loss and outputs of a batch of one task.
        task: The task of the batch.
        inputs: The batch.
        weigh: Makes a ``StepLoss`` of a task, and the loss and outputs of a forward pass.
    """
    labels = inputs.get("labels")
    if not isinstance(labels, Mapping):
        return {task: nested_loss(methods, lambda: weigh(task, *compute()), task, inputs)}
    passes = SharedPasses(lambda: model(**{**inputs, "task": list(labels)}))
    found = {}
    for name, own in labels.items():
        read = passes.of(name)

        def plain(name: str = name, read: Any = read) -> StepLoss:
            return weigh(name, *read())

        found[name] = nested_loss(methods, plain, name, {**inputs, "task": name, "labels": own})
    return found
