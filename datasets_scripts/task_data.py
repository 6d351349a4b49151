"""The data keys of a task in a recipe, checked and completed with defaults."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from modeling_minbert import unknown

from .checking import (
    INNER,
    Column,
    Columns,
    Count,
    CountByClass,
    Delimiter,
    Fraction,
    Names,
    ScoreRange,
    Seed,
    Share,
    Text,
    check_keys,
    check_revision,
    keys_with,
    option,
)
from .readers import (
    DELIMITED,
    FILE_SUFFIXES,
    MAIN_SPLITS,
    FileFormat,
    find_duplicates,
    find_suffix,
    is_test,
    normalize_value,
)

if TYPE_CHECKING:  # a recipe that names no built-in dataset does not load them
    from .catalog import DatasetRow

FILE_KEYS = tuple(f"{split}_file" for split in MAIN_SPLITS)
HELD_OUT_SHARE = 0.1
# Keys that another one leaves without effect.
CONFLICTS = {
    "validation_share": "validation_file",
    "max_train_samples": "max_train_samples_per_class",
    **dict.fromkeys(("labels", "label_separator"), "label_columns"),
    **dict.fromkeys(("data_dir", "delimiter", "quoting"), "hub_id"),
}


@dataclass(frozen=True)
class RowKind:
    """What the data of a problem type need, known before the module of their format is loaded.

    Args:
        row_format: Class of the format in this package, as in ``formats:ContrastiveFormat``.
        text_counts: Numbers of texts that a row may have.
        keys: The keys of a recipe that this type has, and not every type.
        required: Keys that a recipe must give.
        defaults: Values of keys that it may leave out.
        suffixes: Suffixes of files; None for any.
    """

    row_format: str
    text_counts: tuple[int, ...]
    keys: tuple[str, ...]
    required: tuple[str, ...] = ("text_columns", "label_column")
    defaults: Mapping[str, Any] = field(default_factory=dict)
    suffixes: tuple[str, ...] | None = FILE_SUFFIXES


CSV = ("id_column", "delimiter", "quoting")  # of types whose files may be tables
# A task may have training rows without labels, for which it has a teacher.
UNLABELED = ("unlabeled_file", "max_unlabeled_samples", *CSV)
LABELED = ("label_column", *UNLABELED)
BY_CLASS = (*LABELED, "max_train_samples_per_class")
# By problem type; those that learn from running text have a corpus instead.
ROW_KINDS: dict[str, RowKind] = {
    "classification": RowKind("row_format:ClassificationFormat", (1, 2), (*BY_CLASS, "labels")),
    "multi_label_classification": RowKind(
        "formats:MultiLabelFormat",
        (1, 2),
        (*LABELED, "labels", "label_columns", "label_separator"),
        required=("text_columns",),
    ),
    "multi_output_classification": RowKind(
        "formats:MultiOutputFormat",
        (1, 2),
        ("label_columns", *UNLABELED),
        required=("text_columns", "label_columns"),
    ),
    "paraphrase": RowKind("row_format:ParaphraseFormat", (2,), BY_CLASS),
    "similarity": RowKind(
        "row_format:SimilarityFormat",
        (2,),
        (*LABELED, "score_range"),
        required=("text_columns", "label_column", "score_range"),
    ),
    "regression": RowKind(
        "formats:RegressionFormat", (1, 2), (*LABELED, "label_columns"), required=("text_columns",)
    ),
    "contrastive": RowKind("formats:ContrastiveFormat", (1, 2, 3), CSV, ("text_columns",)),
    "token_classification": RowKind(
        "tagging:TagFormat",
        (0, 1),
        ("label_column", "labels", "scheme"),
        required=(),
        suffixes=None,
    ),
    "question_answering": RowKind(
        "questions:QuestionFormat",
        (2,),
        ("label_column", "id_column"),
        defaults={"text_columns": ("question", "context"), "label_column": "answers"},
        suffixes=(".json", ".jsonl", ".parquet"),
    ),
}
TYPE_KEYS = sorted({key for kind in ROW_KINDS.values() for key in kind.keys})


@dataclass(frozen=True)
class TaskData:
    """The data of one task; ``from_recipe`` makes it from the keys of a recipe.

    The fields are these keys, and "Data of a task" in docs/reference/recipes.md describes them.
    Also ``hub_id``: ``owner/name`` or ``owner/name:config`` on the Hub, or a local folder with the
    layout of a dataset there.
    """

    name: str = field(metadata=INNER)
    dataset: Text | None = option(None, built_in=True)
    data_dir: Text | None = option(None, built_in=True)
    hub_id: Text | None = option(None)
    revision: Text | None = option(None, built_in=True)
    problem_type: Text | None = option(None, built_in=True)
    train_file: Text | None = option(None)
    validation_file: Text | None = option(None)
    validation_share: Share | None = option(None)
    test_file: Text | None = option(None)
    unlabeled_file: Text | None = option(None, built_in=True)
    text_columns: Columns | None = option(None)
    label_column: Column | None = option(None)
    label_columns: Columns | None = option(None)
    label_separator: Text | None = option(None)
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
    max_train_samples_per_class: CountByClass | None = option(None, built_in=True)
    metrics: Columns | None = option(None, built_in=True)
    sample_seed: Seed = option(0, built_in=True)
    scheme: Literal["spans", "plain"] | None = option(None)
    # further held-out files of a built-in dataset, by split
    extra_files: dict[str, str] = field(default_factory=dict, metadata=INNER)

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
        (keys,) = check_keys(where, mapping, cls)
        keys = {key: value for key, value in keys.items() if value is not None}
        files = [key for key in FILE_KEYS if key in keys]
        sources = [key for key in ("dataset", "hub_id") if key in keys]
        if len(sources) + bool(files) != 1:
            raise ValueError(
                f"{where}: give exactly one source of rows, 'dataset' (built-in or owner/name), "
                f"'hub_id', or 'train_file'; given: {', '.join(sources + files) or 'none'}"
            )
        data = cls(name, **keys)
        if data.dataset is not None and "/" not in data.dataset:
            data = _fill_built_in(data, keys, data_dir)
        else:
            data = _fill_own(data)
        _check_conflicts(data, keys)
        _check_type(data)
        if data.files and data.train_file is None:
            raise ValueError(f"{where}: train_file is missing")
        if data.files and data.validation_file is None and data.validation_share == 0:
            raise ValueError(
                f"{where}: validation_file is missing, and validation_share=0 holds no training "
                "rows out; give one of them"
            )
        check_revision(where, data.revision, data.hub_id)
        return data

    @property
    def where(self) -> str:
        """Owner of the keys, for messages."""
        return f"task {self.name!r}"

    @property
    def kind(self) -> RowKind:
        """What its problem type needs."""
        return ROW_KINDS[str(self.problem_type)]

    @property
    def held_out_share(self) -> float:
        """Share of the training rows that is held out, without validation rows."""
        return HELD_OUT_SHARE if self.validation_share is None else self.validation_share

    @property
    def files(self) -> dict[str, str]:
        """The files by split: train, validation, test, and further held-out ones."""
        paths = {key.removesuffix("_file"): getattr(self, key) for key in FILE_KEYS}
        paths |= self.extra_files
        return {split: path for split, path in paths.items() if path is not None}

    @property
    def file_format(self) -> FileFormat:
        """How its delimited files are written."""
        if self.built_in is not None and self.files:
            return self.built_in.file_format
        return FileFormat(self.delimiter, self.quoting)

    @property
    def reading_keys(self) -> dict[str, Any]:
        """The keys that say where the texts of a row are in a file."""
        options = vars(self.file_format) if self.files else {}
        given = {key: value for key, value in options.items() if value is not None}
        return {"text_columns": list(self.text_columns or ()), **given}

    @property
    def built_in(self) -> "DatasetRow | None":
        """The built-in dataset, if it is one."""
        if self.dataset is None or "/" in self.dataset:
            return None
        from .catalog import DATASETS

        return DATASETS.get(self.dataset)


def _fill_built_in(data: TaskData, given: Iterable[str], data_dir: str | Path | None) -> TaskData:
    """Complete and check the keys of a task with a built-in dataset."""
    row = data.built_in
    if row is None:
        from .catalog import DATASETS

        raise ValueError(
            f"{data.where}: {unknown('dataset', str(data.dataset), DATASETS)} (a dataset of the "
            "Hub is written owner/name)"
        )
    where = f"{data.where}: dataset {data.dataset!r}"
    if fixed := sorted(set(given) - set(keys_with(TaskData, "built_in"))):
        raise ValueError(
            f"{where} is built in and has its own {', '.join(fixed)}; remove these keys, or "
            "declare your own files instead of the dataset"
        )
    if data.problem_type not in (None, row.problem_type):
        raise ValueError(
            f"{where} has the problem_type {row.problem_type}, not {data.problem_type!r}; remove "
            "the key, or declare your own files instead of the dataset"
        )
    data = replace(
        data,
        problem_type=row.problem_type,
        labels=row.labels,
        score_range=row.score_range,
        metrics=data.metrics or row.metrics,
        scheme=row.scheme,
    )
    if not row.files:  # a sample of this package
        if data.data_dir is not None:
            raise ValueError(f"{where} is generated and reads no files; remove data_dir")
        return replace(data, **row.columns)
    if (folder := data.data_dir or data_dir) is not None:
        return _find_files(data, row, Path(folder))
    if row.hub_id is None:
        raise ValueError(
            f"{where} has no copy on the Hub; give data_dir, the folder that contains "
            f"{row.files['train'][0]}"
        )
    return replace(data, hub_id=row.hub_id, **row.hub_columns)


def _find_files(data: TaskData, row: "DatasetRow", folder: Path) -> TaskData:
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
    return replace(data, data_dir=str(folder), extra_files=paths, **main, **row.columns)


def _fill_own(data: TaskData) -> TaskData:
    """Complete the keys of rows that are not built in, and check their problem type."""
    if data.problem_type is None:
        raise ValueError(f"{data.where}: problem_type is missing; known: {', '.join(ROW_KINDS)}")
    if data.problem_type not in ROW_KINDS:
        raise ValueError(f"{data.where}: {unknown('problem_type', data.problem_type, ROW_KINDS)}")
    folder = Path(data.data_dir or "")
    changes = {key: x for key, x in data.kind.defaults.items() if getattr(data, key) is None}
    if data.labels is not None and data.problem_type != "token_classification":
        changes["labels"] = tuple(map(normalize_value, data.labels))  # as those of rows are
    for key in (*FILE_KEYS, "unlabeled_file"):
        if (path := getattr(data, key)) is not None:
            changes[key] = str(folder / path)
    return replace(data, hub_id=data.hub_id or data.dataset, **changes)


def _check_conflicts(data: TaskData, keys: Mapping[str, Any]) -> None:
    """Refuse keys that another one leaves without effect."""
    for key, other in CONFLICTS.items():
        if other == "hub_id" and data.unlabeled_file is not None:
            continue  # they are about that file
        if key in keys and getattr(data, other) is not None:
            what = "a dataset of the Hub" if other == "hub_id" else other
            raise ValueError(
                f"{data.where}: {key}={keys[key]!r} has no effect with {what}; remove one of them"
            )
    paths = [path for path in (*data.files.values(), data.unlabeled_file) if path is not None]
    if paths and not any(find_suffix(path) in DELIMITED for path in paths):
        for key in ("delimiter", "quoting"):
            if getattr(data, key) is not None:
                raise ValueError(
                    f"{data.where}: {key}={getattr(data, key)!r} has no effect, since no file of "
                    f"the task ends in {' or '.join(DELIMITED)}; remove it"
                )


def _check_type(data: TaskData) -> None:
    where, kind = data.where, data.kind
    for key in TYPE_KEYS:
        if key not in kind.keys and getattr(data, key) is not None:
            raise ValueError(f"{where}: {data.problem_type} tasks have no {key}; remove it")
    for key in kind.required:
        if getattr(data, key) is None:
            is_range = key == "score_range"
            what = "[low, high], such as [0, 5]" if is_range else "the columns of your rows"
            raise ValueError(f"{where}: {key} is missing; give {what}")
    columns = data.text_columns or ()
    if len(columns) not in kind.text_counts:
        raise ValueError(
            f"{where}: problem_type {data.problem_type!r} takes "
            f"{' or '.join(map(str, kind.text_counts))} text_columns, got {list(columns)}"
        )
    labels = (data.label_column, *(data.label_columns or ()))
    if both := [name for name in columns if name in labels]:
        raise ValueError(
            f"{where}: {both[0]!r} is a column of texts and of labels, so the model would read the "
            "labels; remove it from the columns of texts"
        )
    if "label_columns" in kind.keys and (data.label_columns is None) == (data.label_column is None):
        raise ValueError(
            f"{where}: give either label_column, or label_columns with a column for each label or "
            "number"
        )
    if data.labels is not None and len(data.labels) < 2:
        raise ValueError(
            f"{where}: problem_type {data.problem_type!r} needs at least two labels, got "
            f"{list(data.labels)}"
        )
    if twice := find_duplicates(data.labels or ()):
        raise ValueError(
            f"{where}: labels names {twice[0]!r} twice, since 1.0 is read as 1; give each name once"
        )
    if data.unlabeled_file is None and data.max_unlabeled_samples is not None:
        raise ValueError(
            f"{where}: max_unlabeled_samples={data.max_unlabeled_samples} has no effect without "
            "unlabeled_file; remove it"
        )
