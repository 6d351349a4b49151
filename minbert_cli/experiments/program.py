"""Run many recipes with several seeds, and put their results into one table.

    minbert experiments [FILE] [--flag value ...]
    minbert experiments compare FIRST_RUN SECOND_RUN [--html PAGE]

FILE is a YAML file or the name of a packaged one, such as report/table; the default is a small
example. Flags are the fields of `ExperimentArguments`; any other flag is one of `minbert finetune`,
as in `--tasks.sts.loss mse`, and goes to all runs.

Every run is a separate process with a log: its memory is freed at the end, and a crash fails one
row only. Finished runs are skipped and interrupted ones resumed, so repeating the command does the
rest. `--dry_run` checks and lists the runs.

A row can search over the keys of its recipe with optuna: by a grid, random draws, or TPE. Unlike
the Trainer's `hyperparameter_search`, it may change every key (also of tasks), runs each trial in
its own process or processes, and resumes.
"""

import signal
import sys
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

from tqdm.auto import tqdm

from minbert_cli.help import show_help
from minbert_cli.launch import describe_skipped
from minbert_cli.recipes import RECIPES, check_program, with_recipe
from minbert_cli.run_folder import check_tables, sole_writer
from trainers import readable_errors

from .campaign import States, describe_runs, do_runs, find_states, order_runs, remaining_runs
from .compare import compare
from .plan import TABLES, ExperimentArguments, PlannedRun, Row, read_file
from .search import RunningSearch
from .table import ExperimentTable

PROGRAM = "minbert experiments"
QUICKSTART = RECIPES / "experiments" / "quickstart.yaml"
INTERRUPTED = 130  # exit status of a shell after Ctrl-C


class Campaign:
    """The rows of an experiments file, read and checked; nothing is written."""

    arguments: ExperimentArguments
    rows: list[Row]  # but for those of searches
    searches: list[RunningSearch]
    runs: list[PlannedRun]  # of the rows
    checked: list[PlannedRun]  # the runs, and those and examples of searches
    states: States

    def __init__(self, argv: Sequence[str]) -> None:
        argv = with_recipe(argv)
        check_program(argv, "experiments")
        self.arguments, plans = read_file(argv, QUICKSTART)
        arguments = self.arguments
        check_tables(arguments.output_dir, TABLES)
        # a smoke test begins again every time; the program itself guards its folder
        overwrite = arguments.overwrite_output_dir or arguments.smoke_test
        self.rows, self.searches, searched = [], [], []
        for plan in plans:
            if plan.search is None or arguments.smoke_test:
                self.rows += plan.examples()
            else:
                search = RunningSearch(plan, overwrite=overwrite)
                self.searches.append(search)
                searched += [*search.rows.values(), *plan.examples()]
        self.runs = order_runs(self.rows)
        self.checked = [*self.runs, *order_runs(searched)]
        self.states = find_states(self.checked, arguments.processes, overwrite=overwrite)
        if arguments.smoke_test:
            self.states = dict.fromkeys(self.states, "new")

    def describe(self) -> str:
        """Return the list of runs with their states, and of searches."""
        listed = describe_runs(self.runs, self.states)
        return "\n".join(filter(None, [listed, *(search.describe() for search in self.searches)]))

    def run(self) -> bool:
        """Do all runs and write the table after each; return whether all have results."""
        output_dir = Path(self.arguments.output_dir)
        for search in self.searches:
            old = [run.folder for row in search.rows.values() for run in row.runs.values()]
            # trials of other data than now tell nothing of the others
            is_old = any(self.states[folder] == "changed" for folder in old)
            search.start(restart=is_old)
            for folder in old if is_old else ():
                self.states[folder] = "new"
        total = len(remaining_runs(self.runs, self.states))
        total += sum(search.left * len(search.plan.seeds) for search in self.searches)
        failures = []
        with tqdm(total=total, unit="run") as bar:
            parts = [do_runs(self.runs, self.states, self.arguments, bar)]
            parts += [search.do(self.states, self.arguments, bar) for search in self.searches]
            for _, failure in chain.from_iterable(parts):
                if failure is not None:
                    failures.append(failure)
                    bar.write(failure, file=sys.stderr)
                self._make_table(failures).write(output_dir)
                bar.update()
        table = self._make_table(failures)
        table.write(output_dir)
        print(f"\n{table.markdown()}")
        table.write_page(output_dir / "table.html")
        print(f"{output_dir}: table.md, table.csv, table.html and runs.csv with every run")
        return not failures

    def _make_table(self, failures: Sequence[str]) -> ExperimentTable:
        """Make the table of what is done so far."""
        rows = [*self.rows, *chain(*(search.rows.values() for search in self.searches))]
        notes = [search.conclude() for search in self.searches]
        return ExperimentTable(rows, self.states, failures, notes)


def run(argv: Sequence[str]) -> int:
    """Do the runs, or compare two; return the exit status."""
    with readable_errors(PROGRAM):
        if argv[:1] == ["compare"]:
            print(compare(argv[1:]))
            return 0
        campaign = Campaign(argv)
        print(campaign.describe())
        if campaign.arguments.dry_run:
            return 0
    output_dir = campaign.arguments.output_dir
    try:
        with readable_errors(PROGRAM), sole_writer(output_dir):
            is_complete = campaign.run()
    except KeyboardInterrupt:
        print("interrupted; repeat the command to resume", file=sys.stderr)
        return INTERRUPTED
    if is_complete and campaign.arguments.smoke_test:
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
