"""Teachers of a recipe that run on every batch of their student."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from minbert_cli.training.teachers import (
    Lesson,
    Teacher,
    check_positions,
    has_vocabulary_of,
)
from modeling_minbert import MinBertConfig, MinBertForMultiTask
from trainers import PROBLEMS, OnlineTeacher, load_pretrained


def find_online(
    lessons: Mapping[str, Sequence[Lesson]],
    student: MinBertConfig,
    tokenizer: PreTrainedTokenizerBase,
    max_length: int,
) -> dict[str, list[OnlineTeacher]]:
    """Describe the teachers of the tasks that have any; they are loaded when training starts.

    Args:
        lessons: What is taught of each task.
        student: Configuration of the student.
        tokenizer: Its tokenizer.
        max_length: Most tokens of a sequence of the tasks without an own limit.

    Raises:
        ValueError: If a teacher cannot read the batches of its student.
    """
    loaders: dict[str, Callable[[], MinBertForMultiTask]] = {}
    found: dict[str, list[OnlineTeacher]] = {}
    for name, given in lessons.items():
        for lesson in given:
            path = lesson.teacher.path
            if path not in loaders:
                loaders[path] = partial(_load, lesson.teacher)
                if not has_vocabulary_of(path, "teacher", tokenizer):
                    raise ValueError(
                        f"teacher={path!r} has another vocabulary than the student, whose batches "
                        f"it reads {CACHED}"
                    )
            _check_rows(name, lesson, student, max_length)
        found[name] = [
            OnlineTeacher(loaders[each.teacher.path], each.task or name, each.align)
            for each in given
        ]
    return found


# How messages end: what to do instead.
CACHED = "with teacher_mode online; use teacher_mode cached, where it reads the texts themselves"


def _check_rows(name: str, lesson: Lesson, student: MinBertConfig, max_length: int) -> None:
    """Raise ValueError if the teacher would encode the rows of a task in another way."""
    where = f"task {name!r}: teacher={lesson.teacher.path!r}"
    spec, task = student.task(name), lesson.task or name
    known = lesson.config.task(task) if task in (lesson.config.tasks or {}) else None
    if known is None or known.problem_type != spec.problem_type:
        raise ValueError(f"{where} has no {spec.problem_type} task to read batches {CACHED}")
    own, other = (each.encoding_options(max_length) for each in (spec, known))
    longest = own.pop("max_length")
    other.pop("max_length")
    for key in own:
        if own[key] != other.get(key):
            raise ValueError(
                f"{where} has {key} {other.get(key)!r}, but the batches of the student have "
                f"{own[key]!r}, which it cannot read {CACHED}"
            )
    check_positions(where, lesson.config, longest)
    _check_width(where, lesson.config.hidden_size, student.hidden_size, spec.problem_type)


def _check_width(where: str, teacher: int, student: int, problem_type: str) -> None:
    """Raise ValueError if a student cannot learn the vectors of a teacher from single batches."""
    if PROBLEMS[problem_type].teaching == "vectors" and teacher > student:
        raise ValueError(
            f"{where} has vectors of the size {teacher}, wider than the {student} of the "
            f"student, which takes those of all rows to project and not single batches {CACHED}"
        )


def _load(teacher: Teacher) -> MinBertForMultiTask:
    options: dict[str, Any] = {"flag": "teacher", "dtype": torch.float32}
    model: MinBertForMultiTask = load_pretrained(MinBertForMultiTask, teacher.path, **options)
    return model
