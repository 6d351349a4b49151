"""Teachers of a recipe: which tasks they teach, and what they predict, computed once and cached."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import accumulate, chain, groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedTokenizerBase, TrainingArguments

from datasets_scripts import TaskRows
from datasets_scripts.checking import Text, check_keys
from minbert_cli.arguments import FinetuneArguments
from minbert_cli.checkpoints import (
    find_commit,
    list_weights,
    load_encoder,
    load_pretrained,
    load_tokenizer,
)
from minbert_cli.command_line import expand_path
from minbert_cli.recipe_tasks import RecipeTask
from minbert_cli.run_folder import hash_checkpoint
from modeling_minbert import MinBertConfig, MinBertTask, __version__, align_outputs
from modeling_minbert.inference import batches, choose_tokens, predicting, windows_of
from modeling_minbert.pieces import find_layout
from modeling_minbert.texts import Encoded
from trainers import PROBLEMS, Distillation, replaced_when_done
from trainers.data.rows import IGNORED_LABEL

Outputs = NDArray[np.float32]


@dataclass(frozen=True)
class Teacher:
    """A model that teaches."""

    path: str  # a folder or a Hub id
    task: str | None = None  # that it has learned; None for one of the same name, or for vectors
    # brings its outputs to the order of the student's labels
    align: Callable[[Tensor], Tensor] | None = None
    by_word: bool = False  # whether it tags words with its own tokens, not those of the student


class Teaching:
    """The teachers of a run, and those of single tasks.

    A task that the teachers of the run have not learned is trained without them.
    """

    def __init__(self, arguments: FinetuneArguments, tasks: Mapping[str, RecipeTask]) -> None:
        self._arguments, self._tasks = arguments, tasks
        self._of_run = parse_teachers("recipe", arguments.teacher)
        self._own = {
            name: parse_teachers(f"task {name!r}", task.taught["teacher"])
            for name, task in tasks.items()
            if task.taught
        }
        self._configs: dict[Teacher, MinBertConfig] = {}
        for teacher in chain(self._of_run, *self._own.values()):
            self._configs[teacher] = load_pretrained(MinBertConfig, teacher.path, flag="teacher")
            if getattr(self._configs[teacher], "quantization_config", None) is not None:
                raise ValueError(
                    f"teacher={teacher.path!r} has quantized weights, but teaches in float32: give "
                    "the checkpoint that it was made from"
                )
            # found now, and not when it is to predict the rows of a run that has begun
            load_tokenizer(teacher.path, "teacher")
            if not list_weights(teacher.path):
                raise ValueError(f"teacher={teacher.path!r} has no weights: give another folder")
        paths = [teacher.path for teacher in self._configs]
        # on the Hub; None for folders
        self.commits = {f"teacher {path}": find_commit(path, None) for path in paths}

    @property
    def fingerprints(self) -> dict[str, str]:
        """Hashes of the teachers."""
        return {f"teacher {teacher.path}": fingerprint(teacher.path) for teacher in self._configs}

    def make_method(
        self,
        student: MinBertConfig,
        rows: Mapping[str, TaskRows],
        encoded: Mapping[str, Mapping[str, Any]],
        tokenizer: PreTrainedTokenizerBase,
        args: TrainingArguments,
    ) -> Distillation:
        """Build the method, whose teachers predict when training starts, or say what is wrong."""
        taught: dict[str, Any] = {}
        busy: set[Teacher] = set()
        for name, task in self._tasks.items():
            kind = student.task(name).problem_type
            lessons = self._find_lessons(name, student.task(name))
            busy.update(lessons)
            if len(lessons) > 1 and PROBLEMS[kind].teaching == "vectors":
                raise ValueError(
                    f"task {name!r} has {len(lessons)} teachers, whose vectors have nothing in "
                    "common that could be averaged: give one"
                )
            if lessons:
                columns = rows[name].training_texts()
                values, train = list(lessons.values()), encoded[name]["train"]
                if PROBLEMS[kind].teaching == "tokens":
                    columns = [train[column][:] for column in ("input_ids", "token_type_ids")]
                    longest, has_words = max(map(len, columns[0])), "words" in train.column_names
                    for place, teacher in enumerate(lessons):
                        problem = self._compare_tokens(teacher, longest, tokenizer)
                        if problem and not has_words:
                            where = f"task {name!r} is about tokens: teacher={teacher.path!r}"
                            raise ValueError(f"{where} has {problem}")
                        values[place] = replace(values[place], by_word=bool(problem))
                taught[name] = partial(predict_rows, name, kind, values, columns, train, args)
            elif task.data.unlabeled_file is not None:
                raise ValueError(
                    f"task {name!r}: unlabeled_file needs a teacher that has learned the task, to "
                    "supply the missing labels; give a teacher, or remove unlabeled_file"
                )
        if idle := [teacher for teacher in self._configs if teacher not in busy]:
            if all(name in self._own for name in self._tasks):
                raise ValueError(
                    f"teacher={idle[0].path!r} teaches no task, since each has its own, or null: "
                    "leave that of the run out"
                )
            raise ValueError(self._miss(idle[0], ", ".join(self._tasks)))
        options = self._arguments.distillation_alpha, self._arguments.distillation_temperature
        return Distillation(taught, *options)

    def _find_lessons(self, name: str, spec: MinBertTask) -> dict[Teacher, Teacher]:
        """Find who teaches a task, and what: its own teachers, or those of the run."""
        lessons = {}
        learns_vectors = PROBLEMS[spec.problem_type].teaching == "vectors"
        for teacher in self._own.get(name, self._of_run):
            config, task = self._configs[teacher], teacher.task or name
            is_learned = task in (config.tasks or {})
            if learns_vectors and (is_learned or not teacher.task):
                lessons[teacher] = teacher
            elif is_learned:
                try:
                    align = align_outputs(spec, config.task(task))
                except ValueError as error:
                    raise ValueError(
                        f"task {name!r} cannot learn from task {task!r} of teacher="
                        f"{teacher.path!r}: {error}; give another teacher, or teacher: null in the "
                        "task"
                    ) from None
                lessons[teacher] = replace(teacher, task=task, align=align)
            elif name in self._own:
                raise ValueError(f"task {name!r}: {self._miss(teacher, name)}")
        return lessons

    def _miss(self, teacher: Teacher, names: str) -> str:
        learned = ", ".join(self._configs[teacher].tasks or {}) or "none"
        return (
            f"teacher={teacher.path!r} has no task {teacher.task or names}, but: {learned}; a task "
            "of another name is given in the task, as in teacher: {path: folder, task: name}"
        )

    def _compare_tokens(
        self, teacher: Teacher, longest: int, tokenizer: PreTrainedTokenizerBase
    ) -> str:
        """Return why a teacher of tokens cannot read the rows of the student; empty if it can."""
        theirs = load_tokenizer(teacher.path, "teacher")
        layouts = [find_layout(tokens) for tokens in (theirs, tokenizer)]
        if theirs.get_vocab() != tokenizer.get_vocab() or layouts[0] != layouts[1]:
            return (
                "another vocabulary than the student, or other special tokens around texts; start "
                "both from checkpoints with the same ones"
            )
        positions = self._configs[teacher].longest_sequence
        if longest > positions:
            return f"{positions} positions, but sequences have {longest} tokens; lower max_length"
        return ""


def parse_teachers(where: str, value: object) -> tuple[Teacher, ...]:
    """Read the value of the key ``teacher``; None and an empty list are no teachers."""
    entries = value if isinstance(value, list) else [] if value is None else [value]
    if isinstance(value, str) and not Path(value).exists():
        entries = [part.strip() for part in value.split(",")]  # as on the command line
    teachers = []
    for entry in entries:
        keys: Any = {"path": entry} if isinstance(entry, str) else entry
        if not isinstance(keys, dict) or not keys.get("path"):
            raise ValueError(
                f"{where}: teacher={entry!r}; expected a folder or a Hub id, {{path: folder, task: "
                "name}, or a list of these"
            )
        (keys,) = check_keys(f"{where}: teacher", keys, {"path": Text, "task": Text | None})
        teachers.append(Teacher(expand_path(keys["path"]), keys.get("task")))
    return tuple(teachers)


def fingerprint(path: str) -> str:
    """Hash the files of a teacher, or name its commit on the Hub."""
    if Path(path).is_dir():
        return hash_checkpoint(Path(path))
    return find_commit(path, None) or path


def predict_rows(
    name: str,
    problem_type: str,
    lessons: Sequence[Teacher],
    columns: Sequence[Sequence[Any]],
    encoded: Any,
    args: TrainingArguments,
) -> list[Outputs]:
    """Compute the outputs of the teachers of a task in the first process, or read a cache.

    The columns are texts of the training rows, or ids and segment ids for what is taught of tokens.
    Teachers that tag by word read the words of the encoded rows. Outputs are by teacher (N, K) of
    rows, (T, K) of tokens, or vectors of length 1, (N, S, D).
    """
    teaching = str(PROBLEMS[problem_type].teaching)
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_teachers"
    outputs: list[Outputs] = []
    # loading a model draws on the CPU, which must not change what the student draws
    with args.main_process_first(desc="teachers"), torch.random.fork_rng(devices=[]):
        for lesson in lessons:
            # everything that the outputs depend on
            seen, level = columns, teaching
            if lesson.by_word:  # those of windows are joined to sentences
                rows = zip(encoded["sentence"][:], encoded["words"][:], strict=True)
                windows = groupby(rows, key=itemgetter(0))
                seen = [[[word for _, part in parts for word in part] for _, parts in windows]]
                level = "words"
            facts = (level, len(seen), lesson.task, fingerprint(lesson.path), __version__)
            digest = hashlib.blake2b(repr(facts).encode(), digest_size=16)
            for value in chain.from_iterable(seen):
                digest.update(f"\0{value!r}".encode())
            file = folder / f"{digest.hexdigest()}.npy"
            if not file.is_file():
                print(f"{name}: {lesson.path} predicts the {len(columns[0]):,} training rows")
                values = compute_outputs(lesson, problem_type, seen, args)
                with replaced_when_done(file) as part:
                    np.save(part, values)
            stored = torch.tensor(np.load(file))
            values = (lesson.align(stored) if lesson.align else stored).numpy()
            if lesson.by_word:  # the first token of a word has its label
                is_first = np.concatenate(encoded["labels"][:]) != IGNORED_LABEL
                words = iter(values)
                missing = np.full_like(values[0], np.nan)
                values = np.stack([next(words) if known else missing for known in is_first])
            outputs.append(values)
    return outputs


def compute_outputs(
    lesson: Teacher, problem_type: str, columns: Sequence[Sequence[Any]], args: TrainingArguments
) -> Outputs:
    """Compute the outputs of one teacher, as ``predict_rows`` documents them."""
    model: Any = load_encoder(lesson.path, str(args.device), "teacher")
    teaching = PROBLEMS[problem_type].teaching
    if lesson.by_word:
        predictor = model.heads[lesson.task].predictor(model, lesson.task, None)
        rows = predictor.encode(columns[0], 0)
        starts = accumulate((row.tokens for row in rows), initial=0)
        places = [
            start + place
            for start, part in zip(starts, predictor.parts, strict=False)
            for place in part.places
        ]
        return score_tokens(model, str(lesson.task), problem_type, rows)[places]
    if teaching == "tokens":
        rows = [Encoded([ids], [types]) for ids, types in zip(*columns, strict=True)]
        return score_tokens(model, str(lesson.task), problem_type, rows)
    if teaching == "vectors":
        options: Any = {"task": lesson.task, "normalize": True, "precision": "float32"}
        return np.stack([model.encode(texts, **options).numpy() for texts in columns], axis=1)
    texts = columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return model.teach(str(lesson.task), texts).numpy()


def score_tokens(model: Any, task: str, problem_type: str, rows: Sequence[Encoded]) -> Outputs:
    """Compute the logits of the tokens of encoded rows, (T, K)."""
    problem, values = PROBLEMS[problem_type](task), []
    for window, bar in windows_of(rows, None):
        scored: dict[int, Tensor] = {}
        with predicting(model, "float32"):
            for indices, inputs in batches(model, window, choose_tokens(model)):
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
