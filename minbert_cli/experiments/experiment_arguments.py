"""Keys of an experiments file: rows, each a recipe with overrides, a search and seeds."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from minbert_cli.arguments import check_names
from minbert_cli.recipe import group_flags, parse_recipe, read_flag, read_recipe, split_argv

EXAMPLE = "{plain: {base: sst}}"
MAX_PROCESSES = 10_000
LARGEST_SEED = 2**32 - 1  # of numpy


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
    dry_run: bool = field(
        default=False,
        metadata={
            "help": "Check and list the runs, estimate their steps, rows and time, and stop."
        },
    )
    estimate: bool = field(
        default=True,
        metadata={
            "help": "Whether a dry run tries a few steps of every different run to estimate its "
            "time; false only lists the runs, at once."
        },
    )

    def __post_init__(self) -> None:
        check_names("rows", self.rows, EXAMPLE)
        check_seeds("seeds", self.seeds)
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


def parse_experiments(
    argv: Sequence[str], default: str | Path | None = None
) -> tuple[ExperimentArguments, dict[str, Any], dict[str, Any]]:
    """Read ``[FILE] [--flag value ...]``: arguments, overrides by dotted path, and rows of FILE."""
    path, flags = split_argv(argv, default)
    own: list[str] = [] if path is None else [str(path)]
    overrides: dict[str, Any] = {}
    known = ["help", *(entry.name for entry in fields(ExperimentArguments))]
    for words in group_flags(flags):
        name = words[0].partition("=")[0].removeprefix("--")
        if not words[0].startswith("--") or name.replace("-", "_") in known:
            own += words
        else:
            first, *rest = name.split(".")
            overrides[".".join([first.replace("-", "_"), *rest])] = read_flag(words)
    (arguments,) = parse_recipe((ExperimentArguments,), own)
    return arguments, overrides, _rows_of_file(path, arguments.rows)


def _rows_of_file(path: str | os.PathLike[str] | None, chosen: dict[str, Any]) -> dict[str, Any]:
    rows = None if path is None else read_recipe(Path(path)).get("rows")
    if not isinstance(rows, dict):
        return chosen
    check_names("rows", rows, EXAMPLE)
    is_part = all(name in rows and rows[name] == keys for name, keys in chosen.items())
    return rows if is_part else chosen


def check_seeds(where: str, seeds: Any) -> None:
    """Raise ValueError unless seeds are distinct integers that numpy accepts."""
    if not seeds or any(type(seed) is not int or not 0 <= seed <= LARGEST_SEED for seed in seeds):
        raise ValueError(
            f"{where}={seeds!r}; expected integers from 0 to 2**32 - 1, as in [1, 2, 3]"
        )
    if len(set(seeds)) < len(seeds):
        raise ValueError(f"{where}={seeds!r}; give each seed once")
