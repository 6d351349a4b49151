"""Load a task: read its rows, skip invalid ones, hold some out, draw a part of the rest."""

import hashlib
import logging
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import tokenizers
from datasets import Dataset
from datasets.utils import tqdm
from numpy.typing import NDArray
from tokenizers.normalizers import BertNormalizer
from transformers import PreTrainedTokenizerBase as Tokenizer

from modeling_minbert import texts

from .checking import errors_of
from .readers import Record, check_file, check_twins, is_test, normalize_value
from .row_format import (
    IGNORED_LABEL,
    MOST_CHARACTERS,
    MOST_ROWS,
    UNDECIDED,
    Encoding,
    Row,
    RowFormat,
    count_batch,
    load_format,
    make_features,
)
from .task_data import TaskData

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
    is_allowed = len(invalid) <= max_invalid_fraction * num_rows
    if len(invalid) < num_rows and is_allowed:
        return
    if not num_rows:
        raise ValueError(
            f"{file}: no row is left: it has none, or the annotators agreed on none; use other rows"
        )
    shown = "; ".join(
        f"line {row.line}: {row.reason}" if row.file == file else str(row)
        for row in invalid[:MAX_ROWS_IN_ERROR]
    )
    if is_allowed:
        raise ValueError(
            f"{file}: no row is left, since all {num_rows} are invalid; the first are: {shown}; "
            "correct the file, or the columns of the recipe"
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


MEASURED_ROWS = 1_000  # evenly spread, whose tokens are counted

Facts = dict[str, int | dict[str, int]]


@dataclass(frozen=True)
class TaskRows:
    """The valid rows of a task, from those of its files to those that are learned.

    Args:
        row_format: Format of its rows.
        splits: Rows by split: train, validation and, if present, test; more held-out sets begin
            with ``validation_`` or ``test_``. Their columns are id and those of the format; a test
            split, and a contrastive task, may have no label.
        bad_rows: The invalid rows, which were skipped.
        facts: By split the number of its rows, of its valid rows before some were drawn, of the
            rows of each class, and, where there are any, of rows that were skipped because they are
            invalid or because the annotators did not agree; of held-out splits also the number of
            rows whose texts are those of a training row, with or without a label, of test splits
            those of a validation row, and ``rows_of_others`` those whose texts only other tasks
            train on; of training the number of further rows without a label, ``unlabeled_rows``;
            and of validation rows that were training rows the number of rows they were drawn from.
        fingerprint: Hash of the rows, and of the names of their labels.
        commit: Commit of the dataset on the Hub; None for local rows.
        unlabeled: Training rows without labels, of the same columns but ``label``; None without.
    """

    row_format: RowFormat
    splits: dict[str, Dataset]
    bad_rows: list[InvalidRow]
    facts: dict[str, Facts]
    fingerprint: str = ""  # none until rows are drawn
    commit: str | None = None
    unlabeled: Dataset | None = None

    @classmethod
    def placeholder(cls, data: TaskData) -> "TaskRows":
        """Stand in for a task whose rows have not been read: a training row of every class."""
        row_format = load_format(data)
        labels = row_format.labels or row_format.unread_labels
        return cls(replace(row_format, labels=labels), {}, [], {})

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.row_format.data.name

    @property
    def problem_type(self) -> str:
        """Problem type of the task."""
        return str(self.row_format.data.problem_type)

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, labels or tags; None without."""
        return self.row_format.labels

    def head_facts(self) -> Row:
        """Describe the data as far as a head depends on them.

        Returns:
            ``labels`` and ``score_range`` (or None), ``num_texts`` of a row, ``class_counts``
            (training rows by class or label, words by tag, or None without classes), ``num_rows``
            of training, and ``has_unanswerable``, whether some questions have no answer.
        """
        return self.row_format.head_facts(self.splits.get("train"))

    def encode(self, tokenizer: Tokenizer, encoding: Encoding) -> dict[str, Dataset]:
        """Tokenize all splits; a ValueError says what of the encoding does not fit the rows."""
        with errors_of(self.row_format.data.where):
            return {
                split: self.row_format.encode(rows, tokenizer, encoding)
                for split, rows in self.splits.items()
            }

    def add_unlabeled(self, encoded: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        """Append the encoded rows without labels, with -100 for it, to those of training."""
        if self.unlabeled is None or not len(self.unlabeled):
            return encoded
        rows = self.row_format.encode(self.unlabeled, tokenizer, encoding)
        missing: Any = np.full_like(np.asarray(encoded[0]["labels"]), IGNORED_LABEL).tolist()
        rows = rows.add_column("labels", [missing] * len(rows), feature=encoded.features["labels"])
        return datasets.concatenate_datasets([encoded, rows.select_columns(encoded.column_names)])

    def training_texts(self) -> list[list[Any]]:
        """List the texts of all training rows, those without labels last, by column."""
        names, parts = self.row_format.text_names, self._training_rows
        return [[text for rows in parts for text in rows[name][:]] for name in names]

    def texts(self) -> Iterator[str]:
        """Yield the training texts, also those without labels, for a vocabulary."""
        return chain(*map(self.row_format.texts, self._training_rows))

    @property
    def _training_rows(self) -> list[Dataset]:
        return [self.splits["train"], *([] if self.unlabeled is None else [self.unlabeled])]

    @property
    def measured_rows(self) -> Dataset:
        """Some training rows, with and without labels, evenly spread, by which texts are judged."""
        rows = self.splits["train"]
        if self.unlabeled is not None:
            columns = ["id", *self.row_format.text_names]
            rows = datasets.concatenate_datasets(
                [part.select_columns(columns) for part in self._training_rows]
            )
        if len(rows) > MEASURED_ROWS:
            rows = rows.select(range(0, len(rows), -(-len(rows) // MEASURED_ROWS)))
        return rows


def check_files(data: TaskData) -> None:
    """Check that the files of a task exist, are not empty, and have a known suffix."""
    for path in filter(None, (*data.files.values(), data.unlabeled_file)):
        check_file(path, data.kind.suffixes)


PACKAGE = Path(__file__).parent
SILENT_SECONDS = 5  # before a progress bar appears


def hash_sources() -> str:
    """Hash the code that makes rows and tokens: `datasets` does not notice that it has changed."""
    digest = hashlib.sha256(tokenizers.__version__.encode())
    for folder in (PACKAGE, Path(texts.__file__).parent):
        for path in sorted(folder.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def show_progress(rows: Iterable[Any], title: str, total: int | None = None) -> Iterator[Any]:
    """Yield rows with a progress bar, which appears after a while."""
    return iter(tqdm(rows, desc=title, total=total, unit=" rows", delay=SILENT_SECONDS))


def read_splits(data: TaskData) -> TaskRows:
    """Read all valid rows of a task; their facts are the numbers of those that were skipped."""
    row_format = load_format(data)
    commit, name = None, data.hub_id or data.dataset
    files, fetched = data.files, dict[str, Any]()
    if files:
        check_files(data)
    elif data.hub_id is not None:
        from .hub import fetch_splits

        fetched, commit = fetch_splits(row_format)
        label = fetched["train"].features.get(row_format.label_column)
        names = getattr(getattr(label, "feature", label), "names", None)
        if names is not None:  # as those of rows are written
            names = row_format.check_names(data.where, tuple(map(normalize_value, names)))
            row_format = replace(row_format, declared=names)
    else:
        from .catalog import read_sample

        fetched = read_sample(str(data.dataset))
    written: dict[str, Dataset] = {}
    for split in files or fetched:
        if files:
            records = row_format.read(files[split], split)
        else:
            records = map(row_format.from_hub, map(Record, count(1), fetched[split]))
        written[split] = _store_rows(records, row_format, split)
    if all(problems := written["train"]["problem"][:]):  # none of which `resolve` could know
        file = files.get("train", f"{name}:train")
        _add_ids(written["train"], problems)
        invalid = _list_invalid(file, written["train"]["line"][:], problems)
        check_invalid_fraction(file, invalid, len(invalid), data.max_invalid_fraction)
    row_format = row_format.resolve(written)
    check_twins(f"{data.where}: the labels", row_format.labels or ())
    read = TaskRows(row_format, {}, [], {}, commit=commit)
    for split, rows in written.items():
        file = files.get(split, f"{name}:{split}")
        read.splits[split], undecided, invalid = _select_valid(rows, row_format, file, split)
        counts: Facts = {"undecided_rows": undecided, "unusable_rows": len(invalid)}
        read.facts[split] = {name: count for name, count in counts.items() if count}
        read.bad_rows.extend(invalid)
    return read


def _store_rows(records: Iterable[Record], row_format: RowFormat, split: str) -> Dataset:
    """Build the rows of a split, invalid ones marked, mapped from a temporary file."""
    folder = Path(datasets.config.HF_DATASETS_CACHE) / "minbert_rows"
    folder.mkdir(parents=True, exist_ok=True)
    schema = row_format.written_features.arrow_schema
    digest = hashlib.sha256(hash_sources().encode())
    with tempfile.NamedTemporaryFile(dir=folder, suffix=".arrow", delete=False) as file:
        try:
            with pa.ipc.new_stream(file, schema) as writer:
                block: list[Row] = []
                size = 0
                for number, record in enumerate(show_progress(records, f"read {split}")):
                    row = row_format.to_row(record, number, split)
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
    return Dataset(table, fingerprint=digest.hexdigest()[:32])


def _select_valid(
    rows: Dataset, row_format: RowFormat, file: str, split: str
) -> tuple[Dataset, int, list[InvalidRow]]:
    """Return the valid rows of a split, the number of undecided ones, and the invalid ones.

    Labels become numbers.
    """
    label, lines, problems = row_format.label_name, rows["line"][:], rows["problem"][:]
    if row_format.written_type is not None:
        rows = _number_labels(rows, row_format, split, problems)
    _add_ids(rows, problems)
    rows = row_format.check_split(rows, problems, file, split)
    is_missing = rows.data.column(label).is_null().to_pylist()
    # only a whole test split may have no labels
    is_unlabeled = all(
        missing for missing, problem in zip(is_missing, problems, strict=True) if not problem
    )
    for place, problem in enumerate(problems):
        if is_missing[place] and not is_unlabeled:
            problems[place] = problem or "no label, though other rows have one"
    kept = [place for place, problem in enumerate(problems) if not problem]
    invalid = _list_invalid(file, lines, problems)
    undecided = len(rows) - len(kept) - len(invalid)
    most = row_format.data.max_invalid_fraction
    check_invalid_fraction(file, invalid, len(rows) - undecided, most)
    if len(kept) < len(rows):
        rows = rows.select(kept)
    columns = ["id", *row_format.columns]
    rows = rows.select_columns([name for name in columns if name != label or not is_unlabeled])
    return rows, undecided, invalid


def _add_ids(rows: Dataset, problems: list[str]) -> None:
    """Add the ids of rows, if they have some, to what is wrong with them."""
    names = rows["id"][:]
    has_ids = names != list(map(str, range(len(names))))
    for place, problem in enumerate(problems):
        if problem and problem != UNDECIDED and has_ids:
            problems[place] += f" (id {names[place]})"


def _list_invalid(file: str, lines: list[int], problems: list[str]) -> list[InvalidRow]:
    pairs = zip(lines, problems, strict=True)
    return [InvalidRow(file, *pair) for pair in pairs if pair[1] not in ("", UNDECIDED)]


def _number_labels(
    rows: Dataset, row_format: RowFormat, split: str, problems: list[str]
) -> Dataset:
    """Replace the labels as they are written; marks those that are invalid."""
    name, place = row_format.label_name, 0
    features = make_features(**{name: row_format.columns[name]})
    digest = hashlib.sha256(repr(row_format.labels).encode())
    parts = []
    for batch in rows.select_columns([name]).iter(MOST_ROWS):
        labels: list[Row] = []
        for written in batch[name]:
            label = None
            if written is not None and problems[place] != UNDECIDED:
                try:
                    label = row_format.to_label(written)
                except ValueError as error:
                    # GLUE writes -1 for a secret label
                    names = {written} if isinstance(written, str) else {*written}
                    if not is_test(split) or not names <= {"", "-1"}:
                        problems[place] = ", ".join(filter(None, (problems[place], str(error))))
            labels.append({name: label})
            place += 1
        digest.update(repr(labels).encode())
        parts.append(pa.Table.from_pylist(labels, features.arrow_schema))
    table = datasets.table.InMemoryTable(pa.concat_tables(parts))
    column = Dataset(table, fingerprint=digest.hexdigest()[:32])
    return datasets.concatenate_datasets([rows.remove_columns(name), column], axis=1)


def load_tasks(tasks: Iterable[TaskData]) -> dict[str, TaskRows]:
    """Load the rows of the tasks of a model, by name; see `load_task`.

    Validation and test rows whose texts another task trains on are counted, and many of them are
    warned of, since the model may have learned from one task what it is measured by in another.
    """
    loaded = {data.name: load_task(data) for data in tasks}
    if len(loaded) < 2:
        return loaded
    trained = {
        name: {
            key
            for rows in task._training_rows
            for key in digest_alike(rows, task.row_format.text_names)
        }
        for name, task in loaded.items()
    }
    for name, task in loaded.items():
        for split in task.splits.keys() - {"train"}:
            keys = [*digest_alike(task.splits[split], task.row_format.text_names)]
            new = {*keys} - trained[name]
            shared = {other: new & trained[other] for other in loaded if other != name}
            known = set().union(*shared.values())
            rows, count = len(keys), sum(key in known for key in keys)
            if count:
                task.facts[split]["rows_of_others"] = count
            if count > LARGEST_SHARE * rows:
                other = max(shared, key=lambda other: len(shared[other]))
                logger.warning(
                    "%s: %d of %d %s rows (%.0f %%) have the texts of training rows of task %r, so "
                    "their metrics do not measure how the model does on new texts; give both tasks "
                    "a validation_file with the same texts",
                    *(task.row_format.data.where, count, rows, split, 100 * count / rows, other),
                )
    return loaded


def load_task(data: TaskData) -> TaskRows:
    """Load the rows of a task from its files, the Hub, or the built-in sample.

    Args:
        data: Description of the rows, from ``TaskData.from_recipe``.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks a column, or has too many invalid
            rows, or a class has no rows although its size determines the others'.
        OSError: If a file is missing or the Hub cannot be reached.
    """
    read = read_splits(data)
    row_format, splits = read.row_format, dict(read.splits)
    held_out_of = None
    if "validation" not in splits:
        train = splits.pop("train")
        held_out_of = len(train)
        is_held = hold_out(train, row_format)
        splits = {
            "train": train.select(np.flatnonzero(~is_held)),
            "validation": train.select(np.flatnonzero(is_held)),
            **splits,
        }
    facts: dict[str, Facts] = {}
    for split, rows in splits.items():
        splits[split] = sample_rows(rows, data, split, row_format.class_names)
        facts[split] = {"rows": len(splits[split]), "usable_rows": len(rows)}
        if row_format.class_names and "label" in rows.column_names:
            sizes = row_format.count_labels(splits[split]) or ()
            facts[split]["classes"] = dict(zip(row_format.class_names, sizes, strict=True))
        facts[split] |= read.facts.get(split, {})
        ids = Counter(rows["id"][:] if split != "train" else ())
        if twice := next((name for name, count in ids.items() if count > 1), None):
            warning = (
                f"{data.where}: several {split} rows have the id {twice!r}, so their predictions "
                "cannot be told apart; give id_column, the column of another id"
            )
            logger.warning(warning)
    if held_out_of is not None:
        facts["validation"]["held_out_of"] = held_out_of
    log_invalid_rows(data.where, read.bad_rows)
    unlabeled = None
    if data.unlabeled_file is not None:
        unlabeled, invalid = _read_unlabeled(data.unlabeled_file, row_format)
        log_invalid_rows(data.where, invalid)
        facts["train"]["unlabeled_rows"] = len(unlabeled)
        read.bad_rows.extend(invalid)
    for split, counts in count_repeated(row_format, splits, unlabeled).items():
        facts[split] |= counts
    # of label names and rows: the fingerprints of `datasets` depend on the date of a file
    names = row_format.labels, getattr(row_format, "classes", ())
    digest = hashlib.blake2b(repr(names).encode(), digest_size=16)
    whole = splits if unlabeled is None else {**splits, "unlabeled": unlabeled}
    for split, rows in whole.items():
        digest.update(split.encode())
        for batch in rows.iter(count_batch(rows)):
            digest.update("".join(map(repr, zip(*batch.values(), strict=True))).encode())
    fingerprint = digest.hexdigest()
    return replace(read, splits=splits, facts=facts, fingerprint=fingerprint, unlabeled=unlabeled)


def _read_unlabeled(path: str, row_format: RowFormat) -> tuple[Dataset, list[InvalidRow]]:
    """Read training texts whose labels are not read, and draw some of them."""
    data = row_format.data
    unread = replace(data, id_column=None, label_column=None, label_columns=None)
    row_format = replace(row_format, data=unread)
    split = "test_unlabeled"  # rows of a test split may lack labels
    written = _store_rows(row_format.read(path, split), row_format, split)
    rows, _, invalid = _select_valid(written, row_format, path, split)
    if data.max_unlabeled_samples is not None:
        seed = f"{data.sample_seed} unlabeled"
        places = np.zeros(len(rows), np.int64)
        rows = rows.select(choose_places(places, data.max_unlabeled_samples, seed))
    return rows, invalid


def sample_rows(rows: Dataset, data: TaskData, split: str, labels: Sequence[str] | None) -> Dataset:
    """Draw rows so that a split, or each of its classes, does not exceed its maximum."""
    # Draws depend on seed, split and position alone: a larger sample contains a smaller one.
    part = "train" if split == "train" else "test" if is_test(split) else "eval"
    most = getattr(data, f"max_{part}_samples")
    classes = np.zeros(len(rows), np.int64)
    if split == "train" and data.max_train_samples_per_class is not None:
        most, names = data.max_train_samples_per_class, labels or ()
        classes = np.asarray(rows["label"][:], np.int64)
        if most == "balanced":
            sizes = np.bincount(classes, minlength=len(names))
            if missing := [names[number] for number in np.flatnonzero(sizes == 0).tolist()]:
                raise ValueError(
                    f"{data.where}: max_train_samples_per_class={most!r}, but no {split} row has "
                    f"the label {', '.join(map(repr, missing))}, so every class would be left "
                    "without rows; add such rows, remove the label from labels, or give a number"
                )
            most = sizes.min()
    if most is None:
        return rows
    chosen = choose_places(classes, int(most), f"{data.sample_seed} {split}")
    return rows if len(chosen) == len(rows) else rows.select(chosen)


def choose_places(classes: NDArray[np.int64], most: int, seed: str) -> NDArray[np.int64]:
    """Choose up to ``most`` rows of each class, (N,); returns their positions, ascending, int64."""
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    order = np.lexsort((rng.random(len(classes)), classes))
    sizes = np.bincount(classes)
    ranks = np.arange(len(classes)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return np.sort(order[ranks < most])


LARGEST_SHARE = 0.1  # of the rows; official datasets share some short or common texts
# What an uncased vocabulary does to a text, which has no case, accents and invisible characters.
UNCASED = BertNormalizer(handle_chinese_chars=False, strip_accents=True)


def count_repeated(
    row_format: RowFormat, splits: Mapping[str, Dataset], unlabeled: Dataset | None
) -> dict[str, dict[str, int]]:
    """Count the rows of each held-out split whose texts are those of a row that was used before.

    That is a training row, also one without a label, and for a test row a validation row, by which
    weights, thresholds and temperatures are chosen. Warns of many. Labels are not compared, and
    neither is what many models cannot tell apart; see `digest_alike`.
    """
    where, names = row_format.data.where, row_format.text_names
    used = {"training": {*digest_alike(splits["train"], names)}}
    if unlabeled is not None:
        used["training"].update(digest_alike(unlabeled, names))
    counts: dict[str, dict[str, int]] = {}
    for split, rows in splits.items():  # validation rows come before those of tests
        if split == "train":
            continue
        keys, counts[split] = list(digest_alike(rows, names)), {}
        for kind in ("training", "validation") if is_test(split) else ("training",):
            known = sum(key in used[kind] for key in keys)
            counts[split][f"{kind}_rows"] = known
            if known > LARGEST_SHARE * len(rows):
                kinds = f"{kind} or unlabeled" if kind == "training" and unlabeled else kind
                warning = (
                    f"{where}: {known} of {len(rows)} {split} rows ({100 * known / len(rows):.0f} "
                    f"%) are also {kinds} rows (case, accents, white space and the order of texts "
                    "are not compared), so their metrics do not measure how the model does on new "
                    "rows; use other rows"
                )
                logger.warning(warning)
        if split == "validation":
            used["validation"] = {*keys}
    return counts


def digest_alike(rows: Dataset, columns: Sequence[str]) -> Iterator[int]:
    """Hash some columns of every row, equally if many models cannot tell the rows apart.

    That is so if they differ in case, accents, white space and invisible characters alone, which
    uncased vocabularies remove, or in the order of their texts, which symmetric heads do not know.
    """
    for batch in rows.select_columns(list(columns)).iter(count_batch(rows)):
        for values in zip(*batch.values(), strict=True):
            texts = []
            for value in values:
                text = " ".join(value) if isinstance(value, list) else str(value)
                is_plain = text.isascii() and text.isprintable()  # lower() is the same, but faster
                texts.append(text.lower() if is_plain else UNCASED.normalize_str(text))
            yield digest_text("\0\0".join(sorted(texts)))


def digest_text(text: str) -> int:
    """Hash a text without its white space to a number below 2 ** 64."""
    letters = "".join(text.split())
    return int.from_bytes(hashlib.blake2b(letters.encode(), digest_size=8).digest(), "little")


MOST_HELD_OUT = 10_000  # more make evaluations slow and metrics hardly more precise


def hold_out(rows: Dataset, row_format: RowFormat) -> NDArray[np.bool_]:
    """Choose the training rows that become validation rows.

    Rows are drawn by label, and those with equal texts, or about one passage, stay together; texts
    are equal if many models cannot tell them apart, see `digest_alike`. The draw depends on the
    rows and ``sample_seed`` alone, so that runs with other seeds are comparable, and goes by a
    hash of the texts: tasks with other labels for the same texts mostly hold out the same ones.

    Returns:
        Whether a row is held out, (N,): about ``validation_share`` of them, at most
        `MOST_HELD_OUT`.

    Raises:
        ValueError: If no row can be held out.
    """
    data, strata = row_format.data, row_format.strata(rows)
    seed = f"{data.sample_seed} held out"
    rng = np.random.default_rng(random.Random(f"{seed} rows").getrandbits(64))
    # rows that stay together are a unit, whose stratum is that of its first row
    digests = digest_alike(rows, row_format.unit_columns(rows))
    units, first, unit_of_row, sizes = np.unique(
        np.fromiter(digests, np.uint64, len(rows)),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    stratum = strata[first]
    left = np.bincount(stratum)
    # a number for each stratum in proportion to its size, by the largest remainders
    wanted = min(MOST_HELD_OUT, math.ceil(data.held_out_share * len(rows)))
    exact = np.round(wanted * np.bincount(strata) / len(strata), 9)
    room = exact.astype(np.int64)
    by_remainder = np.lexsort((rng.random(len(room)), room - exact))
    room[by_remainder[: wanted - room.sum()]] += 1
    order = np.argsort([digest_text(f"{seed} {unit}") for unit in units.tolist()])
    chosen = np.zeros(len(sizes), np.bool_)
    for unit in order:
        kind = stratum[unit]
        if sizes[unit] <= room[kind] and left[kind] > 1:  # of every stratum one unit is left
            chosen[unit] = True
            room[kind] -= sizes[unit]
            left[kind] -= 1
    # if every unit has more rows than wanted, the smallest is chosen
    others = [unit for unit in order if left[stratum[unit]] > 1]
    if others and not chosen.any():
        chosen[min(others, key=sizes.__getitem__)] = True
    held = chosen[unit_of_row]
    # a sentence of a held-out document may also be in others
    texts = np.fromiter(digest_alike(rows, row_format.text_names), np.uint64, len(rows))
    held &= ~np.isin(texts, texts[~held])
    if not held.any():
        raise ValueError(
            f"{data.where}: there are no validation rows, and none of its {len(rows)} training "
            "rows can be held out, since rows with equal texts stay together and every label needs "
            "a training row; give validation_file, or more rows"
        )
    return held
