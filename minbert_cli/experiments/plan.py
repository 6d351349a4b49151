"""An experiments file: its keys, and the runs of its rows as command lines of other programs.

A change of a recipe is a flag of ``minbert finetune``, wherever it is written: in the file
(``tasks.sts.loss: mse``), on the command line (``--tasks.sts.loss mse``) or in a search. That
program alone reads it.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from minbert_cli.arguments import check_names
from minbert_cli.recipe import (
    check_disjoint,
    check_types,
    group_flags,
    parse_recipe,
    split_argv,
    split_keys,
)
from minbert_cli.recipes import find_recipe
from minbert_cli.run_folder import LOCK_FILE
from minbert_cli.training import recipe_tasks

EXAMPLE = "{plain: {base: sst}}"
LARGEST_SEED = 2**32 - 1  # of numpy
MAX_PROCESSES = MAX_TRIALS = 10_000
# Names in the output folder that are not folders of rows.
TABLES = ("table.md", "table.csv", "table.html", "runs.csv")
RESERVED = (*TABLES, "pretrained", LOCK_FILE)
IS_SET = "it is set for every run"
# Keys that a row cannot change, and why.
FIXED = {
    "output_dir": IS_SET,
    "overwrite_output_dir": IS_SET,
    "resume_from_checkpoint": IS_SET,
    "seed": "give seeds, as in [1, 2, 3]",
    "pretrain": "a row names its pre-training, as in {pretrain: {base: mlm, overrides: {...}}}",
}
# Set by the pre-training of a row.
FROM_PRETRAINING = ("model_name_or_path", "model_config")
# Changes of all rows that also apply to their pre-training.
SHARED = ("model_name_or_path", "data_dir", "use_cpu", "bf16", "fp16")

# "changed": has other settings or data, and may be overwritten
State = Literal["new", "unfinished", "changed", "done", "failed"]
States = dict[Path, State]  # by the folder of the run
# Words of a command line by key: {"tasks.sts.loss": ['--tasks.sts.loss="mse"']}
Flags = dict[str, list[str]]
Point = dict[str, Any]  # values of searched keys


@dataclass(kw_only=True)
class ExperimentArguments:
    """Keys of an experiments file, and flags of ``minbert experiments``."""

    rows: dict[str, Any] = field(
        metadata={
            "help": "Keys of each row by name; as a flag also names of rows, whose table then has "
            "these, in this order."
        }
    )
    output_dir: str = field(metadata={"help": "Folder of the runs and the table."})
    base: str | None = field(default=None, metadata={"help": "Default recipe of the rows."})
    overrides: dict[str, Any] | None = field(
        default=None, metadata={"help": "Changes to all recipes, by dotted paths."}
    )
    seeds: list[int] = field(
        default_factory=lambda: [42], metadata={"help": "Seeds of rows without seeds."}
    )
    processes: int = field(default=1, metadata={"help": "Processes per run."})
    keep_checkpoints: bool = field(
        default=True, metadata={"help": "Whether finished runs keep their checkpoints."}
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Whether folders may lose runs with different settings or data."},
    )
    dry_run: bool = field(default=False, metadata={"help": "Check and list the runs, and stop."})

    def __post_init__(self) -> None:
        check_names("rows", self.rows, EXAMPLE)
        _check_seeds(self.seeds)
        if not self.output_dir:
            raise ValueError("output_dir is empty; name a folder, as in runs/experiments")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise ValueError(f"processes={self.processes}; expected 1 to {MAX_PROCESSES:,}")


@dataclass(kw_only=True)
class PretrainKeys:
    """Keys of the pre-training of a row.

    Rows and seeds with equal keys share one run, so only fine-tuning varies over the seeds.
    """

    base: str | None = None  # recipe
    overrides: dict[str, Any] | None = None  # by dotted paths as in ``tasks.sts.loss``


@dataclass(kw_only=True)
class RowKeys(PretrainKeys):
    """Keys of a row."""

    seeds: list[int] | None = None  # one run each
    pretrain: dict[str, Any] | None = None  # keys of ``PretrainKeys``
    search: dict[str, Any] | None = None  # keys of a ``Search``
    reference: dict[str, Any] | None = None  # published numbers for tasks and aggregates

    def __post_init__(self) -> None:
        if self.seeds is not None:
            _check_seeds(self.seeds)
        for key, value in (self.reference or {}).items():
            if type(value) not in (int, float) or not -1 <= value <= 1:
                raise ValueError(f"reference: {key}={value!r}; expected a number in [-1, 1]")


@dataclass(frozen=True, kw_only=True)
class Search:
    """The key ``search`` of a row.

    Args:
        fields: Values to try, by key of the recipe: a list, ``{uniform: [low, high]}`` or
            ``{loguniform: [low, high]}``.
        method: ``grid`` for all combinations, ``random`` for independent draws, or ``tpe`` for
            values chosen after the results of earlier trials (Bergstra et al. 2011, section 4).
        trials: Number of trials; not for a grid, whose fields determine it.
        seed: Seed of ``random`` and ``tpe``.
        objective: What an evaluation must have, such as ``mean`` or ``sst_accuracy``.
        direction: Whether a higher objective is better (``maximize``) or a lower one.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    method: Literal["grid", "random", "tpe"] = "grid"
    trials: int | None = None
    seed: int = 0
    objective: str = "mean"
    direction: Literal["maximize", "minimize"] = "maximize"

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("fields is empty; expected as in {learning_rate: [1e-5, 3e-5]}")
        for name, values in self.fields.items():
            _check_values(name, values, is_grid=self.method == "grid")
        if self.method != "grid":
            if self.trials is None or not 1 <= self.trials <= MAX_TRIALS:
                raise ValueError(
                    f"trials={self.trials}; expected an integer from 1 to {MAX_TRIALS:,}"
                )
        elif self.trials is not None:
            raise ValueError(
                f"trials={self.trials}, but a grid tries all combinations; leave it out, or use "
                "method: random or tpe"
            )
        elif self.size > MAX_TRIALS:
            raise ValueError(f"grid has {self.size:,} points; expected at most {MAX_TRIALS:,}")

    @property
    def size(self) -> int:
        """Number of trials."""
        return self.trials or math.prod(map(len, self.fields.values()))


@dataclass(frozen=True)
class PlannedRun:
    """A run of ``finetune`` or ``pretrain``."""

    program: str
    name: str  # in messages
    folder: Path
    words: list[str]  # of the command line: a recipe and flags
    after: "PlannedRun | None" = None  # pre-training whose weights it starts from
    expected: tuple[str, ...] = ()  # names of tasks and aggregates that a reference has
    objective: str | None = None  # of its search, which its results must have


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str  # with the values of a search
    changes: dict[str, Any]
    reference: dict[str, float]  # published numbers
    runs: dict[int, PlannedRun]  # by seed


@dataclass(frozen=True)
class RowPlan:
    """A row of a file: every trial of its search makes a row of the table."""

    name: str
    folder: Path
    base: Path
    flags: Flags  # of the fine-tuning
    changes: dict[str, Any]  # of the row alone, for the table
    seeds: Sequence[int]
    search: Search | None = None
    reference: dict[str, float] = field(default_factory=dict)
    after: PlannedRun | None = None

    def examples(self) -> list[Row]:
        """Plan rows that together have every choice and both ends of every range of the search.

        Without a search there is one row.
        """
        if self.search is None:
            return [self.at({})]
        values = {
            name: next(iter(choices.values())) if isinstance(choices, dict) else choices
            for name, choices in self.search.fields.items()
        }
        return [
            self.at(
                {name: choices[place % len(choices)] for name, choices in values.items()},
                f"example-{place}",
            )
            for place in range(max(map(len, values.values())))
        ]

    def at(self, point: Point, trial: int | str | None = None) -> Row:
        """Plan the runs with the values of a search, in the folder of a trial."""
        name = ", ".join([self.name, *(f"{key}={show(value)}" for key, value in point.items())])
        folder = self.folder if trial is None else self.folder / f"trial-{trial}"
        objective = None if self.search is None else self.search.objective
        runs = {}
        for seed in self.seeds:
            place = folder / f"seed-{seed}"
            flags = self.flags | to_flags({**point, "seed": seed})
            words = _make_command(place, self.base, flags)
            runs[seed] = PlannedRun(
                "finetune",
                f"{name}, seed {seed}",
                place,
                words,
                self.after,
                tuple(self.reference),
                objective,
            )
        return Row(name, self.changes | point, self.reference, runs)


def read_file(
    argv: Sequence[str], default: str | Path | None = None
) -> tuple[ExperimentArguments, list[RowPlan]]:
    """Read ``[FILE] [--flag value ...]``, and plan the selected rows of the file.

    Flags that are not those of ``ExperimentArguments`` go to the runs as they are.
    """
    path, rest = split_argv(argv, default)
    ours: list[str] = [] if path is None else [str(path)]
    flags: Flags = {}
    names = ["help", *(entry.name for entry in fields(ExperimentArguments))]
    for words in group_flags(rest):
        first, *others = words[0].partition("=")[0].removeprefix("--").split(".")
        key = ".".join([first.replace("-", "_"), *others])
        if not words[0].startswith("--") or key in names:
            ours += words
        else:
            flags.setdefault(key, []).extend(words)
    (arguments,) = parse_recipe((ExperimentArguments,), ours)
    plans: dict[Path, RowPlan] = {}
    for name, keys in arguments.rows.items():
        plan = plan_row(arguments, flags, name, keys)
        if plan.folder in plans:
            raise ValueError(
                f"rows {plans[plan.folder].name!r} and {name!r} have the same folder "
                f"{str(plan.folder)!r}; rename one"
            )
        plans[plan.folder] = plan
    return arguments, list(plans.values())


def plan_row(arguments: ExperimentArguments, flags: Flags, name: str, keys: Any) -> RowPlan:
    """Read and check the keys of a row."""
    where = f"row {name!r}"
    row: RowKeys = _fill(where, RowKeys, keys)
    search = None if row.search is None else _fill(f"{where}: search", Search, row.search)
    changes = row.overrides or {}
    searched = {} if search is None else search.fields
    check_disjoint(where, changes, searched, "in the overrides and in the search")
    check_disjoint(where, flags, changes | searched, "on the command line and in the row")
    general = arguments.overrides or {}
    _check_keys(where, [*general, *flags, *changes, *searched], general)
    shared = to_flags(general) | flags
    merged = shared | to_flags(changes)
    after = None
    if row.pretrain is not None:
        for key in (*changes, *searched):
            if key.split(".")[0] in FROM_PRETRAINING:
                raise ValueError(
                    f"{where}: {key} is set by its pre-training; write it into the overrides of "
                    "pretrain"
                )
        after = plan_pretraining(arguments, shared, f"{where}: pretrain", row.pretrain)
        merged = {key: merged[key] for key in merged if key.split(".")[0] not in FROM_PRETRAINING}
        merged |= to_flags({"model_name_or_path": str(after.folder)})
    folder = Path(arguments.output_dir) / slug(name)
    if folder.name in RESERVED:
        raise ValueError(f"{where}: the folder {str(folder)!r} is reserved; rename the row")
    seeds = arguments.seeds if row.seeds is None else row.seeds
    return RowPlan(
        name,
        folder,
        _find_base(where, row.base or arguments.base),
        merged,
        changes,
        seeds,
        search,
        {key: float(value) for key, value in (row.reference or {}).items()},
        after,
    )


def plan_pretraining(
    arguments: ExperimentArguments, flags: Flags, where: str, keys: dict[str, Any]
) -> PlannedRun:
    """Read and check the keys of the pre-training of a row; ``flags`` are those of all rows."""
    step = _fill(where, PretrainKeys, keys)
    overrides = step.overrides or {}
    _check_keys(where, [key for key in overrides if key != "seed"], overrides)
    base = _find_base(where, step.base)
    flags = {key: flags[key] for key in SHARED if key in flags} | to_flags(overrides)
    digest = _digest(json.dumps([str(base), *(flags[key] for key in sorted(flags))]))
    title = f"{slug(base.stem)}-{digest}"
    folder = Path(arguments.output_dir) / "pretrained" / title
    # the row is the fine-tuning
    words = _make_command(folder, base, flags | to_flags({"finetune": None}))
    return PlannedRun("pretrain", f"pre-training {title}", folder, words)


def list_labeled(settings: Mapping[str, Any]) -> dict[str, recipe_tasks.RecipeTask]:
    """Return the labeled tasks of the settings of a run, in their order."""
    tasks: dict[str, Any] = settings.get("tasks") or {}
    ordered = {name: tasks[name] for name in settings.get("task_order", tasks)}  # JSON sorts them
    return recipe_tasks.parse_labeled(ordered, settings["data_dir"])


def to_flags(changes: Mapping[str, Any]) -> Flags:
    """Return the flags that give these values to keys of a recipe, by key."""
    flags = {}
    for key, value in changes.items():
        if "." in str(key):  # read as YAML
            flags[str(key)] = [f"--{key}={json.dumps(value, ensure_ascii=False)}"]
        elif isinstance(value, list):
            flags[str(key)] = [f"--{key}", *map(show, value)]
        else:
            flags[str(key)] = [f"--{key}={show(value)}"]
    return flags


def show(value: Any) -> str:
    """Show a value without the quotes of a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def slug(name: str) -> str:
    """Return a name for a file; a long one ends with a part of its hash."""
    short = re.sub(r"[^\w.+=-]+", "-", name).strip("-.")
    return short if 0 < len(short) <= 100 else f"{short[:90]}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _make_command(folder: Path, base: Path, flags: Flags) -> list[str]:
    flags = flags | to_flags({"output_dir": str(folder)})
    return [str(base), *(word for part in flags.values() for word in part)]


def _fill(where: str, kind: type, keys: Any) -> Any:
    """Fill a dataclass from a YAML mapping; None has no keys."""
    (values,) = split_keys(where, {} if keys is None else keys, (kind,))
    check_types(where, kind, values)
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None


def _find_base(where: str, base: str | None) -> Path:
    if base is None:
        raise ValueError(f"{where}: base is missing, as in {EXAMPLE}")
    try:
        return find_recipe(base)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{where}: base: {error}") from None


def _check_keys(where: str, keys: Iterable[str], overrides: Iterable[str]) -> None:
    """Check that keys are paths and have an effect: that nothing else sets them."""
    for key in keys:
        first, *others = str(key).split(".")
        if not all((first, *others)):
            raise ValueError(f"{where}: {key!r} is not a path; expected one like tasks.sts.loss")
        if first in FIXED:
            raise ValueError(f"{where}: leave out {key}; {FIXED[first]}")
        if replaced := [other for other in overrides if str(key).startswith(f"{other}.")]:
            raise ValueError(
                f"{where}: {key} would have no effect, since the overrides set "
                f"{replaced[0]} as a whole; write it there"
            )


def _check_seeds(seeds: list[int]) -> None:
    """Check that seeds are distinct integers that numpy accepts."""
    if not seeds or any(type(seed) is not int or not 0 <= seed <= LARGEST_SEED for seed in seeds):
        raise ValueError(f"seeds={seeds!r}; expected integers from 0 to 2**32 - 1, as in [1, 2, 3]")
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds={seeds!r}; give each seed once")


def _check_values(name: str, values: Any, *, is_grid: bool) -> None:
    """Check the values to try of a field."""
    where = f"fields: {name}"
    if isinstance(values, list):
        if not values or any(isinstance(value, (list, dict)) for value in values):
            raise ValueError(
                f"{where}={values!r}; expected texts, numbers, booleans or null, as in "
                "[1e-5, 3e-5]; a field inside a mapping has a dotted path, as in smart.weight"
            )
        if twice := [value for place, value in enumerate(values) if value in values[:place]]:
            raise ValueError(f"{where} has {twice[0]!r} twice; give each value once")
        return
    if not isinstance(values, dict) or list(values) not in (["uniform"], ["loguniform"]):
        raise ValueError(
            f"{where}={values!r}; expected a list of values, {{uniform: [low, high]}} or "
            "{loguniform: [low, high]}"
        )
    ((kind, ends),) = values.items()
    lowest, above = (0.0, " above 0") if kind == "loguniform" else (-math.inf, "")
    is_pair = isinstance(ends, list) and [type(end) in (int, float) for end in ends] == [True] * 2
    if not is_pair or not lowest < ends[0] < ends[1] < math.inf:
        raise ValueError(
            f"{where}: {kind}={ends!r}; expected [low, high]: two numbers{above}, the lower one "
            "first"
        )
    if is_grid:
        raise ValueError(
            f"{where}={values!r} is a range, but a grid needs lists of values; use method: random "
            "or tpe"
        )
