"""What a recipe says about the data of a task, checked and with the defaults filled in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from datasets_scripts.catalog import DATASETS, Columns, DatasetRow, Submission
from datasets_scripts.files.compression import find_suffix
from datasets_scripts.files.values import convert_value

# problem type -> how many texts a row can have
TEXTS = {
    "classification": (1, 2),
    "paraphrase": (2,),
    "similarity": (2,),
    "contrastive": (1, 2, 3),
    "token_classification": (1,),
    "question_answering": (2,),
}
WITH_CLASSES = ("classification", "paraphrase")
MAIN_SPLITS = ("train", "validation", "test")
FILE_KEYS = tuple(f"{split}_file" for split in MAIN_SPLITS)
EXTRA_SPLIT = re.compile(r"(validation|test)_\w+")
FILE_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
# Keys that only one type of problem has.
TAGGING_KEYS = ("scheme", "document_column", "document_context")
# Columns of questions about passages, as SQuAD calls them, and the formats that can hold answers.
QUESTION_COLUMNS = ("question", "context")
ANSWER_COLUMN = "answers"
QUESTION_SUFFIXES = (".json", ".jsonl", ".parquet")
CLASS_SAMPLING_KEYS = ("max_train_rows_per_class", "max_validation_rows_per_class")
SAMPLING_KEYS = ("max_train_rows", "max_validation_rows", *CLASS_SAMPLING_KEYS, "sample_seed")
# What one may say of a built-in dataset.
FREE_KEYS = {
    "dataset",
    "data_dir",
    "max_bad_rows",
    "metric",
    "document_context",
    *SAMPLING_KEYS,
}


@dataclass(frozen=True)
class TaskData:
    """The data of one task; ``from_recipe`` makes it from the keys of a recipe.

    Args:
        name: Name of the task.
        dataset: A built-in dataset, or ``owner/name`` on the Hub.
        data_dir: Folder of the local files.
        hub_id: ``owner/name`` or ``owner/name:config`` on the Hub, or a local folder laid out
            like a dataset of the Hub.
        problem_type: ``classification``, ``paraphrase``, ``similarity``, ``contrastive``, whose
            rows have no labels, ``token_classification``, whose words have one each, or
            ``question_answering``, whose answers are parts of a passage.
        train_file: Path of the training rows: CSV, TSV, JSON lines or Parquet, by suffix; all but
            Parquet also compressed, as ``rows.csv.gz`` (gz, bz2, xz or zst). Sentences with tags
            are JSON lines or Parquet with lists, else in CoNLL columns, whatever the suffix.
            Questions are SQuAD's JSON, JSON lines or Parquet.
        validation_file: Path of the validation rows.
        test_file: Path of the test rows, which may be unlabelled.
        extra_files: Paths of more held-out rows by split, as in ``validation_hard`` or
            ``test_web``; each is evaluated, or predicted, by itself.
        text_columns: One or two columns with the sentences; of a contrastive task one, two that
            belong together, or three, the last of which does not belong to the first. For tags the
            column with the words, in CoNLL columns its number from 0; ``tokens``, or 0. For
            questions ``question`` and ``context``, if nothing is said.
        label_column: Column with the class, 0/1 or the score; None for a contrastive task. For tags
            the column with these, or its number, from -1 backwards from the last; ``tags``, or -1.
            For questions ``answers``, if nothing is said.
        id_column: Column with the row id; without it a column ``id``, else the row's number.
        labels: Names of the classes, or of the tags, of spans in IOB2; without it they are read
            from the training rows.
        score_range: Lowest and highest score of a similarity task.
        max_bad_rows: Share of unusable rows of a split that is tolerated, in [0, 1].
        max_train_rows: Training rows at most, drawn at random; None for all.
        max_validation_rows: The same of the validation rows.
        max_train_rows_per_class: Training rows of each class at most, drawn at random, or
            ``balanced`` for as many as the smallest class has; None for all. Not for similarity,
            whose rows have scores and no classes.
        max_validation_rows_per_class: The same of the validation rows.
        metric: The metrics that stand for the task, the first one in means over tasks, and all of
            them in the score of GLUE; without it those of the dataset or of the problem type.
        sample_seed: Seed of these draws. It is not that of the run, so that runs with other seeds
            learn from the same rows.
        scheme: In which tags mark spans: ``iob1``, ``iob2``, ``iob`` if they begin either way, or
            ``plain`` if every word has a tag of its own; None to recognise it.
        document_column: Column with the number of the document that a sentence of JSON lines,
            Parquet or the Hub is from; in CoNLL columns ``-DOCSTART-`` lines part them.
        document_context: Whether a sentence with tags is read with those before and after it in
            its document, as far as there is room.
    """

    name: str
    dataset: str | None = None
    data_dir: str | None = None
    hub_id: str | None = None
    problem_type: str | None = None
    train_file: str | None = None
    validation_file: str | None = None
    test_file: str | None = None
    extra_files: dict[str, str] | None = None
    text_columns: tuple[str, ...] | None = None
    label_column: str | None = None
    id_column: str | None = None
    labels: tuple[str, ...] | None = None
    score_range: tuple[float, float] | None = None
    max_bad_rows: float = 0.01
    max_train_rows: int | None = None
    max_validation_rows: int | None = None
    max_train_rows_per_class: int | str | None = None
    max_validation_rows_per_class: int | str | None = None
    metric: tuple[str, ...] | None = None
    sample_seed: int = 0
    scheme: str | None = None
    document_column: str | None = None
    document_context: bool = False

    @classmethod
    def from_recipe(
        cls, name: str, mapping: Mapping[str, Any], data_dir: str | Path | None = None
    ) -> "TaskData":
        """Check the data keys of a task and fill in what is known about its dataset.

        Args:
            name: Name of the task.
            mapping: The data keys of the task, as parsed from YAML.
            data_dir: Folder for the built-in datasets of tasks that name no folder themselves.

        Raises:
            ValueError: If a key or a value is unknown, missing, or contradicts another one.
        """
        known = [field.name for field in fields(cls) if field.name != "name"]
        if unknown := sorted(set(mapping) - set(known)):
            raise ValueError(
                f"task {name!r}: unknown data keys {unknown}; known keys: {', '.join(known)}"
            )
        given = {key: value for key, value in mapping.items() if value is not None}
        owner = f"task {name!r}"
        data = cls(name, **{key: convert_value(owner, key, value) for key, value in given.items()})
        _check_one_source(data)
        if data.dataset in DATASETS:
            data = _fill_built_in(data, given.keys(), None if data_dir is None else str(data_dir))
        else:
            if data.dataset is not None:
                data = _dataset_to_hub_id(data)
            data = _join_data_dir(data)
            if data.problem_type == "question_answering":
                data = replace(
                    data,
                    text_columns=data.text_columns or QUESTION_COLUMNS,
                    label_column=data.label_column or ANSWER_COLUMN,
                )
            _check_own(data)
        _check_sampling(data)
        return data

    @property
    def is_pair(self) -> bool:
        """Whether a row holds two sentences."""
        return self.text_columns is not None and len(self.text_columns) == 2

    @property
    def files(self) -> dict[str, str]:
        """The declared files by split: train, validation, test, and others that are held out."""
        paths = {key.removesuffix("_file"): getattr(self, key) for key in FILE_KEYS}
        paths |= self.extra_files or {}
        return {split: path for split, path in paths.items() if path is not None}

    @property
    def submission(self) -> Submission | None:
        """How the server of GLUE wants predictions; None if this is none of its tasks."""
        known = DATASETS.get(self.dataset or "")
        return None if known is None else known.submission


def is_test(split: str) -> bool:
    """Return whether the rows of a split may be unlabelled: ``test``, ``test_mismatched``."""
    return split.partition("_")[0] == "test"


def _check_one_source(data: TaskData) -> None:
    """Refuse a task that names no source of rows, or several."""
    files = [key for key in FILE_KEYS if getattr(data, key) is not None]
    given = [key for key in ("dataset", "hub_id") if getattr(data, key) is not None]
    if len(given) + bool(files) != 1:
        found = ", ".join(given + files) or "none of them"
        raise ValueError(
            f"task {data.name!r}: give exactly one source of rows, 'dataset' (built-in or "
            f"owner/name), 'hub_id', or 'train_file' and 'validation_file'; found {found}"
        )


def _fill_built_in(data: TaskData, given: Any, data_dir: str | None) -> TaskData:
    row = DATASETS[str(data.dataset)]
    where = f"task {data.name!r}: dataset {data.dataset!r}"
    if fixed := sorted(set(given) - FREE_KEYS):
        raise ValueError(
            f"{where} is built in and knows its {', '.join(fixed)}; leave these keys out, or "
            "declare your own files instead of the dataset"
        )
    filled = replace(
        data,
        problem_type=row.problem_type,
        labels=row.labels,
        score_range=row.score_range,
        metric=data.metric or row.metric,
        scheme=row.scheme,
    )
    if not row.files:
        if data.data_dir is not None:
            raise ValueError(f"{where} is generated and reads no files; leave data_dir out")
        columns = Columns(("sentence1",) if row.labels else ("sentence1", "sentence2"), "label")
        return _with_columns(filled, columns)
    folder = data.data_dir or data_dir
    if folder is not None:
        return _with_official_files(filled, row, Path(folder))
    if row.hub_id is None or row.hub_columns is None:
        raise ValueError(
            f"{where} has no copy on the Hub; give data_dir, the folder that holds "
            f"{row.files['train'][0]}"
        )
    return _with_columns(replace(filled, hub_id=row.hub_id), row.hub_columns)


def _with_columns(data: TaskData, columns: Columns) -> TaskData:
    return replace(
        data,
        text_columns=columns.text,
        label_column=columns.label,
        id_column=columns.id,
        document_column=columns.document,
    )


def _with_official_files(data: TaskData, row: DatasetRow, folder: Path) -> TaskData:
    paths = {}
    for split, names in row.files.items():
        found = [name for name in names if (folder / name).is_file()]
        if found or not is_test(split):
            paths[split] = str(folder / (found or names)[0])
    main: dict[str, Any] = {
        f"{split}_file": paths.pop(split) for split in MAIN_SPLITS if split in paths
    }
    data = replace(data, data_dir=str(folder), extra_files=paths or None, **main)
    return data if row.columns is None else _with_columns(data, row.columns)


def _dataset_to_hub_id(data: TaskData) -> TaskData:
    if "/" not in str(data.dataset):
        raise ValueError(
            f"task {data.name!r}: unknown dataset {data.dataset!r}; known datasets: "
            f"{', '.join(DATASETS)}; a dataset of the Hub is written owner/name"
        )
    return replace(data, hub_id=data.dataset)


def _join_data_dir(data: TaskData) -> TaskData:
    if data.data_dir is None:
        return data
    if data.hub_id is not None:
        raise ValueError(
            f"task {data.name!r}: data_dir={data.data_dir!r} means nothing for {data.hub_id!r}, "
            "which is read from the Hub; leave data_dir out"
        )
    folder = Path(data.data_dir)
    joined: dict[str, Any] = {
        key: str(folder / getattr(data, key)) for key in FILE_KEYS if getattr(data, key) is not None
    }
    extra = {split: str(folder / path) for split, path in (data.extra_files or {}).items()}
    return replace(data, **joined, extra_files=extra or None)


def _check_own(data: TaskData) -> None:
    """Check what a user must say about rows that are not built in."""
    where = f"task {data.name!r}"
    if data.problem_type not in TEXTS:
        raise ValueError(
            f"{where}: problem_type={data.problem_type!r}; needed is one of {', '.join(TEXTS)}"
        )
    if data.problem_type == "contrastive" and data.label_column is not None:
        raise ValueError(
            f"{where}: a contrastive task learns without labels; leave label_column out"
        )
    for key in ("text_columns", "label_column"):
        is_needed = key == "text_columns" or data.problem_type != "contrastive"
        # words and tags have usual names and places in files
        is_needed &= data.problem_type != "token_classification" or data.hub_id is not None
        if is_needed and getattr(data, key) is None:
            raise ValueError(f"{where}: {key} is missing; name the columns of your rows")
    if data.hub_id is None:
        _check_files(data)
    elif data.extra_files:
        raise ValueError(f"{where}: extra_files means nothing for {data.hub_id!r}; leave it out")
    _check_shape(data)


def _check_files(data: TaskData) -> None:
    for key in ("train_file", "validation_file"):
        if getattr(data, key) is None:
            raise ValueError(f"task {data.name!r}: {key} is missing; only test_file is optional")
    for split in data.extra_files or {}:
        if not EXTRA_SPLIT.fullmatch(split):
            raise ValueError(
                f"task {data.name!r}: extra_files: {split!r} is no split; a name begins with "
                "validation_ (labelled) or test_, as in validation_hard"
            )
    if data.problem_type == "token_classification":
        return  # CoNLL columns have no suffix of their own
    is_questions = data.problem_type == "question_answering"
    suffixes = QUESTION_SUFFIXES if is_questions else FILE_SUFFIXES
    for path in data.files.values():
        if find_suffix(path) not in suffixes:
            what = "questions cannot be in" if is_questions else "cannot tell the format of"
            raise ValueError(
                f"task {data.name!r}: {what} {path!r}; known suffixes: {', '.join(suffixes)}"
            )


def _check_shape(data: TaskData) -> None:
    """Check columns, labels and range against the problem type."""
    where = f"task {data.name!r}: problem_type {data.problem_type!r}"
    allowed = TEXTS[str(data.problem_type)]
    columns = data.text_columns or ()
    if data.problem_type == "token_classification":
        columns = columns or ("",)  # the usual one
    else:
        _check_no_tags(data)
    if len(columns) not in allowed:
        wanted = " or ".join(map(str, allowed))
        raise ValueError(f"{where} takes {wanted} text_columns, got {list(columns)}")
    if data.problem_type == "similarity" and data.score_range is None:
        raise ValueError(f"{where} needs score_range: [low, high], such as [0, 5]")
    if data.problem_type != "similarity" and data.score_range is not None:
        raise ValueError(f"{where} has no scores; leave score_range out")
    named = ("classification", "token_classification")
    if data.problem_type not in named and data.labels is not None:
        raise ValueError(f"{where} has no named labels; leave labels out")
    if data.labels is not None and len(data.labels) < 2:
        raise ValueError(f"{where} needs at least two labels, got {list(data.labels)}")


def _check_no_tags(data: TaskData) -> None:
    for key in TAGGING_KEYS:
        if getattr(data, key):
            raise ValueError(
                f"task {data.name!r}: problem_type {data.problem_type!r} has no tags; leave {key} "
                "out"
            )


def _check_sampling(data: TaskData) -> None:
    """Check what is said about a choice of the rows."""
    where = f"task {data.name!r}"
    for key in CLASS_SAMPLING_KEYS:
        if getattr(data, key) is None:
            continue
        other = key.removesuffix("_per_class")
        if data.problem_type not in WITH_CLASSES:
            raise ValueError(
                f"{where}: {key}={getattr(data, key)!r}, but a {data.problem_type} has no classes; "
                f"leave it out, or give {other}"
            )
        if getattr(data, other) is not None:
            raise ValueError(
                f"{where}: {other} and {key} both say how many rows there are; leave one out"
            )
