"""What a finished run found, computed once and written down: metrics, predictions, plot, card."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from transformers import EvalPrediction

from trainers.data.task_dataset import Rows
from trainers.data.text import TEXT_TYPES
from trainers.files import write_text
from trainers.metrics.answers import (
    QUESTION_ANSWERING,
    answer_questions,
    measure_answers,
    write_answers,
)
from trainers.metrics.tagging import (
    Tagged,
    describe_types,
    f1_standard_error,
    find_names,
    join_rows_of_words,
    tag_metrics,
)
from trainers.metrics.task_metrics import (
    UNLABELLED,
    Decode,
    aggregates,
    glue_score,
    standard_error,
    task_metrics,
)
from trainers.training.checks import has_labels
from trainers.training.evaluation import decoder
from trainers.training.multitask import MultiTaskTrainer

from .model_card import (
    has_history,
    markdown_table,
    plot_history,
    results_table,
)
from .predictions import write_predictions, write_tags

# What decides about the numbers beside this project.
LIBRARIES = ("torch", "transformers", "accelerate", "datasets")


@dataclass(frozen=True)
class Results:
    """Metrics of one split.

    Args:
        metrics: ``<task>_<metric>``, and the aggregates if all tasks have labels.
        standard_errors: Standard error of the primary metric of each task.
        rows: Number of labelled rows of each task.
        types: By task with tags, the metrics of every type of entity.
    """

    metrics: dict[str, float]
    standard_errors: dict[str, float]
    rows: dict[str, int]
    types: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def table(
        self,
        problem_types: Mapping[str, str],
        chosen: Mapping[str, Sequence[str]] | None = None,
    ) -> str:
        """Show the metrics as a Markdown table; `chosen` are those that stand for a task."""
        return results_table(
            {f"eval_{name}": value for name, value in self.metrics.items()},
            {task: kind for task, kind in problem_types.items() if task in self.rows},
            standard_errors=self.standard_errors,
            rows=self.rows,
            chosen=chosen,
        )

    def type_table(self) -> str:
        """Show the metrics of every type of entity as a Markdown table."""
        numbers = ("f1", "precision", "recall")
        lines = [("task", "type", *numbers, "labelled", "predicted")]
        for task, types in self.types.items():
            for one in types:
                values = [f"{one[name]:.4f}" for name in numbers]
                counts = [f"{one[name]:,}" for name in ("labelled", "predicted")]
                lines.append((task, one["name"], *values, *counts))
        return markdown_table(lines)


class Outputs(NamedTuple):
    """What the model says of the rows of a split.

    Args:
        logits: (N, K); of tags the words, ``Tagged``.
        predictions: What it made of them: class indices, 0 or 1, or scores, (N,), or (W,); of
            windows the ``FoundAnswers`` to their questions.
        labels: (N,), or (W,); None if the rows have none, or are windows.
    """

    logits: Any
    predictions: Any
    labels: NDArray[Any] | None


@dataclass(frozen=True)
class RunFacts:
    """What one must know of a run to judge and to repeat it.

    Args:
        command: The command line.
        recipe: The text of the recipe.
        model_name_or_path: The checkpoint at the start; None for new weights.
        data: Name of the data of each task.
        bad_rows: The rows of each task that were left out, and why.
        text: What the splits of a text hold: documents, tokens, and so on.
        splits: What the splits of a task with labels hold: rows, of how many usable ones, and how
            many of each class.
        fingerprints: What tells the data of each task from any other, as they were read.
        card: Metadata of the model card, which win: language, license, datasets, tags.
        versions: Versions of the libraries.
    """

    command: str
    recipe: str
    model_name_or_path: str | None
    data: dict[str, str]
    bad_rows: dict[str, list[str]]
    text: dict[str, dict[str, Any]] = field(default_factory=dict)
    splits: dict[str, dict[str, Any]] = field(default_factory=dict)
    fingerprints: dict[str, str] = field(default_factory=dict)
    card: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(
        default_factory=lambda: {name: version(name) for name in LIBRARIES}
    )


def evaluate_run(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    splits: Sequence[str] | None = None,
) -> tuple[dict[str, Results], dict[tuple[str, str], Outputs]]:
    """Run the trained model over every row of some splits once; the random state stays.

    Args:
        trainer: The trainer, with the best or last weights.
        encoded: By task and split, the rows.
        splits: The splits to evaluate; None for all but the training rows.

    Returns:
        By split, the results of the tasks with labels there, and of those without any; and by
        (task, split) the outputs of the tasks with labels, in the order of the rows.
    """
    if splits is None:
        splits = list({split for rows in encoded.values() for split in rows} - {"train"})
    outputs: dict[tuple[str, str], Outputs] = {}
    measured: dict[str, dict[str, _Measured]] = {
        split: {} for split in sorted(splits, key=split_order)
    }
    for task, rows_of in encoded.items():
        # not a set, whose order would not be that of the other processes
        for split in [split for split in measured if split in rows_of]:
            output, result = _evaluate_rows(trainer, task, rows_of[split])
            if output is not None:
                outputs[task, split] = output
            if result is not None:
                measured[split][task] = result
    results = {split: _summarize(found, trainer) for split, found in measured.items() if found}
    for split, found_glue in _score_glue(trainer, results).items():
        results[split].metrics["glue"] = found_glue
    return results, outputs


def split_order(split: str) -> tuple[int, str]:
    """Say where a split stands: training, validation and test rows, after each its other sets."""
    return ("train", "validation", "test").index(split.partition("_")[0]), split


def file_split(split: str) -> str:
    """Name a split in file names of predictions, as in the course project."""
    return split.replace("validation", "dev", 1)


def _score_glue(trainer: MultiTaskTrainer, results: Mapping[str, Results]) -> dict[str, float]:
    """Compute the score of GLUE of the splits in which all its tasks have labels.

    A split has sets: validation and validation_mismatched both count.
    """
    scores = {}
    for split in {"train", "validation", "test"} & results.keys():
        sets = [found for name, found in results.items() if name.partition("_")[0] == split]
        values = {
            task: [
                found.metrics[f"{task}_{name}"]
                for found in sets
                if task in found.rows
                for name in trainer.headline(task)
            ]
            for task in trainer.glue_tasks
        }
        if values and values.keys() <= results[split].rows.keys():
            scores[split] = glue_score(values)
    return scores


class _Measured(NamedTuple):
    """What was measured of a task on a split.

    Args:
        metrics: By name.
        standard_error: Of the metric that stands for the task; None if there is none.
        rows: Rows, sentences with tags, or questions.
        types: What there is of every type of a span; None if the task has no spans.
    """

    metrics: dict[str, float]
    standard_error: float | None
    rows: int
    types: list[dict[str, Any]] | None = None


def _evaluate_rows(
    trainer: MultiTaskTrainer, task: str, rows: Any
) -> tuple[Outputs | None, _Measured | None]:
    """Run the model over rows: what it said, if the task has labels, and how right that was."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    found = trainer.predict_task(task, rows)
    kind = trainer.problem_types[task]
    if kind in UNLABELLED:
        return None, _measure(trainer, task, found, None)
    if kind == "token_classification":
        tagged = join_rows_of_words(found, rows)
        result = None if tagged.labels is None else _measure_tags(tagged, find_names(model, task))
        return Outputs(tagged, tagged.predictions, tagged.labels), result
    if kind == QUESTION_ANSWERING:
        search = trainer.answer_search[task]
        answers = answer_questions(rows, found, search)
        scored = measure_answers(rows, answers, search) if has_labels(rows) else None
        return Outputs(found, answers, None), scored and _Measured(*scored, len(answers))
    labels = np.asarray(rows["labels"]) if has_labels(rows) else None
    output = Outputs(found, np.asarray(model.decode(task, found)), labels)
    if labels is None:
        return output, None
    return output, _measure(trainer, task, found, labels, decoder(model, task))


def _measure_tags(tagged: Tagged, names: Any) -> _Measured:
    return _Measured(
        tag_metrics(tagged, names),
        f1_standard_error(tagged, names),
        len(np.unique(tagged.sentences)),
        describe_types(tagged, names),
    )


def _measure(
    trainer: MultiTaskTrainer,
    task: str,
    logits: NDArray[Any],
    labels: NDArray[Any] | None,
    decode: Decode | None = None,
) -> _Measured:
    kind, first = trainer.problem_types[task], trainer.headline(task)[0]
    prediction = EvalPrediction(predictions=logits, label_ids=labels)  # type: ignore[arg-type]
    values = task_metrics(kind, decode, trainer.metrics.get(task, ()))(prediction)
    error = None
    if first in values:
        error = standard_error(kind, logits, labels, decode=decode, metric=first)
    return _Measured(values, error, len(logits))


def _summarize(
    measured: Mapping[str, _Measured],
    trainer: MultiTaskTrainer,
) -> Results:
    problem_types = trainer.problem_types
    metrics: dict[str, float] = {}
    errors = {}
    primary: dict[str, tuple[str, float | None]] = {}
    for task, found in measured.items():
        kind = problem_types[task]
        metrics |= {f"{task}_{name}": value for name, value in found.metrics.items()}
        if not trainer.task_training[task].auxiliary:
            primary[task] = (kind, found.metrics.get(trainer.headline(task)[0]))
        if found.standard_error is not None:
            errors[task] = found.standard_error
    # a mean of some tasks would pass for that of all, and of text it says nothing more
    if len(measured) == len(problem_types) and not set(problem_types.values()) <= set(TEXT_TYPES):
        metrics |= aggregates(primary)
    rows = {task: found.rows for task, found in measured.items()}
    types = {task: found.types for task, found in measured.items() if found.types is not None}
    return Results(metrics, errors, rows, types)


def write_results(
    trainer: MultiTaskTrainer,
    encoded: Mapping[str, Mapping[str, Rows]],
    results: Mapping[str, Results],
    outputs: Mapping[tuple[str, str], Outputs],
    facts: RunFacts,
) -> None:
    """Write ``metrics.json``, predictions of held-out rows and the plot of the training.

    Args:
        trainer: The trainer, for its history and its output folder.
        encoded: By task and split, the encoded rows with their ids.
        results: Results by split.
        outputs: By (task, split), what ``evaluate_run`` returned.
        facts: What else ``metrics.json`` says.
    """
    folder = Path(str(trainer.args.output_dir))
    for (task, split), found in outputs.items():
        if split == "train":
            continue
        if trainer.problem_types[task] == QUESTION_ANSWERING:
            name = f"{task}-{file_split(split)}-"
            write_answers(folder / "predictions", found.predictions, name)
            continue
        rows: Any = encoded[task][split]
        if isinstance(found.logits, Tagged):
            names = trainer.accelerator.unwrap_model(trainer.model).config.tasks[task]["labels"]
            path = folder / "predictions" / f"{task}-{file_split(split)}-output.txt"
            write_tags(path, [word for row in rows["words"] for word in row], found.logits, names)
            continue
        write_predictions(
            folder / "predictions" / f"{task}-{file_split(split)}-output.csv",
            rows["id"][:],
            found.predictions.tolist(),
            trainer.problem_types[task],
        )
    content = {split: asdict(result) for split, result in results.items()}
    content |= asdict(facts) | describe_training(trainer)
    write_text(folder / "metrics.json", json.dumps(content, indent=2) + "\n")
    if has_history(trainer.state.log_history, trainer.problem_types):
        # a run shorter than logging_steps has nothing to show
        path = folder / "history.png"
        plot_history(trainer.state.log_history, trainer.problem_types, path, chosen=trainer.metrics)


def read_metrics(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read ``metrics.json`` of a run.

    Raises:
        ValueError: If it is not there, or cannot be read.
    """
    path = Path(folder) / "metrics.json"
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"{str(folder)!r} has no metrics.json; expected a finished run") from None
    except ValueError as error:
        raise ValueError(f"{str(path)!r} cannot be read ({error}); repeat the run") from None
    return content


def name_run(folder: str | os.PathLike[str]) -> str:
    """Name a run after its folder; one of many seeds after its row, too, as in base, seed 1."""
    path = Path(folder).resolve()
    seed = path.name.removeprefix("seed-")
    is_seed = seed != path.name and seed.isdecimal()
    return f"{path.parent.name}, seed {seed}" if is_seed else path.name


def describe_training(trainer: MultiTaskTrainer) -> dict[str, Any]:
    """Say how long a run trained which tasks."""
    return {
        "seed": trainer.args.seed,
        "steps": trainer.state.global_step,
        "epochs": trainer.state.epoch,
        "tasks": trainer.accelerator.unwrap_model(trainer.model).config.tasks or {},
        "metric": trainer.metrics,
    }
