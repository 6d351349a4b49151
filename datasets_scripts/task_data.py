"""The data keys of a task in a recipe, checked and completed with defaults."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from modeling_minbert import TASKS, unknown

from .catalog import DATASETS, Columns as ColumnNames, DatasetRow, Submission
from .checking import (
    INNER,
    Column,
    Columns,
    Count,
    CountByClass,
    Delimiter,
    Fraction,
    Names,
    Paths,
    ScoreRange,
    Seed,
    Share,
    Text,
    check_keys,
    check_revision,
    choice,
    key_types,
    keys_with,
    option,
)
from .formats import ROW_FORMATS, SCHEMES
from .readers import MAIN_SPLITS, FileFormat, find_suffix, is_test
from .row_format import RowFormat
from .sentence_formats import ClassificationFormat, ParaphraseFormat

# Problem types of the rows that are paired, and of their pairs.
SINGLE_TYPE = ClassificationFormat.problem_type
PAIR_TYPE = ParaphraseFormat.problem_type
PAIR_COLUMNS = ("sentence1", "sentence2")
FILE_KEYS = tuple(f"{split}_file" for split in MAIN_SPLITS)
EXTRA_SPLIT = re.compile(r"(validation|test)_\w+")
HINTS = {"score_range": "[low, high], such as [0, 5]"}
# Keys that only some problem types have, which are fields of their formats.
OPTIONS = {name: kind for rows in ROW_FORMATS.values() for name, kind in rows.options().items()}


@dataclass(frozen=True)
class TaskData:
    """The data of one task; ``from_recipe`` makes it from the keys of a recipe.

    The fields are these keys, and "Data of a task" in docs/reference/recipes.md describes them.

    Args:
        name: Name of the task.
        hub_id: ``owner/name`` or ``owner/name:config`` on the Hub, or a local folder with the
            layout of a dataset on the Hub.
        data_dir: Folder of the local files, also of a built-in dataset.
        problem_type: A key of ``ROW_FORMATS``.
        class_rows: The rows that ``class_pairs`` pairs.
        options: Keys that only formats of some problem types have; see ``RowFormat.options``.
    """

    name: str = field(metadata=INNER)
    dataset: Text | None = option(None, built_in=True)
    data_dir: Text | None = option(None, path=True, built_in=True)
    hub_id: Text | None = option(None)
    revision: Text | None = option(None, built_in=True)
    problem_type: Text | None = option(None, built_in=True)
    train_file: Text | None = option(None, path=True)
    validation_file: Text | None = option(None, path=True)
    validation_share: Share = option(0.1)
    test_file: Text | None = option(None, path=True)
    unlabeled_file: Text | None = option(None, path=True, built_in=True)
    extra_files: Paths | None = option(None, path=True)  # by split
    text_columns: Columns | None = option(None)
    label_column: Column | None = option(None)
    id_column: Text | None = option(None)
    delimiter: Delimiter | None = option(None)
    quoting: bool | None = option(None)
    labels: Names | None = option(None)
    score_range: ScoreRange | None = option(None)
    max_invalid_fraction: Fraction = option(0.01, built_in=True)
    max_train_samples: Count | None = option(None, built_in=True)
    max_eval_samples: Count | None = option(None, built_in=True)
    max_test_samples: Count | None = option(None, built_in=True)
    max_unlabeled_samples: Count | None = option(None, built_in=True)
    max_train_samples_per_class: CountByClass | None = option(None, built_in=True, by_class=True)
    max_eval_samples_per_class: CountByClass | None = option(None, built_in=True, by_class=True)
    metrics: Columns | None = option(None, built_in=True)
    sample_seed: Seed = option(0, built_in=True)
    scheme: Annotated[str, choice(*SCHEMES)] | None = option(None)
    document_column: Text | None = option(None)
    document_context: bool = option(False, built_in=True)
    class_pairs: Count | None = option(None)
    class_rows: "TaskData | None" = field(default=None, metadata=INNER)
    options: dict[str, Any] = field(default_factory=dict, metadata=INNER)

    @classmethod
    def recipe_keys(cls) -> dict[str, Any]:
        """Return the types of the keys of a recipe, those of single problem types among them."""
        return {**key_types(cls), **OPTIONS}

    @classmethod
    def from_recipe(
        cls, name: str, mapping: Mapping[str, Any], data_dir: str | Path | None = None
    ) -> "TaskData":
        """Check the data keys of a task and complete them from its dataset.

        Args:
            name: Name of the task.
            mapping: The data keys of the task, as parsed from YAML.
            data_dir: Default folder of the built-in datasets.

        Raises:
            ValueError: If a key or a value is unknown, missing, or contradicts another one.
        """
        where = f"task {name!r}"
        keys = {key: value for key, value in mapping.items() if value is not None}
        checked = check_keys(where, keys, cls.recipe_keys(), "data key")
        if "class_pairs" in checked:
            rows = cls.from_recipe(name, _keys_of_classes(where, keys), data_dir)
            return _pair_rows(rows, checked["class_pairs"], checked.get("metrics"))
        options = {key: value for key, value in checked.items() if key in OPTIONS}
        main = {key: value for key, value in checked.items() if key not in OPTIONS}
        data = cls(name, **main, options=options)
        files = [key for key in FILE_KEYS if key in keys]
        sources = [key for key in ("dataset", "hub_id") if key in keys]
        if len(sources) + bool(files) != 1:
            raise ValueError(
                f"{where}: give exactly one source of rows, 'dataset' (built-in or "
                "owner/name), 'hub_id', or 'train_file'; given: "
                f"{', '.join(sources + files) or 'none'}"
            )
        if data.validation_file is not None and "validation_share" in keys:
            raise ValueError(
                f"{where}: validation_share={data.validation_share:g} has no effect with "
                "validation_file; remove one of them"
            )
        data = _fill_built_in(data, keys, data_dir) if data.dataset in DATASETS else _fill_own(data)
        _check_draws(data)
        check_revision(where, data.revision, data.hub_id)
        return data

    @property
    def where(self) -> str:
        """Owner of the keys, for messages."""
        return f"task {self.name!r}"

    @property
    def files(self) -> dict[str, str]:
        """The files by split: train, validation, test, and further held-out ones."""
        paths = {key.removesuffix("_file"): getattr(self, key) for key in FILE_KEYS}
        paths |= self.extra_files or {}
        return {split: path for split, path in paths.items() if path is not None}

    @property
    def file_format(self) -> FileFormat:
        """How its delimited files are written."""
        if self.built_in.files:
            return self.built_in.file_format
        return FileFormat(self.delimiter, self.quoting)

    @property
    def reading_keys(self) -> dict[str, Any]:
        """The keys that say where the texts of a row are in a file."""
        options = {"choice_columns": self.options.get("choice_columns")}
        if self.files:
            options |= vars(self.file_format)
        given = {key: value for key, value in options.items() if value is not None}
        return {"text_columns": list(self.text_columns or ()), **given}

    @property
    def built_in(self) -> DatasetRow:
        """The built-in dataset; without one, an empty row."""
        return DATASETS.get(self.dataset or "", DatasetRow(problem_type=""))

    @property
    def submission(self) -> Submission | None:
        """How the GLUE server expects predictions; None for other tasks."""
        return None if self.class_rows else self.built_in.submission


def _fill_built_in(data: TaskData, given: Iterable[str], data_dir: str | Path | None) -> TaskData:
    """Complete and check the keys of a task with a built-in dataset."""
    row = DATASETS[str(data.dataset)]
    where = f"{data.where}: dataset {data.dataset!r}"
    if fixed := sorted(set(given) - set(keys_with(TaskData, "built_in"))):
        raise ValueError(
            f"{where} is built in and has its own {', '.join(fixed)}; remove these keys, or "
            "declare your own files instead of the dataset"
        )
    kinds = (row.problem_type, *row.other_types)
    if data.problem_type not in (None, *kinds):
        raise ValueError(
            f"{where} has the problem_type {' or '.join(kinds)}, not {data.problem_type!r}; remove "
            "the key, or declare your own files instead of the dataset"
        )
    data = replace(
        data,
        problem_type=data.problem_type or row.problem_type,
        labels=row.labels,
        score_range=row.score_range,
        metrics=data.metrics or row.metrics,
        scheme=row.scheme,
        options={**row.options},
    )
    if not row.files:  # a sample of this package
        if data.data_dir is not None:
            raise ValueError(f"{where} is generated and reads no files; remove data_dir")
        columns = ColumnNames(("sentence1",) if row.labels else PAIR_COLUMNS, "label")
        return replace(data, **vars(columns))
    if data.data_dir is None and data_dir is None:
        if row.hub_id is None or row.hub_columns is None:
            raise ValueError(
                f"{where} has no copy on the Hub; give data_dir, the folder that contains "
                f"{row.files['train'][0]}"
            )
        return replace(data, hub_id=row.hub_id, **vars(row.hub_columns))
    return _find_files(data, row, Path(data.data_dir or data_dir or ""))


def _find_files(data: TaskData, row: DatasetRow, folder: Path) -> TaskData:
    """Add the official files of a built-in dataset; a test file may be missing."""
    paths: dict[str, Any] = {}
    for split, names in row.files.items():
        present = [name for name in names if (folder / name).is_file()]
        if present or not is_test(split):
            paths[split] = str(folder / (present or names)[0])
    main = {f"{split}_file": paths.pop(split) for split in MAIN_SPLITS if split in paths}
    unlabeled = folder / (data.unlabeled_file or "")
    if unlabeled.is_file():
        main["unlabeled_file"] = str(unlabeled)
    main |= {} if row.columns is None else vars(row.columns)
    return replace(data, data_dir=str(folder), extra_files=paths or None, **main)


def _fill_own(data: TaskData) -> TaskData:
    """Complete and check keys of rows that are not built in."""
    where = data.where
    if data.dataset is not None and "/" not in data.dataset:
        raise ValueError(
            f"{where}: {unknown('dataset', data.dataset, DATASETS)} (a dataset of the Hub is "
            "written owner/name)"
        )
    data = replace(data, hub_id=data.hub_id or data.dataset)
    for key in () if data.hub_id is None else ("data_dir", "extra_files", "delimiter", "quoting"):
        if getattr(data, key) is not None:
            raise ValueError(
                f"{where}: {key}={getattr(data, key)!r} has no effect for {data.hub_id!r}, "
                f"which is read from the Hub; remove {key}"
            )
    data = _join_folder(data)
    if data.problem_type is None:
        raise ValueError(f"{where}: problem_type is missing; known: {', '.join(ROW_FORMATS)}")
    if data.problem_type not in ROW_FORMATS:
        raise ValueError(f"{where}: {unknown('problem_type', data.problem_type, ROW_FORMATS)}")
    kind = ROW_FORMATS[data.problem_type]
    defaults: dict[str, Any] = {
        key: value for key, value in kind.default_keys.items() if getattr(data, key) is None
    }
    data = replace(data, **defaults)
    _check_type(data, kind)
    if data.hub_id is None:
        _check_files(data, kind)
    return data


def _join_folder(data: TaskData) -> TaskData:
    """Put the folder of the data before the paths of its files."""
    if data.data_dir is None:
        return data
    folder = Path(data.data_dir)
    paths = {key: getattr(data, key) for key in (*FILE_KEYS, "unlabeled_file")}
    joined: dict[str, Any] = {
        key: str(folder / path) for key, path in paths.items() if path is not None
    }
    extra = {split: str(folder / path) for split, path in (data.extra_files or {}).items()}
    return replace(data, **joined, extra_files=extra or None)


def _check_type(data: TaskData, kind: type[RowFormat]) -> None:
    """Check that the keys are those of the problem type."""
    where = data.where
    typed = {key for other in ROW_FORMATS.values() for key in other.own_keys}
    foreign = typed - set(kind.own_keys) | (OPTIONS.keys() - kind.options().keys())
    for key in sorted(foreign):
        if data.options.get(key) or getattr(data, key, None):
            raise ValueError(f"{where}: {kind.problem_type} tasks have no {key}; remove it")
    for key in kind.required_keys if data.hub_id is None else kind.hub_keys or kind.required_keys:
        if getattr(data, key) is None:
            raise ValueError(
                f"{where}: {key} is missing; give {HINTS.get(key, 'the columns of your rows')}"
            )
    columns = data.text_columns or ()
    if len(columns) not in kind.text_counts:
        raise ValueError(
            f"{where}: problem_type {data.problem_type!r} takes "
            f"{' or '.join(map(str, kind.text_counts))} text_columns, got {list(columns)}"
        )
    if data.labels is not None and len(data.labels) < 2:
        raise ValueError(
            f"{where}: problem_type {data.problem_type!r} needs at least two labels, got "
            f"{list(data.labels)}"
        )


def _check_files(data: TaskData, kind: type[RowFormat]) -> None:
    """Check the keys of files."""
    if data.train_file is None:
        raise ValueError(f"{data.where}: train_file is missing")
    if data.validation_file is None and not data.validation_share:
        raise ValueError(
            f"{data.where}: validation_file is missing, and validation_share=0 holds no training "
            "rows out; give one of them"
        )
    if wrong := [split for split in data.extra_files or {} if not EXTRA_SPLIT.fullmatch(split)]:
        raise ValueError(
            f"{data.where}: extra_files: {wrong[0]!r} is not a split; names start with "
            "validation_ (labeled) or test_, as in validation_hard"
        )
    suffixes = kind.file_suffixes
    for key in ("delimiter", "quoting"):
        if getattr(data, key) is not None and ".csv" not in (suffixes or ()):
            raise ValueError(
                f"{data.where}: {key} is for CSV and TSV files, which {kind.problem_type} rows are "
                "not read from; remove it"
            )
    for path in data.files.values():
        if suffixes is not None and find_suffix(path) not in suffixes:
            raise ValueError(
                f"{data.where}: {kind.problem_type} rows cannot be read from {path!r}; known "
                f"suffixes: {', '.join(suffixes)}"
            )


def _check_draws(data: TaskData) -> None:
    """Check which rows are drawn, and the keys of rows without labels."""
    for key in keys_with(TaskData, "by_class"):
        if getattr(data, key) is None:
            continue
        other = key.removesuffix("_per_class")
        if not TASKS[str(data.problem_type)].has_classes:
            raise ValueError(
                f"{data.where}: {key}={getattr(data, key)!r}, but {data.problem_type} rows have no "
                f"classes; remove it, or give {other}"
            )
        if getattr(data, other) is not None:
            raise ValueError(f"{data.where}: {other} and {key} are mutually exclusive; remove one")
    if data.unlabeled_file is None and data.max_unlabeled_samples is not None:
        raise ValueError(
            f"{data.where}: max_unlabeled_samples={data.max_unlabeled_samples} has no effect "
            "without unlabeled_file; remove it"
        )
    kinds = [name for name, kind in ROW_FORMATS.items() if kind.has_unlabeled_rows]
    if data.unlabeled_file is not None and data.problem_type not in kinds:
        raise ValueError(
            f"{data.where}: unlabeled_file is for tasks of the types {', '.join(kinds)}; remove it "
            f"from a {data.problem_type} task"
        )


# Pairs by class


def _keys_of_classes(where: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys of the classification whose rows are paired, or refuse others."""
    kind = keys.get("problem_type", PAIR_TYPE)
    if kind != PAIR_TYPE:
        raise ValueError(
            f"{where}: class_pairs makes pairs for a {PAIR_TYPE} task, not for problem_type "
            f"{kind!r}; leave one of them out"
        )
    if "unlabeled_file" in keys:
        raise ValueError(f"{where}: class_pairs pairs rows by their label; remove unlabeled_file")
    left_out = ("class_pairs", "problem_type", "metrics")
    rows = {key: value for key, value in keys.items() if key not in left_out}
    is_built_in = "dataset" in keys and "/" not in str(keys["dataset"])
    return rows if is_built_in else rows | {"problem_type": SINGLE_TYPE}


def _pair_rows(rows: TaskData, class_pairs: int, metrics: tuple[str, ...] | None) -> TaskData:
    """Describe the pairs of the rows of a classification of single texts, or refuse others."""
    if rows.problem_type != SINGLE_TYPE or len(rows.text_columns or ()) != 1:
        raise ValueError(
            f"{rows.where}: class_pairs needs rows with one text and a class each, not pairs or "
            f"{rows.problem_type} rows; remove it"
        )
    return replace(
        rows,
        problem_type=PAIR_TYPE,
        text_columns=PAIR_COLUMNS,
        label_column="label",
        labels=None,
        metrics=metrics,
        class_pairs=class_pairs,
        class_rows=rows,
    )
