r"""Learning from few rows: plain fine-tuning beside SetFit's two steps.

    python benchmarks/run_few_rows.py --encoder <folder> \
        --task "{dataset: sst2, data_dir: <GLUE folder>}"

Each seed draws its own rows. The whole validation set is measured, which no run uses to choose
anything. SetFit's steps are the recipes few_rows and few_rows_head; plain fine-tuning takes the
defaults of `minbert finetune` but keeps the last weights.
"""

import argparse
import logging
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from statistics import mean, stdev
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import yaml  # noqa: E402

from benchmarks.machine import describe_machine  # noqa: E402
from benchmarks.report import table  # noqa: E402
from minbert_cli.finetune import finetune  # noqa: E402
from minbert_cli.recipe import read_recipe  # noqa: E402
from minbert_cli.resources import find_recipe  # noqa: E402

METHODS = ("plain", "setfit", "head only")
LAST = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
QUIET = {"evaluate_train": False, "report_to": "none", "overwrite_output_dir": True}


def run(recipe: dict[str, Any], output: Path) -> dict[str, float]:
    """Train; return the metrics of the validation rows."""
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        trainer = finetune({**recipe, **QUIET, "output_dir": str(output)})
        metrics: dict[str, float] = trainer.evaluate()
    return metrics


def measure(
    method: str, task: dict[str, Any], rows: int, seed: int, encoder: str, folder: Path
) -> float:
    """Return the accuracy of a method with so many rows of each class."""
    own = {**task, "max_train_samples_per_class": rows, "sample_seed": seed}
    common = {"model_name_or_path": encoder, "seed": seed}
    if method == "plain":
        recipe = {"tasks": {"task": {**own, "pooling": "mean"}}, **common, **LAST}
        return run(recipe, folder / "plain")["eval_task_accuracy"]
    if method == "setfit":
        pairs = _recipe("few_rows", own, max_eval_samples=50)
        run(pairs | common, folder / "pairs")
        common["model_name_or_path"] = str(folder / "pairs")
    head = _recipe("few_rows_head", own)
    return run(head | common, folder / "head")["eval_task_accuracy"]


def _recipe(name: str, task: dict[str, Any], **keys: Any) -> dict[str, Any]:
    """Return a recipe with other rows."""
    recipe = read_recipe(find_recipe(name))
    (keys_of_task,) = recipe["tasks"].values()
    kept = {key: value for key, value in keys_of_task.items() if key != "dataset"}
    kind = {"problem_type"} if "class_pairs" in kept else set()
    own = {key: value for key, value in task.items() if key not in kind}
    return recipe | {"tasks": {"task": {**kept, **own, **keys}}}


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--encoder", required=True, help="folder or Hub id of a sentence encoder")
    add("--task", type=yaml.safe_load, required=True, help="keys of a classification, as YAML")
    add("--rows", type=int, nargs="+", default=[8, 16, 64], help="of each class")
    add("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)
    print(f"{describe_machine()['versions']}; {args.task}\n", flush=True)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in args.rows:
            cells = []
            for method in METHODS:
                found = [
                    measure(method, args.task, rows, seed, args.encoder, Path(folder))
                    for seed in args.seeds
                ]
                spread = stdev(found) if len(found) > 1 else 0.0
                cells.append(f"{mean(found):.3f} ± {spread:.3f}")
                print(rows, method, [round(value, 4) for value in found], flush=True)
            lines.append([str(rows), *cells])
    print(f"\n{table(['rows of each class', *METHODS], lines)}")


if __name__ == "__main__":
    main()
