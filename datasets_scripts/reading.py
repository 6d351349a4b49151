"""Read the rows of a task, and skip the invalid ones."""

import hashlib
import logging
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from .formats import ROW_FORMATS
from .hub import MOST_CHARACTERS, MOST_ROWS, hash_sources, read_hub, show_progress
from .readers import check_file, check_twins
from .row_format import Row, RowFormat, RowSource
from .samples import read_sample
from .sentence_formats import UNDECIDED
from .task_data import TaskData

# Invalid rows


logger = logging.getLogger(__name__)

MAX_ROWS_LISTED = 20
MAX_ROWS_IN_ERROR = 3
MOST_LETTERS = 300  # of a reason, which may quote a value of any length


@dataclass(frozen=True)
class InvalidRow:
    """A row that cannot be used.

    Args:
        file: Path of the file, or ``hub_id:split``.
        line: First line of the row, from 1 (in Parquet and on the Hub: its row).
        reason: What is wrong with it; the end of a long reason is cut.
    """

    file: str
    line: int
    reason: str

    def __post_init__(self) -> None:
        if len(self.reason) > MOST_LETTERS:
            object.__setattr__(self, "reason", f"{self.reason[: MOST_LETTERS - 3]}...")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"

    def describe(self, *, quotes: bool) -> str:
        """Return its place, and if values may be quoted the reason."""
        hidden = "see the log of the run for the reason"
        return f"{self.file}:{self.line}: {self.reason if quotes else hidden}"


def check_invalid_fraction(
    file: str, invalid: list[InvalidRow], num_rows: int, max_invalid_fraction: float
) -> None:
    """Reject rows if too many, or all of them, are invalid."""
    if len(invalid) < num_rows and len(invalid) <= max_invalid_fraction * num_rows:
        return
    shown = "; ".join(
        f"line {row.line}: {row.reason}" if row.file == file else str(row)
        for row in invalid[:MAX_ROWS_IN_ERROR]
    )
    raise ValueError(
        f"{file}: {len(invalid)} of {num_rows} rows are invalid, but max_invalid_fraction="
        f"{max_invalid_fraction:g} allows {int(max_invalid_fraction * num_rows)}; the first are: "
        f"{shown}; correct the file or raise max_invalid_fraction"
    )


def log_invalid_rows(owner: str, invalid: list[InvalidRow]) -> None:
    """Warn about skipped rows: the first ones and their number."""
    for row in invalid[:MAX_ROWS_LISTED]:
        logger.warning("%s", row)
    if len(invalid) > MAX_ROWS_LISTED:
        logger.warning("... and %d more", len(invalid) - MAX_ROWS_LISTED)
    if invalid:
        logger.warning("%s: skipped %d invalid rows", owner, len(invalid))


# Rows on disk


def build_rows(
    source: RowSource, row_format: RowFormat, cache_dir: str | Path | None
) -> datasets.Dataset:
    """Build the rows of a split, invalid ones marked, mapped from a temporary file."""
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "minbert_rows"
    folder.mkdir(parents=True, exist_ok=True)
    records = show_progress(source.read(row_format), f"read {source.split}")
    rows = (
        row_format.to_row(record, number, source.split) for number, record in enumerate(records)
    )
    schema = row_format.features.arrow_schema
    digest = hashlib.sha256(hash_sources().encode())
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        try:
            with pa.ipc.new_stream(file, schema) as writer:
                for block in _split_rows(rows, digest):
                    writer.write_table(pa.Table.from_pylist(block, schema))
            file.flush()
            table = datasets.table.MemoryMappedTable.from_file(file.name)
        finally:
            with suppress(PermissionError):  # Windows keeps a file in use
                Path(file.name).unlink()
    return datasets.Dataset(table, fingerprint=digest.hexdigest()[:32])


def _split_rows(rows: Iterable[Row], digest: Any) -> Iterator[list[Row]]:
    """Split rows into blocks that fit into memory, and hash them."""
    block: list[Row] = []
    size = 0
    for row in rows:
        text = repr(row)
        digest.update(text.encode())
        block.append(row)
        size += len(text)
        if len(block) == MOST_ROWS or size >= MOST_CHARACTERS:
            yield block
            block, size = [], 0
    if block:
        yield block


# Rows of a task


MEASURED_ROWS = 1_000  # evenly spread, whose tokens are counted
MISSING = -100  # the label of an encoded row that has none; losses leave it out

Facts = dict[str, int | dict[str, int]]


@dataclass(frozen=True)
class TaskRows:
    """The valid rows of a task, from those of its files to those that are learned.

    Args:
        name: Name of the task.
        row_format: Format of its rows.
        splits: Rows by split: train, validation and, if present, test; more held-out sets begin
            with ``validation_`` or ``test_``. Sentences have the columns id, sentence1, sentence2
            (pairs only), sentence3 (contrastive only) and label (absent in an unlabeled test split,
            and in a contrastive task). Sentences with tags have id, words, tags (absent in an
            unlabeled test split) and document. Questions have their whole passage as sentence2,
            ``answers`` and ``answer_starts`` (in characters), and the label is 1 with an answer.
        bad_rows: The invalid rows, which were skipped.
        facts: By split the number of its rows, of its valid rows before some were drawn, of the
            rows of each class, and, where there are any, of rows that were skipped because they are
            invalid or because the annotators did not agree, of words, and of moved answers; of
            held-out splits also the number of rows whose texts are those of a training row, and of
            others that share one of their texts with a training row; of
            training the number of further rows without a label, ``unlabeled_rows``; and
            of validation rows that were training rows the number of rows they were drawn from.
        fingerprint: Hash of the rows.
        commit: Commit of the dataset on the Hub; None for local rows.
        unlabeled: Training rows without labels, of the same columns but ``label``; None without.
    """

    name: str
    row_format: RowFormat
    splits: dict[str, datasets.Dataset]
    bad_rows: list[InvalidRow]
    facts: dict[str, Facts]
    fingerprint: str = ""  # none until rows are drawn
    commit: str | None = None
    unlabeled: datasets.Dataset | None = None

    @classmethod
    def placeholder(cls, data: TaskData, num_labels: int = 2) -> "TaskRows":
        """Stand in for a task whose rows have not been read: a training row of every class.

        Args:
            data: The data of the task.
            num_labels: Number of classes, where their names follow from the rows.
        """
        row_format = make_format(data)
        row_format = replace(row_format, labels=row_format.expected_labels(num_labels))
        rows = datasets.Dataset.from_dict({row_format.label_name: row_format.example_labels()})
        return cls(data.name, row_format, {"train": rows}, [], {})

    @property
    def problem_type(self) -> str:
        """Problem type of the task."""
        return self.row_format.problem_type

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, labels or tags; None without."""
        return self.row_format.label_names

    @property
    def score_range(self) -> tuple[float, float] | None:
        """Lowest and highest score of a similarity task, else None."""
        return self.row_format.score_range

    def head_facts(self) -> dict[str, Any]:
        """Describe the data as far as a head depends on them.

        Returns:
            ``labels`` and ``score_range`` (or None), ``num_texts`` of a row, ``class_counts``
            (training rows by class or label, words by tag, or None without classes), ``num_rows``
            of training, and ``has_unanswerable``, whether some training questions have no answer.
        """
        return self.row_format.head_facts(self.splits["train"])

    def encode(self, tokenizer: Any, **options: Any) -> dict[str, datasets.Dataset]:
        """Tokenize all splits.

        Args:
            tokenizer: The fast tokenizer of the model.
            **options: ``max_length``, and ``pair_encoding`` and ``truncation`` of sentences, or
                ``max_question_length`` and ``doc_stride`` of questions.

        Raises:
            ValueError: If the options do not fit the rows.
        """
        with self._named_errors():
            return {
                split: self.row_format.encode(rows, tokenizer, **options)
                for split, rows in self.splits.items()
            }

    def add_unlabeled(
        self, encoded: datasets.Dataset, tokenizer: Any, **options: Any
    ) -> datasets.Dataset:
        """Append the encoded rows without labels, with -100 for it, to the encoded training rows.

        Args:
            encoded: The training rows as `encode` returns them.
            tokenizer: The fast tokenizer of the model.
            **options: Those of `encode`.
        """
        if self.unlabeled is None or not len(self.unlabeled):
            return encoded
        rows = self.row_format.encode(self.unlabeled, tokenizer, **options)
        missing: Any = np.full_like(np.asarray(encoded[0]["labels"]), MISSING).tolist()
        feature = encoded.features["labels"]
        rows = rows.add_column("labels", [missing] * len(rows), feature=feature)
        return datasets.concatenate_datasets([encoded, rows.select_columns(encoded.column_names)])

    def training_texts(self) -> list[list[Any]]:
        """List the texts of all training rows, those without labels last, by column."""
        names, parts = self.row_format.text_names, self._training_rows
        return [[text for rows in parts for text in rows[name][:]] for name in names]

    @property
    def _training_rows(self) -> list[datasets.Dataset]:
        return [self.splits["train"], *([] if self.unlabeled is None else [self.unlabeled])]

    def cut_share(self, tokenizer: Any, **options: Any) -> float | None:
        """Estimate the share of the training tokens that `encode` cuts; None if it keeps all.

        Rows without labels count, too.

        Args:
            tokenizer: The fast tokenizer of the model.
            **options: Those of `encode`.

        Raises:
            ValueError: If the options do not fit the rows.
        """
        with self._named_errors():
            return self.row_format.cut_share(self._measured_rows, tokenizer, **options)

    def measured_texts(self) -> list[str]:
        """List the texts of some training rows, evenly spread, by which a vocabulary is judged."""
        return list(self.row_format.texts(self._measured_rows))

    @property
    def _measured_rows(self) -> datasets.Dataset:
        rows = self.splits["train"]
        if self.unlabeled is not None:
            columns = ["id", *self.row_format.text_names]
            rows = datasets.concatenate_datasets(
                [part.select_columns(columns) for part in self._training_rows]
            )
        if len(rows) > MEASURED_ROWS:
            rows = rows.select(range(0, len(rows), -(-len(rows) // MEASURED_ROWS)))
        return rows

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Name the task in the errors of its row format."""
        try:
            yield
        except ValueError as error:
            raise ValueError(f"task {self.name!r}: {error}") from error

    def texts(self) -> Iterator[str]:
        """Yield the training texts, also those without labels, for a vocabulary."""
        return chain(*map(self.row_format.texts, self._training_rows))

    def references(self, split: str) -> tuple[list[str], NDArray[Any]] | None:
        """Return ids and labels of a split, (N,), to score predictions; None without labels.

        The label of a question is the list of its answers, the label of a sentence the list of its
        tags.
        """
        rows = self.splits[split]
        labels = self.row_format.references(rows)
        return None if labels is None else (list(rows["id"]), labels)


def read_rows(data: TaskData, cache_dir: str | Path | None) -> TaskRows:
    """Read all valid rows of a task; their facts are the numbers of those that were skipped."""
    row_format = make_format(data)
    sources, commit = _find_sources(data, row_format, cache_dir)
    row_format = row_format.resolve(data.where, sources)
    check_twins(f"{data.where}: the labels", row_format.label_names or ())
    splits: dict[str, datasets.Dataset] = {}
    bad_rows: list[InvalidRow] = []
    facts: dict[str, Facts] = {}
    for split, source in sources.items():
        rows = build_rows(source, row_format, cache_dir)
        splits[split], num_undecided, invalid = find_valid(data, row_format, source, rows)
        counts: Facts = {"undecided_rows": num_undecided, "unusable_rows": len(invalid)}
        facts[split] = {name: count for name, count in counts.items() if count}
        bad_rows += invalid
    return TaskRows(data.name, row_format, splits, bad_rows, facts, commit=commit)


def make_format(data: TaskData) -> RowFormat:
    """Make the format of the rows of a task."""
    kind = ROW_FORMATS[str(data.problem_type)]
    keys = {field.name for field in fields(kind)} & {field.name for field in fields(data)}
    given = {key: getattr(data, key) for key in keys} | data.options
    given |= {"text_columns": data.text_columns or (), "undecided": data.built_in.undecided}
    return kind(**given)


def check_files(data: TaskData) -> None:
    """Check that the files of a task exist, are not empty, and have a known suffix."""
    unlabeled = [] if data.unlabeled_file is None else [data.unlabeled_file]
    for path in [*data.files.values(), *unlabeled]:
        check_file(path, ROW_FORMATS[str(data.problem_type)].file_suffixes)


def _find_sources(
    data: TaskData, row_format: RowFormat, cache_dir: str | Path | None
) -> tuple[dict[str, RowSource], str | None]:
    """Return the source of each split, and the commit of a dataset on the Hub."""
    if data.files:
        check_files(data)
        file_format = data.file_format
        files = data.files.items()
        return {split: RowSource(path, split, file_format) for split, path in files}, None
    if data.hub_id is None:
        samples = read_sample(str(data.dataset))
        splits = {split: datasets.Dataset.from_list(rows) for split, rows in samples.items()}
        commit = None
    else:
        splits, commit = read_hub(
            data.where,
            data.hub_id,
            row_format.required_columns,
            needed_splits=("train",) if data.validation_share else ("train", "validation"),
            extra_tests=data.built_in.hub_tests,
            cache_dir=cache_dir,
            revision=data.revision,
        )
    name = data.hub_id or data.dataset
    sources = {
        split: RowSource(f"{name}:{split}", split, rows=rows) for split, rows in splits.items()
    }
    return sources, commit


def find_valid(
    data: TaskData, row_format: RowFormat, source: RowSource, rows: datasets.Dataset
) -> tuple[datasets.Dataset, int, list[InvalidRow]]:
    """Return the valid rows of a split, the number of undecided ones, and the invalid ones."""
    checked = row_format.check_split(rows, source.name, source.split)
    # the annotators did not agree on them
    kept = [place for place, problem in enumerate(checked["problem"][:]) if problem != UNDECIDED]
    num_undecided = len(checked) - len(kept)
    decided = checked.select(kept) if num_undecided else checked
    valid, invalid = _drop_invalid(decided, row_format, source.name, data.max_invalid_fraction)
    return valid, num_undecided, invalid


def _drop_invalid(
    rows: datasets.Dataset, row_format: RowFormat, source: str, max_invalid_fraction: float
) -> tuple[datasets.Dataset, list[InvalidRow]]:
    """Split rows into valid and invalid ones; only a whole test split may have no labels."""
    label = row_format.label_name
    table = rows.select_columns([label, "line", "problem"]).with_format("arrow")[:]
    problems: list[str] = table["problem"].to_pylist()
    unlabeled: list[bool] = table[label].is_null().to_pylist()
    both = list(zip(unlabeled, problems, strict=True))
    is_unlabeled = all(missing for missing, problem in both if not problem)
    if not is_unlabeled:
        unusable = "no label, though other rows have one"
        problems = [problem or (unusable if missing else "") for missing, problem in both]
    lines = zip(table["line"].to_pylist(), problems, strict=True)
    invalid = [InvalidRow(source, line, problem) for line, problem in lines if problem]
    check_invalid_fraction(source, invalid, len(problems), max_invalid_fraction)
    if invalid:
        rows = rows.select([place for place, problem in enumerate(problems) if not problem])
    return rows.remove_columns(["line", "problem", *([label] if is_unlabeled else [])]), invalid
