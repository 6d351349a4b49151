"""Teachers of a recipe: which tasks they teach, and whether their labels fit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from minbert_cli.checkpoints import find_commit, load_tokenizer
from modeling_minbert import MinBertConfig, unknown
from trainers import (
    PROBLEMS,
    FinetuneArguments,
    Method,
    fingerprint_start,
    load_pretrained,
)
from trainers.methods.base import refuse_shared_rows
from trainers.methods.distillation.distillation import NOT_SHARED
from trainers.runs.recipe_files import expand_path

EXAMPLE = "a folder or a Hub id, {path: folder, task: name}, or a list of these"


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


def parse_teachers(where: str, given: Any) -> tuple[Teacher, ...]:
    """Read the value of the key ``teacher``; None and an empty list are no teachers."""
    entries = given if isinstance(given, list) else [] if given is None else [given]
    if isinstance(given, str) and not Path(given).exists():
        entries = [part.strip() for part in given.split(",")]  # as on the command line
    return tuple(_parse_teacher(where, entry) for entry in entries)


def _parse_teacher(where: str, entry: Any) -> Teacher:
    keys: Any = {"path": entry} if isinstance(entry, str) else entry
    if isinstance(keys, dict):
        for key in keys:
            if key not in ("path", "task"):
                raise ValueError(f"{where}: teacher: {unknown('key', key, ('path', 'task'))}")
        path, task = keys.get("path"), keys.get("task")
        if isinstance(path, str) and path and isinstance(task, str | None):
            return Teacher(expand_path(path), task)
    raise ValueError(f"{where}: teacher={entry!r}; expected {EXAMPLE}")


def has_vocabulary_of(path: str, flag: str, tokenizer: PreTrainedTokenizerBase) -> bool:
    """Return whether a teacher reads the tokens of a student."""
    return bool(load_tokenizer(path, flag).get_vocab() == tokenizer.get_vocab())


def check_positions(where: str, teacher: MinBertConfig, longest: int) -> None:
    """Raise ValueError if a teacher cannot read so many tokens."""
    positions = teacher.max_position_embeddings
    if longest > positions:
        raise ValueError(
            f"{where} has {positions} positions, but sequences have up to {longest} tokens; lower "
            "max_length"
        )


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
        return {f"teacher {each.path}": each.fingerprint() for each in self.teachers}

    @property
    def commits(self) -> dict[str, str | None]:
        """Commits of teachers on the Hub; None for folders."""
        return {f"teacher {each.path}": find_commit(each.path, None) for each in self.teachers}

    def teaches(self, name: str) -> bool:
        """Return whether a task has a teacher."""
        own = self._own[name]
        if own is not None:
            return bool(own)
        return any((x.task or name) in (self._configs[x].tasks or {}) for x in self._of_run)

    def check_tasks(self, tasks: Mapping[str, Any]) -> None:
        """Check what depends on whether a `RecipeTask` has a teacher, before rows are read.

        Raises:
            ValueError: If rows without labels have no teacher, or one teaches rows that tasks
                share.
        """
        taught = [name for name in tasks if self.teaches(name)]
        refuse_shared_rows(tasks, taught, *NOT_SHARED)
        for name, task in tasks.items():
            if task.data.unlabeled_file is not None and name not in taught:
                raise ValueError(
                    f"task {name!r}: unlabeled_file needs a teacher that has learned the task, to "
                    "supply the missing labels; give a teacher, or remove unlabeled_file"
                )

    def find_lessons(self, student: MinBertConfig) -> dict[str, list[Lesson]]:
        """Find what is taught of each task of a student.

        Raises:
            ValueError: If a teacher has not learned a task that names it, or none at all, or has
                other labels, or a task about vectors has several.
        """
        by_task = {name: self._find_lessons_of(student, name) for name in self._own}
        lessons = {name: found for name, found in by_task.items() if found}
        taught = {lesson.teacher for own_lessons in lessons.values() for lesson in own_lessons}
        if idle := [teacher for teacher in self.teachers if teacher not in taught]:
            raise ValueError(self._miss(idle[0], ", ".join(self._own)))
        return lessons

    def _find_lessons_of(self, student: MinBertConfig, name: str) -> list[Lesson]:
        """Find what is taught of a task: by its own teachers, else by those of the run."""
        own = self._own[name]
        teachers = self._of_run if own is None else own
        found = [self._find_lesson(student, name, each) for each in teachers]
        if own is not None and None in found:
            raise ValueError(f"task {name!r}: {self._miss(teachers[found.index(None)], name)}")
        kept = [lesson for lesson in found if lesson is not None]
        if len(kept) > 1 and PROBLEMS[student.task(name).problem_type].teaching == "vectors":
            raise ValueError(
                f"task {name!r} learns vectors, and those of {len(kept)} teachers have "
                "nothing in common that could be averaged; give it one, or teacher: null"
            )
        return kept

    def _miss(self, teacher: Teacher, names: str) -> str:
        known = ", ".join(self._configs[teacher].tasks or {}) or "none"
        return (
            f"teacher={teacher.path!r} has no task {teacher.task or names}, but: {known}; a task "
            "of another name is given in the task, as in teacher: {path: folder, task: name}"
        )

    def _find_lesson(self, student: MinBertConfig, name: str, teacher: Teacher) -> Lesson | None:
        """Find what a teacher teaches of a task; None if it has not learned it."""
        spec, config, task = student.task(name), self._configs[teacher], teacher.task or name
        is_known = task in (config.tasks or {})
        if PROBLEMS[spec.problem_type].teaching == "vectors" and (is_known or not teacher.task):
            return Lesson(teacher, teacher.task, lambda vectors: vectors, config)
        if not is_known:
            return None
        try:
            return Lesson(teacher, task, spec.align(config.task(task)), config)
        except ValueError as error:
            raise ValueError(
                f"task {name!r} cannot learn from task {task!r} of teacher={teacher.path!r}: "
                f"{error}; give another teacher, or teacher: null in the task"
            ) from None


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
        if arguments.teacher_mode != "cached":
            raise ValueError("teacher_mode has no effect without a teacher; leave it out")
    return teaching


def make_distillation(arguments: FinetuneArguments, taught: Mapping[str, Any]) -> list[Method]:
    """Build the method for the tasks that have teachers, if any."""
    return [arguments.make_distillation(taught)] if taught else []
