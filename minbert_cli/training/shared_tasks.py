"""Tasks of a recipe that share rows: the keys that they have in common, and their rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from datasets_scripts import TaskRows, load_group, load_task
from modeling_minbert import unknown
from trainers.training.shared_steps import find_groups

KEY = "shares_rows_with"
# Where rows come from, how they are drawn, and how their texts become tokens: all of this is equal
# in tasks that share rows.
ROW_KEYS = (
    *("dataset", "hub_id", "train_file", "data_dir", "revision"),
    *("validation_file", "validation_share", "test_file", "extra_files"),
    *("text_columns", "id_column", "max_invalid_fraction", "sample_seed"),
    *("delimiter", "quoting"),
    *("max_train_samples", "max_eval_samples", "max_test_samples"),
    *("max_length", "pair_encoding", "truncation", "window_overlap", "max_windows"),
)
# These go by the labels of one task, which are not those of the others.
REFUSED_KEYS = (
    *("max_train_samples_per_class", "max_eval_samples_per_class", "class_pairs"),
    *("unlabeled_file", "max_unlabeled_samples"),
)


def complete_keys(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Give each task that shares rows the keys about rows and tokens.

    Raises:
        ValueError: If it names an unknown task or one that shares rows itself, or has such keys.
    """
    leaders = {name: _find_leader(name, tasks) for name in tasks}
    sharing = {name for pair in leaders.items() if pair[1] is not None for name in pair}
    for name in tasks:
        for key in REFUSED_KEYS if name in sharing else ():
            if key in tasks[name]:
                raise ValueError(
                    f"task {name!r}: {key} goes by the labels of one task, but its rows have those "
                    "of others, too; leave it out"
                )
    return {name: _complete(name, keys, leaders[name], tasks) for name, keys in tasks.items()}


def _find_leader(name: str, tasks: Mapping[str, Any]) -> str | None:
    keys = tasks[name]
    if not isinstance(keys, dict) or keys.get(KEY) is None:
        return None
    leader, where = str(keys[KEY]), f"task {name!r}: {KEY}"
    if leader not in tasks:
        raise ValueError(
            f"{where}: {unknown('task', leader, tasks)}; the task whose rows they are must be part "
            "of the run"
        )
    if leader == name:
        raise ValueError(f"{where} names the task itself; give another one")
    own = tasks[leader]
    if not isinstance(own, dict):
        return None  # which is an error of that task
    if own.get(KEY) is not None:
        raise ValueError(
            f"{where}={leader!r}, which itself has {KEY}={own[KEY]!r}; give both the same task"
        )
    return leader


def _complete(name: str, keys: Any, leader: str | None, tasks: Mapping[str, Any]) -> Any:
    if leader is None:
        return keys
    given: Any = tasks[leader]
    for key in ROW_KEYS:
        if key in keys and keys[key] != given.get(key):
            raise ValueError(
                f"task {name!r}: {key}={keys[key]!r}, but its rows and their tokens are those of "
                f"{leader!r}; leave it out, or give it to {leader!r}"
            )
    return {key: given[key] for key in ROW_KEYS if key in given} | keys


def join_groups(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the data of each `RecipeTask` with which tasks it shares rows."""
    joined = dict(tasks)
    for names in find_groups(tasks).values():
        if len(names) > 1:
            group = tuple(replace(tasks[name].data, skips_unlabelled=True) for name in names)
            for name, data in zip(names, group, strict=True):
                joined[name] = replace(tasks[name], data=replace(data, group=group))
    return joined


def load_tasks(tasks: Mapping[str, Any]) -> dict[str, TaskRows]:
    """Load the rows of all tasks, those of a group once."""
    loaded: dict[str, TaskRows] = {}
    for name, task in tasks.items():
        if name in loaded:
            continue
        group = task.data.group
        loaded |= load_group(group) if group else {name: load_task(task.data)}
    return {name: loaded[name] for name in tasks}
