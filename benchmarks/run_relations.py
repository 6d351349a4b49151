r"""A small encoder from text alone: no pre-training, masked tokens, or the relations of a teacher.

    python benchmarks/run_relations.py --teacher <folder> --glue_dir <folder> --text wiki.txt --bf16

Encoders of three layers learn from the same text for the same number of steps, and are fine-tuned
on tasks of GLUE. The last weights are measured, so that no validation row chooses anything.
"""

import argparse
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
from minbert_cli import pretrain  # noqa: E402
from minbert_cli.finetune import finetune  # noqa: E402
from trainers import readable_errors  # noqa: E402

TEACHER = "teacher itself"
WAYS: dict[str, dict[str, Any]] = {
    "random weights": {"max_steps": 1, "learning_rate": 0.0},
    "masked tokens": {},
    "relations": {"relation_alpha": 1},
    TEACHER: {},
}
STUDENT = {
    "num_hidden_layers": 3,
    "hidden_size": 192,
    "num_attention_heads": 12,
    "intermediate_size": 768,
}
PRETRAINING = {
    "objective": "mlm",
    "max_length": 128,
    "per_device_train_batch_size": 32,
    "learning_rate": 1e-3,
    "warmup_steps": 0.05,
    "adam_beta2": 0.98,
}
TASKS: dict[str, dict[str, Any]] = {
    "sst2": {"dataset": "sst2", "max_train_samples": 20_000},
    "stsb": {"dataset": "stsb", "pair_encoding": "joint"},
}
FINETUNING = {"num_train_epochs": 3, "learning_rate": 2e-4, "evaluate_train": False}
LAST = {"eval_strategy": "no", "save_strategy": "no", "load_best_model_at_end": False}
QUIET = {"report_to": "none", "overwrite_output_dir": True}


def make_encoder(args: argparse.Namespace, way: str, seed: int, folder: Path) -> str:
    """Pre-train an encoder, and return its folder."""
    if way == TEACHER:
        return str(args.teacher)
    recipe = {
        "corpus": {"text": {"train_file": args.text}},
        "tokenizer_name_or_path": args.teacher,
        "model_config": STUDENT,
        "num_train_epochs": args.epochs,
        "bf16": args.bf16,
        "seed": seed,
        "output_dir": str(folder / "encoder"),
        **PRETRAINING,
        **LAST,
        **QUIET,
        **WAYS[way],
    }
    if way == "relations":
        recipe["relation_teacher"] = args.teacher
    path = folder / "pretraining.yaml"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    with redirect_stdout(StringIO()):
        pretrain.main([str(path)])
    return str(folder / "encoder")


def fine_tune(args: argparse.Namespace, encoder: str, task: str, seed: int, folder: Path) -> float:
    """Fine-tune an encoder, and return the headline metric of the validation rows."""
    recipe = {
        "tasks": {task: {"pooling": "mean", "batch_size": 32, **TASKS[task]}},
        "model_name_or_path": encoder,
        "data_dir": args.glue_dir,
        "bf16": args.bf16,
        "seed": seed,
        "output_dir": str(folder / "finetuned"),
        **FINETUNING,
        **LAST,
        **QUIET,
    }
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        metrics: dict[str, float] = finetune(recipe).evaluate()
    return metrics[f"eval_{task}_{'pearson' if task == 'stsb' else 'accuracy'}"]


def run(args: argparse.Namespace) -> None:
    """Measure all ways, and print a table."""
    print(", ".join(f"{key} {value}" for key, value in describe_machine().items()), "\n")
    lines = []
    for way in args.ways:
        found: dict[str, list[float]] = {task: [] for task in args.tasks}
        for seed in args.seeds:
            with tempfile.TemporaryDirectory() as name:
                encoder = make_encoder(args, way, seed, Path(name))
                for task, scores in found.items():
                    scores.append(fine_tune(args, encoder, task, seed, Path(name)))
            print(way, seed, found, file=sys.stderr, flush=True)
        spread = {task: stdev(own) if len(own) > 1 else 0.0 for task, own in found.items()}
        lines.append([way, *(f"{mean(found[task]):.3f} ± {spread[task]:.3f}" for task in found)])
    print(table(["encoder", *args.tasks], lines))


def main(argv: Sequence[str] | None = None) -> None:
    """Measure; a user's mistake is one line and exit status 2."""
    parser = argparse.ArgumentParser(
        "run_relations.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--teacher", required=True, help="checkpoint of an encoder: a folder or Hub id")
    add("--glue_dir", required=True, help="folder with SST-2 and STS-B")
    add("--text", required=True, help="text file, a blank line between documents")
    add("--epochs", type=float, default=2, help="passes over the text (2)")
    add("--ways", nargs="+", choices=WAYS, default=[*WAYS], help="encoders")
    add("--tasks", nargs="+", choices=TASKS, default=[*TASKS], help="tasks of fine-tuning")
    add("--seeds", nargs="+", type=int, default=[1, 2, 3], help="seeds (1 2 3)")
    add("--bf16", action="store_true", help="train in bfloat16")
    args = parser.parse_args(argv)
    with readable_errors("run_relations.py"):
        run(args)


if __name__ == "__main__":
    main()
