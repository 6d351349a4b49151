"""Outcomes as lines of text, and their comparison: ``key: value``, floats with six digits."""

import contextlib
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml
from safetensors.torch import load_file

from minbert_cli import main
from tests import small_run
from tests.problem_examples import EXAMPLES, write_corpus

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).parent / "data"
# What goes in: recipes, flags, rows and methods.
CASES = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
NUMBER = re.compile(r"~?-?\d+\.\d*(?:e[+-]?\d+)?|-?\d+e[+-]?\d+")
RELATIVE, ABSOLUTE = 3e-5, 1e-6


class Ran(NamedTuple):
    """What a command printed, with paths replaced."""

    status: int
    out: str
    err: str
    warnings: str


class Warnings(logging.Handler):
    """Keeps what is logged as a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Workshop:
    """A folder with the runs that several cases look at; each is made once.

    Args:
        folder: An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._runs: dict[str, Path] = {}

    def run(self, *argv: object) -> Ran:
        """Run a command of ``minbert`` in this process."""
        status, warnings = 0, Warnings()
        logging.getLogger().addHandler(warnings)
        with contextlib.ExitStack() as stack:  # files, since programs ask streams for their number
            stack.enter_context(contextlib.chdir(self.folder))
            null = stack.enter_context(Path(os.devnull).open(encoding="utf-8"))
            paths = [self.folder / name for name in ("out.txt", "err.txt")]
            out, err = (stack.enter_context(path.open("w", encoding="utf-8")) for path in paths)
            stack.callback(logging.getLogger().removeHandler, warnings)
            stack.callback(setattr, sys, "stdin", sys.stdin)
            sys.stdin = null
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                try:
                    main([str(word) for word in argv])
                except SystemExit as exit_:
                    status = exit_.code if isinstance(exit_.code, int) else int(bool(exit_.code))
        printed, told = (path.read_text(encoding="utf-8") for path in paths)
        # warnings are on standard error, unless the process logs elsewhere
        shown = [line for line in told.splitlines() if not line.startswith("WARNING")]
        texts = (printed, "\n".join(shown), "\n".join(warnings.lines))
        return Ran(status, *map(self.hide_paths, texts))

    def succeed(self, *argv: object) -> Ran:
        ran = self.run(*argv)
        assert ran.status == 0, ran.err
        return ran

    def hide_paths(self, text: str) -> str:
        """Replace paths, which differ between machines."""
        return text.replace(str(self.folder), "FOLDER").replace(str(ROOT), "ROOT")

    def new(self, name: str) -> Path:
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def finetune(self, name: str, make: Callable[[Path], dict[str, Any]]) -> Path:
        """Fine-tune a recipe, once; returns its folder, in which ``out`` is that of the run."""
        if name not in self._runs:
            folder = self.new(name)
            program = "pretrain" if name == "pretrained" else "finetune"
            ran = self.succeed(program, small_run.write_recipe(folder, make(folder)))
            for part in ("out", "err", "warnings"):
                (folder / f"{part}.txt").write_text(getattr(ran, part), encoding="utf-8")
            self._runs[name] = folder
        return self._runs[name]

    @cached_property
    def three_tasks(self) -> Path:
        return self.finetune("three", make_three_tasks)

    @cached_property
    def pretrained(self) -> Path:
        return self.finetune("pretrained", make_pretraining)

    def problem(self, kind: str) -> Path:
        return self.finetune(kind, lambda folder: make_problem(folder, kind))


def make_three_tasks(folder: Path, **changes: Any) -> dict[str, Any]:
    """Write the files of three tasks; returns the recipe of a few steps."""
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder)
    return recipe | {"bf16": False, "seed": 5, "num_train_epochs": 1} | changes


def make_pretraining(folder: Path, **changes: Any) -> dict[str, Any]:
    """Write a text; returns the recipe of a few steps that make a vocabulary and a model of it."""
    recipe = make_three_tasks(folder)
    left_out = ("tasks", "steps_per_epoch", "num_train_epochs")
    recipe = {key: value for key, value in recipe.items() if key not in left_out}
    sizes = {key: value for key, value in recipe["model_config"].items() if key != "vocab_size"}
    recipe |= {"model_config": sizes, "train_tokenizer": True, "vocab_size": 120}
    recipe |= {"corpus": write_corpus(folder)["corpus"]}
    return recipe | {"max_steps": 3, "eval_strategy": "steps", "eval_steps": 3} | changes


def make_problem(folder: Path, kind: str) -> dict[str, Any]:
    """Write the files of a problem type; returns its recipe."""
    recipe = make_three_tasks(folder)
    task = {"problem_type": kind, "batch_size": 4, **EXAMPLES[kind].write(folder)}
    beside = {"moods": recipe["tasks"]["moods"]} if EXAMPLES[kind].rows is None else {}
    return recipe | {"tasks": {"own": task} | beside}


class Rough(float):
    """A number that differs between processors by about a hundredth."""


# A case makes keys and values from a workshop
Case = Callable[[Workshop], Iterable[tuple[str, Any]]]


def lines_of(name: str, case: Case, workshop: Workshop) -> list[str]:
    """Run a case; returns its lines."""
    lines: dict[str, str] = {}
    for top, value in case(workshop):
        for leaf, text in flatten(top, value):
            key = workshop.hide_paths(f"{name}.{leaf}").replace(": ", ":")
            assert key not in lines, f"{key} is there twice"
            lines[key] = workshop.hide_paths(text)
    return [f"{key}: {text}" for key, text in lines.items()]


def flatten(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name in sorted(value, key=str):
            yield from flatten(f"{key}.{name}", value[name])
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for place, item in enumerate(value):
            yield from flatten(f"{key}.{place}", item)
    else:
        yield key, write_value(value)


def write_value(value: Any) -> str:
    if isinstance(value, float):
        return f"~{value:#.4g}" if isinstance(value, Rough) else f"{value:#.6g}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(write_value, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {write_value(value[key])}" for key in value) + "}"
    if isinstance(value, str):
        return value.replace("\\", "\\\\").replace("\n", "\\n")
    return json.dumps(value)


def is_same(expected: str, found: str) -> bool:
    """Compare two texts, numbers with four digits or more closely."""
    if expected == found:
        return True
    if NUMBER.sub("#", expected) != NUMBER.sub("#", found):
        return False
    pairs = zip(NUMBER.findall(expected), NUMBER.findall(found), strict=True)
    return all(is_close(first, second) for first, second in pairs)


def is_close(expected: str, found: str) -> bool:
    """Compare two numbers, the expected one as closely as its digits say."""
    if expected.startswith("~"):
        first, second = (float(number.strip("~")) for number in (expected, found))
        return abs(first - second) <= max(0.02, 0.02 * abs(first))
    mantissa, _, exponent = expected.lower().partition("e")
    decimals = len(mantissa.partition(".")[2])
    digits = len(mantissa.strip("-").replace(".", "").lstrip("0"))
    if digits < 4 and "e" not in expected and float(expected) != 0:
        return float(expected) == float(found)
    unit = 10.0 ** (int(exponent or 0) - decimals) if digits < 7 else 0.0
    allowed = max(2 * unit, RELATIVE * abs(float(expected)), ABSOLUTE)
    return abs(float(expected) - float(found)) <= allowed


def compare(expected: list[str], found: list[str]) -> list[str]:
    """Return the differences of two lists of lines, each in a line or three."""
    frozen, now = (dict(line.split(": ", 1) for line in lines) for lines in (expected, found))
    gone = [f"- {key}: {frozen[key]}" for key in frozen if key not in now]
    new = [f"+ {key}: {now[key]}" for key in now if key not in frozen]
    changed = [
        f"  {key}\n    frozen: {frozen[key]}\n    now:    {now[key]}"
        for key in frozen
        if key in now and not is_same(frozen[key], now[key])
    ]
    return gone + new + changed


def read_frozen(section: str, case: str | None = None) -> list[str]:
    path = DATA / f"{section}.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    lines = [line for line in lines if line and not line.startswith("#")]
    return [line for line in lines if case is None or line.startswith(f"{case}.")]


# What cases look at


def name_lines(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    seen: dict[str, int] = {}
    for line in filter(str.strip, lines):
        name = re.sub(r"\d+(\.\d+)?", "#", " ".join(line.split()))[:70].strip()
        seen[name] = seen.get(name, 0) + 1
        yield name + (f" ({seen[name]})" if seen[name] > 1 else ""), line.rstrip()


def hide_times(text: str) -> str:
    """Remove how long something took or takes."""
    text = re.sub(r"  [^ ]+ (s|min|h)( left)?$", "", text, flags=re.MULTILINE)
    return re.sub(r"trained in .*", "trained", text)


def list_files(folder: Path) -> list[str]:
    paths = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
    return [path for path in paths if (folder / path).is_file() and not path.endswith(".py")]


def describe_weights(folder: Path) -> dict[str, list[float]]:
    sums: dict[str, list[float]] = {}
    tasks = (read_json(folder / "config.json").get("tasks") or {}).items()
    # what is added to the scores of all places has no effect on which is best
    biases = [name for name, task in tasks if task["problem_type"] == "question_answering"]
    for name, value in sorted(load_file(folder / "model.safetensors").items()):
        # has no effect, so that its gradient is noise, which AdamW enlarges
        if name.endswith("key.bias") or name in [f"heads.{task}.out.bias" for task in biases]:
            continue
        part = re.match(r"(heads\.[^.]+|(?:bert\.)?(?:encoder\.layer\.\d+|[^.]+))", name)
        numbers = sums.setdefault(part[0] if part else name, [0.0, 0.0])
        flat = value.double().flatten()
        numbers[0] += float(flat.square().sum())
        numbers[1] += float((flat * torch.arange(len(flat)).double().cos()).sum())
    return {part: [square**0.5, product] for part, (square, product) in sums.items()}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def read_log(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.glob("checkpoint-*/trainer_state.json")
    untimed = ("_runtime", "_per_second", "total_flos")
    return [
        {key: value for key, value in entry.items() if not key.endswith(untimed)}
        for entry in read_json(path)["log_history"]
    ]


def read_metrics(folder: Path) -> dict[str, Any]:
    left_out = ("command", "recipe", "versions", "fingerprints", "tasks")
    metrics = read_json(folder / "metrics.json")
    return {key: value for key, value in metrics.items() if key not in left_out}


def read_predictions(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((folder / "predictions").rglob("*")):
        lines = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".json":  # answers of questions
            lines = [f"{name} {write_value([value])}" for name, value in read_json(path).items()]
        for number, line in enumerate(lines, start=1):
            yield f"{path.name}.{number:02}", line
