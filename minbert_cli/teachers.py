"""Teachers of a recipe: which tasks they teach, and what they predict, computed once and cached."""

import hashlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments
from transformers.utils import logging

from datasets_scripts import TaskRows
from minbert_cli.arguments import FinetuneArguments
from minbert_cli.checkpoints import (
    find_commit,
    load_encoder,
    load_pretrained,
    load_tokenizer,
)
from minbert_cli.command_line import expand_path
from minbert_cli.run_folder import fingerprint_start
from modeling_minbert import MinBertConfig, __version__, unknown
from modeling_minbert.inference import batches, choose_tokens, predicting, windows_of
from modeling_minbert.texts import Encoded
from trainers import PROBLEMS
from trainers.methods.distillation import reduce_width

EXAMPLE = "a folder or a Hub id, {path: folder, task: name}, or a list of these"
TOKEN_COLUMNS = ("input_ids", "token_type_ids")
Outputs = NDArray[np.float32]


@dataclass(frozen=True)
class Teacher:
    """A model that teaches."""

    path: str  # a folder or a Hub id
    task: str | None = None  # the task that it has learned; None for one of the same name

    def load_config(self) -> MinBertConfig:
        """Load its configuration; ValueError if there is none."""
        config: MinBertConfig = load_pretrained(MinBertConfig, self.path, flag="teacher")
        if getattr(config, "quantization_config", None) is not None:
            raise ValueError(
                f"teacher={self.path!r} has quantized weights, but teaches in float32: give the "
                "checkpoint that it was made from"
            )
        return config

    def fingerprint(self) -> str:
        """Hash its files, or name its commit on the Hub."""
        digest = fingerprint_start(self.path).get("model_name_or_path")
        return digest or find_commit(self.path, None) or self.path


@dataclass(frozen=True)
class Lesson:
    """What a teacher teaches of a task."""

    teacher: Teacher
    task: str | None  # its task; None for the vectors of an encoder
    align: Callable[[Tensor], Tensor]  # brings its outputs to the order of the student's labels
    config: MinBertConfig  # of the teacher


def parse_teachers(where: str, value: object) -> tuple[Teacher, ...]:
    """Read the value of the key ``teacher``; None and an empty list are no teachers."""
    entries = value if isinstance(value, list) else [] if value is None else [value]
    if isinstance(value, str) and not Path(value).exists():
        entries = [part.strip() for part in value.split(",")]  # as on the command line
    teachers = []
    for entry in entries:
        keys: Any = {"path": entry} if isinstance(entry, str) else entry
        path = task = None
        if isinstance(keys, dict):
            for key in keys:
                if key not in ("path", "task"):
                    raise ValueError(f"{where}: teacher: {unknown('key', key, ('path', 'task'))}")
            path, task = keys.get("path"), keys.get("task")
        if not (isinstance(path, str) and path and isinstance(task, str | None)):
            raise ValueError(f"{where}: teacher={entry!r}; expected {EXAMPLE}")
        teachers.append(Teacher(expand_path(path), task))
    return tuple(teachers)


class Teaching:
    """The teachers of all tasks of a run.

    Args:
        of_run: Teachers of the tasks without teachers of their own. A task that they have not
            learned is trained without them.
        own: Teachers of single tasks.

    Raises:
        ValueError: If a teacher cannot be loaded.
    """

    def __init__(
        self, of_run: tuple[Teacher, ...], own: Mapping[str, tuple[Teacher, ...] | None]
    ) -> None:
        self._of_run, self._own = of_run, own
        own_teachers = (teacher for teachers in own.values() for teacher in teachers or ())
        self.teachers = tuple(dict.fromkeys((*of_run, *own_teachers)))
        self._configs = {teacher: teacher.load_config() for teacher in self.teachers}

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes of the teachers."""
        return {f"teacher {teacher.path}": teacher.fingerprint() for teacher in self.teachers}

    @property
    def commits(self) -> dict[str, str | None]:
        """Commits of teachers on the Hub; None for folders."""
        paths = [teacher.path for teacher in self.teachers]
        return {f"teacher {path}": find_commit(path, None) for path in paths}

    def teaches(self, name: str) -> bool:
        """Return whether a task has a teacher."""
        own = self._own[name]
        if own is not None:
            return bool(own)
        return any((x.task or name) in (self._configs[x].tasks or {}) for x in self._of_run)

    def check_tasks(self, tasks: Mapping[str, Any]) -> None:
        """Check what depends on whether a `RecipeTask` has a teacher, before rows are read.

        Raises:
            ValueError: If rows without labels have no teacher.
        """
        taught = [name for name in tasks if self.teaches(name)]
        for name, task in tasks.items():
            if task.data.unlabeled_file is not None and name not in taught:
                raise ValueError(
                    f"task {name!r}: unlabeled_file needs a teacher that has learned the task, to "
                    "supply the missing labels; give a teacher, or remove unlabeled_file"
                )

    def find_lessons(self, student: MinBertConfig) -> dict[str, list[Lesson]]:
        """Find what is taught of each task of a student: by its own teachers, or those of the run.

        Raises:
            ValueError: If a teacher has not learned a task that names it, or none at all, or has
                other labels, or a task about vectors has several.
        """
        lessons: dict[str, list[Lesson]] = {}
        for name, own in self._own.items():
            of_task = []
            for teacher in self._of_run if own is None else own:
                lesson = self._find_lesson(student, name, teacher)
                if lesson is not None:
                    of_task.append(lesson)
                elif own is not None:
                    raise ValueError(f"task {name!r}: {self._miss(teacher, name)}")
            learns_vectors = PROBLEMS[student.task(name).problem_type].teaching == "vectors"
            if len(of_task) > 1 and learns_vectors:
                raise ValueError(
                    f"task {name!r} learns vectors, and those of {len(of_task)} teachers have "
                    "nothing in common that could be averaged; give it one, or teacher: null"
                )
            if of_task:
                lessons[name] = of_task
        busy = {lesson.teacher for of_task in lessons.values() for lesson in of_task}
        if idle := [teacher for teacher in self.teachers if teacher not in busy]:
            raise ValueError(self._miss(idle[0], ", ".join(self._own)))
        return lessons

    def _find_lesson(self, student: MinBertConfig, name: str, teacher: Teacher) -> Lesson | None:
        """Find what a teacher teaches of a task; None if it has not learned it."""
        spec, config, task = student.task(name), self._configs[teacher], teacher.task or name
        is_learned = task in (config.tasks or {})
        if PROBLEMS[spec.problem_type].teaching == "vectors" and (is_learned or not teacher.task):
            return Lesson(teacher, teacher.task, lambda vectors: vectors, config)
        if not is_learned:
            return None
        try:
            return Lesson(teacher, task, spec.align(config.task(task)), config)
        except ValueError as error:
            raise ValueError(
                f"task {name!r} cannot learn from task {task!r} of teacher={teacher.path!r}: "
                f"{error}; give another teacher, or teacher: null in the task"
            ) from None

    def _miss(self, teacher: Teacher, names: str) -> str:
        learned = ", ".join(self._configs[teacher].tasks or {}) or "none"
        return (
            f"teacher={teacher.path!r} has no task {teacher.task or names}, but: {learned}; a task "
            "of another name is given in the task, as in teacher: {path: folder, task: name}"
        )


def find_teaching(
    arguments: FinetuneArguments, own: Mapping[str, tuple[Teacher, ...] | None]
) -> Teaching:
    """Find the teachers of a recipe.

    Args:
        arguments: The arguments of the run, with its teachers.
        own: Teachers of each labeled task; None for those of the run.

    Raises:
        ValueError: If a teacher cannot be loaded, or a key has no effect.
    """
    teaching = Teaching(parse_teachers("recipe", arguments.teacher), own)
    if not teaching.teachers:
        for key in ("distillation_alpha", "distillation_temperature"):
            if getattr(arguments, key) is not None:
                raise ValueError(f"{key} has no effect without a teacher; leave it out")
    return teaching


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
        had_bars = logging.is_progress_bar_enabled()
        # loading a model draws on the CPU, which must not change what the student draws
        with self.args.main_process_first(desc="teachers"), torch.random.fork_rng(devices=[]):
            try:
                return [self._read(lesson) for lesson in self.lessons]
            finally:
                if not had_bars:
                    logging.disable_progress_bar()

    def _read(self, lesson: Lesson) -> Outputs:
        """Read the outputs of a teacher from the cache of ``datasets``, or compute them."""
        folder = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_teachers"
        path = folder / f"{self._digest(lesson)}.npy"
        if not path.is_file():
            values = self._compute(lesson)
            folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile(dir=folder, suffix=".tmp", delete=False) as file:
                np.save(file, values)
            Path(file.name).replace(path)  # whole or not at all
        outputs: Outputs = lesson.align(torch.tensor(np.load(path))).numpy()
        return outputs

    def _digest(self, lesson: Lesson) -> str:
        """Hash everything that the outputs of a teacher depend on."""
        teaching = str(PROBLEMS[self.problem_type].teaching)
        width = self.width if teaching == "vectors" else None
        facts = (teaching, lesson.task, lesson.teacher.fingerprint(), width, __version__)
        digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
        for column in self.columns:
            for value in column:
                digest.update(f"\0{value!r}".encode())
        return digest.hexdigest()

    def _compute(self, lesson: Lesson) -> Outputs:
        """Compute outputs: (N, K) of rows, (T, K) of tokens, or vectors of length 1, (N, S, D)."""
        path, task, columns = lesson.teacher.path, lesson.task, self.columns
        print(f"{self.name}: {path} predicts the {len(columns[0]):,} training rows")
        model: Any = load_encoder(path, str(self.args.device), "teacher")
        # in a log a bar would be a line for each of its steps
        if sys.stderr.isatty() and not self.args.disable_tqdm:
            logging.enable_progress_bar()
        teaching = PROBLEMS[self.problem_type].teaching
        if teaching == "tokens":
            return score_tokens(model, str(task), self.problem_type, columns)
        if teaching == "vectors":
            options: Any = {"task": task, "normalize": True, "precision": "float32"}
            vectors = [model.encode(texts, **options).numpy() for texts in columns]
            return reduce_width(np.stack(vectors, axis=1), self.width)
        rows = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        outputs: Outputs = model.teach(str(task), rows).numpy()
        return outputs


def find_taught(
    lessons: Mapping[str, Sequence[Lesson]],
    loaded: Mapping[str, TaskRows],
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
    for name, of_task in lessons.items():
        columns = loaded[name].training_texts()
        kind = loaded[name].problem_type
        if PROBLEMS[kind].teaching == "tokens":
            columns = [encoded[name]["train"][column][:] for column in TOKEN_COLUMNS]
            longest = max(map(len, columns[0]))
            for lesson in of_task:
                path, positions = lesson.teacher.path, lesson.config.max_position_embeddings
                where = f"task {name!r} is about tokens: teacher={path!r}"
                if load_tokenizer(path, "teacher").get_vocab() != tokenizer.get_vocab():
                    raise ValueError(
                        f"{where} has another vocabulary than the student; start both from "
                        "checkpoints with the same one"
                    )
                if longest > positions:
                    raise ValueError(
                        f"{where} has {positions} positions, but sequences have up to {longest} "
                        "tokens; lower max_length"
                    )
        taught[name] = TaughtTask(name, kind, of_task, columns, student.hidden_size, args)
    return taught


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
                if len(logits) < len(lengths):  # packed, (1, T, K)
                    parts = logits[0].split(lengths)
                else:  # padded, (B, L, K)
                    parts = [row[:length] for row, length in zip(logits, lengths, strict=True)]
                scored |= zip(indices, parts, strict=True)
                bar.update(len(indices))
        values += [scored[index] for index in range(len(window))]
    return torch.cat(values).numpy()
