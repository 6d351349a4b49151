"""Checks of planned runs before any of them starts, and fingerprints of their data."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from datasets_scripts import load_task
from minbert_cli import pretrain
from minbert_cli.arguments import KINDS, FinetuneArguments, PretrainArguments
from minbert_cli.checkpoints import load_config
from minbert_cli.recipe import fill_arguments
from minbert_cli.run_folder import describe_settings, fingerprint_start
from minbert_cli.training import recipe_tasks
from modeling_minbert import unknown
from trainers import INPUT_ERRORS, reason_of

from .planning import PlannedRun


def check_runs(runs: Sequence[PlannedRun], processes: int) -> list[dict[str, Any]]:
    """Check recipes as their programs will; return the settings for ``run.json`` of each run."""
    settings: list[dict[str, Any]] = []
    for run in runs:
        checked = {}  # of an invalid run that was not selected: equals no run, so it is not shown
        try:
            checked = _check_recipe(run)
        except INPUT_ERRORS as error:
            if run.chosen:
                reason = reason_of(error)
                message = reason if reason.startswith(run.name) else f"{run.name}: {reason}"
                raise ValueError(message) from None
        settings.append(checked | {"processes": processes})
    return settings


def _check_recipe(run: PlannedRun) -> dict[str, Any]:
    arguments: Any
    arguments, args = fill_arguments(KINDS[run.program], run.recipe, where=run.name)
    if pushed := [name for name in ("push_to_hub", "hub_model_id") if getattr(args, name)]:
        raise ValueError(
            f"{pushed[0]} would send every row and seed to one repository; turn it off with "
            f"`--{pushed[0]} null`, and push the run you choose with model.push_to_hub"
        )
    if args.hub_token is not None:
        raise ValueError("hub_token would be written to the recipe of every run; leave it out")
    path = arguments.model_name_or_path
    # that of a pre-training may not exist yet; one on the Hub would be asked for every run
    is_known = path is None or (run.after is None and Path(path).is_dir())
    if isinstance(arguments, PretrainArguments):
        start = load_config(arguments, pretrain.find_sizes(arguments)) if is_known else None
        pretrain.check_recipe(arguments, args, start)
    else:
        start = load_config(arguments, arguments.model_config) if is_known else None
        recipe_tasks.check_recipe(arguments, args, start)
        _check_objective(run.objective, arguments)
    return describe_settings(args, asdict(arguments))


def _check_objective(objective: str | None, arguments: FinetuneArguments) -> None:
    """Check that results will have what a search needs."""
    known = [] if objective is None else recipe_tasks.list_results(arguments)
    if objective is not None and objective not in known:
        raise ValueError(f"search: {unknown('objective', objective, known)}")


def read_fingerprints(settings: Mapping[str, Any], known: dict[str, str]) -> dict[str, str]:
    """Return the fingerprints of labeled rows and initial weights; ``known`` caches them."""
    fingerprints = {}
    for name, task in list_labeled(settings).items():
        description = repr(task.data)
        if description not in known:
            known[description] = load_task(task.data).fingerprint
        fingerprints[name] = known[description]
    path = settings["model_name_or_path"]
    start = f"model_name_or_path={path!r}"
    if start not in known:
        known[start] = fingerprint_start(path).get("model_name_or_path", "")
    return fingerprints | ({"model_name_or_path": known[start]} if known[start] else {})


def list_labeled(settings: Mapping[str, Any]) -> dict[str, recipe_tasks.RecipeTask]:
    """Return the labeled tasks of a run, in their order."""
    tasks: dict[str, Any] = settings.get("tasks") or {}
    ordered = {name: tasks[name] for name in settings.get("task_order", tasks)}  # JSON sorts them
    return recipe_tasks.parse_labeled(ordered, settings["data_dir"])
