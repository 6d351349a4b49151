"""The expected size and time of the remaining runs of a campaign, by a trial of each kind."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from minbert_cli.recipe import format_recipe
from trainers.files import read_object, reason_of, write_text
from trainers.reports.texts import format_duration, markdown_table

from .campaign import Campaign, Failure, State, run_logged
from .planning import PlannedRun, Row

# Keys of a recipe that change neither steps nor time.
COSTLESS = {
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "card",
    "data_seed",
    "learning_rate",
    "lr_scheduler_type",
    "output_dir",
    "seed",
    "warmup_steps",
    "weight_decay",
}
# Settings of a trial.
OWN = {"report_to": "none", "disable_tqdm": True}


@dataclass(frozen=True)
class Estimate:
    """The expected size and time of one run."""

    steps: int  # of the optimizer
    rows: int  # of training
    seconds: float
    hardware: str
    may_stop_early: bool


def group_runs(campaign: Campaign) -> list[list[PlannedRun]]:
    """Group the remaining runs that need one trial together, in their order."""
    groups: dict[str, list[PlannedRun]] = {}
    for run in campaign.runs:
        if campaign.states[run.folder] != "done":
            kept = {key: value for key, value in run.recipe.items() if key not in COSTLESS}
            # the order of tasks and texts matters
            key = json.dumps([run.program, kept], default=str)
            groups.setdefault(key, []).append(run)
    return list(groups.values())


def try_groups(
    groups: Iterable[Sequence[PlannedRun]],
    states: Mapping[Path, State],
    command: Sequence[str],
    folder: Path,
) -> Iterator[tuple[Sequence[PlannedRun], Estimate | Failure]]:
    """Try the first run of each group in an empty folder; yield the estimate of all its runs.

    A fine-tuning whose pre-training is not done starts from the model of the trial of that.
    """
    started: dict[Path, Path] = {}  # models of trials, by the folder of the run
    numbers = count()
    for group in groups:
        run, place = group[0], folder / str(next(numbers))
        recipe = run.recipe | OWN | {"output_dir": str(place)}
        if run.after is not None and states[run.after.folder] != "done":
            if run.after.folder not in started:
                yield group, Failure(f"not tried: {run.after.name} failed")
                continue
            recipe["model_name_or_path"] = str(started[run.after.folder])
        found = _try(run, recipe, command, place)
        if isinstance(found, Estimate):
            started |= dict.fromkeys((each.folder for each in group), place)
        yield group, found


def _try(
    run: PlannedRun, recipe: Mapping[str, Any], command: Sequence[str], place: Path
) -> Estimate | Failure:
    """Try a run in a process; what it does not do is added to the time of the process."""
    path, log, result = (place.with_name(f"{place.name}.{end}") for end in ("yaml", "log", "json"))
    write_text(path, format_recipe(recipe))
    began = time.monotonic()
    try:
        given = [*command, run.program, str(path), str(result)]
        failure = run_logged(given, log, result.is_file)
    except OSError as error:
        failure = Failure(f"not tried: {reason_of(error)}")
    if failure is not None:
        return failure
    content = read_object(result)
    seconds = time.monotonic() - began + content.pop("seconds_left")
    return Estimate(seconds=seconds, **content)


def describe_estimates(
    rows: Sequence[Row], campaign: Campaign, estimates: Mapping[Path, Estimate]
) -> str:
    """Describe the remaining runs in a table, and their sums in a line below it."""
    remaining = {run.folder: run for run in campaign.runs if campaign.states[run.folder] != "done"}
    named = {run.name: [run] for run in remaining.values() if run.program == "pretrain"}
    for row in rows:
        named[row.name] = [run for run in row.runs.values() if run.folder in remaining]
    lines = [["row", "runs to do", "steps/run", "rows/run", "time/run", "time"]]
    for name, runs in named.items():
        one = estimates.get(runs[0].folder) if runs else None
        lines.append([name, str(len(runs)), *_describe_runs(one, len(runs))])
    table = markdown_table(lines, text_columns=1)
    known = [estimates[folder] for folder in remaining if folder in estimates]
    return f"{table}\n\n{_describe_sum(known, len(remaining))}" if known else table


def _describe_runs(one: Estimate | None, count: int) -> list[str]:
    """Describe the runs of a row, all like ``one``; None if nothing is known."""
    if one is None:
        return [""] * 4
    times = [format_duration(one.seconds), format_duration(one.seconds * count)]
    return [f"{one.steps:,}", f"{one.rows:,}", *times]


def _describe_sum(known: Sequence[Estimate], remaining: int) -> str:
    """Describe all runs together."""
    steps, rows = sum(each.steps for each in known), sum(each.rows for each in known)
    seconds = sum(each.seconds for each in known)
    hardware = " or ".join(sorted({each.hardware for each in known}))
    most = "at most " if any(each.may_stop_early for each in known) else ""
    runs = f"{len(known)} run{'s' * (len(known) != 1)}"
    if len(known) < remaining:
        runs = f"{len(known)} of {remaining} runs"
    return (
        f"{runs}, each counted in full: {most}{steps:,} steps, {rows:,} training rows, "
        f"{format_duration(seconds)}, on {hardware}"
    )
