"""Out-of-sample predictions for training rows, by cross-validation, and the labels they doubt."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from datasets_scripts import LoadedTask, TaskData, load_task
from minbert_cli.finetune import PROGRAM
from minbert_cli.resources import find_recipe
from minbert_cli.training.recipe_tasks import RecipeTask, learns_from_text
from minbert_cli.training.shared_tasks import KEY
from modeling_minbert import TASKS
from trainers import PROBLEMS, MultiTaskTrainer, write_text
from trainers.problems.base.problem import Problem
from trainers.problems.measures.label_issues import find_label_issues
from trainers.reports.label_tables import format_issues
from trainers.runs.overrides import group_flags, override, read_flag, split_dotted
from trainers.runs.recipe_files import expand_paths, read_recipe

SUFFIX = "-label-issues"
# The models of the folds are thrown away, and nothing is chosen by the rows they are measured on.
CHANGES = {
    "evaluate_train": False,
    "report_examples": 0,
    "push_to_hub": False,
    "report_to": "none",
    "eval_strategy": "no",
    "save_strategy": "no",
    "load_best_model_at_end": False,
    "calibrate": False,
}
LEFT_OUT = (
    *("metric_for_best_model", "greater_is_better", "early_stopping_patience"),
    *("eval_steps", "save_steps", "eval_on_start", "eval_delay", "save_total_limit"),
    *("resume_from_checkpoint", "overwrite_output_dir", "smoke_test"),
)
# Without a report on the model.
FOLD = replace(PROGRAM, report=lambda _: None)
# What is fitted to the validation rows would have seen the labels that are checked.
FITTED_KEYS = ("calibrate", "threshold_for")
UNUSED_KEYS = ("test_file", "extra_files", "unlabeled_file", "max_unlabeled_samples")
DATA_KEYS = TaskData.recipe_fields()


@dataclass(frozen=True)
class Folds:
    """The training rows of a task in parts.

    Args:
        task: The task.
        keys: Its keys in the recipe.
        parts: The part of each row, (N,).
    """

    task: LoadedTask
    keys: dict[str, Any]
    parts: NDArray[np.int64]

    def write(self, folder: Path, part: int) -> dict[str, Any]:
        """Write the rows of a part, and all others, and return the keys of a task with these."""
        rows, names = self.task.splits["train"], self.task.labels
        texts = [name for name in rows.column_names if name.startswith("sentence")]
        lines = []
        for row in rows:
            label = row["label"] if names is None else names[row["label"]]
            lines.append(json.dumps({**{name: row[name] for name in texts}, "label": label}))
        unused = {*DATA_KEYS, *FITTED_KEYS}
        keys = {key: value for key, value in self.keys.items() if key not in unused}
        keys |= {"problem_type": self.task.problem_type, "label_column": "label"}
        keys |= {"text_columns": texts, "max_invalid_fraction": 0}
        if "calibrate" in TASKS[self.task.problem_type].fields_set_by("recipe"):
            keys["calibrate"] = False  # also if the checkpoint is calibrated
        if names is not None:
            keys["labels"] = list(names)
        for key, chosen in (
            ("train_file", self.parts != part),
            ("validation_file", self.parts == part),
        ):
            path = folder / f"{self.task.name}-{key}-{part}.jsonl"
            write_text(path, "".join(lines[row] + "\n" for row in np.flatnonzero(chosen)))
            keys[key] = str(path)
        return keys


def list_label_issues(recipe: str, flags: Sequence[str], folds: int) -> None:
    """Train a model for each fold, and write the suspicious rows of each task with classes.

    Args:
        recipe: Path or name of the recipe.
        flags: Flags that override it.
        folds: Number of folds.

    Raises:
        ValueError: If the recipe is wrong, has no task with classes, or a class has fewer rows than
            there are folds.
    """
    keys = read_keys(recipe, flags)
    parts = split_tasks(keys, folds)
    output = Path(f"{keys['output_dir']}{SUFFIX}")
    output.mkdir(parents=True, exist_ok=True)
    found: dict[str, list[Any]] = {name: [] for name in parts}
    problems: dict[str, Problem[Any]] = {}
    for part in range(folds):
        print(f"\nfold {part + 1} of {folds}\n")
        with TemporaryDirectory(prefix="fold-", dir=output) as folder:
            tasks = {name: own.write(Path(folder), part) for name, own in parts.items()}
            trainer = FOLD.run(change_keys(keys, tasks, Path(folder) / "run")).trainer
            for name in parts:
                problems[name] = trainer.problems[name]
                found[name].append(predict(trainer, name))
    print("\nlabels that may be wrong")
    for name, own in parts.items():
        print(_write_issues(output, own, problems[name], found[name]))


def read_keys(recipe: str, flags: Sequence[str]) -> dict[str, Any]:
    """Read a recipe and the flags that override its keys."""
    plain, dotted = split_dotted(flags)
    keys = override("command line", read_recipe(find_recipe(recipe)), expand_paths(dotted))
    given = {words[0].partition("=")[0]: read_flag(words) for words in group_flags(plain)}
    keys |= expand_paths({name.removeprefix("--"): value for name, value in given.items()})
    if not isinstance(keys.get("tasks"), Mapping):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            f"{recipe}: tasks={keys.get('tasks')!r}; expected tasks and their keys"
        )
    _check_tasks(recipe, keys)
    if not keys.get("output_dir"):
        raise ValueError(f"{recipe}: output_dir is missing; the results are put next to it")
    return keys


def _check_tasks(recipe: str, keys: Mapping[str, Any]) -> None:
    """Refuse what would make folds of single tasks wrong."""
    owners = [own for own in (keys, *keys["tasks"].values()) if isinstance(own, Mapping)]
    if any(own.get("teacher") for own in owners):
        raise ValueError(
            f"{recipe}: a teacher may have learned the very labels that are to be checked, and "
            "would hide what is wrong with them; leave teacher out"
        )
    if sharing := [name for name, own in keys["tasks"].items() if KEY in (own or ())]:
        raise ValueError(
            f"{recipe}: task {sharing[0]!r} has {KEY}, but folds differ by task; check each "
            "with a recipe of its own, and a file whose rows all have its label"
        )
    if pairing := [name for name, keys in keys["tasks"].items() if "class_pairs" in (keys or ())]:
        raise ValueError(
            f"{recipe}: task {pairing[0]!r} has class_pairs, which puts each row into pairs of "
            "every fold; check the classification that the pairs are made of"
        )


def split_tasks(recipe: Mapping[str, Any], folds: int) -> dict[str, Folds]:
    """Load the training rows of the tasks whose labels are classes, and split them."""
    parts = {}
    for name, keys in recipe["tasks"].items():
        if learns_from_text(keys):
            continue
        task = RecipeTask.from_recipe(name, keys, recipe.get("data_dir"))
        if PROBLEMS[str(task.data.problem_type)].has_classes:
            loaded = load_task(task.data)
            rows = loaded.splits["train"]
            texts = zip(*(rows[key][:] for key in loaded.row_format.text_names), strict=True)
            labels = np.asarray(rows["label"][:], np.int64)
            seed = task.data.sample_seed
            own = split_folds(f"task {name!r}", labels, list(texts), folds, seed)
            parts[name] = Folds(loaded, dict(keys), own)
    if not parts:
        types = ", ".join(name for name, kind in PROBLEMS.items() if kind.has_classes)
        raise ValueError(f"no task has labels that are classes; expected one of the types {types}")
    return parts


def split_folds(
    where: str, labels: NDArray[np.int64], texts: Sequence[Any], folds: int, seed: int
) -> NDArray[np.int64]:
    """Split rows into folds with equal shares of each class; equal texts stay together.

    Args:
        where: Owner of the rows, for messages.
        labels: Class of each row, (N,).
        texts: Texts of each row, (N,).
        folds: Number of folds.
        seed: Of the order of the rows.

    Returns:
        The fold of each row, (N,).
    """
    first: dict[Any, int] = {}
    units = np.asarray([first.setdefault(text, len(first)) for text in texts])
    places = np.unique(units, return_index=True)[1]
    classes = labels[places]
    sizes = np.bincount(classes)
    if ((sizes > 0) & (sizes < folds)).any():
        fewest = int(sizes[sizes > 0].min())
        raise ValueError(
            f"{where}: a class has only {fewest} different training rows; give --folds {fewest} or "
            "fewer, at least 2, or add rows"
        )
    order = np.lexsort((np.random.default_rng(seed).random(len(places)), classes))
    of_units = np.empty(len(places), np.int64)
    of_units[order] = np.arange(len(places)) % folds
    return of_units[units]


def change_keys(
    recipe: Mapping[str, Any], tasks: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    """Return the recipe of the run of a fold."""
    keys = {key: value for key, value in recipe.items() if key not in LEFT_OUT}
    others = {
        name: {key: value for key, value in own.items() if key not in UNUSED_KEYS}
        for name, own in recipe["tasks"].items()
    }
    return {**keys, **CHANGES, "tasks": {**others, **tasks}, "output_dir": str(folder)}


def predict(trainer: MultiTaskTrainer, task: str) -> NDArray[np.float64]:
    """Compute the probabilities of the validation rows of a task, (N, K)."""
    problem: Any = trainer.problems[task]
    rows: Any = trainer.eval_dataset
    return problem.probabilities(trainer.predict_task(task, rows[task]))


def _write_issues(
    output: Path, folds: Folds, problem: Problem[Any], found: Sequence[NDArray[np.float64]]
) -> str:
    """Write the suspicious rows of a task, and return a line about them."""
    rows = folds.task.splits["train"]
    probabilities = np.empty((len(rows), found[0].shape[1]))
    for part, own in enumerate(found):
        probabilities[folds.parts == part] = own
    issues = find_label_issues(np.asarray(rows["label"][:], np.int64), probabilities)
    path = output / f"{folds.task.name}-train.csv"
    write_text(path, format_issues(problem, rows, issues, quotes=True))
    return (
        f"{folds.task.name}: {len(issues.rows):,} of {issues.counted:,} training rows; about "
        f"{100 * issues.noise:.1f} % of the labels are estimated to be wrong; {path}"
    )
