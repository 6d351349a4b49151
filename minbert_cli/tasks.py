"""The tasks of a recipe: data, head and training of each, and its rows encoded.

What `finetune.py` and `experiments.py` know of tasks before there is a model.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset

from datasets_scripts import (
    DATASETS,
    CorpusData,
    LoadedTask,
    TaskData,
    WindowSizes,
    encode_questions,
    encode_rows,
    encode_tagged,
)
from minbert_cli.texts import parse_corpus
from modeling_minbert import TASKS, MinBertTask
from trainers import (
    TEXT_TYPES,
    AnswerSearch,
    FinetuneArguments,
    GlueFile,
    TaskTraining,
    TextArguments,
    check_metric,
    check_types,
    deal_keys,
)


@dataclass(frozen=True)
class RecipeTask:
    """A task of the recipe, dealt to those who read its keys: data, head and training."""

    data: TaskData
    head: dict[str, Any]
    training: TaskTraining

    @classmethod
    def from_recipe(cls, name: str, keys: Any, data_dir: str | None) -> "RecipeTask":
        """Check the keys of a task.

        Raises:
            ValueError: If a key is unknown or a value is refused.
        """
        kinds = (TaskData, TaskTraining, *TASKS.values())
        data, training, *heads = deal_keys(f"task {name!r}", keys, kinds)
        head = {key: value for each in heads for key, value in each.items()}
        try:
            task_training = TaskTraining(**training)
        except ValueError as error:
            raise ValueError(f"task {name!r}: {error}") from None
        # What data and head both have to know comes from the data.
        own = {key: value for key, value in head.items() if key not in data}
        task_data = TaskData.from_recipe(name, data, data_dir)
        check_metric(name, str(task_data.problem_type), task_data.metric or ())
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
        """Complete the head by what the rows say.

        Args:
            rows: The rows.
            max_length: Tokens of a window at most, for questions that do not say it themselves.

        Raises:
            ValueError: If it contradicts the rows, or a class that is to be weighted has no row.
        """
        facts = {**head_facts(rows), "max_length": max_length}
        try:
            return TASKS[rows.problem_type].complete(self.head, facts)
        except ValueError as error:
            raise ValueError(f"task {rows.name!r}: {error}") from None


def head_facts(rows: LoadedTask) -> dict[str, Any]:
    """Tell what the head of a task needs of its rows."""
    train = rows.splits["train"]
    texts = [name for name in train.column_names if name.startswith("sentence")]
    counts = None
    if rows.problem_type == "classification" and rows.labels:
        counts = np.bincount(train["label"], minlength=len(rows.labels)).tolist()
    is_questions = rows.problem_type == "question_answering"
    return {
        "labels": rows.labels,
        "score_range": rows.score_range,
        "num_texts": len(texts),
        "class_counts": counts,
        "has_unanswerable": is_questions and 0 in train.unique("label"),
    }


@dataclass(frozen=True)
class RecipeText:
    """A task of the recipe that learns from text without labels.

    Args:
        problem_type: What it learns.
        corpora: The texts.
        arguments: How they are cut and masked.
        training: How the task is trained.
    """

    problem_type: str
    corpora: dict[str, CorpusData]
    arguments: TextArguments
    training: TaskTraining

    @classmethod
    def from_recipe(cls, name: str, keys: dict[str, Any], data_dir: str | None) -> "RecipeText":
        """Check the keys of a task.

        Raises:
            ValueError: If a key is unknown or missing, or a value is refused.
        """
        where, kind = f"task {name!r}", keys["problem_type"]
        own = {key: value for key, value in keys.items() if key != "problem_type"}
        text, training = deal_keys(where, own, (TextArguments, TaskTraining))
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


def parse_tasks(
    arguments: FinetuneArguments,
) -> tuple[dict[str, RecipeTask], dict[str, RecipeText]]:
    """Check all tasks of a recipe: those with labels, and those that learn from text.

    Raises:
        ValueError: If a key is unknown, a value is refused, or there are no labels at all.
    """
    tasks, texts = {}, {}
    for name, keys in arguments.tasks.items():
        if isinstance(keys, dict) and keys.get("problem_type") in TEXT_TYPES:
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
    return {name: task.data.metric for name, task in tasks.items() if task.data.metric is not None}


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


def answer_search(head: Any) -> AnswerSearch:
    """Say how the answers of a task are chosen."""
    return AnswerSearch(
        null_score_diff_threshold=head.null_score_diff_threshold,
        max_answer_length=head.max_answer_length,
    )


def encode_task(
    arguments: FinetuneArguments,
    task: LoadedTask,
    data: TaskData,
    head: MinBertTask,
    tokenizer: Any,
) -> dict[str, Dataset]:
    """Encode all splits of a task.

    Raises:
        ValueError: If the rows of a task cannot be cut as it says.
    """
    options = head.encoding_options(arguments.max_length)
    if task.problem_type == "token_classification":
        return {
            split: encode_tagged(
                rows,
                tokenizer,
                document_context=data.document_context,
                **options,
            )
            for split, rows in task.splits.items()
        }
    if task.problem_type == "question_answering":
        try:
            sizes = WindowSizes(**options)
        except ValueError as error:
            raise ValueError(f"task {task.name!r}: {error}") from None
        return {
            split: encode_questions(rows, tokenizer, sizes) for split, rows in task.splits.items()
        }
    return {
        split: encode_rows(
            rows,
            tokenizer,
            problem_type=task.problem_type,
            **options,
        )
        for split, rows in task.splits.items()
    }
