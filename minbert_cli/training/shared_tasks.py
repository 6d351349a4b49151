"""Tasks of a recipe that share rows: the keys that they have in common, and their rows."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from datasets_scripts import LoadedTask, load_task
from did_you_mean import unknown
from trainers.training.shared_steps import find_groups

KEY = "shares_rows_with"
SOURCES = ("dataset", "hub_id", "train_file")
# Where rows come from, and how they are drawn.
ROW_KEYS = (
    *SOURCES,
    *("data_dir", "revision", "validation_file", "validation_share", "test_file", "extra_files"),
    *("text_columns", "id_column", "max_invalid_fraction", "sample_seed"),
    *("max_train_samples", "max_eval_samples", "max_test_samples"),
)
# How texts become tokens, which are equal in tasks that share rows.
TOKEN_KEYS = ("pair_encoding", "truncation", "window_overlap", "max_windows")


def complete_keys(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Give each task that shares rows those keys about rows and tokens that it leaves out.

    Raises:
        ValueError: If it names an unknown task.
    """
    return {name: _inherit(name, keys, tasks) for name, keys in tasks.items()}


def _inherit(name: str, keys: Any, tasks: Mapping[str, Any]) -> Any:
    wanted = keys.get(KEY) if isinstance(keys, dict) else None
    if wanted is None:
        return keys
    if str(wanted) not in tasks:
        raise ValueError(f"task {name!r}: {KEY}: {unknown('task', str(wanted), tasks)}")
    leader = tasks[str(wanted)]
    if not isinstance(leader, dict):
        return keys
    has_source = any(key in keys for key in SOURCES)
    taken = TOKEN_KEYS if has_source else (*ROW_KEYS, *TOKEN_KEYS)
    return {key: leader[key] for key in taken if key in leader} | keys


def skip_unlabelled(tasks: Mapping[str, Any]) -> dict[str, Any]:
    """Let each `RecipeTask` that shares rows skip those without a label.

    Raises:
        ValueError: If a task shares the rows of one that cannot.
    """
    sharing = {name for group in find_groups(tasks).values() if len(group) > 1 for name in group}
    return {
        name: replace(task, data=replace(task.data, skips_unlabelled=True))
        if name in sharing
        else task
        for name, task in tasks.items()
    }


def load_tasks(tasks: Mapping[str, Any]) -> dict[str, LoadedTask]:
    """Load the rows of all tasks; those that share rows hold the same ones out."""
    loaded: dict[str, LoadedTask] = {}
    for leader, group in find_groups(tasks).items():
        for name in group:
            loaded[name] = load_task(tasks[name].data, held_out_with=loaded.get(leader))
    return {name: loaded[name] for name in tasks}
