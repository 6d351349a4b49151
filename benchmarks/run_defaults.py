"""Compare the defaults of a run with a small search of its settings, and tasks together with alone.

    python benchmarks/run_defaults.py --data_dir <folder> --model <checkpoint> --output runs.jsonl
    python benchmarks/run_defaults.py --together --seeds 1 2 3 ...  # four tasks in one model

The folder holds `cs224n`, `glue`, `conll2003`, `senteval` and `snli` with their official files.
Three tasks are made into CSV files with a header, as people have them. Each run is a process; runs
of the output file are not repeated, and the table of all is printed at the end.
"""

import argparse
import csv
import json
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import redirect_stderr, redirect_stdout
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tqdm import tqdm  # noqa: E402

from benchmarks.report import table  # noqa: E402
from minbert_cli.finetune import finetune  # noqa: E402

HELD_OUT = 1000  # rows of a CSV file
# folder of the official files, keys of the task, metric
BUILT_IN: dict[str, tuple[str, dict[str, Any], str]] = {
    "sst": ("cs224n", {"dataset": "sst"}, "accuracy"),
    "quora": ("cs224n", {"dataset": "quora"}, "accuracy"),
    "sts": ("cs224n", {"dataset": "sts"}, "pearson"),
    "mrpc": ("glue", {"dataset": "mrpc", "metrics": ["accuracy"]}, "accuracy"),
    "cola": ("glue", {"dataset": "cola"}, "matthews_correlation"),
    "rte": ("glue", {"dataset": "rte"}, "accuracy"),
    "ner": ("conll2003", {"dataset": "conll2003"}, "f1"),
}
ROWS = {"reviews": 200}  # of training; of all others as many as --rows
DEFAULTS = "defaults"
# A careful user's search around what is usual: keys of the run, keys of the task.
USUAL = {"num_train_epochs": 5, "per_device_train_batch_size": 16, "eval_strategy": "epoch"}
SEARCH: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rate 5e-5": ({"learning_rate": 5e-5}, {}),
    "rate 1e-4": ({"learning_rate": 1e-4}, {}),
    "rate 2e-4": ({"learning_rate": 2e-4}, {}),
    "rate 1e-4, heads 1e-3": ({"learning_rate": 1e-4, "head_learning_rate": 1e-3}, {}),
    "joint pairs": ({"learning_rate": 1e-4}, {"pair_encoding": "joint"}),
    "separate pairs": ({"learning_rate": 1e-4}, {"pair_encoding": "separate"}),
}
PAIRS = ("quora", "sts", "mrpc", "rte", "snli")
TOGETHER = {"sts": 1000, "snli": 1600, "ner": 1000, "trec": 500}  # training rows
TOGETHER_STEPS = 200  # of each task


class Job(NamedTuple):
    """One run."""

    name: str
    task: str
    setting: str
    seed: int
    recipe: dict[str, Any]


def read_trec(data: Path) -> Iterator[list[str]]:
    """Read questions and their kinds."""
    for line in (data / "senteval/TREC/train_5500.label").read_text("utf-8").splitlines():
        label, text = line.split(" ", 1)
        yield [text, label.partition(":")[0].lower()]


def read_reviews(data: Path) -> Iterator[list[str]]:
    """Read sentences of customers and their sentiment."""
    for label, file in (("positive", "custrev.pos"), ("negative", "custrev.neg")):
        for line in (data / "senteval/CR" / file).read_text("utf-8").splitlines():
            yield [line.strip(), label]


def read_snli(data: Path) -> Iterator[list[str]]:
    """Read pairs of sentences and whether the first implies the second."""
    for split in ("train", "dev"):
        text = (data / f"snli/snli_1.0_{split}.jsonl").read_text("utf-8")
        for row in map(json.loads, text.splitlines()):
            if row["gold_label"] != "-":
                yield [row["sentence1"], row["sentence2"], row["gold_label"]]


# reader and columns, the label last
CSV_FILES = {
    "trec": (read_trec, ["question", "kind"]),
    "reviews": (read_reviews, ["text", "label"]),
    "snli": (read_snli, ["premise", "hypothesis", "label"]),
}
TASKS = (*BUILT_IN, *CSV_FILES)


def write_csv(name: str, data: Path, folder: Path) -> dict[str, Any]:
    """Write a task as two CSV files; return its keys."""
    read, columns = CSV_FILES[name]
    rows = list(read(data))
    random.Random(0).shuffle(rows)
    keys: dict[str, Any] = {"problem_type": "classification"}
    keys |= {"text_columns": columns[:-1], "label_column": columns[-1]}
    parts = {"validation_file": rows[:HELD_OUT], "train_file": rows[HELD_OUT:]}
    for key, own in parts.items():
        path = folder / f"{name}-{key}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([columns, *own])
        keys[key] = str(path)
    return keys


def find_task(name: str, data: Path, folder: Path, rows: int) -> dict[str, Any]:
    """Return the keys of a task with so many training rows."""
    own = BUILT_IN[name][1] if name in BUILT_IN else write_csv(name, data, folder)
    return {**own, "max_train_samples": ROWS.get(name, rows), "max_eval_samples": HELD_OUT}


def metric_of(name: str) -> str:
    """Return the name of the metric of a task in the results."""
    return f"{name}_{BUILT_IN[name][2] if name in BUILT_IN else 'accuracy'}"


def link_files(data: Path, folder: Path) -> str:
    """Link all official files of the built-in tasks into one folder."""
    for name in ("cs224n", "conll2003", "glue"):
        for path in (data / name).iterdir():
            (folder / path.name).symlink_to(path.resolve())
    return str(folder)


def list_jobs(args: argparse.Namespace, folder: Path) -> list[Job]:
    """List the runs of a command line."""
    base = {
        "model_name_or_path": str(args.model),
        "data_dir": link_files(args.data_dir, folder),
        "use_cpu": True,
        "bf16": args.bf16,
        "evaluate_train": False,
        "report_examples": 0,
        "disable_tqdm": True,
    }
    make = list_together if args.together else list_search
    return [job for seed in args.seeds for job in make(args, folder, base, seed)]


def list_search(
    args: argparse.Namespace, folder: Path, base: Mapping[str, Any], seed: int
) -> Iterator[Job]:
    """List the default run and the search of each task."""
    for name in args.tasks:
        keys = find_task(name, args.data_dir, folder, args.rows)
        for setting in args.settings:
            if setting == DEFAULTS:
                run, own = {}, {}
            else:
                run, own = {**USUAL, **SEARCH[setting][0]}, SEARCH[setting][1]
            if own and name not in PAIRS:
                continue
            recipe = {**base, **run, "tasks": {name: {**keys, **own}}, "seed": seed}
            yield Job(f"{name} {setting} {seed}", name, setting, seed, recipe)


def list_together(
    args: argparse.Namespace, folder: Path, base: Mapping[str, Any], seed: int
) -> Iterator[Job]:
    """List the run of all tasks together, and of each alone with as many steps."""
    tasks = {name: find_task(name, args.data_dir, folder, rows) for name, rows in TOGETHER.items()}
    for setting, names in {"together": list(tasks), **{name: [name] for name in tasks}}.items():
        recipe = {**base, "tasks": {name: tasks[name] for name in names}, "seed": seed}
        recipe["max_steps"] = TOGETHER_STEPS * len(names)
        kind = setting if setting == "together" else "alone"
        yield Job(f"{setting} {seed}", setting, kind, seed, recipe)


def run(job: Job) -> dict[str, Any]:
    """Train, in a process of its own; return the metrics and standard errors of validation."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Path(os.devnull).open("w") as quiet,
        redirect_stdout(quiet),
        redirect_stderr(quiet),
    ):
        trainer = finetune({**job.recipe, "output_dir": f"{folder}/run"})
        results = json.loads(Path(folder, "run", "metrics.json").read_text("utf-8"))["validation"]
        seconds = trainer.state.log_history[-1]["train_runtime"]
    values = {key: results[key] for key in ("metrics", "standard_errors")}
    return {**job._asdict(), **values, "seconds": seconds, "steps": trainer.state.global_step}


def do_all(jobs: Sequence[Job], output: Path, workers: int) -> None:
    """Run what the output file does not have yet."""
    done = {row["name"] for row in read_results(output)}
    left = [job for job in jobs if job.name not in done]
    # inherited by the processes, before they import torch
    os.environ["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // workers))
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context, max_tasks_per_child=1) as pool:
        futures = [pool.submit(run, job) for job in left]
        for future in tqdm(as_completed(futures), total=len(left), unit="run"):
            with output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(future.result()) + "\n")


def read_results(output: Path) -> list[dict[str, Any]]:
    """Read the runs of an output file; none if there is no file yet."""
    if not output.is_file():
        return []
    return [json.loads(line) for line in output.read_text("utf-8").splitlines()]


def show_search(results: Sequence[Mapping[str, Any]]) -> str:
    """Show the default run of each task beside the best of its search."""
    rows = []
    for name in dict.fromkeys(row["task"] for row in results):
        own = {row["setting"]: row for row in results if row["task"] == name}
        searched = {key: row for key, row in own.items() if key != DEFAULTS}
        if DEFAULTS not in own or not searched:
            continue
        metric = metric_of(name)
        best = max(searched, key=lambda key: searched[key]["metrics"][metric])
        values = [own[key]["metrics"][metric] for key in (DEFAULTS, best)]
        error = own[DEFAULTS]["standard_errors"][name]
        difference = (values[0] - values[1]) / error
        shown = [f"{value:.3f}" for value in (*values, error)]
        rows.append([name, metric.removeprefix(f"{name}_"), *shown, f"{difference:+.1f}", best])
    titles = ["task", "metric", "defaults", "best of the search", "standard error"]
    return table([*titles, "difference in standard errors", "best setting"], rows)


def show_together(results: Sequence[Mapping[str, Any]]) -> str:
    """Show each task in the common run and alone, for every seed."""
    rows = []
    for name in TOGETHER:
        metric = metric_of(name)
        for row in (row for row in results if row["task"] == name):
            common = next(
                (each for each in results if each["name"] == f"together {row['seed']}"), None
            )
            if common is None:
                continue
            values = [each["metrics"][metric] for each in (common, row)]
            error = row["standard_errors"][name]
            difference = f"{(values[0] - values[1]) / error:+.1f}"
            shown = [f"{value:.3f}" for value in (*values, error)]
            rows.append([name, str(row["seed"]), *shown, difference])
    titles = ["task", "seed", "together", "alone", "standard error"]
    return table([*titles, "difference in standard errors"], rows)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--data_dir", type=Path, required=True, help="folder of the data")
    parser.add_argument("--model", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument(
        "--output", type=Path, required=True, help="file of the results, JSON lines"
    )
    parser.add_argument("--together", action="store_true", help="four tasks in one model and alone")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS, help="of the search")
    settings = (DEFAULTS, *SEARCH)
    parser.add_argument("--settings", nargs="+", choices=settings, default=settings)
    parser.add_argument("--rows", type=int, default=1000, help="training rows of a task")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42])
    parser.add_argument("--workers", type=int, default=2, help="runs at the same time")
    parser.add_argument("--bf16", action="store_true", help="mixed precision")
    return parser.parse_args(argv)


def main() -> None:
    """Run what is missing, and print the table."""
    args = parse()
    with tempfile.TemporaryDirectory() as folder:
        do_all(list_jobs(args, Path(folder)), args.output, args.workers)
    show = show_together if args.together else show_search
    print(show(read_results(args.output)))


if __name__ == "__main__":
    main()
