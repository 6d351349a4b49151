"""An experiments file: its keys, and the runs of its rows as command lines of other programs.

A change of a recipe is a flag of ``minbert finetune``, wherever it is written: in the file
(``tasks.sts.loss: mse``), on the command line (``--tasks.sts.loss mse``) or in a search. That
program alone reads it.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from minbert_cli.arguments import check_names
from minbert_cli.launch import smoke_folder
from minbert_cli.recipe import (
    check_disjoint,
    check_types,
    group_flags,
    parse_recipe,
    read_recipe,
    split_argv,
    split_keys,
)
from minbert_cli.recipes import find_recipe
from minbert_cli.run_folder import LOCK_FILE, is_finished
from trainers import INPUT_ERRORS

EXAMPLE = "{plain: {base: sst}}"
LARGEST_SEED = 2**32 - 1  # of numpy
MAX_PROCESSES = MAX_TRIALS = 10_000
PRETRAIN = "pretrain."
# Names in the output folder that are not folders of rows.
TABLES = ("table.md", "table.csv", "table.png", "runs.csv")
RESERVED = (*TABLES, "pretrained", LOCK_FILE)
# Set for every run.
FIXED = ("output_dir", "overwrite_output_dir", "resume_from_checkpoint", "smoke_test")
# Set by the pre-training of a row.
FROM_PRETRAINING = ("model_name_or_path", "model_config")
# Changes of all rows that also apply to their pre-training.
SHARED = ("model_name_or_path", "data_dir", "use_cpu", "bf16", "fp16")

# Words of a command line by key: {"tasks.sts.loss": ['--tasks.sts.loss="mse"']}
Flags = dict[str, list[str]]
Point = dict[str, Any]  # values of searched keys


@dataclass(kw_only=True)
class ExperimentArguments:
    """Keys of an experiments file, and flags of ``minbert experiments``."""

    rows: dict[str, Any] = field(
        metadata={
            "help": "Keys of each row by name; as a flag also the names of rows to run. The table "
            "includes all finished rows."
        }
    )
    output_dir: str = field(metadata={"help": "Folder of the runs and the table."})
    base: str | None = field(default=None, metadata={"help": "Default recipe of the rows."})
    overrides: dict[str, Any] | None = field(
        default=None, metadata={"help": "Changes to all recipes, by dotted paths."}
    )
    seeds: list[int] = field(
        default_factory=lambda: [42],
        metadata={"help": "Seeds of rows without seeds; the table includes all finished seeds."},
    )
    processes: int = field(default=1, metadata={"help": "Processes per run."})
    keep_checkpoints: bool = field(
        default=True, metadata={"help": "Whether finished runs keep their checkpoints."}
    )
    overwrite_output_dir: bool = field(
        default=False,
        metadata={"help": "Whether folders may lose runs with different settings or data."},
    )
    smoke_test: bool = field(
        default=False,
        metadata={
            "help": "Try every row with few rows of data, few steps and one seed, in "
            "<output_dir>-smoke."
        },
    )
    dry_run: bool = field(default=False, metadata={"help": "Check and list the runs, and stop."})

    def __post_init__(self) -> None:
        check_names("rows", self.rows, EXAMPLE)
        _check_seeds("seeds", self.seeds)
        if not self.output_dir:
            raise ValueError("output_dir is empty; name a folder, as in runs/experiments")
        if not 1 <= self.processes <= MAX_PROCESSES:
            raise ValueError(f"processes={self.processes}; expected 1 to {MAX_PROCESSES:,}")


@dataclass(kw_only=True)
class RowKeys:
    """Keys of a row."""

    base: str | None = None  # recipe of ``minbert finetune``
    overrides: dict[str, Any] | None = None  # by dotted paths as in ``tasks.sts.loss``
    seeds: list[int] | None = None  # of the fine-tuning; one run each
    # Keys of a pre-training. Rows and seeds with equal keys share one run, so only fine-tuning
    # varies over the seeds.
    pretrain: dict[str, Any] | None = None
    search: dict[str, Any] | None = None  # keys of a ``Search``
    reference: dict[str, Any] | None = None  # published numbers for tasks and aggregates


@dataclass(kw_only=True)
class PretrainKeys:
    """Keys of the pre-training of a row."""

    base: str | None = None  # recipe of ``minbert pretrain``
    overrides: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Search:
    """The key ``search`` of a row.

    Args:
        fields: Values to try, by key of the recipe or ``pretrain.<key>``: a list, ``{uniform: [low,
            high]}`` or ``{loguniform: [low, high]}``.
        method: ``grid`` for all combinations, ``random`` for independent draws, or ``tpe`` for
            values chosen after the results of earlier trials (Bergstra et al. 2011, section 4).
        trials: Number of trials; not for a grid, whose fields determine it.
        seed: Seed of ``random`` and ``tpe``.
        prune: Whether to stop a trial whose best evaluation so far is below the median of the
            earlier trials at the same evaluation; five trials are never stopped.
        objective: What an evaluation must have, such as ``mean`` or ``sst_accuracy``.
        direction: Whether a higher objective is better (``maximize``) or a lower one.
    """

    fields: dict[str, Any] = field(default_factory=dict)
    method: Literal["grid", "random", "tpe"] = "grid"
    trials: int | None = None
    seed: int = 0
    prune: bool = False
    objective: str = "mean"
    direction: Literal["maximize", "minimize"] = "maximize"

    def __post_init__(self) -> None:
        if not self.fields:
            raise ValueError("fields is empty; expected as in {learning_rate: [1e-5, 3e-5]}")
        for name, values in self.fields.items():
            _check_values(name, values)
        if self.method != "grid":
            if self.trials is None or not 1 <= self.trials <= MAX_TRIALS:
                raise ValueError(
                    f"trials={self.trials}; expected an integer from 1 to {MAX_TRIALS:,}"
                )
            return
        if self.trials is not None:
            raise ValueError(
                f"trials={self.trials}, but a grid tries all combinations; leave it out, or use "
                "method: random or tpe"
            )
        for name, values in self.fields.items():
            if isinstance(values, dict):
                raise ValueError(  # noqa: TRY004  the value of a user is wrong
                    f"fields: {name}={values!r} is a range, but a grid needs lists of values; use "
                    "method: random or tpe"
                )
        if self.size > MAX_TRIALS:
            raise ValueError(f"grid has {self.size:,} points; expected at most {MAX_TRIALS:,}")

    @property
    def size(self) -> int:
        """Number of trials."""
        size = 1
        for values in self.fields.values():
            size *= len(values)
        return size if self.trials is None else self.trials

    def extremes(self) -> list[Point]:
        """List points that together have every choice and both ends of every range."""
        values = {
            name: next(iter(value.values())) if isinstance(value, dict) else value
            for name, value in self.fields.items()
        }
        most = max(map(len, values.values()))
        return [
            {name: choices[number % len(choices)] for name, choices in values.items()}
            for number in range(most)
        ]


@dataclass(frozen=True)
class PlannedRun:
    """A run of ``finetune`` or ``pretrain``."""

    program: str
    name: str  # in messages
    folder: Path
    words: list[str]  # of the command line: a recipe and flags
    after: "PlannedRun | None" = None  # pre-training whose weights it starts from
    chosen: bool = True  # runs that were not selected are in the table if they are finished
    expected: tuple[str, ...] = ()  # names of tasks and aggregates that a reference has
    objective: str | None = None  # of its search, which its results must have
    trial: tuple[str, str] | None = None  # file of a study, and number of the trial to prune


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
    root: Path
    base: Path
    flags: Flags  # of the fine-tuning
    changes: dict[str, Any]  # of the row alone, for the table
    seeds: Sequence[int]  # selected ones
    search: Search | None = None
    reference: dict[str, float] = field(default_factory=dict)
    pretraining: tuple[Path, Flags] | None = None  # its recipe and flags
    smoke_test: bool = False

    @property
    def folder(self) -> Path:
        """Folder of the runs."""
        return self.root / slug(self.name)

    @property
    def known_search(self) -> Search:
        """The search of a row that has one."""
        if self.search is None:
            raise ValueError(f"row {self.name!r} has no search")
        return self.search

    def examples(self) -> list[Row]:
        """Plan rows that together have every choice and both ends of every range."""
        points = self.known_search.extremes()
        return [self.at(point, f"example-{place}") for place, point in enumerate(points)]

    def at(self, point: Point, trial: int | str | None = None) -> Row:
        """Plan the runs with the values of a search, in the folder of a trial."""
        shown = [f"{key}={show(value)}" for key, value in point.items()]
        name = ", ".join([self.name, *shown])
        folder = self.folder if trial is None else self.folder / f"trial-{trial}"
        ours, theirs = _split(point)
        flags = self.flags | to_flags(ours)
        after = self._pretrain(theirs)
        if after is not None:
            flags |= to_flags({"model_name_or_path": str(after.folder)})
        seeds = [path.name.removeprefix("seed-") for path in folder.glob("seed-*")]
        others = sorted({int(seed) for seed in seeds if seed.isdecimal()} - {*self.seeds})
        finished = [seed for seed in others if is_finished(folder / f"seed-{seed}")]
        runs = {}
        for seed in (*self.seeds, *finished):
            place, words = self._fix(folder / f"seed-{seed}", self.base, flags, {"seed": seed})
            runs[seed] = PlannedRun(
                "finetune",
                f"{name}, seed {seed}",
                place,
                words,
                after,
                chosen=seed in self.seeds,
                expected=tuple(self.reference),
                objective=None if self.search is None else self.search.objective,
            )
        return Row(name, self.changes | point, self.reference, runs)

    def _pretrain(self, point: Mapping[str, Any]) -> PlannedRun | None:
        if self.pretraining is None:
            return None
        base, flags = self.pretraining
        flags = flags | to_flags(point)
        text = json.dumps([str(base), *(flags[key] for key in sorted(flags))])
        name = f"{slug(base.stem)}-{_digest(text)}"
        # the row is the fine-tuning
        folder, words = self._fix(self.root / "pretrained" / name, base, flags, {"finetune": None})
        return PlannedRun("pretrain", f"pre-training {name}", folder, words)

    def _fix(
        self, folder: Path, base: Path, flags: Flags, more: Mapping[str, Any]
    ) -> tuple[Path, list[str]]:
        """Return the folder and the command line of a run; a smoke test moves its own folder."""
        fixed = {"output_dir": str(folder), "smoke_test": self.smoke_test, **more}
        words = [word for part in (flags | to_flags(fixed)).values() for word in part]
        return Path(smoke_folder(folder)) if self.smoke_test else folder, [str(base), *words]


def read_file(
    argv: Sequence[str], default: str | Path | None = None
) -> tuple[ExperimentArguments, list[RowPlan]]:
    """Read ``[FILE] [--flag value ...]``, and plan the rows of the file.

    Flags that are not those of ``ExperimentArguments`` go to the runs as they are. Rows that were
    not selected have no seeds, and are there for what is finished of them.
    """
    path, rest = split_argv(argv, default)
    own: list[str] = [] if path is None else [str(path)]
    flags: dict[str, list[str]] = {}
    names = ["help", *(entry.name for entry in fields(ExperimentArguments))]
    for words in group_flags(rest):
        first, *others = words[0].partition("=")[0].removeprefix("--").split(".")
        key = ".".join([first.replace("-", "_"), *others])
        if not words[0].startswith("--") or key in names:
            own += words
        else:
            flags.setdefault(key, []).extend(words)
    (arguments,) = parse_recipe((ExperimentArguments,), own)
    if arguments.smoke_test:
        arguments.output_dir = smoke_folder(arguments.output_dir)
    rows = arguments.rows
    listed = None if path is None else read_recipe(Path(path)).get("rows")
    if isinstance(listed, dict) and all(listed.get(name, ()) == rows[name] for name in rows):
        check_names("rows", listed, EXAMPLE)
        rows = listed
    plans: dict[Path, RowPlan] = {}
    for name, keys in rows.items():
        # an invalid row matters only if it was selected
        with nullcontext() if name in arguments.rows else suppress(*INPUT_ERRORS):
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
    row: RowKeys = _fill(where, RowKeys, {} if keys is None else keys)
    seeds = arguments.seeds if row.seeds is None else row.seeds
    _check_seeds(f"{where}: seeds", seeds)
    search = None if row.search is None else _fill(f"{where}: search", Search, row.search)
    step = None if row.pretrain is None else _fill(f"{where}: pretrain", PretrainKeys, row.pretrain)
    changes = dict(row.overrides or {})
    if step is not None:
        changes |= {f"{PRETRAIN}{key}": value for key, value in (step.overrides or {}).items()}
    searched = {} if search is None else search.fields
    check_disjoint(where, changes, searched, "in the overrides and in the search")
    check_disjoint(where, flags, changes | searched, "on the command line and in the row")
    _check_keys(where, [*(arguments.overrides or {}), *flags, *changes, *searched], step)

    ours, theirs = _split(arguments.overrides or {})
    _check_parts(where, ours, [*flags, *changes, *searched])
    own, own_theirs = _split(changes)
    general = to_flags(ours) | {key: flags[key] for key in flags if not key.startswith(PRETRAIN)}
    merged, pretraining = general | to_flags(own), None
    if step is not None:
        for key in (*changes, *searched):
            if key.split(".")[0] in FROM_PRETRAINING:
                raise ValueError(
                    f"{where}: {key} is set by its pre-training; write {PRETRAIN}{key}"
                )
        merged = {key: merged[key] for key in merged if key.split(".")[0] not in FROM_PRETRAINING}
        typed = {
            key.removeprefix(PRETRAIN): [word.replace(f"--{PRETRAIN}", "--", 1) for word in words]
            for key, words in flags.items()
            if key.startswith(PRETRAIN)
        }
        shared = {key: general[key] for key in SHARED if key in general}
        before = shared | to_flags(theirs) | typed | to_flags(own_theirs)
        pretraining = _find_base(f"{where}: pretrain", step.base), before
    reference = row.reference or {}
    for key, value in reference.items():
        if type(value) not in (int, float) or not -1 <= value <= 1:
            raise ValueError(f"{where}: reference: {key}={value!r}; expected a number in [-1, 1]")
    plan = RowPlan(
        name,
        Path(arguments.output_dir),
        _find_base(where, row.base or arguments.base),
        merged,
        changes,
        # a smoke test needs one seed
        seeds[: 1 if arguments.smoke_test else None] if name in arguments.rows else (),
        search,
        {key: float(value) for key, value in reference.items()},
        pretraining,
        arguments.smoke_test,
    )
    if plan.folder.name in RESERVED:
        raise ValueError(f"{where}: the folder {str(plan.folder)!r} is reserved; rename the row")
    return plan


def to_flags(changes: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Return the flags that give these values to keys of a recipe, by key."""
    flags = {}
    for key, value in (changes or {}).items():
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


def _fill(where: str, kind: type, keys: Any) -> Any:
    """Fill a dataclass from a YAML mapping."""
    (values,) = split_keys(where, keys, (kind,))
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


def _check_keys(where: str, keys: Sequence[str], step: PretrainKeys | None) -> None:
    """Check that no key is changed that the campaign sets, or that has no effect."""
    for key in keys:
        path = key.removeprefix(PRETRAIN)
        first = path.split(".")[0]
        if not all(path.split(".")):
            raise ValueError(f"{where}: {key!r} is not a path; expected one like tasks.sts.loss")
        if first == "seed" and path == key:
            raise ValueError(f"{where}: leave out seed; give seeds, as in [1, 2, 3]")
        if first in FIXED:
            raise ValueError(f"{where}: leave out {path}; it is set for every run")
        if path != key and step is None:
            raise ValueError(f"{where}: {key} has no effect without pretrain")


def _split(changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split changes between fine-tuning and pre-training."""
    ours = {key: changes[key] for key in changes if not str(key).startswith(PRETRAIN)}
    theirs = {str(key).removeprefix(PRETRAIN): changes[key] for key in changes if key not in ours}
    return ours, theirs


def _check_parts(where: str, whole: Mapping[str, Any], parts: Sequence[str]) -> None:
    """Check that no value that replaces a mapping hides a change of its part."""
    for key in parts:
        if replaced := [other for other in whole if key.startswith(f"{other}.")]:
            raise ValueError(
                f"{where}: {key} would have no effect, since the overrides of all rows set "
                f"{replaced[0]} as a whole; write it there"
            )


def _check_seeds(where: str, seeds: Any) -> None:
    """Check that seeds are distinct integers that numpy accepts."""
    if not seeds or any(type(seed) is not int or not 0 <= seed <= LARGEST_SEED for seed in seeds):
        raise ValueError(
            f"{where}={seeds!r}; expected integers from 0 to 2**32 - 1, as in [1, 2, 3]"
        )
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}={seeds!r}; give each seed once")


def _check_values(name: str, values: Any) -> None:
    """Check the values to try of a field."""
    if isinstance(values, list):
        if not values or any(isinstance(value, (list, dict)) for value in values):
            raise ValueError(
                f"fields: {name}={values!r}; expected texts, numbers, booleans or null, as in "
                "[1e-5, 3e-5]; a field inside a mapping has a dotted path, as in smart.weight"
            )
        if twice := [value for place, value in enumerate(values) if value in values[:place]]:
            raise ValueError(f"fields: {name} has {twice[0]!r} twice; give each value once")
        return
    if not isinstance(values, dict) or list(values) not in (["uniform"], ["loguniform"]):
        raise ValueError(
            f"fields: {name}={values!r}; expected a list of values, {{uniform: [low, high]}} or "
            "{loguniform: [low, high]}"
        )
    ((kind, ends),) = values.items()
    lowest, above = (0.0, " above 0") if kind == "loguniform" else (float("-inf"), "")
    is_pair = isinstance(ends, list) and [type(end) in (int, float) for end in ends] == [True] * 2
    if not is_pair or not lowest < ends[0] < ends[1] < float("inf"):
        raise ValueError(
            f"fields: {name}: {kind}={ends!r}; expected [low, high]: two numbers{above}, the lower "
            "one first"
        )
