"""Load a task: read its rows, skip invalid ones, hold some out, draw a part of the rest."""

import hashlib
import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from itertools import chain
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from .drawing import (
    HELD_OUT_PAIRS,
    choose_places,
    count_repeated,
    describe_rows,
    hold_out,
    pair_rows,
    sample_rows,
)
from .encoding import Encoding, Row
from .formats import ROW_FORMATS
from .hub import (
    MOST_CHARACTERS,
    MOST_ROWS,
    count_batch,
    find_builder,
    find_commit,
    hash_sources,
    readable_hub,
    show_progress,
    split_hub_id,
)
from .readers import HUB_NAMES, PLAIN_FORMAT, check_file, check_twins
from .row_format import UNDECIDED, HeadFacts, RowFormat, RowSource
from .samples import read_sample
from .task_data import TaskData

logger = logging.getLogger(__name__)

# Invalid rows


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
            with ``validation_`` or ``test_``. Their columns are id and those of the format; a test
            split, and a contrastive task, may have no label.
        bad_rows: The invalid rows, which were skipped.
        facts: By split the number of its rows, of its valid rows before some were drawn, of the
            rows of each class, and, where there are any, of rows that were skipped because they are
            invalid or because the annotators did not agree; of held-out splits also the number of
            rows whose texts are those of a training row; of training the number of further rows
            without a label, ``unlabeled_rows``; and of validation rows that were training rows the
            number of rows they were drawn from.
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
        labels = row_format.expected_labels(num_labels)
        return cls(data.name, make_format(data, labels=labels), {}, [], {})

    @property
    def problem_type(self) -> str:
        """Problem type of the task."""
        return self.row_format.problem_type

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, labels or tags; None without."""
        return self.row_format.label_names

    def head_facts(self) -> HeadFacts:
        """Describe the data as far as a head depends on them.

        Returns:
            ``labels`` and ``score_range`` (or None), ``num_texts`` of a row, ``class_counts``
            (training rows by class or label, words by tag, or None without classes), ``num_rows``
            of training, and ``has_unanswerable``, whether some training questions have no answer.
        """
        return self.row_format.head_facts(self.splits.get("train"))

    def encode(
        self, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> dict[str, datasets.Dataset]:
        """Tokenize all splits.

        Raises:
            ValueError: If they do not fit the rows.
        """
        with self._named_errors():
            return {
                split: self.row_format.encode(rows, tokenizer, encoding)
                for split, rows in self.splits.items()
            }

    def add_unlabeled(
        self, encoded: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        """Append the encoded rows without labels, with -100 for it, to those of training."""
        if self.unlabeled is None or not len(self.unlabeled):
            return encoded
        rows = self.row_format.encode(self.unlabeled, tokenizer, encoding)
        missing: Any = np.full_like(np.asarray(encoded[0]["labels"]), MISSING).tolist()
        feature = encoded.features["labels"]
        rows = rows.add_column("labels", [missing] * len(rows), feature=feature)
        return datasets.concatenate_datasets([encoded, rows.select_columns(encoded.column_names)])

    def training_texts(self) -> list[list[Any]]:
        """List the texts of all training rows, those without labels last, by column."""
        names, parts = self.row_format.text_names, self._training_rows
        return [[text for rows in parts for text in rows[name][:]] for name in names]

    def texts(self) -> Iterator[str]:
        """Yield the training texts, also those without labels, for a vocabulary."""
        return chain(*map(self.row_format.texts, self._training_rows))

    def measured_texts(self) -> list[str]:
        """List the texts of some training rows, evenly spread, by which a vocabulary is judged."""
        return list(self.row_format.texts(self._measured_rows))

    def cut_share(self, tokenizer: PreTrainedTokenizerBase, encoding: Encoding) -> float | None:
        """Estimate the share of the training tokens that `encode` cuts; None if it keeps all.

        Rows without labels count, too.
        """
        with self._named_errors():
            rows = self._measured_rows
            return self.row_format.cut_share(rows, tokenizer, encoding)

    def references(self, split: str) -> tuple[list[str], NDArray[Any]] | None:
        """Return ids and labels of a split, (N,), to score predictions; None without labels.

        The label of a question is the list of its answers, the label of a sentence the list of its
        tags.
        """
        rows = self.splits[split]
        labels = self.row_format.references(rows)
        return None if labels is None else (list(rows["id"]), labels)

    @property
    def _training_rows(self) -> list[datasets.Dataset]:
        return [self.splits["train"], *([] if self.unlabeled is None else [self.unlabeled])]

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


def read_rows(data: TaskData, cache_dir: str | Path | None) -> TaskRows:
    """Read all valid rows of a task; their facts are the numbers of those that were skipped."""
    row_format = make_format(data)
    commit = None
    if data.files:
        check_files(data)
        files = data.files.items()
        sources = {split: RowSource(path, split, data.file_format) for split, path in files}
    else:
        if data.hub_id is None:
            samples = read_sample(str(data.dataset))
            fetched = {split: datasets.Dataset.from_list(rows) for split, rows in samples.items()}
        else:
            fetched, commit = _fetch(data, data.hub_id, row_format, cache_dir)
        name = data.hub_id or data.dataset
        sources = {
            split: RowSource(f"{name}:{split}", split, rows=rows) for split, rows in fetched.items()
        }
    row_format = row_format.resolve(data.where, sources)
    check_twins(f"{data.where}: the labels", row_format.label_names or ())
    read = TaskRows(data.name, row_format, {}, [], {}, commit=commit)
    for split, source in sources.items():
        rows, undecided, invalid = read_source(source, row_format, data, cache_dir)
        read.splits[split] = rows
        counts: Facts = {"undecided_rows": undecided, "unusable_rows": len(invalid)}
        read.facts[split] = {name: count for name, count in counts.items() if count}
        read.bad_rows.extend(invalid)
    return read


def _fetch(
    data: TaskData, hub_id: str, row_format: RowFormat, cache_dir: str | Path | None
) -> tuple[dict[str, datasets.Dataset], str | None]:
    """Fetch the splits of a dataset on the Hub, and its commit; None for a local folder."""
    splits: dict[str, datasets.Dataset] = {}
    wanted = {hub_id: HUB_NAMES}
    for split, other_id in data.built_in.hub_tests.items():
        wanted[other_id] = {split: ("test",)}
    commit = None
    for source, splits_of_source in wanted.items():
        where = f"{data.where}: dataset {source!r}"
        is_same = split_hub_id(source)[0] == split_hub_id(hub_id)[0]
        with readable_hub(where):
            builder = find_builder(source, data.revision if is_same else None, cache_dir)
            builder.download_and_prepare()
            fetched = builder.as_dataset()
        for split, names in splits_of_source.items():
            name = next((name for name in names if name in fetched), None)
            if name is None:
                if split == "train" or (split == "validation" and not data.validation_share):
                    raise ValueError(
                        f"{where} has no split {split!r}; its splits: {', '.join(fetched)}"
                    )
                continue
            rows = splits[split] = fetched[name]
            required = row_format.required_columns(split)
            if missing := [column for column in required if column not in rows.column_names]:
                raise ValueError(
                    f"{where}: split {name!r} has no column {missing}; its columns: "
                    f"{rows.column_names}"
                )
        if source == hub_id:
            commit = find_commit(hub_id, builder)
    return splits, commit


def make_format(data: TaskData, **changes: Any) -> RowFormat:
    """Make the format of the rows of a task."""
    kind = ROW_FORMATS[str(data.problem_type)]
    keys = {field.name for field in fields(kind)} & {field.name for field in fields(data)}
    values = {key: getattr(data, key) for key in keys} | data.options
    values |= {"text_columns": data.text_columns or (), "undecided": data.built_in.undecided}
    return kind(**values | changes)


def check_files(data: TaskData) -> None:
    """Check that the files of a task exist, are not empty, and have a known suffix."""
    unlabeled = [] if data.unlabeled_file is None else [data.unlabeled_file]
    for path in [*data.files.values(), *unlabeled]:
        check_file(path, ROW_FORMATS[str(data.problem_type)].file_suffixes)


def read_source(
    source: RowSource, row_format: RowFormat, data: TaskData, cache_dir: str | Path | None
) -> tuple[datasets.Dataset, int, list[InvalidRow]]:
    """Return the valid rows of a split, the number of undecided ones, and the invalid ones."""
    rows = _build_rows(source, row_format, cache_dir)
    rows = row_format.check_split(rows, source.name, source.split)
    label = row_format.label_name
    table = rows.select_columns([label, "line", "problem"]).with_format("arrow")[:]
    problems: list[str] = table["problem"].to_pylist()
    is_missing: list[bool] = table[label].is_null().to_pylist()
    # only a whole test split may have no labels
    is_unlabeled = all(
        missing for missing, problem in zip(is_missing, problems, strict=True) if not problem
    )
    kept, invalid = [], []
    for place, (line, problem) in enumerate(zip(table["line"].to_pylist(), problems, strict=True)):
        if is_missing[place] and not is_unlabeled:
            problem = problem or "no label, though other rows have one"  # noqa: PLW2901
        if problem and problem != UNDECIDED:
            invalid.append(InvalidRow(source.name, line, problem))
        elif not problem:
            kept.append(place)
    undecided = len(rows) - len(kept) - len(invalid)
    check_invalid_fraction(source.name, invalid, len(rows) - undecided, data.max_invalid_fraction)
    if len(kept) < len(rows):
        rows = rows.select(kept)
    dropped = ["line", "problem", *([label] if is_unlabeled else [])]
    return rows.remove_columns(dropped), undecided, invalid


def _build_rows(
    source: RowSource, row_format: RowFormat, cache_dir: str | Path | None
) -> datasets.Dataset:
    """Build the rows of a split, invalid ones marked, mapped from a temporary file."""
    folder = Path(cache_dir or datasets.config.HF_DATASETS_CACHE) / "minbert_rows"
    folder.mkdir(parents=True, exist_ok=True)
    records = show_progress(source.read(row_format), f"read {source.split}")
    schema = row_format.features.arrow_schema
    digest = hashlib.sha256(hash_sources().encode())
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        try:
            with pa.ipc.new_stream(file, schema) as writer:
                block: list[Row] = []
                size = 0
                for number, record in enumerate(records):
                    row = row_format.to_row(record, number, source.split)
                    text = repr(row)
                    digest.update(text.encode())
                    block.append(row)
                    size += len(text)
                    if len(block) == MOST_ROWS or size >= MOST_CHARACTERS:
                        writer.write_table(pa.Table.from_pylist(block, schema))
                        block, size = [], 0
                writer.write_table(pa.Table.from_pylist(block, schema))
            file.flush()
            table = datasets.table.MemoryMappedTable.from_file(file.name)
        finally:
            with suppress(PermissionError):  # Windows keeps a file in use
                Path(file.name).unlink()
    return datasets.Dataset(table, fingerprint=digest.hexdigest()[:32])


# Tasks


def load_task(data: TaskData, cache_dir: str | Path | None = None) -> TaskRows:
    """Load the rows of a task from its files, the Hub, or the built-in sample.

    Args:
        data: Description of the rows, from ``TaskData.from_recipe``.
        cache_dir: Folder for the built rows; None uses the cache of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks a column, or has too many invalid
            rows, or a class has no rows although its size determines the others'.
        OSError: If a file is missing or the Hub cannot be reached.
    """
    if data.class_rows is not None:
        return _load_pairs(data, load_task(data.class_rows, cache_dir))
    read = read_rows(data, cache_dir)
    row_format, splits = read.row_format, dict(read.splits)
    held_out_of = None
    if "validation" not in splits:
        train = splits.pop("train")
        share, seed, held_out_of = data.validation_share, data.sample_seed, len(train)
        is_held = hold_out(data.where, train, row_format, share, seed)
        splits = {
            "train": train.select(np.flatnonzero(~is_held)),
            "validation": train.select(np.flatnonzero(is_held)),
            **splits,
        }
    facts: dict[str, Facts] = {}
    for split, rows in splits.items():
        splits[split] = sample_rows(rows, data, split, row_format.class_names)
        facts[split] = describe_rows(splits[split], len(rows), row_format.class_names)
        facts[split] |= read.facts.get(split, {})
    if held_out_of is not None:
        facts["validation"]["held_out_of"] = held_out_of
    log_invalid_rows(data.where, read.bad_rows)
    for split, count in count_repeated(data.where, row_format, splits).items():
        facts[split]["training_rows"] = count
    bad_rows, unlabeled = read.bad_rows, None
    if data.unlabeled_file is not None:
        # rows of a test split may lack labels, and those of this one are not read
        file_format = data.file_format if data.files else PLAIN_FORMAT
        source = RowSource(data.unlabeled_file, "test_unlabeled", file_format)
        unread: dict[str, Any] = {"id_column": None, "label_column": None}
        unread |= {"label_columns": ()} if "label_columns" in row_format.options() else {}
        unlabeled, _, invalid = read_source(source, replace(row_format, **unread), data, cache_dir)
        if data.max_unlabeled_samples is not None:
            seed_of_draw = f"{data.sample_seed} unlabeled"
            places = np.zeros(len(unlabeled), np.int64)
            chosen = choose_places(places, data.max_unlabeled_samples, seed_of_draw)
            unlabeled = unlabeled.select(chosen)
        log_invalid_rows(data.where, invalid)
        facts["train"]["unlabeled_rows"] = len(unlabeled)
        bad_rows = [*bad_rows, *invalid]
    hashed = splits if unlabeled is None else {**splits, "unlabeled": unlabeled}
    return replace(
        read,
        splits=splits,
        bad_rows=bad_rows,
        facts=facts,
        fingerprint=_fingerprint(hashed),
        unlabeled=unlabeled,
    )


def _load_pairs(data: TaskData, loaded: TaskRows) -> TaskRows:
    """Pair the rows of a classification by their classes."""
    row_format = make_format(data)
    splits: dict[str, datasets.Dataset] = {}
    facts: dict[str, Facts] = {}
    for split, count in {"train": data.class_pairs or 0, "validation": HELD_OUT_PAIRS}.items():
        rows = pair_rows(loaded.splits[split], count, f"{data.sample_seed} {split}")
        if len(set(rows["label"][:])) < 2:
            raise ValueError(
                f"{data.where}: class_pairs: the {len(loaded.splits[split])} {split} rows make no "
                "pairs of both kinds; use more rows of each class"
            )
        splits[split] = rows
        facts[split] = describe_rows(rows, len(rows), row_format.class_names)
    return replace(
        loaded,
        row_format=row_format,
        splits=splits,
        facts=facts,
        fingerprint=_fingerprint(splits),
    )


def _fingerprint(splits: dict[str, datasets.Dataset]) -> str:
    """Hash the rows: the fingerprints of `datasets` depend on the date of a file."""
    digest = hashlib.blake2b(digest_size=16)
    for split, rows in splits.items():
        digest.update(split.encode())
        for batch in rows.iter(count_batch(rows)):
            digest.update("".join(map(repr, zip(*batch.values(), strict=True))).encode())
    return digest.hexdigest()
