"""The built-in datasets, one row each: official files, Hub copy, columns, labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field

# The names that the course gives to its splits.
COURSE_SPLITS = {"train": "train", "validation": "dev", "test": "test-student"}
SENTIMENTS = ("negative", "somewhat negative", "neutral", "somewhat positive", "positive")


@dataclass(frozen=True)
class Columns:
    """Where a source keeps the texts, the label and the row id.

    Args:
        text: One or two column names.
        label: Column of the label.
        id: Column of the row id; None numbers the rows.
        document: Column with the number of the document; None if rows are of none.
    """

    text: tuple[str, ...]
    label: str
    id: str | None = None
    document: str | None = None


@dataclass(frozen=True)
class DatasetRow:
    """What is known about a built-in dataset.

    Args:
        problem_type: ``classification``, ``paraphrase``, ``similarity`` or
            ``token_classification`` or ``question_answering``.
        labels: Names of the classes, in the order of their numbers in the files.
        score_range: Lowest and highest score of a similarity task.
        file_pattern: Official file name, with ``{split}``.
        splits: What the official file names call the splits.
        scheme: In which tags mark spans; None where there are none.
        columns: Columns of the official files.
        hub_id: ``owner/name`` or ``owner/name:config`` of the copy on the Hub.
        hub_columns: Columns of the copy on the Hub.

    A row without ``file_pattern`` is a sample that this package generates.
    """

    problem_type: str
    labels: tuple[str, ...] | None = None
    score_range: tuple[float, float] | None = None
    file_pattern: str | None = None
    columns: Columns | None = None
    hub_id: str | None = None
    hub_columns: Columns | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: COURSE_SPLITS)
    scheme: str | None = None


DATASETS: dict[str, DatasetRow] = {
    "sst": DatasetRow(
        problem_type="classification",
        labels=SENTIMENTS,
        file_pattern="ids-sst-{split}.csv",
        columns=Columns(("sentence",), "sentiment", "id"),
        hub_id="SetFit/sst5",
        hub_columns=Columns(("text",), "label"),
    ),
    "cfimdb": DatasetRow(
        problem_type="classification",
        labels=("negative", "positive"),
        file_pattern="ids-cfimdb-{split}.csv",
        columns=Columns(("sentence",), "sentiment", "id"),
    ),
    "quora": DatasetRow(
        problem_type="paraphrase",
        file_pattern="quora-{split}.csv",
        columns=Columns(("sentence1", "sentence2"), "is_duplicate", "id"),
        hub_id="nyu-mll/glue:qqp",
        hub_columns=Columns(("question1", "question2"), "label", "idx"),
    ),
    "sts": DatasetRow(
        problem_type="similarity",
        score_range=(0.0, 5.0),
        file_pattern="sts-{split}.csv",
        columns=Columns(("sentence1", "sentence2"), "similarity", "id"),
        hub_id="nyu-mll/glue:stsb",
        hub_columns=Columns(("sentence1", "sentence2"), "label", "idx"),
    ),
    # Tjong Kim Sang and De Meulder 2003, in IOB1 but for one B-MISC after an O in eng.train; the
    # copy on the Hub is in IOB2
    "conll2003": DatasetRow(
        problem_type="token_classification",
        file_pattern="eng.{split}",
        columns=Columns(("0",), "3"),
        hub_id="tomaarsen/conll2003",
        hub_columns=Columns(("tokens",), "ner_tags", document="document_id"),
        splits={"train": "train", "validation": "testa", "test": "testb"},
        scheme="iob",
    ),
    "squad": DatasetRow(
        problem_type="question_answering",
        file_pattern="{split}-v1.1.json",
        columns=Columns(("question", "context"), "answers", "id"),
        hub_id="rajpurkar/squad",
        hub_columns=Columns(("question", "context"), "answers", "id"),
    ),
    "squad_v2": DatasetRow(
        problem_type="question_answering",
        file_pattern="{split}-v2.0.json",
        columns=Columns(("question", "context"), "answers", "id"),
        hub_id="rajpurkar/squad_v2",
        hub_columns=Columns(("question", "context"), "answers", "id"),
    ),
    "sample_sst": DatasetRow(problem_type="classification", labels=SENTIMENTS),
    "sample_quora": DatasetRow(problem_type="paraphrase"),
    "sample_sts": DatasetRow(problem_type="similarity", score_range=(0.0, 5.0)),
}
