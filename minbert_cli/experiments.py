"""Run many recipes with several seeds, and put their results into one table.

    minbert experiments [FILE] [--flag value ...]

FILE is a YAML file or the name of a packaged one, such as report/table; the default is a small
example. Flags are the fields of `ExperimentArguments`; any other flag is a key of `minbert
finetune`, as in `--tasks.sts.loss mse`, and changes all rows. A pre-training takes of these only
model_name_or_path, revision, data_dir, use_cpu, bf16 and fp16.

Every run is a separate process with a log: its memory is freed at the end, and a crash fails one
row only. Its recipe is written beside its folder. Finished runs are skipped and interrupted ones
resumed, so repeating the command does the rest. `--dry_run` checks and lists the runs.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import chain, zip_longest
from multiprocessing import get_context
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from datasets_scripts import encode_corpus, load_tasks
from minbert_cli import pretrain, run_folder
from minbert_cli.checkpoints import load_config, load_tokenizer
from minbert_cli.command_line import expand_path
from minbert_cli.experiment_plan import (
    TABLES,
    ExperimentArguments,
    PlannedRun,
    Row,
    State,
    States,
    read_file,
)
from minbert_cli.recipe import Keys, fill_arguments, format_recipe
from minbert_cli.recipe_tasks import RecipeTask, check_recipe
from minbert_cli.recipes import HOME, IS_INSTALLED, load_kinds
from minbert_cli.teachers import fingerprint
from minbert_cli.text_tasks import RecipeText
from trainers import INPUT_ERRORS, readable_errors, reason_of, write_text
from trainers.problems import PROBLEMS, make_problems
from trainers.problems.blocks import Figure, Table
from trainers.problems.metrics import AGGREGATES
from trainers.reports.page import Section, write_page
from trainers.reports.results import read_metrics
from trainers.reports.texts import markdown_table, printable

PROGRAM = "minbert experiments"
INTERRUPTED = 130  # exit status of a shell after Ctrl-C
WORDS = {"new": "to do", "unfinished": "resumes", "done": "done"}
TAIL = 5  # lines of a log that are shown
NOTE = (
    "Metrics of the dev sets, on which each run also chose its checkpoint if its recipe does so: "
    "mean ± sample standard deviation over the seeds."
)


def plan(argv: Sequence[str]) -> tuple[ExperimentArguments, list[Row], States]:
    """Read a file and check all its runs, without writing anything."""
    arguments, rows = read_file(argv)
    folder = Path(arguments.output_dir)
    foreign = [name for name in TABLES if (folder / name).exists()]
    if foreign and not (folder / run_folder.LOCK_FILE).exists():  # which our programs leave
        raise ValueError(
            f"output_dir={str(folder)!r} has {', '.join(foreign)} of another program, which would "
            "be replaced: choose another --output_dir, or move them"
        )
    # in another process, since reading the arguments allocates memory of a GPU
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return arguments, rows, pool.submit(find_states, order_runs(rows)).result()


def find_states(runs: Sequence[PlannedRun]) -> States:
    """Check all runs, then look up how far each is.

    Raises:
        ValueError: If a run cannot start, or its folder has a different run; with its name.
    """
    checked = []
    for run in runs:
        try:
            checked.append(check_run(run))
        except INPUT_ERRORS as error:
            reason = reason_of(error).removeprefix(f"{run.name}: ")
            raise ValueError(f"{run.name}: {reason}") from None
    states: States = {
        run.folder: "new" if run_folder.is_free(run.folder) else "unfinished" for run in runs
    }
    hashes: dict[str, dict[str, str]] = {}  # of the rows of tasks, which many runs share
    for run, (settings, tasks) in zip(runs, checked, strict=True):
        folder = run.folder
        try:
            run_folder.check_same_run(folder, settings)
            if states[folder] != "new":
                check_sources(folder, settings, states)
            if (record := run_folder.read_run(folder)) is not None and record.data:
                now = hash_rows(folder, tasks, hashes)
                for name in record.data:
                    if name.startswith("teacher "):
                        now[name] = fingerprint(name.removeprefix("teacher "))
                if run.after is None:  # pre-training again need not give bit-identical weights
                    now |= run_folder.fingerprint_start(settings)
                run_folder.check_data(folder, {**record.data, **now})
        except INPUT_ERRORS as error:
            raise ValueError(f"{run.name}: {reason_of(error)}") from None
        if run_folder.is_finished(folder):
            states[folder] = "done"
    return states


def check_sources(folder: Path, settings: Keys, states: States) -> None:
    """Refuse a run that was made from another one of these runs, if that is made again."""
    read: set[Path] = set()
    for text in list_texts(settings):
        path = Path(expand_path(text)).resolve()
        read |= {path, *path.parents}
    for source, state in states.items():
        if state == "new" and source.resolve() in read:
            raise ValueError(
                f"{str(folder)!r} was made from {str(source)!r}, which is to be made again: delete "
                "the first, too, or restore the second"
            )


def list_texts(value: object) -> Iterator[str]:
    """List all texts in a value of a recipe; several paths may be in one, with commas."""
    if isinstance(value, str):
        yield from (part.strip() for part in value.split(","))
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from list_texts(part)


def hash_rows(
    folder: Path, tasks: Mapping[str, RecipeTask | RecipeText], hashes: dict[str, dict[str, str]]
) -> dict[str, str]:
    """Hash the rows of the tasks of a run, as they are now; ``hashes`` are those of other runs."""
    data = [task.data for task in tasks.values() if not isinstance(task, RecipeText)]
    if (key := repr(data)) not in hashes:
        hashes[key] = {name: rows.fingerprint for name, rows in load_tasks(data).items()}
    now = {**hashes[key]}
    for name, task in tasks.items():
        # an unfinished run, which may have no tokenizer yet, compares its texts itself
        if isinstance(task, RecipeText) and run_folder.is_finished(folder):
            corpora, tokenizer = list(task.corpora.values()), load_tokenizer(str(folder))
            if (key := f"{corpora} {tokenizer.backend_tokenizer.to_str()}") not in hashes:
                hashes[key] = {"": encode_corpus(corpora, tokenizer).fingerprint}
            now[name] = hashes[key][""]
    return now


def check_run(run: PlannedRun) -> tuple[Keys, dict[str, RecipeTask | RecipeText]]:
    """Check all of a run that needs no rows; return its settings and its tasks."""
    arguments, args = fill_arguments(load_kinds(run.program), run.recipe, where=run.name)
    if pushed := [name for name in ("push_to_hub", "hub_model_id") if getattr(args, name)]:
        raise ValueError(
            f"{pushed[0]} would send every row and seed to one repository; turn it off with "
            f"`--{pushed[0]} null`, and push the run you choose with model.push_to_hub"
        )
    if args.hub_token is not None:
        raise ValueError("hub_token would be written to a file of every run; leave it out")
    # as `Run` does, before the checks complete the arguments
    settings = run_folder.describe_settings(args, asdict(arguments))
    path = arguments.model_name_or_path
    # that of a pre-training may not exist yet; one on the Hub would be asked for every run
    is_local = path is None or (run.after is None and Path(path).is_dir())
    if run.program == "pretrain":
        start = load_config(arguments, pretrain.find_sizes(arguments)) if is_local else None
        return settings, {pretrain.TASK: pretrain.check_recipe(arguments, args, start)}
    start = load_config(arguments, arguments.model_config) if is_local else None
    labeled, texts = check_recipe(arguments, args, start)
    return settings, {**labeled, **texts}


def order_runs(rows: Sequence[Row]) -> list[PlannedRun]:
    """Order runs by seed, then row; a pre-training comes right before its first run."""
    ordered: dict[Path, PlannedRun] = {}
    for run in filter(None, chain(*zip_longest(*(row.runs.values() for row in rows)))):
        if run.after is not None:
            ordered.setdefault(run.after.folder, run.after)
        ordered.setdefault(run.folder, run)
    return list(ordered.values())


def remaining_runs(runs: Sequence[PlannedRun], states: States) -> list[PlannedRun]:
    """Return the runs to do; a pre-training is one of them only if another run needs it."""
    left = [run for run in runs if states[run.folder] not in ("done", "failed")]
    needed = {run.after.folder for run in left if run.after is not None}
    return [run for run in left if run.program != "pretrain" or run.folder in needed]


def describe_runs(runs: Sequence[PlannedRun], states: States) -> str:
    """Return the list of the runs that are done or to do, with their states."""
    needed = {run.folder for run in remaining_runs(runs, states)}
    return "\n".join(
        f"{WORDS[states[run.folder]]:<7}  {run.name}"
        for run in runs
        if run.folder in needed or states[run.folder] == "done"
    )


class ExperimentTable:
    """Results of the runs of an experiments file that are done, and messages of failures."""

    def __init__(self, rows: Sequence[Row], states: States, failures: Sequence[str] = ()) -> None:
        self.rows, self.failures = rows, failures
        # by row and by folder
        self.results: list[dict[Path, dict[str, Any]]] = [
            {
                run.folder: read_metrics(run.folder)
                for run in row.runs.values()
                if states.get(run.folder) == "done"
            }
            for row in rows
        ]
        measured: set[str] = set()
        # name of the task or aggregate, and key of the metric, by column
        self.columns: dict[str, tuple[str, str]] = {}
        self.headlines: list[set[str]] = [set() for _ in rows]  # columns of each row
        for headlines, results in zip(self.headlines, self.results, strict=True):
            for content in results.values():
                kinds = {task: head["problem_type"] for task, head in content["tasks"].items()}
                known = {task: kind for task, kind in kinds.items() if kind in PROBLEMS}
                problems = make_problems(known, metrics=content.get("metrics", {}))
                for task, problem in problems.items():
                    column = f"{task} {problem.headline[0]}"
                    self.columns[column] = (task, f"{task}_{problem.headline[0]}")
                    headlines.add(column)
                measured.update(content["validation"]["metrics"])
        self.columns |= {name: (name, name) for name in AGGREGATES if name in measured}

    def read_values(self, place: int, key: str) -> list[float]:
        """Return the values of a metric for the seeds of a row."""
        found = [content["validation"]["metrics"] for content in self.results[place].values()]
        return [metrics[key] for metrics in found if key in metrics]

    def list_cells(self) -> list[list[str]]:
        """List the head and the rows of the table."""
        referenced = set(chain(*(row.reference for row in self.rows)))
        head = ["row", "seeds"]
        for column, (name, _) in self.columns.items():
            head += [column, "reference"] if name in referenced else [column]
        lines = [head]
        for place, row in enumerate(self.rows):
            done = len(self.results[place])
            line = [row.name, str(done) if done == len(row.runs) else f"{done} of {len(row.runs)}"]
            for column, (name, key) in self.columns.items():
                values = self.read_values(place, key)
                spread = f" ± {stdev(values):.4f}" if len(values) > 1 else ""
                line.append(f"{mean(values):.4f}{spread}" if values else "")
                if name in referenced:
                    # of the metric that the row has as its headline
                    is_own = column in (name, *self.headlines[place]) or not self.headlines[place]
                    is_known = name in row.reference and is_own
                    line.append(f"{row.reference[name]:.4f}" if is_known else "")
            lines.append(line)
        return lines

    def markdown(self) -> str:
        """Format the table, with notes below it."""
        parts = [markdown_table(self.list_cells(), text_columns=1), NOTE]
        tasks: dict[str, set[tuple[str, str]]] = {}  # that count, with what their metrics depend on
        for row, results in zip(self.rows, self.results, strict=True):
            for folder, content in results.items():
                settings = run_folder.read_settings(folder).get("tasks") or {}
                counted = tasks[row.name] = set()
                for task, head in content["tasks"].items():
                    keys = settings.get(task) or {}
                    measured = content["validation"]["rows"].get(task)
                    if measured and not keys.get("auxiliary"):
                        kind = f"{keys.get('metrics')} {head['problem_type']} {measured}"
                        counted.add((task, kind))
        first = next(iter(tasks.values()), set())
        others = [name for name, counted in tasks.items() if counted != first]
        aggregates = " and ".join(name for name in AGGREGATES if name in self.columns)
        if others and aggregates:
            parts.append(
                f"Only rows with equal tasks, metrics and validation rows can be compared by "
                f"{aggregates}; these rows differ from the first, which has "
                f"{', '.join(sorted(task for task, _ in first))}: {'; '.join(others)}."
            )
        if self.failures:
            parts.append("\n".join(["```", *self.failures, "```"]))
            parts.append("Repeat the command to retry failed runs from their last checkpoints.")
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write ``table.md``, and ``table.html`` with the table and a figure of each column."""
        write_text(folder / "table.md", self.markdown())
        head, *lines = printable(self.list_cells())
        names = [line[0] for line in lines]
        note = "; ".join(f"row {place}: {name}" for place, name in enumerate(names, 1))
        figures = []
        for column, (_, key) in self.columns.items():
            series = {
                name: [[place, value] for value in self.read_values(place - 1, key)]
                for place, name in enumerate(names, 1)
            }
            figures.append(Figure(column, "row", column, series, note, style="points"))
        sections = [Section("Table", [NOTE], [Table("", [(name, "") for name in head], lines)])]
        if figures:
            sections.append(Section("Seeds", ["Each point is a run."], figures))
        name = printable(folder.resolve().name)
        page, source = folder / "table.html", "Made from the metrics.json of each run."
        write_page(page, f"{name}: experiments", name, source, sections)


def do_runs(arguments: ExperimentArguments, rows: Sequence[Row], states: States) -> ExperimentTable:
    """Do the remaining runs, note their states, and write the table after each.

    A failure does not stop the others.
    """
    failures: list[str] = []
    left = remaining_runs(order_runs(rows), states)
    for number, run in enumerate(left, start=1):
        print(f"[{number}/{len(left)}] {run.name}", flush=True)
        if run.after is not None and states[run.after.folder] == "failed":
            reason: str | None = f"not started: {run.after.name} failed"
        else:
            try:
                reason = do_run(run, states[run.folder])
            except OSError as error:
                reason = f"not started: {reason_of(error)}"
        states[run.folder] = "done" if reason is None else "failed"
        if reason is not None:
            failures.append(f"{run.name} {reason}")
            print(failures[-1], file=sys.stderr)
        elif not arguments.keep_checkpoints:  # at once, since they are large
            run_folder.delete_checkpoints(run.folder)
        ExperimentTable(rows, states, failures).write(Path(arguments.output_dir))
    return ExperimentTable(rows, states, failures)


def do_run(run: PlannedRun, state: State) -> str | None:
    """Do a run in a process, with its output at the end of a log; return why it failed."""
    log = run.folder.with_name(f"{run.folder.name}.log")
    recipe = run.folder.with_name(f"{run.folder.name}.yaml")
    recipe.parent.mkdir(parents=True, exist_ok=True)
    write_text(recipe, format_recipe(run.recipe))
    resume = f"--resume_from_checkpoint={str(state == 'unfinished').lower()}"
    command = [*program_command(run.program), str(recipe), resume, "--disable_tqdm=true"]
    # the folder of an installed package must not come before the standard library
    paths = [*([] if IS_INSTALLED else [str(HOME)]), os.environ.get("PYTHONPATH", "")]
    # unbuffered, so that the log has everything up to a crash; ``-m`` finds this code, not files
    # of the current folder
    environment = {"PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    with log.open("ab") as file:
        start = file.tell()
        status = subprocess.run(  # noqa: S603  our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=os.environ | environment,
            check=False,
        ).returncode
    if status == 0 and run_folder.is_finished(run.folder):
        return None
    reason = f"failed: exit status {status}"
    if status == 0:
        reason = "failed: it ended without an error, but without results"
    elif status == -signal.SIGKILL:
        reason = "failed: ended by SIGKILL (often out of memory)"
    text = log.read_bytes()[start:].decode("utf-8", errors="replace")
    tail = [line for line in text.splitlines() if line.strip()][-TAIL:]
    return "\n    ".join([reason, *tail, f"full log: {log}"])


def program_command(program: str) -> list[str]:
    """Return the command that starts ``finetune`` or ``pretrain``."""
    return [sys.executable, "-m", f"minbert_cli.{program}"]


def run(argv: Sequence[str]) -> int:
    """Do the runs; return the exit status."""
    with readable_errors(PROGRAM):
        arguments, rows, states = plan(argv)
        print(describe_runs(order_runs(rows), states))
        if arguments.dry_run:
            return 0
    folder = Path(arguments.output_dir)
    try:
        with readable_errors(PROGRAM), run_folder.sole_writer(folder):
            table = do_runs(arguments, rows, states)
            table.write(folder)
            print(f"\n{table.markdown()}")
            print(f"{folder}: {', '.join(TABLES)}")
    except KeyboardInterrupt:
        print("interrupted; repeat the command to resume", file=sys.stderr)
        return INTERRUPTED
    return 1 if table.failures else 0


def main(argv: Sequence[str]) -> None:
    """Run the program; SIGTERM ends it and the current run, like Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(run(argv))
