"""Load a task: build its rows, report the bad ones, keep the usable ones."""

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

import datasets

from datasets_scripts.catalog import DATASETS, FileFormat
from datasets_scripts.files.builders import Format, build_file_rows, build_sample_rows
from datasets_scripts.files.hub import convert_hub_rows, find_hub_labels, read_hub
from datasets_scripts.files.readers import PLAIN_FORMAT, read_records
from datasets_scripts.problems.question_answering import QuestionFormat, check_questions
from datasets_scripts.problems.texts import UNDECIDED, RowFormat, infer_labels
from datasets_scripts.problems.token_classification import read_tagged

from .sampling import describe_splits, sample_rows
from .task_data import TaskData, is_test

logger = logging.getLogger(__name__)

MAX_ROWS_LISTED = 20
MAX_ROWS_IN_ERROR = 3
FINGERPRINT_ROWS = 1000  # that are read at once


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used.

    Args:
        file: Path of the file, or ``hub_id:split``.
        line: Line on which the row begins, from 1 (in Parquet and on the Hub: the row).
        reason: What is wrong with it.
    """

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"

    def describe(self, *, quotes: bool) -> str:
        """Say where it stands, and if values may be quoted why it cannot be used."""
        place = f"{self.file}:{self.line}"
        return str(self) if quotes else f"{place}: the log of the run says why"


@dataclass(frozen=True)
class LoadedTask:
    """The usable rows of a task.

    Args:
        name: Name of the task.
        problem_type: ``classification``, ``paraphrase``, ``similarity``, ``contrastive``,
            ``token_classification`` or ``question_answering``.
        labels: Names of the classes of a classification task, or of the tags, else None.
        score_range: Lowest and highest score of a similarity task, else None.
        splits: Rows by split: train, validation and, where there is one, test; more held-out sets
            begin with ``validation_`` or ``test_``. Columns: id, sentence1, sentence2 (pairs only),
            sentence3 (contrastive only), label (absent in an unlabelled test split, and in a
            contrastive task). Sentences with tags have id, words, tags (absent in an unlabelled
            test split) and document. Questions have their passage as sentence2, which is whole,
            ``answers`` and ``answer_starts`` (in characters), and the label says whether there are
            any.
        bad_rows: The rows that cannot be used and were left out.
        facts: By split how many rows it has, how many usable ones there were before some were
            drawn, how many rows each class has, and, where there are some, how many were left out
            because annotators did not agree or because they could not be used, and how many answers
            stood elsewhere than said.
        fingerprint: What tells these rows from any others.
    """

    name: str
    problem_type: str
    labels: tuple[str, ...] | None
    score_range: tuple[float, float] | None
    splits: dict[str, datasets.Dataset]
    bad_rows: list[BadRow]
    facts: dict[str, dict[str, int | dict[str, int]]]
    fingerprint: str


def load_task(data: TaskData, cache_dir: str | Path | None = None) -> LoadedTask:
    """Load the rows of a task from its files, the Hub, or the built-in sample.

    Args:
        data: What to load, from ``TaskData.from_recipe``.
        cache_dir: Folder for the built rows; None takes the one of `datasets`.

    Raises:
        ValueError: If a file or a dataset cannot be read, lacks a column, has too many bad rows, or
            no rows of a class whose number decides about the others.
        OSError: If a file is missing or the Hub cannot be reached.
    """
    cache = None if cache_dir is None else str(cache_dir)
    if data.problem_type == "token_classification":
        return _load_tagged(data, cache)
    row_format, rows = _read(data, cache)
    labels = ("0", "1") if row_format.problem_type == "paraphrase" else row_format.labels
    splits: dict[str, datasets.Dataset] = {}
    usable: dict[str, int] = {}
    undecided: dict[str, int] = {}
    bad_rows: list[BadRow] = []
    moved: dict[str, int] = {}
    unusable: dict[str, int] = {}
    for split, split_rows in rows.items():
        file = data.files.get(split, f"{data.hub_id or data.dataset}:{split}")
        if row_format.problem_type == "question_answering":
            decided, undecided[split] = check_questions(split_rows, file, split), 0
        else:
            decided, undecided[split] = _leave_undecided(split_rows)
        kept, bad = _keep_usable(decided, file, data.max_bad_rows)
        if "moved" in kept.column_names:
            moved[split] = sum(kept["moved"])
            kept = kept.remove_columns("moved")
        bad_rows += bad
        usable[split], unusable[split] = len(kept), len(bad)
        splits[split] = _sample(kept, data, split, labels)
    log_bad_rows(f"task {data.name!r}", bad_rows)
    facts = describe_splits(splits, usable, labels, undecided, unusable)
    for split, count in moved.items():
        facts[split]["moved_answers"] = count
        if count:
            logger.warning(
                "task %r: %d answers of %s do not begin where they should; the nearest place where "
                "they stand was taken",
                data.name,
                count,
                split,
            )
    return LoadedTask(
        name=data.name,
        problem_type=row_format.problem_type,
        labels=row_format.labels,
        score_range=row_format.score_range,
        splits=splits,
        bad_rows=bad_rows,
        facts=facts,
        fingerprint=_fingerprint(splits),
    )


def _load_tagged(data: TaskData, cache: str | None) -> LoadedTask:
    """Load the sentences of a task with tags; a bad one is an error, not left out."""
    found = read_tagged(data, cache)
    usable = {split: len(rows) for split, rows in found.splits.items()}
    splits = {split: _sample(rows, data, split, None) for split, rows in found.splits.items()}
    facts = describe_splits(splits, usable, None, undecided=dict.fromkeys(splits, 0))
    for split, rows in splits.items():
        facts[split]["words"] = sum(map(len, rows["words"]))
    return LoadedTask(
        name=data.name,
        problem_type="token_classification",
        labels=found.labels,
        score_range=None,
        splits=splits,
        bad_rows=[],
        facts=facts,
        fingerprint=_fingerprint(splits),
    )


def _fingerprint(splits: dict[str, datasets.Dataset]) -> str:
    """Hash the rows themselves: the fingerprints of `datasets` change with the date of a file."""
    digest = hashlib.blake2b(digest_size=16)
    for split, rows in splits.items():
        digest.update(split.encode())
        for batch in rows.iter(FINGERPRINT_ROWS):
            digest.update(repr(batch).encode())
    return digest.hexdigest()


def _sample(
    rows: datasets.Dataset, data: TaskData, split: str, labels: tuple[str, ...] | None
) -> datasets.Dataset:
    """Leave out what a recipe does not want of a split; predictions are of all test rows."""
    if is_test(split):
        return rows
    kind = split.partition("_")[0]
    return sample_rows(
        rows,
        where=f"task {data.name!r}",
        split=split,
        most=getattr(data, f"max_{kind}_rows"),
        most_per_class=getattr(data, f"max_{kind}_rows_per_class"),
        labels=labels,
        seed=data.sample_seed,
    )


def _read(data: TaskData, cache_dir: str | None) -> tuple[Format, datasets.DatasetDict]:
    """Read every row of a task, bad ones included."""
    if data.hub_id is not None:
        splits = read_hub(data, cache_dir)
        labels = data.labels
        if data.problem_type == "classification" and labels is None:
            labels = find_hub_labels(data, splits)
        row_format = _make_format(data, labels)
        return row_format, convert_hub_rows(splits, row_format)
    if not data.files:
        row_format = _make_format(data, data.labels)
        return row_format, build_sample_rows(str(data.dataset), row_format, cache_dir=cache_dir)
    known = DATASETS.get(data.dataset or "")
    file_format = PLAIN_FORMAT if known is None else known.file_format
    row_format = _make_format(data, data.labels or _infer_file_labels(data, file_format))
    return row_format, build_file_rows(
        data.files, row_format, file_format=file_format, cache_dir=cache_dir
    )


def _infer_file_labels(data: TaskData, file_format: FileFormat) -> tuple[str, ...] | None:
    if data.problem_type != "classification":
        return None
    column = str(data.label_column)
    needed = (*(data.text_columns or ()), column)
    records = read_records(data.files["train"], needed, file_format=file_format)
    return infer_labels(record.values.get(column) for record in records)


def _make_format(data: TaskData, labels: tuple[str, ...] | None) -> Format:
    if data.problem_type == "question_answering":
        columns = data.text_columns or ()
        return QuestionFormat(columns, str(data.label_column), data.id_column)
    if data.problem_type == "classification" and len(labels or ()) < 2:
        raise ValueError(
            f"task {data.name!r}: the training rows hold the labels {list(labels or ())}, at "
            f"least two are needed; check label_column={data.label_column!r}"
        )
    return RowFormat(
        problem_type=str(data.problem_type),
        text_columns=data.text_columns or (),
        label_column=data.label_column,
        id_column=data.id_column,
        labels=labels,
        score_range=data.score_range,
        undecided=() if data.dataset not in DATASETS else DATASETS[data.dataset].undecided,
    )


def _leave_undecided(rows: datasets.Dataset) -> tuple[datasets.Dataset, int]:
    """Leave out the rows on which the annotators did not agree, and count them."""
    kept = [place for place, problem in enumerate(rows["problem"][:]) if problem != UNDECIDED]
    missing = len(rows) - len(kept)
    return (rows.select(kept) if missing else rows), missing


def _keep_usable(
    rows: datasets.Dataset, file: str, max_bad_rows: float
) -> tuple[datasets.Dataset, list[BadRow]]:
    """Part the usable rows from the bad ones; only test rows may still have no label."""
    problems: list[str] = rows["problem"][:]
    unlabelled = [label is None for label in rows["label"][:]]
    is_unlabelled = all(
        missing for missing, problem in zip(unlabelled, problems, strict=True) if not problem
    )
    if not is_unlabelled:
        problems = [
            problem or ("no label, though other rows have one" if missing else "")
            for missing, problem in zip(unlabelled, problems, strict=True)
        ]
    lines: list[int] = rows["line"][:]
    bad = [
        BadRow(file, line, problem)
        for line, problem in zip(lines, problems, strict=True)
        if problem
    ]
    check_share(file, bad, len(problems), max_bad_rows)
    if bad:
        rows = rows.select([place for place, problem in enumerate(problems) if not problem])
    return rows.remove_columns(["line", "problem", *(["label"] if is_unlabelled else [])]), bad


def check_share(file: str, bad: list[BadRow], num_rows: int, max_bad_rows: float) -> None:
    """Refuse rows of which too many cannot be used, or all.

    Args:
        file: Where they are: a path, or the name of several.
        bad: Those that cannot be used.
        num_rows: All.
        max_bad_rows: Share that is tolerated, in [0, 1].

    Raises:
        ValueError: If more cannot be used.
    """
    if len(bad) < num_rows and len(bad) <= max_bad_rows * num_rows:
        return
    shown = "; ".join(
        f"line {row.line}: {row.reason}" if row.file == file else str(row)
        for row in bad[:MAX_ROWS_IN_ERROR]
    )
    raise ValueError(
        f"{file}: {len(bad)} of {num_rows} rows cannot be used, max_bad_rows={max_bad_rows:g} "
        f"tolerates {int(max_bad_rows * num_rows)}; the first are: {shown}; correct the file or "
        "raise max_bad_rows"
    )


def log_bad_rows(owner: str, bad_rows: list[BadRow]) -> None:
    """Warn of rows that were left out: the first ones, and how many.

    Args:
        owner: Whose rows they are: ``task 'sst'``.
        bad_rows: The rows.
    """
    for row in bad_rows[:MAX_ROWS_LISTED]:
        logger.warning("%s", row)
    if len(bad_rows) > MAX_ROWS_LISTED:
        logger.warning("... and %d more", len(bad_rows) - MAX_ROWS_LISTED)
    if bad_rows:
        logger.warning("%s: left out %d rows that cannot be used", owner, len(bad_rows))
