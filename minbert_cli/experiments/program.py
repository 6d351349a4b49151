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
the Trainer's `hyperparameter_search`, it may change every key (also of tasks and of pre-training),
runs each trial in its own process or processes, and resumes.
"""

import signal
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tqdm.auto import tqdm

from minbert_cli.help import show_help
from minbert_cli.launch import describe_skipped
from minbert_cli.recipes import RECIPES, check_program, with_recipe
from minbert_cli.run_folder import check_tables, sole_writer
from trainers import readable_errors

from .campaign import (
    Failure,
    States,
    describe_runs,
    do_runs,
    find_states,
    order_runs,
    remaining_runs,
)
from .compare import compare
from .plan import TABLES, ExperimentArguments, PlannedRun, Row, RowPlan, read_file
from .search import (
    RunningSearch,
    describe_search,
    finished_rows,
    import_optuna,
    start_search,
)
from .table import ExperimentTable

PROGRAM = "minbert experiments"
QUICKSTART = RECIPES / "experiments" / "quickstart.yaml"
INTERRUPTED = 130  # exit status of a shell after Ctrl-C


class Campaign:
    """The rows of an experiments file, read and checked; nothing is written."""

    arguments: ExperimentArguments
    rows: list[Row]  # but for those of searches to do
    searches: dict[Path, RowPlan]  # to do, by folder
    trials: dict[Path, list[Row]]  # of these searches, done before
    runs: list[PlannedRun]  # of the rows
    checked: list[PlannedRun]  # the runs, and examples of those of searches
    states: States

    def __init__(self, argv: Sequence[str]) -> None:
        argv = with_recipe(argv)
        check_program(argv, "experiments")
        self.arguments, plans = read_file(argv, QUICKSTART)
        arguments = self.arguments
        check_tables(arguments.output_dir, TABLES)
        self.rows, self.searches, self.trials, samples = [], {}, {}, []
        for plan in plans:
            if plan.search is None:
                self.rows.append(plan.at({}))
            elif arguments.smoke_test and plan.seeds:
                self.rows += plan.examples()
            elif plan.seeds:
                import_optuna(f"row {plan.name!r}: search")
                self.searches[plan.folder] = plan
                self.trials[plan.folder] = finished_rows(plan)
                samples += [*plan.examples(), *self.trials[plan.folder]]
            else:
                self.rows += finished_rows(plan)
        self.rows = [row for row in self.rows if row.runs]
        self.runs = order_runs(self.rows)
        self.checked = [*self.runs, *order_runs(samples)]
        # a smoke test begins again every time; the program itself guards its folder
        overwrite = arguments.overwrite_output_dir or arguments.smoke_test
        states = find_states(self.checked, arguments.processes, overwrite=overwrite)
        self.states = dict.fromkeys(states, "new") if arguments.smoke_test else states

    def describe(self) -> str:
        """Return the list of runs with their states, and of searches."""
        listed = describe_runs(self.runs, self.states)
        return "\n".join(filter(None, [listed, *map(describe_search, self.searches.values())]))

    def run(self) -> bool:
        """Do all runs and write the table after each; return whether all have results.

        Plots are slow and come at the end.
        """
        arguments, output_dir = self.arguments, Path(self.arguments.output_dir)
        overwrite = arguments.overwrite_output_dir
        searches = []
        for folder, plan in self.searches.items():
            runs = [run for row in self.trials[folder] for run in row.runs.values()]
            states = {run.folder: self.states[run.folder] for run in runs}
            # with overwrite, since the data have changed
            restart = any(states[place] == "new" and place.exists() for place in states)
            search = start_search(plan, overwrite=overwrite, restart=restart)
            for row in () if restart else self.trials[folder]:
                if all(states[run.folder] == "done" for run in row.runs.values()):
                    search.rows.append(row)
            searches.append(search)
        failures: dict[Path, Failure] = {}
        left = remaining_runs(self.runs, self.states)
        waiting = {run.folder for run in left}
        total = len(left) + sum(search.left for search in searches)
        with tqdm(total=total, unit="run") as bar:
            do = partial(
                do_runs,
                processes=arguments.processes,
                overwrite=overwrite and not arguments.smoke_test,
                keep_checkpoints=arguments.keep_checkpoints,
                announce=bar.set_description,
            )
            look = partial(find_states, processes=arguments.processes, overwrite=overwrite)
            parts = [do(self.runs, self.states), *(search.do(do, look) for search in searches)]
            for part in parts:
                for run, failure in part:
                    waiting.discard(run.folder)
                    if failure is not None:
                        failures[run.folder] = failure
                        bar.write(f"{run.name} {failure.describe()}", file=sys.stderr)
                    self._make_table(searches, failures, waiting).write(output_dir, picture=False)
                    bar.update()
        table = self._make_table(searches, failures, waiting)
        table.write(output_dir)
        print(f"\n{table.markdown()}")
        pictures = ["table.png"] if (output_dir / "table.png").is_file() else []
        for search in searches:
            pictures += search.write(output_dir)
        listed = "".join(f" {name}," for name in pictures)
        print(f"{output_dir}: table.md, table.csv,{listed} and runs.csv with every run")
        return not failures

    def _make_table(
        self,
        searches: Sequence[RunningSearch],
        failures: dict[Path, Failure],
        waiting: set[Path],
    ) -> ExperimentTable:
        """Make the table of what is done so far."""
        changed = [run for run in self.runs if self.states[run.folder] == "changed"]
        without = {run.folder for run in changed}
        rows = []
        for row in self.rows:
            runs = {seed: run for seed, run in row.runs.items() if run.folder not in without}
            if runs:
                rows.append(Row(row.name, row.changes, row.reference, runs))
        rows += [row for search in searches for row in search.rows]
        listed = [run for row in rows for run in row.runs.values()]
        named = [*self.runs, *listed, *(run.after for run in listed if run.after is not None)]
        notes = [search.describe() for search in searches]
        if changed:
            notes.append(
                "Finished with different settings or data, so not in the table: "
                f"{'; '.join(run.name for run in changed)}. Choose these rows and seeds with "
                "--overwrite_output_dir true to repeat them."
            )
        waiting = waiting.union(*(search.waiting for search in searches))
        names = {run.folder: run.name for run in named}
        return ExperimentTable(rows, failures, waiting, names, notes)


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
