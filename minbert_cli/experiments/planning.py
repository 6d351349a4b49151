"""Plan the runs of an experiments file."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minbert_cli.resources import find_recipe
from trainers.errors import INPUT_ERRORS
from trainers.problems.aggregates import AGGREGATES
from trainers.runs.recipe_files import read_recipe
from trainers.runs.recipes import check_types, split_keys
from trainers.runs.run_folder import LOCK_FILE, is_finished

from .experiment_arguments import EXAMPLE, ExperimentArguments, PretrainKeys, RowKeys, check_seeds
from .overrides import check_disjoint, override
from .search import RandomSearch, grid_points

PRETRAIN = "pretrain."
# Names in the output folder that are not folders of rows.
RESERVED = ("table.md", "table.csv", "table.png", "runs.csv", "pretrained", LOCK_FILE)
# Set for every run.
FIXED = ("output_dir", "overwrite_output_dir", "resume_from_checkpoint")
# Set by the pre-training of a row.
FROM_PRETRAINING = ("model_name_or_path", "model_config")
# Overrides of all rows that apply to their pre-training, too.
SHARED = ("model_name_or_path", "data_dir", "use_cpu", "bf16", "fp16")


@dataclass(frozen=True)
class PlannedRun:
    """A run of a program."""

    program: str  # ``finetune`` or ``pretrain``
    name: str  # in messages and logs
    folder: Path
    recipe: dict[str, Any]
    after: "PlannedRun | None" = None  # pre-training whose weights it starts from
    chosen: bool = True  # other runs are in the table if they are done


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str  # with the values of a search
    changes: dict[str, Any]  # overrides by dotted paths
    reference: dict[str, float]  # published numbers
    runs: dict[int, PlannedRun]  # by seed


def plan_rows(
    arguments: ExperimentArguments,
    flags: Mapping[str, Any] | None = None,
    of_file: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Expand the rows of an experiments file to rows of the table with their runs.

    Finished runs whose row or seed was not selected are included, so that a partial run of the file
    does not replace the complete table. ``flags`` win over the overrides of all rows, and must not
    change what a row sets itself; ``of_file`` are all rows, ``arguments`` has the selected ones.
    """
    flags = flags or {}
    rows: list[Row] = []
    for name, keys in {**(of_file or {}), **arguments.rows}.items():
        is_chosen = name in arguments.rows
        # an invalid row matters only if it was selected
        with nullcontext() if is_chosen else suppress(*INPUT_ERRORS):
            planned = _plan_row(arguments, flags, name, keys, chosen=is_chosen)
            rows += [row for row in planned if row.runs]
    folders: dict[Path, str] = {}
    for row in rows:
        folder = next(iter(row.runs.values())).folder.parent
        if folder in folders:
            raise ValueError(
                f"rows {folders[folder]!r} and {row.name!r} have the same folder {str(folder)!r}; "
                "rename one"
            )
        folders[folder] = row.name
    return rows


def _plan_row(
    arguments: ExperimentArguments, flags: Mapping[str, Any], name: str, keys: Any, *, chosen: bool
) -> list[Row]:
    where = f"row {name!r}"
    row: RowKeys = _fill(where, RowKeys, {} if keys is None else keys)
    seeds = arguments.seeds if row.seeds is None else row.seeds
    check_seeds(f"{where}: seeds", seeds)
    step = _read_pretrain(where, row)
    own, points = _find_changes(where, row, step, flags)
    base = _find_base(where, row.base or arguments.base)
    general = {**(arguments.overrides or {}), **flags}
    root = Path(arguments.output_dir)
    planned = []
    for point in points:
        full_name = _name_point(name, point)
        if step is None:
            recipe, after = _make_recipe(where, base, general, own | point), None
        else:
            recipe, after = _make_chain(where, base, step, general, own | point, root)
        folder = _find_folder(where, root, full_name)
        runs = {
            seed: _plan_run(folder, full_name, recipe, seed, after, chosen=is_chosen)
            for seed, is_chosen in _list_seeds(folder, seeds if chosen else ()).items()
        }
        reference = _check_reference(where, row.reference, recipe)
        planned.append(Row(full_name, own | point, reference, runs))
    return planned


def _read_pretrain(where: str, row: RowKeys) -> PretrainKeys | None:
    if row.pretrain is None:
        return None
    step: PretrainKeys = _fill(f"{where}: pretrain", PretrainKeys, row.pretrain)
    _find_base(where, step.base)
    return step


def _find_base(where: str, base: str | None) -> str:
    if base is None:
        raise ValueError(f"{where}: base is missing, as in {EXAMPLE}")
    return base


def _name_point(name: str, point: Mapping[str, Any]) -> str:
    return ", ".join([name, *(f"{path}={_show(value)}" for path, value in point.items())])


def _find_folder(where: str, root: Path, name: str) -> Path:
    folder = root / _slug(name)
    if folder.name in RESERVED:
        raise ValueError(f"{where}: the folder {str(folder)!r} is reserved; rename the row")
    return folder


def _find_changes(
    where: str, row: RowKeys, step: PretrainKeys | None, flags: Mapping[str, Any]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the overrides of a row and the points of its search, without conflicts."""
    points = _find_points(where, row)
    own = dict(row.overrides or {})
    if step is not None:
        own |= {f"{PRETRAIN}{path}": value for path, value in (step.overrides or {}).items()}
    check_disjoint(where, own, points[0], "in the overrides and in the search")
    check_disjoint(where, flags, own | points[0], "on the command line and in the row")
    return own, points


def _fill(where: str, kind: type, keys: Any) -> Any:
    """Fill a dataclass from a YAML mapping."""
    (given,) = split_keys(where, keys, (kind,))
    check_types(where, kind, given)
    try:
        return kind(**given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _find_points(where: str, row: RowKeys) -> list[dict[str, Any]]:
    """Return the points of the search of a row; one empty point without a search."""
    if row.grid is not None and row.random is not None:
        raise ValueError(f"{where}: give either grid or random, or make two rows")
    if row.grid is not None:
        return grid_points(where, row.grid)
    if row.random is None:
        return [{}]
    search = _fill(f"{where}: random", RandomSearch, row.random)
    try:
        return search.points()
    except ValueError as error:
        raise ValueError(f"{where}: random: {error}") from None


def _make_recipe(
    where: str, base: str, general: Mapping[str, Any], changes: Mapping[str, Any]
) -> dict[str, Any]:
    """Apply the overrides of all rows, then those of the row, to its recipe."""
    ours, _ = _split(general)
    own, of_pretraining = _split(changes)
    if of_pretraining:
        path = next(iter(of_pretraining))
        raise ValueError(f"{where}: {PRETRAIN}{path} has no effect without pretrain")
    if any(_first(path) == "seed" for path in ours | own):
        raise ValueError(f"{where}: leave out seed; give seeds, as in [1, 2, 3]")
    return _override(where, _override(where, _read_base(where, base), ours), own)


def _make_chain(
    where: str,
    base: str,
    step: PretrainKeys,
    general: Mapping[str, Any],
    changes: Mapping[str, Any],
    root: Path,
) -> tuple[dict[str, Any], PlannedRun]:
    """Apply the overrides to the recipes of a row and of its pre-training."""
    ours, theirs = _split(general)
    own, of_pretraining = _split(changes)
    if fixed := [path for path in own if _first(path) in FROM_PRETRAINING]:
        raise ValueError(
            f"{where}: {fixed[0]} is set by its pre-training; write {PRETRAIN}{fixed[0]}"
        )
    recipe = _make_recipe(where, base, ours, own)
    for path in FROM_PRETRAINING:
        recipe.pop(path, None)
    where = f"{where}: pretrain"
    shared = {path: value for path, value in ours.items() if path in SHARED}
    pretraining = _override(where, _read_base(where, str(step.base)), shared | theirs)
    pretraining = _override(where, pretraining, of_pretraining)
    pretraining.pop("finetune", None)  # the row is the fine-tuning
    text = json.dumps({key: pretraining[key] for key in sorted(pretraining)}, default=str)
    name = f"{_slug(Path(str(step.base)).stem)}-{_digest(text)}"
    folder = root / "pretrained" / name
    pretraining["output_dir"] = str(folder)
    return recipe, PlannedRun("pretrain", f"pre-training {name}", folder, pretraining)


def _override(
    where: str, recipe: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    if fixed := [path for path in overrides if _first(path) in FIXED]:
        raise ValueError(f"{where}: leave out {fixed[0]}; it is set for every run")
    return override(where, recipe, overrides)


def _first(path: Any) -> str:
    """Return the top-level key of a path."""
    return str(path).partition(".")[0]


def _read_base(where: str, base: str) -> dict[str, Any]:
    try:
        path = find_recipe(base)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}: base: {error}") from None
    return {key: value for key, value in read_recipe(path).items() if key not in FIXED}


def _split(overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split overrides into those of the fine-tuning and those of the pre-training."""
    ours, theirs = {}, {}
    for path, value in overrides.items():
        if str(path).startswith(PRETRAIN):
            theirs[str(path).removeprefix(PRETRAIN)] = value
        else:
            ours[path] = value
    return ours, theirs


def _list_seeds(folder: Path, chosen: Sequence[int]) -> dict[int, bool]:
    """Return the selected seeds and others with finished runs: whether each was selected."""
    numbers = [path.name.removeprefix("seed-") for path in folder.glob("seed-*")]
    found = sorted({int(number) for number in numbers if number.isdecimal()} - {*chosen})
    others = [seed for seed in found if is_finished(folder / f"seed-{seed}")]
    return dict.fromkeys(chosen, True) | dict.fromkeys(others, False)


def _plan_run(
    folder: Path,
    name: str,
    recipe: dict[str, Any],
    seed: int,
    after: PlannedRun | None,
    *,
    chosen: bool,
) -> PlannedRun:
    folder = folder / f"seed-{seed}"
    own: dict[str, Any] = {"output_dir": str(folder), "seed": seed}
    if after is not None:
        own["model_name_or_path"] = str(after.folder)
    return PlannedRun("finetune", f"{name}, seed {seed}", folder, recipe | own, after, chosen)


def _check_reference(
    where: str, reference: dict[str, Any] | None, recipe: Mapping[str, Any]
) -> dict[str, float]:
    tasks = recipe.get("tasks")
    known = [*(tasks if isinstance(tasks, dict) else ()), *AGGREGATES]
    for name, value in (reference or {}).items():
        if name not in known:
            raise ValueError(
                f"{where}: reference: unknown {name!r}; expected one of {', '.join(known)}"
            )
        if type(value) not in (int, float) or not -1 <= value <= 1:
            raise ValueError(f"{where}: reference: {name}={value!r}; expected a number in [-1, 1]")
    return {name: float(value) for name, value in (reference or {}).items()}


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _slug(name: str) -> str:
    """Return a folder name; a long one ends with a part of its hash."""
    slug = re.sub(r"[^\w.+=-]+", "-", name).strip("-.")
    if len(slug) <= 100 and slug:
        return slug
    return f"{slug[:90]}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]
