"""An experiments file: its keys, and the recipe of each of its runs.

A change is a key of a recipe with its value, as ``tasks.sts.loss: mse`` in the file, or
``--tasks.sts.loss mse`` on the command line, where flags that are not those of
``ExperimentArguments`` change every row; of its pre-training only the keys of `SHARED`.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

from datasets_scripts.checking import Text, check_keys, number, option
from minbert_cli.arguments import ProgramTrainingArguments, check_names
from minbert_cli.recipe import (
    Keys,
    by_depth,
    drop_replaced,
    expand_paths,
    fill_arguments,
    group_flags,
    override,
    read_flag,
    read_recipe,
)
from minbert_cli.recipes import RECIPES, check_program, find_recipe, split_argv
from minbert_cli.run_folder import LOCK_FILE
from minbert_cli.text_tasks import PretrainArguments
from trainers.problems.metrics import AGGREGATES

QUICKSTART = RECIPES / "experiments" / "quickstart.yaml"
EXAMPLE = "{plain: {base: sst}}"
LARGEST_SEED = 2**32 - 1  # of numpy
# Names in the output folder that are not folders of rows.
TABLES = ("table.md", "table.html")
RESERVED = (*TABLES, "pretrained", LOCK_FILE)
FIXED = ("output_dir", "resume_from_checkpoint", "seed")  # keys that a row cannot change
# Set by the pre-training of a row.
FROM_PRETRAINING = ("model_name_or_path", "model_config", "revision")
# What changes all rows and also their pre-training.
SHARED = ("model_name_or_path", "revision", "data_dir", "use_cpu", "bf16", "fp16")

State = Literal["new", "unfinished", "done", "failed"]
States = dict[Path, State]  # by the folder of the run
Score = Annotated[float, number("a number in [-1, 1]", lambda score: -1 <= score <= 1)]


def to_seeds(value: object) -> list[int]:
    """Check seeds."""
    seeds = value if isinstance(value, list) else []
    fit = [type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in seeds]
    if not seeds or not all(fit) or len(set(seeds)) < len(seeds):
        raise ValueError("expected integers from 0 to 2**32 - 1, each once, as in [1, 2, 3]")
    return seeds


Seeds = Annotated[list[int], to_seeds]


@dataclass(kw_only=True)
class ExperimentArguments:
    """Keys of an experiments file, and flags of ``minbert experiments``."""

    rows: Keys = option(
        description="Keys of each row by name; as a flag also names of rows, whose table then has "
        "these, in this order."
    )
    output_dir: Text = option(description="Folder of the runs and the table.")
    base: str | None = option(None, "Default recipe of the rows.")
    overrides: Keys | None = option(None, "Changes to the recipes of all rows, by dotted paths.")
    seeds: Seeds = field(
        default_factory=lambda: [42],
        metadata={"help": "Seeds of rows without seeds; as a flag, of all rows."},
    )
    keep_checkpoints: bool = option(True, "Whether finished runs keep their checkpoints.")
    dry_run: bool = option(False, "Check and list the runs, and stop.")

    def __post_init__(self) -> None:
        check_names("rows", self.rows, EXAMPLE)


# Keys of the pre-training of a row. Rows and seeds with equal keys share one run, so only
# fine-tuning varies over the seeds.
PRETRAIN_KEYS: dict[str, Any] = {
    "base": str | None,  # recipe
    "overrides": Keys | None,  # by dotted paths as in ``tasks.sts.loss``
}
ROW_KEYS: dict[str, Any] = {
    **PRETRAIN_KEYS,
    "seeds": Seeds | None,  # one run each
    "pretrain": Keys | None,
    "reference": Keys | None,  # published numbers for tasks and aggregates
}


@dataclass(frozen=True)
class PlannedRun:
    """A run of ``finetune`` or ``pretrain``."""

    program: str
    name: str  # in messages
    folder: Path
    recipe: Keys
    after: "PlannedRun | None" = None  # pre-training whose weights it starts from


@dataclass(frozen=True)
class Row:
    """A row of the table."""

    name: str
    reference: dict[str, float]  # published numbers
    runs: dict[int, PlannedRun]  # by seed


def read_file(argv: Sequence[str]) -> tuple[ExperimentArguments, list[Row]]:
    """Read ``[FILE] [--flag value ...]``, and plan the selected rows of the file."""
    path, rest = split_argv(argv, QUICKSTART)
    recipe = read_recipe(path)
    check_program(recipe, path, "experiments")
    ours: list[str] = []
    flags: Keys = {}  # changes of every run
    names = [entry.name for entry in fields(ExperimentArguments)]
    for flag, words in group_flags(rest).items():
        if flag[2:] in names:
            ours += [flag, *words]
        else:
            flags[flag[2:]] = read_flag(flag, words)
    (arguments,) = fill_arguments((ExperimentArguments,), recipe, ours, where=path)
    flags = expand_paths(flags)
    rows: dict[str, Row] = {}
    for name, keys in arguments.rows.items():
        folder = slug(name)
        if folder in (*RESERVED, *rows):
            raise ValueError(
                f"row {name!r}: its folder {folder!r} is reserved or that of another row; rename it"
            )
        rows[folder] = plan_row(arguments, flags, name, keys, all_seeds="--seeds" in ours)
    return arguments, list(rows.values())


def plan_row(
    arguments: ExperimentArguments, flags: Keys, name: str, keys: Keys | None, *, all_seeds: bool
) -> Row:
    """Read and check the keys of a row; ``all_seeds`` says that its own seeds do not count."""
    where = f"row {name!r}"
    (row,) = check_keys(where, {} if keys is None else keys, ROW_KEYS)
    general, changes = arguments.overrides or {}, row.get("overrides") or {}
    _check_keys(where, [*general, *flags, *changes])
    check_disjoint(where, flags, changes)
    recipe = read_recipe(_find_base(where, row.get("base") or arguments.base))
    for part in (general, flags, changes):
        recipe = _change(where, recipe, part)
    after = None
    if (pretraining := row.get("pretrain")) is not None:
        for key in [*general, *flags, *changes]:
            first = str(key).split(".")[0]
            if first in FROM_PRETRAINING and (first not in SHARED or key in changes):
                raise ValueError(
                    f"{where}: {key} is set by its pre-training; write it into the overrides of "
                    "pretrain, and of each row without one"
                )
        after = plan_pretraining(
            f"{where}: pretrain", general | flags, pretraining, arguments.output_dir, recipe
        )
        recipe = _change(where, recipe, {"model_name_or_path": str(after.folder)})
    scores = dict.fromkeys([*(recipe.get("tasks") or ()), *AGGREGATES], Score)
    (reference,) = check_keys(f"{where}: reference", row.get("reference") or {}, scores)
    runs = {}
    own = None if all_seeds else row.get("seeds")
    for seed in own or arguments.seeds:
        folder = Path(arguments.output_dir, slug(name), f"seed-{seed}")
        of_seed = {**recipe, "seed": seed, "output_dir": str(folder)}
        runs[seed] = PlannedRun("finetune", f"{name}, seed {seed}", folder, of_seed, after)
    return Row(name, reference, runs)


def plan_pretraining(
    where: str, general: Keys, keys: Keys, output_dir: str, row: Keys
) -> PlannedRun:
    """Read and check the keys of the pre-training of a row, which has the changes of all rows.

    A revision among these, ``general``, is that of the model of the recipe of the row.
    """
    (step,) = check_keys(where, keys, PRETRAIN_KEYS)
    changes = step.get("overrides") or {}
    _check_keys(where, [key for key in changes if key != "seed"])
    base = _find_base(where, step.get("base"))
    recipe = read_recipe(base)
    shared = {key: general[key] for key in SHARED if key in general and key != "revision"}
    recipe = _change(where, _change(where, recipe, shared), changes)
    start = row.get("model_name_or_path")
    is_same = start is not None and recipe.get("model_name_or_path") == start
    if is_same and "revision" in general and "revision" not in changes:
        recipe["revision"] = row.get("revision")
    title = f"{slug(base.stem)}-{_digest(json.dumps(recipe, default=str))}"
    folder = Path(output_dir, "pretrained", title)
    recipe |= {"output_dir": str(folder)}
    return PlannedRun("pretrain", f"pre-training {title}", folder, recipe)


def slug(name: str) -> str:
    """Return a name for a file; a long one ends with a part of its hash."""
    short = re.sub(r"[^\w.+=-]+", "-", name).strip("-.")
    return short if 0 < len(short) <= 100 else f"{short[:90]}-{_digest(name)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _change(where: str, recipe: Keys, changes: Keys) -> Keys:
    """Return a recipe with changes; null removes what has a dotted path."""
    for key, value in by_depth(changes):
        is_path = "." in str(key)
        recipe = override(where, recipe, {key: value}) if is_path else {**recipe, key: value}
    return drop_replaced(recipe, changes, PretrainArguments, ProgramTrainingArguments)


def _find_base(where: str, base: str | None) -> Path:
    if base is None:
        raise ValueError(f"{where}: base is missing, as in {EXAMPLE}")
    return find_recipe(base)


def check_disjoint(where: str, flags: Iterable[str], changes: Iterable[str]) -> None:
    """Reject two values for one field: equal paths, or one that contains the other."""
    for path, other in product(flags, changes):
        if f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}."):
            named = path if path == other else f"{path} and {other}"
            raise ValueError(
                f"{where}: {named} is set on the command line and in the row; leave one out"
            )


def _check_keys(where: str, keys: Iterable[object]) -> None:
    """Check that nothing else sets these keys."""
    for key in keys:
        if key in FIXED:
            raise ValueError(
                f"{where}: leave out {key}, which is set for every run; give seeds, as in "
                "seeds: [1, 2, 3]"
            )
