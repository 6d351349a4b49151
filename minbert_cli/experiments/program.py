"""Run many recipes with several seeds, and put their results into one table.

    minbert experiments [FILE] [--flag value ...]
    minbert experiments compare FIRST_RUN SECOND_RUN [--html PAGE]

FILE is a YAML file or the name of a packaged one, such as report/table; the default is a small
example. Flags are the fields of `ExperimentArguments`; any other flag is a field of the recipes, as
in `--tasks.sts.loss mse`, and overrides it in all of them.

Every run is a separate process with a log: its memory is freed at the end, and a crash fails one
row only. Finished runs are skipped and interrupted ones resumed, so repeating the command does the
rest.

`--dry_run` only says what would be done: it checks and lists the runs, then reads their data and
times a few steps of every different one, outside the output folder, to estimate rows, steps and
time. `--dry_run --estimate false` stops after the list.

A row can search over the fields of its recipe: by a grid, random draws, or optuna's TPE, whose
trials depend on earlier ones. Unlike the Trainer's `hyperparameter_search`, it may change every key
(also of tasks and of pre-training), runs each trial in its own process or processes, and resumes.
"""

import signal
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tqdm.auto import tqdm

from minbert_cli.arguments import KINDS
from minbert_cli.help import show_help
from minbert_cli.launch import describe_skipped, smoke_folder
from minbert_cli.recipes import RECIPES, check_program, with_recipe
from minbert_cli.run_folder import check_tables, sole_writer
from trainers import readable_errors

from .campaign import (
    Campaign,
    Failure,
    State,
    drop_needless,
    find_state,
    leave_out,
    order_runs,
    program_command,
)
from .checks import check_runs, read_fingerprints
from .compare_command import compare
from .estimates import Estimate, describe_estimates, group_runs, try_groups
from .experiment_arguments import ExperimentArguments, parse_experiments
from .planning import TABLES, PlannedRun, Row, RowPlan, plan_rows, plan_studies
from .search.plot import write_trials
from .search.study import import_optuna
from .searching import SearchedRow, describe, expect_rows, finished_rows, sample_rows
from .smoke_test import check_smoke_folder, mark_smoke_folder, shrink_rows
from .tables import ExperimentTable

PROGRAM = "minbert experiments"
QUICKSTART = RECIPES / "experiments" / "quickstart.yaml"
# Further programs of a campaign, by name.
MODULES = {"trial": "experiments.search.run"}
INTERRUPTED = 130  # exit status of a shell after Ctrl-C


@dataclass(frozen=True)
class Prepared:
    """Everything that was planned and checked."""

    arguments: ExperimentArguments
    rows: list[Row]
    campaign: Campaign
    studies: list[RowPlan]  # rows whose runs are not known yet
    checked: list[PlannedRun]  # the runs of the campaign, and examples of the others

    def describe(self) -> str:
        """Return the list of runs with their states, and of searches."""
        return "\n".join(filter(None, [self.campaign.describe(), *map(describe, self.studies)]))


def prepare(argv: Sequence[str]) -> Prepared:
    """Read and check everything without writing."""
    argv = with_recipe(argv)
    check_program(argv, "experiments")
    arguments, overrides, of_file = parse_experiments(argv, QUICKSTART)
    if arguments.smoke_test:
        arguments = replace(arguments, output_dir=smoke_folder(arguments.output_dir))
        check_smoke_folder(Path(arguments.output_dir))
    check_tables(arguments.output_dir, TABLES)
    rows = plan_rows(arguments, overrides, of_file)
    plans = plan_studies(arguments, overrides, of_file)
    studies = [plan for plan in plans if plan.seeds]
    rows += chain(*(finished_rows(plan) for plan in plans if not plan.seeds))
    samples = list(chain(*map(sample_rows, studies)))
    if studies:
        import_optuna(f"{studies[0].where}: search")
    if arguments.smoke_test:
        rows, studies, samples = shrink_rows([*rows, *samples]), [], []
    runs = order_runs(rows)
    checked = [*runs, *order_runs(samples)]
    settings = check_in_process(checked, arguments.processes)[: len(runs)]
    overwrite = arguments.overwrite_output_dir
    if arguments.smoke_test:  # every time from the beginning
        states: dict[Path, State] = {run.folder: "new" for run in runs}
    else:
        states = find_states(runs, settings, overwrite=overwrite)
    rows, left_out = leave_out(rows, states)
    campaign = Campaign(
        drop_needless([run for run in runs if run.chosen], states),
        states,
        {
            name: program_command(f"minbert_cli.{module}", arguments.processes)
            for name, module in (MODULES | dict(zip(KINDS, KINDS, strict=True))).items()
        },
        overwrite=overwrite or arguments.smoke_test,
        keep_checkpoints=arguments.keep_checkpoints,
        left_out=left_out,
    )
    return Prepared(arguments, rows, campaign, studies, checked)


def check_in_process(runs: Sequence[PlannedRun], processes: int) -> list[dict[str, Any]]:
    """Check runs in a separate process: reading their arguments allocates GPU memory."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(check_runs, runs, processes).result()


def open_studies(prepared: Prepared) -> list[SearchedRow]:
    """Open the studies of all rows, which creates their files."""
    arguments = prepared.arguments

    def find(runs: Sequence[PlannedRun]) -> dict[Path, State]:
        settings = check_in_process(runs, arguments.processes)
        return find_states(runs, settings, overwrite=arguments.overwrite_output_dir)

    return [
        SearchedRow.open(plan, find, overwrite=arguments.overwrite_output_dir)
        for plan in prepared.studies
    ]


def find_states(
    runs: Sequence[PlannedRun], settings: Sequence[dict[str, Any]], *, overwrite: bool
) -> dict[Path, State]:
    """Look up the state of every run by its folder."""
    fingerprints: dict[str, str] = {}
    states = {}
    for run, found in zip(runs, settings, strict=True):
        # pre-training again need not give bit-identical weights
        known = found if run.after is None else {**found, "model_name_or_path": None}
        states[run.folder] = find_state(
            run,
            found,
            # a run that was not selected stays as it is; a different run there is not shown
            overwrite=overwrite or not run.chosen,
            read_data=partial(read_fingerprints, known, fingerprints),
        )
    return states


def run_campaign(
    rows: Sequence[Row],
    campaign: Campaign,
    output_dir: Path,
    searches: Sequence[SearchedRow] = (),
) -> bool:
    """Do all runs and write the table after each; plots are slow and come at the end."""
    waiting = {run.folder for run in campaign.runs if campaign.states[run.folder] != "done"}
    failures: dict[Path, Failure] = {}
    # failures and waiting runs change, and each table shows them as they are then
    make_table = partial(_make_table, rows, searches, failures, waiting, campaign.left_out)
    done = len(campaign.runs) - len(waiting)
    total = len(campaign.runs) + sum(search.left for search in searches)
    with tqdm(total=total, initial=done, unit="run") as bar:

        def announce(run: PlannedRun) -> None:
            bar.set_description(run.name)

        parts = (search.do(campaign, announce) for search in searches)
        for run, failure in chain(campaign.do(announce), *parts):
            if failure is not None:
                failures[run.folder] = failure
                bar.write(f"{run.name} {failure.describe()}", file=sys.stderr)
            if run.folder in waiting or run.folder not in campaign.states:
                waiting.discard(run.folder)
                make_table().write(output_dir, picture=False)
                bar.update()
    _write_results(make_table(), output_dir, searches)
    return not failures


def _make_table(
    rows: Sequence[Row],
    searches: Sequence[SearchedRow],
    failures: dict[Path, Failure],
    waiting: set[Path],
    left_out: Sequence[PlannedRun],
) -> ExperimentTable:
    """Make the table of the rows, and of the rows that searches have found so far."""
    shown = [*rows, *chain(*(search.rows for search in searches))]
    notes = [search.describe() for search in searches]
    unfinished = waiting.union(*(search.waiting for search in searches))
    return ExperimentTable(shown, failures, unfinished, left_out, notes)


def _write_results(
    table: ExperimentTable, output_dir: Path, searches: Sequence[SearchedRow]
) -> None:
    """Write and print the table, draw the plots, and list the files."""
    table.write(output_dir)
    print(f"\n{table.markdown()}")
    pictures = [path.name for path in (output_dir / "table.png",) if path.is_file()]
    for search in searches:
        write_trials(search.study, output_dir, search.plan.slug)
        pictures += [f"{search.plan.slug}.trials.{end}" for end in ("csv", "png")]
    listed = "".join(f" {name}," for name in pictures)
    print(f"{output_dir}: table.md, table.csv,{listed} and runs.csv with every run")


def print_estimates(prepared: Prepared) -> int:
    """Print the expected size and time of the remaining runs, if wanted; return the exit status."""
    arguments, rows, campaign = prepared.arguments, prepared.rows, prepared.campaign
    expected = list(chain(*map(expect_rows, prepared.studies)))
    rows, runs = [*rows, *expected], order_runs(expected)
    states: dict[Path, State] = {run.folder: "new" for run in runs}
    campaign = replace(campaign, runs=[*campaign.runs, *runs], states={**states, **campaign.states})
    groups = group_runs(campaign) if arguments.estimate else []
    if not groups:
        return 0
    print(f"\ntrying a few steps of {len(groups)} different run{'s' * (len(groups) > 1)}")
    command = program_command("minbert_cli.experiments.trial", arguments.processes)
    estimates: dict[Path, Estimate] = {}
    failed = False
    with TemporaryDirectory(prefix="minbert-") as folder, tqdm(groups, unit="trial") as bar:
        for group, found in try_groups(bar, campaign.states, command, Path(folder)):
            if isinstance(found, Failure):
                failed = True
                bar.write(f"{group[0].name} {replace(found, log=None).describe()}", sys.stderr)
            else:
                estimates |= dict.fromkeys((run.folder for run in group), found)
    print(f"\n{describe_estimates(rows, campaign, estimates)}")
    return 1 if failed else 0


def run(argv: Sequence[str]) -> int:
    """Do the runs, or compare two; return the exit status."""
    with ExitStack() as stack:
        with readable_errors(PROGRAM):
            if argv[:1] == ["compare"]:
                print(compare(argv[1:]))
                return 0
            prepared = prepare(argv)
            arguments, campaign = prepared.arguments, prepared.campaign
            print(prepared.describe())
            output_dir = Path(arguments.output_dir)
            if not arguments.dry_run:
                stack.enter_context(sole_writer(output_dir))
                if arguments.smoke_test:
                    mark_smoke_folder(output_dir)
            searches = [] if arguments.dry_run else open_studies(prepared)
        try:
            with readable_errors(PROGRAM, (OSError,)):
                if arguments.dry_run:
                    return print_estimates(prepared)
                is_complete = run_campaign(prepared.rows, campaign, output_dir, searches)
        except KeyboardInterrupt:
            print("interrupted; repeat the command to resume", file=sys.stderr)
            return INTERRUPTED
        return _finish(output_dir, is_complete=is_complete, is_smoke_test=arguments.smoke_test)


def _finish(output_dir: Path, *, is_complete: bool, is_smoke_test: bool) -> int:
    """Return the exit status."""
    if is_complete and is_smoke_test:
        print(f"\n{describe_skipped(output_dir)}")
    return 0 if is_complete else 1


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program; SIGTERM ends it and the current run, like Ctrl-C."""
    argv = sys.argv[1:] if argv is None else argv
    if show_help("experiments", argv):
        return
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        status = run(argv)
    finally:
        # processes that are forked later by the same program must end on SIGTERM
        signal.signal(signal.SIGTERM, previous)
    sys.exit(status)
