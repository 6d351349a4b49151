"""Run many recipes with several seeds, and put what they found into one table.

    python experiments.py [experiments.yaml] [--flag value ...]
    python experiments.py compare FIRST_RUN SECOND_RUN

Without arguments it is a small example. Flags are the fields of `ExperimentArguments`; any other
one is a field of the recipes, as in `--tasks.sts.loss mse`, and overrides it in all of them.

Every run is a process of its own, with a log: memory is free after it, and a crash is the failure
of one row. A run that is done is skipped, and one that was stopped goes on from its checkpoint, so
the same command again does what is left.

Searches are a plain grid or random draws, and not the Trainer's `hyperparameter_search`: that one
changes fields of `TrainingArguments` alone, and neither keys of tasks nor a pre-training before;
it trains in one process, needs another library to draw, and a search that was stopped begins anew.
"""

import signal
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from datasets import Dataset
from numpy.typing import NDArray
from tqdm.auto import tqdm

from datasets_scripts import LoadedTask, load_task
from minbert_cli import finetune, pretrain
from minbert_cli import tasks as recipe_tasks
from minbert_cli.texts import parse_corpus
from modeling_minbert import MinBertConfig
from trainers import (
    INPUT_ERRORS,
    FastTrainingArguments,
    FinetuneArguments,
    PretrainArguments,
    check_arguments,
    describe_settings,
    fill_arguments,
    fingerprint_start,
    learns_from_text,
    make_problems,
    parse_recipe,
    read_settings,
    readable_errors,
    reason_of,
    sole_writer,
)

from .campaign import (
    Campaign,
    Failure,
    drop_needless,
    find_state,
    leave_out,
    order_runs,
    program_command,
)
from .compare import ComparisonArguments, compare_glue, compare_runs, describe_differences
from .experiment_arguments import ExperimentArguments, parse_experiments
from .planning import PlannedRun, Row, plan_rows
from .scored_rows import ScoredRows, read_scored_rows
from .tables import ExperimentTable

HERE = Path(__file__).resolve().parents[2]
QUICKSTART = HERE / "recipes" / "experiments" / "quickstart.yaml"
PROGRAMS = {"finetune": finetune.PROGRAM, "pretrain": pretrain.PROGRAM}
INTERRUPTED = 130  # what a shell says of Ctrl-C


def check_runs(runs: Sequence[PlannedRun], processes: int) -> list[dict[str, Any]]:
    """Check recipes as their programs will, before any of them starts.

    Args:
        runs: The runs.
        processes: Processes of each.

    Returns:
        The settings of each run, as its ``run.json`` has them.

    Raises:
        ValueError: If the recipe of a run that was chosen is refused; the message names the run.
    """
    settings: list[dict[str, Any]] = []
    for run in runs:
        try:
            found = _check_recipe(run)
        except INPUT_ERRORS as error:
            if not run.chosen:
                settings.append({"processes": processes})  # those of no run: it is not shown
                continue
            reason = reason_of(error)
            named = reason if reason.startswith(run.name) else f"{run.name}: {reason}"
            raise ValueError(named) from None
        settings.append(found | {"processes": processes})
    return settings


def _check_recipe(run: PlannedRun) -> dict[str, Any]:
    kinds = (PROGRAMS[run.program].arguments, FastTrainingArguments)
    arguments, args = fill_arguments(kinds, run.recipe, where=run.name)
    if pushed := [name for name in ("push_to_hub", "hub_model_id") if getattr(args, name)]:
        raise ValueError(
            f"{pushed[0]} would send every row and seed to one repository; take it back with "
            f"`--{pushed[0]} null`, and push the run that you choose with model.push_to_hub"
        )
    if isinstance(arguments, PretrainArguments):
        parse_corpus("corpus", arguments.corpus, arguments.data_dir)
        check_arguments(args, make_problems({pretrain.TASK: arguments.problem_type}))
    else:
        tasks, problem_types = _check_tasks(arguments)
        metrics, glue = recipe_tasks.find_metrics(tasks), recipe_tasks.find_glue(tasks)
        check_arguments(args, make_problems(problem_types, metrics=metrics), glue)
    arguments.make_callbacks(args)
    return describe_settings(args, asdict(arguments))


def _check_tasks(
    arguments: FinetuneArguments,
) -> tuple[dict[str, recipe_tasks.RecipeTask], dict[str, str]]:
    """Check data, heads and losses of all tasks; returns those with labels, and problem types."""
    tasks, texts = recipe_tasks.parse_tasks(arguments)
    for name, task in tasks.items():
        if missing := [file for file in task.data.files.values() if not Path(file).is_file()]:
            raise FileNotFoundError(f"task {name!r}: {missing[0]!r} is not a file")
    heads = {name: task.describe_head(_stand_in(task)) for name, task in tasks.items()}
    heads |= {name: {"problem_type": text.problem_type} for name, text in texts.items()}
    config = MinBertConfig(tasks=heads)
    return tasks, {name: config.task(name).problem_type for name in arguments.tasks}


def _stand_in(task: recipe_tasks.RecipeTask) -> LoadedTask:
    """Stand for the rows of a task as far as its head depends on them: a row of every class."""
    data, weights = task.data, task.head.get("class_weights")
    labels = data.labels
    if labels is None and data.problem_type == "classification":
        # those that the rows will tell
        labels = tuple(map(str, range(len(weights) if isinstance(weights, list) else 2)))
    if labels is None and data.problem_type == "token_classification":
        labels = ("O", "B-X")
    numbers = list(range(len(labels or ())))
    columns = [f"sentence{number}" for number, _ in enumerate(data.text_columns or (), start=1)]
    texts = {column: list(map(str, numbers)) for column in columns}
    rows = Dataset.from_dict(texts | {"label": numbers})
    kind, splits = str(data.problem_type), {"train": rows}
    return LoadedTask(data.name, kind, labels, data.score_range, splits, [], {}, "")


def read_fingerprints(settings: Mapping[str, Any], known: dict[str, str]) -> dict[str, str]:
    """Read what tells labelled rows and weights to begin with, as they are today, from others.

    Args:
        settings: Those of a run.
        known: What was read already, by description of the data; what is read is added.
    """
    found = {}
    for name, task in list_labelled(settings).items():
        description = repr(task.data)
        if description not in known:
            known[description] = load_task(task.data).fingerprint
        found[name] = known[description]
    path = settings["model_name_or_path"]
    start = f"model_name_or_path={path!r}"
    if start not in known:
        known[start] = fingerprint_start(path).get("model_name_or_path", "")
    return found | ({"model_name_or_path": known[start]} if known[start] else {})


def list_labelled(settings: Mapping[str, Any]) -> dict[str, recipe_tasks.RecipeTask]:
    """List the tasks of a run that do not learn from text, in their order."""
    tasks: dict[str, Any] = settings.get("tasks") or {}
    return {
        name: recipe_tasks.RecipeTask.from_recipe(name, tasks[name], settings["data_dir"])
        for name in settings.get("task_order", tasks)  # JSON sorts the tasks
        if not learns_from_text(tasks[name].get("problem_type"))
    }


def prepare(argv: Sequence[str]) -> tuple[ExperimentArguments, list[Row], Campaign]:
    """Read and check everything; nothing is written.

    Args:
        argv: ``[experiments.yaml] [--flag value ...]``.

    Raises:
        FileNotFoundError: If a file is not there.
        ValueError: If anything is refused.
    """
    arguments, overrides, of_file = parse_experiments(argv, QUICKSTART)
    rows = plan_rows(arguments, overrides, of_file)
    runs = order_runs(rows)
    # in a process of its own: reading the arguments of a run takes memory of the GPU
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        settings = pool.submit(check_runs, runs, arguments.processes).result()
    overwrite = arguments.overwrite_output_dir
    fingerprints: dict[str, str] = {}
    states = {
        # one that was not chosen stays as it is, and another run in its folder is not shown
        run.folder: find_state(
            run,
            found,
            overwrite=overwrite or not run.chosen,
            # weights that are trained anew for it need not be the same to the last bit
            read_data=partial(
                read_fingerprints,
                found if run.after is None else {**found, "model_name_or_path": None},
                fingerprints,
            ),
        )
        for run, found in zip(runs, settings, strict=True)
    }
    rows, left_out = leave_out(rows, states)
    campaign = Campaign(
        drop_needless([run for run in runs if run.chosen], states),
        states,
        {
            name: program_command(HERE / program.name, arguments.processes)
            for name, program in PROGRAMS.items()
        },
        overwrite=overwrite,
        keep_checkpoints=arguments.keep_checkpoints,
        left_out=left_out,
    )
    return arguments, rows, campaign


def run_campaign(rows: Sequence[Row], campaign: Campaign, output_dir: Path) -> bool:
    """Do all runs, and write the table after each; the picture takes long and comes at the end.

    Returns:
        Whether no run failed.
    """
    waiting = {run.folder for run in campaign.runs if campaign.states[run.folder] != "done"}
    failures: dict[Path, Failure] = {}
    make_table = partial(ExperimentTable, rows, failures, left_out=campaign.left_out)
    bar = tqdm(total=len(campaign.runs), initial=len(campaign.runs) - len(waiting), unit="run")
    with bar:
        for run, failure in campaign.do(lambda run: bar.set_description(run.name)):
            if failure is not None:
                failures[run.folder] = failure
                bar.write(f"{run.name} {failure.describe()}", file=sys.stderr)
            if run.folder in waiting:
                waiting.remove(run.folder)
                make_table(waiting).write(output_dir, picture=False)
                bar.update()
    table = make_table()
    table.write(output_dir)
    print(f"\n{table.markdown()}")
    drawn = " table.png," if (output_dir / "table.png").is_file() else ""
    print(f"{output_dir}: table.md, table.csv,{drawn} and runs.csv with every run")
    return not failures


Labels = dict[str, tuple[list[str], NDArray[Any]]]


def load_labels(folder: Path) -> dict[str, Labels]:
    """Read the validation rows of the tasks of a run again, but auxiliary ones: ids and labels.

    By set, of which all tasks have the one that is called validation, and MNLI another one.

    The labels of a question are the list of its right answers, those of a sentence with tags the
    list of these.

    Raises:
        ValueError: If the folder has no run of ``finetune.py``.
    """
    settings = read_settings(folder)
    found: dict[str, Labels] = {"validation": {}}
    for name, described in list_labelled(settings).items():
        if described.training.auxiliary:
            continue
        task = load_task(described.data)
        # other sets count in the score of GLUE alone
        others = [split for split in task.splits if split.startswith("validation_")]
        for split in ["validation", *(others if described.data.submission else [])]:
            rows = task.splits[split]
            labels = read_labels(task, rows)
            if labels is not None:
                found.setdefault(split, {})[name] = (list(rows["id"]), labels)
    if not found["validation"]:
        raise ValueError(f"{str(folder)!r} has no task with labels; expected runs of finetune.py")
    return found


def sets_of_glue(
    folder: Path, scored: Mapping[str, Mapping[str, ScoredRows]]
) -> dict[str, list[ScoredRows]]:
    """List what the score of GLUE of a run is made of: by task, all sets of validation rows."""
    names = recipe_tasks.find_glue(list_labelled(read_settings(folder)))
    return {name: [rows[name] for rows in scored.values() if name in rows] for name in names}


def read_labels(task: LoadedTask, rows: Dataset) -> NDArray[Any] | None:
    """Read the labels of rows of a task, (N,), as they are compared; None if there are none."""
    if task.problem_type == "question_answering":
        return np.fromiter(rows["answers"][:], dtype=object)
    if task.problem_type == "token_classification":
        names = task.labels or ()
        return np.fromiter(([names[tag] for tag in tags] for tags in rows["tags"][:]), dtype=object)
    if "label" not in rows.column_names:
        return None
    return np.asarray(rows["label"], dtype=np.float64)


def compare(argv: Sequence[str]) -> str:
    """Compare the predictions of two runs of the same validation rows.

    Args:
        argv: ``FIRST_RUN SECOND_RUN [--flag value ...]``.

    Raises:
        ValueError: If there are no two runs, or they cannot be compared.
    """
    folders = [Path(word) for word in argv[:2] if not word.startswith("--")]
    if len(folders) != 2:
        raise ValueError("expected two folders of runs: compare FIRST_RUN SECOND_RUN")
    (arguments,) = parse_recipe((ComparisonArguments,), list(argv[2:]))
    chance = asdict(arguments)
    first, second = (
        {
            split: read_scored_rows(folder, labels, split)
            for split, labels in load_labels(folder).items()
        }
        for folder in folders
    )
    differences = compare_runs(first["validation"], second["validation"], **chance)
    left, right = (
        sets_of_glue(folder, found) for folder, found in zip(folders, (first, second), strict=True)
    )
    if left and {task: len(sets) for task, sets in left.items()} == {
        task: len(sets) for task, sets in right.items()
    }:
        differences.append(compare_glue(left, right, **chance))
    return (
        f"first: {folders[0]}\nsecond: {folders[1]}\n\n{describe_differences(differences)}\n\n"
        f"Difference of the second to the first, on the same dev rows; interval and p of a paired "
        f"bootstrap with {arguments.resamples:,} draws of rows. Other seeds are not in it."
    )


def _stop(signal_number: int, _: FrameType | None) -> None:
    """End as after Ctrl-C, which ends the run that is being done, too."""
    raise KeyboardInterrupt(signal.Signals(signal_number).name)


def main(argv: Sequence[str] | None = None) -> int:
    """Do the runs, or compare two; returns the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    with ExitStack() as stack:
        with readable_errors("experiments.py"):
            if argv[:1] == ["compare"]:
                print(compare(argv[1:]))
                return 0
            arguments, rows, campaign = prepare(argv)
            print(campaign.describe())
            if arguments.dry_run:
                return 0
            output_dir = Path(arguments.output_dir)
            stack.enter_context(sole_writer(output_dir))
        try:
            return 0 if run_campaign(rows, campaign, output_dir) else 1
        except KeyboardInterrupt:
            print("stopped; the same command goes on", file=sys.stderr)
            return INTERRUPTED


def run() -> None:
    """Run the program, and end as after Ctrl-C when it is told to stop."""
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(main())


if __name__ == "__main__":
    run()
