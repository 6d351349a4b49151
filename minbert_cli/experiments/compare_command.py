"""``minbert experiments compare``: two runs on the same validation rows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from datasets_scripts import load_task
from minbert_cli.command_line import expand_path
from minbert_cli.recipe import parse_recipe
from minbert_cli.run_folder import FREE_SETTINGS, read_settings
from trainers import UsageError
from trainers.reports.comparison import ALL, PairedDifference, write_comparison

from .checks import list_labeled
from .compare import (
    ComparisonArguments,
    Difference,
    compare_glue,
    compare_runs,
    describe_differences,
)
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
    """Compare two runs of the same validation rows: ``FIRST_RUN SECOND_RUN [--flag value ...]``.

    With ``--html`` a page shows both runs. It is also written if they cannot be compared row by
    row, as after different validation rows, and then says why.
    """
    folders = parse_folders(argv)
    (arguments,) = parse_recipe((ComparisonArguments,), list(argv[2:]))
    if arguments.html is None:
        return describe(folders, compare_rows(folders, arguments), arguments.resamples)
    settings = differing_settings(*map(read_settings, folders))
    differences: list[Difference] = []
    try:
        differences = compare_rows(folders, arguments)
        text = describe(folders, differences, arguments.resamples)
        note = text.rpartition("\n")[2]
    except (ValueError, OSError) as error:
        text = note = f"No paired difference: {error}"
    paired = [
        PairedDifference(
            ALL if one.task == "all" else one.task, one.metric, one.low, one.high, one.p_value
        )
        for one in differences
    ]
    path = Path(expand_path(arguments.html))
    write_comparison(folders, path, settings=settings, differences=paired, note=note)
    return f"{text}\n\npage: {path}"


def compare_rows(folders: Sequence[Path], arguments: ComparisonArguments) -> list[Difference]:
    """Compare two runs by their predictions."""
    options = {"resamples": arguments.resamples, "seed": arguments.seed}
    first, second = (
        {split: read_scored_rows(folder, labels, split) for split, labels in splits.items()}
        for folder, splits in zip(folders, map(load_labels, folders), strict=True)
    )
    differences = compare_runs(first["validation"], second["validation"], **options)
    left, right = sets_of_glue(folders[0], first), sets_of_glue(folders[1], second)
    sizes = [{task: len(sets) for task, sets in run.items()} for run in (left, right)]
    if left and sizes[0] == sizes[1]:
        differences.append(compare_glue(left, right, **options))
    return differences


def describe(folders: Sequence[Path], differences: list[Difference], resamples: int) -> str:
    """Format a comparison as text."""
    return (
        f"first: {folders[0]}\nsecond: {folders[1]}\n\n{describe_differences(differences)}\n\n"
        f"Difference of the second to the first on the same validation rows, with interval and p "
        f"of a paired bootstrap ({resamples:,} resamples). It does not cover other seeds."
    )


def differing_settings(
    first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[tuple[str, Any, Any]]:
    """List the settings with different values that can affect results, keys with dots."""
    left, right = (_flatten(one) for one in (first, second))
    return [
        (key, left.get(key), right.get(key))
        for key in dict.fromkeys((*left, *right))
        if key.partition(".")[0] not in FREE_SETTINGS and left.get(key) != right.get(key)
    ]


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        name = f"{prefix}{key}"
        flat |= _flatten(value, f"{name}.") if isinstance(value, Mapping) else {name: value}
    return flat
