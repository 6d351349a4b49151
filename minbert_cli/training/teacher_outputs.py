"""Outputs of teachers for training rows, computed once and cached."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.utils import logging

from datasets_scripts import LoadedTask
from minbert_cli.checkpoints import load_encoder
from minbert_cli.training.teachers import Lesson, check_positions, has_vocabulary_of
from modeling_minbert import MinBertConfig, __version__
from modeling_minbert.inference import Encoded, batches, choose_tokens, predicting, windows_of
from trainers import PROBLEMS
from trainers.methods.distillation.principal_components import reduce_width
from trainers.runs.console import shows_bars

Outputs = NDArray[np.float32]
TOKEN_COLUMNS = ("input_ids", "token_type_ids")


@dataclass(frozen=True)
class TaughtTask:
    """A task of a run and its teachers; called, it returns the outputs of each.

    Args:
        name: Name of the task.
        problem_type: Its type.
        lessons: What the teachers teach.
        columns: Texts of the training rows, by column; or their ids and segment ids, if a teacher
            teaches of tokens.
        width: Hidden size of the student.
        args: Arguments of the run.
    """

    name: str
    problem_type: str
    lessons: Sequence[Lesson]
    columns: Sequence[Sequence[Any]]
    width: int
    args: TrainingArguments

    def __call__(self) -> list[Outputs]:
        """Compute the outputs in the first process, or read them from the cache."""
        # loading a model draws on the CPU, which must not change what the student draws
        with (
            self.args.main_process_first(desc="teachers"),
            torch.random.fork_rng(devices=[]),
            _same_progress_bars(),
        ):
            return [self._read(lesson) for lesson in self.lessons]

    @property
    def teaching(self) -> str:
        """What is taught: logits of rows or of tokens, or vectors."""
        return str(PROBLEMS[self.problem_type].teaching)

    def _read(self, lesson: Lesson) -> Outputs:
        outputs = read_or_compute(self._digest(lesson), lambda: self._compute(lesson))
        aligned: Outputs = lesson.align(torch.tensor(outputs)).numpy()
        return aligned

    def _digest(self, lesson: Lesson) -> str:
        """Hash everything that the outputs of a teacher depend on."""
        width = self.width if self.teaching == "vectors" else None
        facts = (self.teaching, lesson.task, lesson.teacher.fingerprint(), width, __version__)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
        for column in self.columns:
            for value in column:
                digest.update(f"\0{value!r}".encode())
        return digest.hexdigest()

    def _compute(self, lesson: Lesson) -> Outputs:
        path, count = lesson.teacher.path, len(self.columns[0])
        print(f"{self.name}: {path} predicts the {count:,} training rows")
        model = load_encoder(path, str(self.args.device), "teacher")
        # in a log a bar would be a line for each of its steps
        if shows_bars(Console(stderr=True)) and not self.args.disable_tqdm:
            logging.enable_progress_bar()
        if self.teaching == "tokens":
            return score_tokens(model, str(lesson.task), self.problem_type, self.columns)
        if self.teaching == "vectors":
            return reduce_width(embed(model, lesson.task, self.columns), self.width)
        return score_texts(model, str(lesson.task), self.columns)


@contextmanager
def _same_progress_bars() -> Iterator[None]:
    """Show or hide progress bars afterwards as before."""
    had_bars = logging.is_progress_bar_enabled()
    try:
        yield
    finally:
        if not had_bars:
            logging.disable_progress_bar()


def find_taught(
    lessons: Mapping[str, Sequence[Lesson]],
    loaded: Mapping[str, LoadedTask],
    encoded: Mapping[str, Mapping[str, Any]],
    tokenizer: PreTrainedTokenizerBase,
    student: MinBertConfig,
    args: TrainingArguments,
) -> dict[str, TaughtTask]:
    """Describe the tasks that have teachers, whose outputs are computed later.

    Raises:
        ValueError: If a task is about tokens, and its teacher has others or too few positions.
    """
    taught = {}
    for name, given in lessons.items():
        columns = loaded[name].training_texts()
        kind = loaded[name].problem_type
        if PROBLEMS[kind].teaching == "tokens":
            columns = [encoded[name]["train"][column][:] for column in TOKEN_COLUMNS]
            for lesson in given:
                check_tokens(name, lesson, tokenizer, max(map(len, columns[0])))
        taught[name] = TaughtTask(name, kind, given, columns, student.hidden_size, args)
    return taught


def check_tokens(
    name: str, lesson: Lesson, tokenizer: PreTrainedTokenizerBase, longest: int
) -> None:
    """Check that a teacher can read the tokens of the student, in rows of this length."""
    where = f"task {name!r} is about tokens: teacher={lesson.teacher.path!r}"
    if not has_vocabulary_of(lesson.teacher.path, "teacher", tokenizer):
        raise ValueError(
            f"{where} has another vocabulary than the student; start both from checkpoints with "
            "the same one"
        )
    check_positions(where, lesson.config, longest)


def read_or_compute(key: str, compute: Callable[[], Outputs]) -> Outputs:
    """Read an array from the cache of ``datasets``, or compute it and write it there."""
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_teachers"
    path = folder / f"{key}.npy"
    if not path.is_file():
        values = compute()
        folder.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
            np.save(file, values)
        Path(file.name).replace(path)  # whole or not at all
    outputs: Outputs = np.load(path)
    return outputs


def score_texts(model: Any, task: str, columns: Sequence[Sequence[str]]) -> Outputs:
    """Compute what a teacher teaches of texts or pairs of them, (N, K)."""
    rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    outputs: Outputs = model.teach(task, rows).numpy()
    return outputs


def embed(model: Any, task: str | None, columns: Sequence[Sequence[str]]) -> Outputs:
    """Compute the vectors of the S texts of each row, with length 1, (N, S, D)."""
    options: Any = {"task": task, "normalize": True, "precision": "float32"}
    return np.stack([model.encode(texts, **options).numpy() for texts in columns], axis=1)


def score_tokens(
    model: Any, task: str, problem_type: str, columns: Sequence[Sequence[list[int]]]
) -> Outputs:
    """Compute the logits of the tokens of encoded rows, (T, K), from their ids and segment ids."""
    problem, values = PROBLEMS[problem_type](task), []
    rows = [Encoded([ids], [types]) for ids, types in zip(*columns, strict=True)]
    for window, bar in windows_of(rows, None):
        scored: dict[int, Tensor] = {}
        with predicting(model, "float32"):
            for indices, inputs in batches(model, window, choose_tokens(model, None)):
                lengths = [window[index].tokens for index in indices]
                logits = problem.logits_of(model(**inputs, task=task)).float().cpu()
                scored |= zip(indices, split_tokens(logits, lengths), strict=True)
                bar.update(len(indices))
        values += [scored[index] for index in range(len(window))]
    return torch.cat(values).numpy()


def split_tokens(logits: Tensor, lengths: Sequence[int]) -> list[Tensor]:
    """Split logits by row, without paddings: (B, L, K), or of a packed batch (1, T, K)."""
    if len(logits) < len(lengths):
        return list(logits[0].split(list(lengths)))
    return [row[:length] for row, length in zip(logits, lengths, strict=True)]
