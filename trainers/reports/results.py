"""Results of a finished run: metrics and predictions, computed once and written."""

import csv
import io
import json
import os
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import datasets

from trainers.data.rows import Rows
from trainers.files import write_text
from trainers.problems.base import AnyProblem
from trainers.problems.metrics import AGGREGATES, Described, glue_score
from trainers.training.multitask import MultiTaskTrainer

from .texts import markdown_table

# By task and split, what was predicted: the outputs of the problem of the task.
RunOutputs: TypeAlias = dict[tuple[str, str], Any]

# Columns of the texts of a row, or of its words.
TEXT_COLUMNS = ("sentence1", "sentence2", "words")
# Libraries whose versions can change the numbers.
LIBRARIES = ("torch", "transformers", "accelerate", "datasets")


@dataclass(frozen=True)
class Results:
    """Metrics of one split."""

    metrics: dict[str, float]  # ``<task>_<metric>``, and the aggregates if all tasks have labels
    standard_errors: dict[str, float]  # of the headline metric of each task
    rows: dict[str, int]  # number of labelled rows of each task
    # by task with entities, labels or targets
    types: dict[str, list[Described]] = field(default_factory=dict)

    def add(self, problem: AnyProblem, outputs: Any) -> None:
        """Measure the labelled rows of a task; none at all raises ValueError."""
        labelled, _ = problem.keep_labelled(outputs)
        metrics, task = problem.compute_metrics(labelled), problem.task
        self.metrics.update({f"{task}_{name}": value for name, value in metrics.items()})
        self.rows[task] = problem.count(labelled)
        if (error := problem.standard_error(labelled, metrics)) is not None:
            self.standard_errors[task] = error
        if (types := problem.describe_types(labelled)) is not None:
            self.types[task] = types

    def find_score(self, problem: AnyProblem, name: str) -> tuple[float | None, float | None]:
        """Return a metric of a task, and its standard error; None for what there is not."""
        error = self.standard_errors.get(problem.task) if name == problem.headline[0] else None
        return self.metrics.get(f"{problem.task}_{name}"), error

    def table(self, problems: Mapping[str, AnyProblem]) -> str:
        """Format the metrics in Markdown, the headline of each task first, and entity types.

        Means over the tasks appear if there are several.
        """
        lines = [("task", "metric", "value", "standard error", "rows")]
        for task, problem in problems.items():
            for metric in problem.reported:
                value, error = self.find_score(problem, metric.name)
                if value is not None:
                    shown = (_format_number(value), _format_number(error))
                    lines.append((task, metric.name, *shown, f"{self.rows[task]:,}"))
        lines += [
            ("all", name, f"{self.metrics[name]:.4f}", "", "")
            for name in AGGREGATES
            if name in self.metrics and len(problems) > 1
        ]
        # a table for all tasks that have the same types
        by_columns: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
        for task, types in self.types.items():
            for row in types:
                columns = tuple(name for name in row if name not in ("name", "right"))
                numbers = (_format_number(row[name]) for name in columns)
                head = [("task", "type", *columns)]
                by_columns.setdefault(columns, head).append((task, row["name"], *numbers))
        return "\n\n".join([markdown_table(lines), *map(markdown_table, by_columns.values())])


def _format_number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


class Choice(NamedTuple):
    """A key of a recipe that a run has chosen."""

    key: str  # with dots, as for a flag
    value: object
    reason: str


@dataclass(frozen=True)
class RunFacts:
    """What a reader needs to judge and to repeat a run."""

    command: str
    recipe: str  # its text
    model_name_or_path: str | None  # the initial checkpoint; None for new weights
    data: dict[str, str]  # name of the data of each task
    bad_rows: dict[str, list[str]]  # invalid rows of each task, which were skipped, with reasons
    text: dict[str, dict[str, Any]] = field(default_factory=dict)  # facts by split
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)  # of labelled tasks
    notes: dict[str, list[str]] = field(default_factory=dict)  # on the data of each task
    choices: list[Choice] = field(default_factory=list)  # where the recipe leaves something out
    fingerprints: dict[str, str] = field(default_factory=dict)  # of the data of each task
    commits: dict[str, str] = field(default_factory=dict)  # of the model and the data on the Hub
    card: dict[str, Any] = field(default_factory=dict)  # metadata of the card, which win
    versions: dict[str, str] = field(
        default_factory=lambda: {name: version(name) for name in LIBRARIES}
    )

    def describe_choices(self) -> str:
        """Show what the run has chosen, as a table with the reasons."""
        if not self.choices:
            return ""
        rows = [
            (key, f"{value:g}" if isinstance(value, float) else str(value), reason)
            for key, value, reason in self.choices
        ]
        first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
        lines = [f"{key:<{first}}  {value:<{second}}  {reason}" for key, value, reason in rows]
        return "\n".join(["defaults of this run (a recipe key or a flag overrides each):", *lines])

    def describe_notes(self) -> str:
        """Show the notes on the data, a line each."""
        return "\n".join(f"{task}: {note}" for task, notes in self.notes.items() for note in notes)

    def list_notes(self) -> list[str]:
        """List the notes on the data, and how many held-out rows were used before."""
        lines = self.describe_notes().splitlines()
        kinds = {
            "training_rows": "a training row",
            "validation_rows": "a validation row",
            "rows_of_others": "a training row of another task",
        }
        for task, splits in self.splits.items():
            for split, facts in splits.items():
                for kind, what in kinds.items():
                    if seen := facts.get(kind):
                        lines.append(
                            f"{task}: {seen:,} of {facts['rows']:,} {split} rows "
                            f"({seen / facts['rows']:.1%}) have the texts of {what}."
                        )
        return lines


def evaluate_run(
    trainer: MultiTaskTrainer, rows: Mapping[str, Mapping[str, Rows]]
) -> tuple[dict[str, Results], RunOutputs]:
    """Run the trained model once over all rows; the random state stays.

    Args:
        trainer: The trainer, with the best or last weights.
        rows: By task and split, the rows to evaluate.

    Returns:
        By split, the results of the tasks that have labels there or need none; and by (task, split)
        the outputs of the tasks with labels, in the order of the rows.
    """
    outputs: RunOutputs = {}
    results: dict[str, Results] = {}
    for task, splits in rows.items():
        problem = trainer.problems[task]
        for split in sorted(splits, key=_split_order):  # the same order in all processes
            gathered = trainer.predict_task(task, splits[split])
            output = problem.collect(gathered, splits[split], trainer.decoder(task))
            if not problem.kind.is_unlabelled:
                outputs[task, split] = output
            if problem.kind.is_unlabelled or problem.is_labelled(splits[split]):
                results.setdefault(split, Results({}, {}, {})).add(problem, output)
    results = {split: results[split] for split in sorted(results, key=_split_order)}
    # tasks of text alone have no mean
    has_mean = not all(problem.kind.is_pretraining for problem in trainer.problems.values())
    for found in results.values():
        # a mean of some tasks could be mistaken for that of all
        if has_mean and len(found.rows) == len(trainer.problems):
            found.metrics.update(trainer.aggregate(found.metrics))
    if any(task.in_glue for task in trainer.tasks.values()):
        _score_glue(trainer, results)
    return results, outputs


def _score_glue(trainer: MultiTaskTrainer, results: Mapping[str, Results]) -> None:
    """Add the GLUE score to the splits, such as validation, in which all its tasks have labels."""
    tasks = [name for name, task in trainer.tasks.items() if task.in_glue]
    for split in {"train", "validation", "test"} & results.keys():
        if not set(tasks) <= results[split].rows.keys():
            continue
        # with the other sets of a task, such as validation_mismatched
        sets = [found for name, found in results.items() if name.partition("_")[0] == split]
        values = {
            task: [
                found.metrics[f"{task}_{name}"]
                for found in sets
                if task in found.rows
                for name in trainer.problems[task].headline
            ]
            for task in tasks
        }
        results[split].metrics["glue"] = glue_score(values)


def _split_order(split: str) -> tuple[int, str]:
    """Order training, validation and test rows, each with its other sets."""
    return ("train", "validation", "test").index(split.partition("_")[0]), split


@dataclass(frozen=True)
class FinishedRun:
    """A run after its training, of which files, model card and page tell."""

    trainer: MultiTaskTrainer  # with the best or last weights
    encoded: Mapping[str, Mapping[str, Rows]]  # rows by task and split, with their ids
    results: Mapping[str, Results]  # by split; those and the outputs are of `evaluate_run`
    outputs: RunOutputs
    facts: RunFacts
    # by task and split, the rows before they were encoded; none of texts that may not be shown
    texts: Mapping[str, Mapping[str, datasets.Dataset]] = field(default_factory=dict)
    most_quoted: int = 20  # rows of a task on the page; with 0 no file has texts
    tabulated: Collection[str] = ()  # tasks whose predictions have no official format


def write_results(run: FinishedRun) -> None:
    """Write ``metrics.json`` and the predictions for held-out rows."""
    trainer, quotes = run.trainer, run.most_quoted > 0
    folder = Path(str(trainer.args.output_dir))
    for (task, split), found in run.outputs.items():
        if split == "train":
            continue
        problem = trainer.problems[task]
        rows: Any = run.encoded[task][split]  # a dataset: text to learn from has no outputs
        texts = run.texts.get(task, {}).get(split)
        # the name of a split is that of the course project
        path = folder / "predictions" / f"{task}-{split.replace('validation', 'dev', 1)}"
        if quotes or not problem.writes_texts:
            problem.write(path.parent, path.name, found, rows)
        table = problem.tabulate(found) if task in run.tabulated else None
        if table is not None and texts is not None:
            write_table(Path(f"{path}.csv"), table, texts, quotes=quotes)
    content = {split: asdict(result) for split, result in run.results.items()}
    content |= asdict(run.facts) | describe_training(trainer)
    write_text(folder / "metrics.json", json.dumps(content, indent=2) + "\n")


def write_table(
    path: Path, columns: dict[str, list[str]], rows: datasets.Dataset, *, quotes: bool
) -> None:
    """Write labels and predictions beside the ids and, if they may be shown, the texts of rows."""
    texts = [name for name in TEXT_COLUMNS if quotes and name in rows.column_names]
    table = {"id": rows["id"][:]}
    for name in texts:
        title = "text" if len(texts) == 1 else name.replace("sentence", "text")
        table[title] = rows[name][:]
    table |= columns
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table)
    for row in zip(*table.values(), strict=True):
        # a list of texts is written as JSON
        writer.writerow(
            json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
            for value in row
        )
    write_text(path, file.getvalue())


def read_metrics(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read ``metrics.json`` of a finished run; ValueError if it is missing or broken."""
    path = Path(folder) / "metrics.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        runs = sorted(map(str, path.parent.glob(f"*/{path.name}")))  # of a row of experiments
        such = f", such as {str(Path(runs[0]).parent)!r}" if runs else ""
        raise ValueError(
            f"{str(folder)!r} has no {path.name}; expected a finished run{such}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be read ({error}); repeat the run") from None
    return content


def name_run(folder: str | os.PathLike[str]) -> str:
    """Name a run after its folder; one of many seeds also after its row, as in base, seed 1."""
    path = Path(folder).resolve()
    seed = path.name.removeprefix("seed-")
    is_seed = seed != path.name and seed.isdecimal()
    return f"{path.parent.name}, seed {seed}" if is_seed else path.name


def describe_training(trainer: MultiTaskTrainer) -> dict[str, Any]:
    """Describe the length, the tasks and the metrics of a run."""
    return {
        "seed": trainer.args.seed,
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "tasks": trainer.accelerator.unwrap_model(trainer.model).config.tasks or {},
        "metrics": {name: task.metrics for name, task in trainer.tasks.items() if task.metrics},
    }
