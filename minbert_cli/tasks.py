"""The tasks of a recipe: data, head and training of each, and its rows encoded.

What `finetune.py` and `experiments.py` know of tasks before there is a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from datasets import Dataset

from datasets_scripts import DATASETS, FORMATS, CorpusData, LoadedTask, TaskData
from minbert_cli.texts import parse_corpus
from modeling_minbert import TASKS, MinBertTask
from trainers import (
    PROBLEMS,
    FinetuneArguments,
    GlueFile,
    TaskTraining,
    TextArguments,
    check_types,
    split_keys,
)


@dataclass(frozen=True)
class RecipeTask:
    """A task of a recipe, its keys split among data, head and training."""

    data: TaskData
    head: dict[str, Any]
    training: TaskTraining

    @classmethod
    def from_recipe(cls, name: str, keys: Any, data_dir: str | None) -> "RecipeTask":
        """Check the keys of a task."""
        readers = (TaskData, head_keys(), TaskTraining)
        data, head, training = split_keys(f"task {name!r}", keys, readers)
        try:
            task_training = TaskTraining(**training)
        except ValueError as error:
            raise ValueError(f"task {name!r}: {error}") from None
        # What data and head both have to know comes from the data.
        own = {key: value for key, value in head.items() if key not in data}
        task_data = TaskData.from_recipe(name, data, data_dir)
        PROBLEMS[str(task_data.problem_type)](name, metrics=task_data.metrics or ())
        return cls(task_data, own, task_training)

    @property
    def source(self) -> str:
        """Name of the data."""
        return self.data.hub_id or self.data.dataset or Path(str(self.data.train_file)).name

    @property
    def hub_dataset(self) -> str | None:
        """Name on the Hub of the data, or of a copy of them; None if there is none."""
        row = DATASETS.get(str(self.data.dataset))
        found = self.data.hub_id or (row.hub_id if row else None)
        return None if found is None or Path(found).exists() else found.partition(":")[0]

    def describe_head(self, rows: LoadedTask, max_length: int = 384) -> dict[str, Any]:
        """Describe the head, with the fields that follow from the rows."""
        facts = {**rows.head_facts(), "max_length": max_length}
        try:
            return TASKS[rows.problem_type].complete(self.head, facts)
        except ValueError as error:
            raise ValueError(f"task {rows.name!r}: {error}") from None


def head_keys() -> set[str]:
    """Return the keys of all heads; `complete` refuses those of another problem type."""
    return {
        key
        for task in TASKS.values()
        for key in (*task.fields_set_by("recipe"), *task.fields_set_by("data"))
    }


@dataclass(frozen=True)
class RecipeText:
    """A task of the recipe that learns from text without labels."""

    problem_type: str  # what it learns
    corpora: dict[str, CorpusData]  # the texts
    arguments: TextArguments  # how they are cut and masked
    training: TaskTraining  # how the task is trained

    @classmethod
    def from_recipe(cls, name: str, keys: dict[str, Any], data_dir: str | None) -> "RecipeText":
        """Check the keys of a task."""
        where, kind = f"task {name!r}", keys["problem_type"]
        own = {key: value for key, value in keys.items() if key != "problem_type"}
        text, training = split_keys(where, own, (TextArguments, TaskTraining))
        check_types(where, TextArguments, text)
        try:
            arguments = TextArguments(**{"corpus": {}, **text})
            arguments.check_unused(kind)
            task_training = TaskTraining(**training)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{where}: {error}") from None
        return cls(kind, parse_corpus(where, arguments.corpus, data_dir), arguments, task_training)

    @property
    def source(self) -> str:
        """Name of the data."""
        return " + ".join(self.corpora)


def learns_from_text(keys: Any) -> bool:
    """Return whether a task of a recipe learns from running text, without labels."""
    kind = keys.get("problem_type") if isinstance(keys, dict) else None
    return isinstance(kind, str) and kind in FORMATS and FORMATS[kind].reads_corpus


def parse_tasks(
    arguments: FinetuneArguments,
) -> tuple[dict[str, RecipeTask], dict[str, RecipeText]]:
    """Check all tasks of a recipe: those with labels, and those that learn from text."""
    tasks, texts = {}, {}
    for name, keys in arguments.tasks.items():
        if learns_from_text(keys):
            texts[name] = RecipeText.from_recipe(name, keys, arguments.data_dir)
        else:
            tasks[name] = RecipeTask.from_recipe(name, keys, arguments.data_dir)
    if not tasks:
        raise ValueError(
            f"tasks: {', '.join(texts)} learn from text alone; add a task with labels, or use "
            "pretrain.py"
        )
    return tasks, texts


def find_metrics(tasks: Mapping[str, RecipeTask]) -> dict[str, tuple[str, ...]]:
    """List the metrics that stand for tasks, where they are not those of the problem type."""
    return {
        name: task.data.metrics for name, task in tasks.items() if task.data.metrics is not None
    }


def find_hub_datasets(
    tasks: Mapping[str, RecipeTask], texts: Mapping[str, RecipeText]
) -> list[str | None]:
    """List the names on the Hub of what is learnt from; None of what it does not have."""
    corpora = [data for text in texts.values() for data in text.corpora.values()]
    return [task.hub_dataset for task in tasks.values()] + [data.hub_dataset for data in corpora]


def find_glue_files(
    tasks: Mapping[str, RecipeTask], loaded: Mapping[str, LoadedTask]
) -> dict[tuple[str, str], GlueFile]:
    """Tell what the server of GLUE calls the predictions of a task and split."""
    files: dict[tuple[str, str], GlueFile] = {}
    for name, task in tasks.items():
        wanted, kind = task.data.submission, str(task.data.problem_type)
        if wanted is None:
            continue
        labels = task.data.labels if wanted.labels else None
        for split, file in wanted.files.items():
            facts = loaded[name].facts.get(split, {})
            counts = [facts.get(key, 0) for key in ("usable_rows", "unusable_rows")]
            count = sum(found for found in counts if isinstance(found, int))
            files[name, split] = GlueFile(file, kind, labels, count or None)
    return files


def find_glue(tasks: Mapping[str, RecipeTask]) -> list[str]:
    """List the tasks of GLUE, but those that are there to help others."""
    counted = {name: task for name, task in tasks.items() if not task.training.auxiliary}
    return [name for name, task in counted.items() if task.data.submission is not None]


def encode_task(
    arguments: FinetuneArguments, task: LoadedTask, head: MinBertTask, tokenizer: Any
) -> dict[str, Dataset]:
    """Encode all splits of a task."""
    try:
        return task.encode(tokenizer, **head.encoding_options(arguments.max_length))
    except ValueError as error:
        raise ValueError(f"task {task.name!r}: {error}") from None
