"""Plan the runs of an experiments file."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from minbert_cli.arguments import PretrainArguments
from minbert_cli.recipe import check_disjoint, check_types, override, read_recipe, split_keys
from minbert_cli.recipes import find_recipe
from minbert_cli.run_folder import LOCK_FILE, is_finished
from modeling_minbert import unknown
from trainers.files import INPUT_ERRORS
from trainers.problems.metrics import AGGREGATES

from .experiment_arguments import EXAMPLE, ExperimentArguments, PretrainKeys, RowKeys, check_seeds
from .search.points import Point, Search

PRETRAIN = "pretrain."
# Names in the output folder that are not folders of rows.
TABLES = ("table.md", "table.csv", "table.png", "runs.csv")
RESERVED = (*TABLES, "pretrained", LOCK_FILE)
# Set for every run.
FIXED = ("output_dir", "overwrite_output_dir", "resume_from_checkpoint", "smoke_test")
# Set by the pre-training of a row.
FROM_PRETRAINING = ("model_name_or_path", "model_config")
# Keys of a recipe that a checkpoint to start from replaces, as on the command line of a program.
REPLACED = PretrainArguments.replaced_keys["model_name_or_path"]
# Overrides of all rows that also apply to their pre-training.
SHARED = ("model_name_or_path", "data_dir", "use_cpu", "bf16", "fp16")


@dataclass(frozen=True)
class PlannedRun:
    """A run of a program."""

    program: str  # ``finetune`` or ``pretrain``
    name: str  # in messages and logs
    folder: Path
    recipe: dict[str, Any]
    after: "PlannedRun | None" = None  # pre-training whose weights it starts from
    chosen: bool = True  # runs that were not selected are in the table if they are finished
    trial: tuple[str, str] | None = None  # study and number of the trial that may be pruned
    objective: str | None = None  # of its search, which its results must have


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str  # with the values of a search
    changes: dict[str, Any]  # overrides by dotted paths
    reference: dict[str, float]  # published numbers
    runs: dict[int, PlannedRun]  # by seed


@dataclass(frozen=True)
class RowPlan:
    """A row of a file: every point of its search makes a row of the table."""

    name: str
    keys: RowKeys
    root: Path
    base: str | None
    step: PretrainKeys | None
    general: dict[str, Any]  # overrides of all rows
    own: dict[str, Any]  # overrides of the row
    seeds: Sequence[int]  # selected ones
    search: Search | None

    @property
    def where(self) -> str:
        """The row, for messages."""
        return f"row {self.name!r}"

    @property
    def slug(self) -> str:
        """Name of a file or a folder of the row."""
        return _slug(self.name)

    @property
    def uses_study(self) -> bool:
        """Whether the points are not known before the runs."""
        return self.search is not None and self.search.uses_study

    def at(self, point: Point) -> Row:
        """Plan the row of a point."""
        shown = [f"{path}={_show(value)}" for path, value in point.items()]
        full_name = ", ".join([self.name, *shown])
        folder = self.root / _slug(full_name)
        if folder.name in RESERVED:
            raise ValueError(
                f"{self.where}: the folder {str(folder)!r} is reserved; rename the row"
            )
        changes = self.own | point
        recipe, after = _make_recipes(
            self.where, self.base, self.step, self.general, changes, self.root
        )
        runs = _plan_runs(folder, full_name, recipe, after, self.seeds)
        if self.search is not None:
            objective = self.search.objective
            runs = {seed: replace(run, objective=objective) for seed, run in runs.items()}
        reference = _check_reference(self.where, self.keys.reference, recipe)
        return Row(full_name, changes, reference, runs)

    def rows(self) -> list[Row]:
        """Plan the rows of all points; those of a study are not known."""
        if self.search is None:
            return [self.at({})]
        if self.uses_study:
            return []
        with _named(f"{self.where}: search"):
            points = self.search.points()
        return [self.at(point) for point in points]


def plan_rows(
    arguments: ExperimentArguments,
    flags: Mapping[str, Any] | None = None,
    of_file: Mapping[str, Any] | None = None,
) -> list[Row]:
    """Expand rows of a file to rows of the table with their runs; ``flags`` win over overrides.

    Rows with a study are missing; see `plan_studies`.
    """
    rows: list[Row] = []
    for name, keys in {**(of_file or {}), **arguments.rows}.items():
        # an invalid row matters only if it was selected
        with nullcontext() if name in arguments.rows else suppress(*INPUT_ERRORS):
            rows += plan_row(arguments, flags or {}, name, keys).rows()
    # Finished runs that were not selected are included, so that a partial run keeps the table.
    rows = [row for row in rows if row.runs]
    check_folders(rows)
    return rows


def plan_studies(
    arguments: ExperimentArguments,
    flags: Mapping[str, Any] | None = None,
    of_file: Mapping[str, Any] | None = None,
) -> list[RowPlan]:
    """List the rows whose points a study chooses; those that were not selected have no seeds."""
    plans = []
    for name, keys in {**(of_file or {}), **arguments.rows}.items():
        with nullcontext() if name in arguments.rows else suppress(*INPUT_ERRORS):
            plans.append(plan_row(arguments, flags or {}, name, keys))
    return [plan for plan in plans if plan.uses_study]


def check_folders(rows: Iterable[Row]) -> None:
    """Raise ValueError if two rows would write to the same folder."""
    folders: dict[Path, str] = {}
    for row in rows:
        folder = next(iter(row.runs.values())).folder.parent
        if folder in folders:
            raise ValueError(
                f"rows {folders[folder]!r} and {row.name!r} have the same folder {str(folder)!r}; "
                "rename one"
            )
        folders[folder] = row.name


def plan_row(
    arguments: ExperimentArguments, flags: Mapping[str, Any], name: str, keys: Any
) -> RowPlan:
    """Read the keys of a row."""
    where = f"row {name!r}"
    row: RowKeys = _fill(where, RowKeys, {} if keys is None else keys)
    seeds = arguments.seeds if row.seeds is None else row.seeds
    check_seeds(f"{where}: seeds", seeds)
    step, own = _read_pretrain(where, row)
    search = None if row.search is None else _fill(f"{where}: search", Search, row.search)
    fields = {} if search is None else search.fields
    check_disjoint(where, own, fields, "in the overrides and in the search")
    check_disjoint(where, flags, own | fields, "on the command line and in the row")
    general = {**(arguments.overrides or {}), **flags}
    root, base = Path(arguments.output_dir), row.base or arguments.base
    chosen = seeds if name in arguments.rows else ()
    return RowPlan(name, row, root, base, step, general, own, chosen, search)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Put the place before the message of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _read_pretrain(where: str, row: RowKeys) -> tuple[PretrainKeys | None, dict[str, Any]]:
    """Return the pre-training of a row, and all overrides of the row."""
    own = dict(row.overrides or {})
    if row.pretrain is None:
        return None, own
    step: PretrainKeys = _fill(f"{where}: pretrain", PretrainKeys, row.pretrain)
    theirs = {f"{PRETRAIN}{path}": value for path, value in (step.overrides or {}).items()}
    return step, own | theirs


def _fill(where: str, kind: type, keys: Any) -> Any:
    """Fill a dataclass from a YAML mapping."""
    (given,) = split_keys(where, keys, (kind,))
    check_types(where, kind, given)
    try:
        return kind(**given)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _make_recipes(
    where: str,
    base: str | None,
    step: PretrainKeys | None,
    general: Mapping[str, Any],
    changes: Mapping[str, Any],
    root: Path,
) -> tuple[dict[str, Any], PlannedRun | None]:
    """Apply overrides, of all rows and then of the row, to the recipes of both programs."""
    (ours, theirs), (own, of_pretraining) = _split(general), _split(changes)
    if any(_first(path) == "seed" for path in ours | own):
        raise ValueError(f"{where}: leave out seed; give seeds, as in [1, 2, 3]")
    recipe = _override(where, _read_base(where, base), ours, own)
    if step is None:
        for path in of_pretraining:
            raise ValueError(f"{where}: {PRETRAIN}{path} has no effect without pretrain")
        return recipe, None
    if fixed := [path for path in own if _first(path) in FROM_PRETRAINING]:
        raise ValueError(
            f"{where}: {fixed[0]} is set by its pre-training; write {PRETRAIN}{fixed[0]}"
        )
    recipe = {key: value for key, value in recipe.items() if key not in FROM_PRETRAINING}
    shared = {path: value for path, value in ours.items() if path in SHARED}
    where = f"{where}: pretrain"
    pretraining = _override(where, _read_base(where, step.base), shared | theirs, of_pretraining)
    pretraining.pop("finetune", None)  # the row is the fine-tuning
    text = json.dumps({key: pretraining[key] for key in sorted(pretraining)}, default=str)
    name = f"{_slug(Path(str(step.base)).stem)}-{_digest(text)}"
    folder = root / "pretrained" / name
    pretraining["output_dir"] = str(folder)
    return recipe, PlannedRun("pretrain", f"pre-training {name}", folder, pretraining)


def _override(where: str, recipe: dict[str, Any], *changes: Mapping[str, Any]) -> dict[str, Any]:
    for overrides in changes:
        if fixed := [path for path in overrides if _first(path) in FIXED]:
            raise ValueError(f"{where}: leave out {fixed[0]}; it is set for every run")
        if overrides.get("model_name_or_path") is not None:
            recipe = {key: recipe[key] for key in recipe if key not in REPLACED}
        recipe = override(where, recipe, _select_tasks(where, recipe, overrides))
    return recipe


def _select_tasks(
    where: str, recipe: Mapping[str, Any], overrides: Mapping[str, Any]
) -> dict[str, Any]:
    """Replace the names of tasks, as in ``--tasks sst,sts``, by these tasks of the recipe."""
    names, tasks = overrides.get("tasks"), recipe.get("tasks")
    if not isinstance(names, str) or not isinstance(tasks, dict):
        return dict(overrides)
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in tasks:
            raise ValueError(f"{where}: {unknown('task', name, tasks)}")
    return {**overrides, "tasks": {name: tasks[name] for name in chosen}}


def _first(path: Any) -> str:
    """Return the top-level key of a path."""
    return str(path).partition(".")[0]


def _read_base(where: str, base: str | None) -> dict[str, Any]:
    if base is None:
        raise ValueError(f"{where}: base is missing, as in {EXAMPLE}")
    try:
        path = find_recipe(base)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}: base: {error}") from None
    return {key: value for key, value in read_recipe(path).items() if key not in FIXED}


def _split(overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split overrides between fine-tuning and pre-training."""
    ours, theirs = {}, {}
    for path, value in overrides.items():
        if str(path).startswith(PRETRAIN):
            theirs[str(path).removeprefix(PRETRAIN)] = value
        else:
            ours[path] = value
    return ours, theirs


def _plan_runs(
    root: Path, name: str, recipe: dict[str, Any], after: PlannedRun | None, chosen: Sequence[int]
) -> dict[int, PlannedRun]:
    """Plan the selected seeds, then all finished ones."""
    numbers = [path.name.removeprefix("seed-") for path in root.glob("seed-*")]
    others = sorted({int(number) for number in numbers if number.isdecimal()} - {*chosen})
    finished = [seed for seed in others if is_finished(root / f"seed-{seed}")]
    start = {} if after is None else {"model_name_or_path": str(after.folder)}
    runs = {}
    for seed in (*chosen, *finished):
        folder = root / f"seed-{seed}"
        own = recipe | {"output_dir": str(folder), "seed": seed} | start
        title = f"{name}, seed {seed}"
        runs[seed] = PlannedRun("finetune", title, folder, own, after, seed in chosen)
    return runs


def _check_reference(
    where: str, reference: dict[str, Any] | None, recipe: Mapping[str, Any]
) -> dict[str, float]:
    tasks = recipe.get("tasks")
    known = [*(tasks if isinstance(tasks, dict) else ()), *AGGREGATES]
    reference = reference or {}
    for name, value in reference.items():
        if name not in known:
            raise ValueError(f"{where}: reference: {unknown('name', name, known)}")
        if type(value) not in (int, float) or not -1 <= value <= 1:
            raise ValueError(f"{where}: reference: {name}={value!r}; expected a number in [-1, 1]")
    return {name: float(value) for name, value in reference.items()}


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
