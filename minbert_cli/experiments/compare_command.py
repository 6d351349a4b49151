"""``minbert experiments compare``: two runs on the same validation rows."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from datasets_scripts import load_task
from minbert_cli.command_line import expand_path
from trainers import UsageError, parse_recipe, read_settings

from .checks import list_labeled
from .compare import ComparisonArguments, compare_glue, compare_runs, describe_differences
from .scored_rows import ScoredRows, read_scored_rows

Labels = dict[str, tuple[list[str], NDArray[Any]]]


def load_labels(folder: Path) -> dict[str, Labels]:
    """Load ids and labels of the validation splits by split and task, without auxiliary tasks."""
    settings = read_settings(folder)
    found: dict[str, Labels] = {"validation": {}}
    for name, described in list_labeled(settings).items():
        if described.training.auxiliary:
            continue
        task = load_task(described.data)
        # further splits count only in the GLUE score
        further = [split for split in task.splits if split.startswith("validation_")]
        for split in ["validation", *(further if described.data.submission else [])]:
            references = task.references(split)
            if references is not None:
                found.setdefault(split, {})[name] = references
    if not found["validation"]:
        raise ValueError(
            f"{str(folder)!r} has no task with labels; expected runs of minbert finetune"
        )
    return found


def sets_of_glue(
    folder: Path, scored: Mapping[str, Mapping[str, ScoredRows]]
) -> dict[str, list[ScoredRows]]:
    """Return the validation splits that count in the GLUE score of a run, by task."""
    return {
        name: [rows[name] for rows in scored.values() if name in rows]
        for name, task in list_labeled(read_settings(folder)).items()
        if task.in_glue
    }


def parse_folders(argv: Sequence[str]) -> list[Path]:
    """Return the two folders at the start of a command line."""
    folders = [Path(expand_path(word)) for word in argv[:2] if not word.startswith("--")]
    if len(folders) != 2:
        raise UsageError("expected two folders of runs: compare FIRST_RUN SECOND_RUN")
    if folders[0].resolve() == folders[1].resolve():
        raise ValueError(f"compare needs two runs, but both are {str(folders[0])!r}")
    return folders


def compare(argv: Sequence[str]) -> str:
    """Compare two runs of the same validation rows: ``FIRST_RUN SECOND_RUN [--flag value ...]``."""
    folders = parse_folders(argv)
    (arguments,) = parse_recipe((ComparisonArguments,), list(argv[2:]))
    options = asdict(arguments)
    first, second = (
        {split: read_scored_rows(folder, labels, split) for split, labels in splits.items()}
        for folder, splits in zip(folders, map(load_labels, folders), strict=True)
    )
    differences = compare_runs(first["validation"], second["validation"], **options)
    left, right = sets_of_glue(folders[0], first), sets_of_glue(folders[1], second)
    sizes = [{task: len(sets) for task, sets in run.items()} for run in (left, right)]
    if left and sizes[0] == sizes[1]:
        differences.append(compare_glue(left, right, **options))
    return (
        f"first: {folders[0]}\nsecond: {folders[1]}\n\n{describe_differences(differences)}\n\n"
        f"Difference of the second to the first on the same validation rows, with interval and p "
        f"of a paired bootstrap ({arguments.resamples:,} resamples). It does not cover other seeds."
    )
