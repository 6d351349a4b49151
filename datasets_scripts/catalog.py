"""The built-in datasets, one row each: official files, copy on the Hub, columns, labels."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .files.readers import PLAIN_FORMAT, FileFormat

SENTIMENTS = ("negative", "somewhat negative", "neutral", "somewhat positive", "positive")
INFERENCES = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Columns:
    """Columns of a source."""

    text: tuple[str, ...]
    label: str
    id: str | None = None  # column of the row id; None numbers the rows
    document: str | None = None  # column of the number of the document


@dataclass(frozen=True)
class Submission:
    """How the server of a benchmark expects the predictions of its unlabeled rows."""

    files: Mapping[str, str]  # names without suffix, by split
    labels: bool = False  # whether classes are written as names, not numbers


@dataclass(frozen=True)
class DatasetRow:
    """A built-in dataset; without ``files`` it is a sample that this package generates."""

    problem_type: str
    labels: tuple[str, ...] | None = None  # in the order of their numbers in the files
    score_range: tuple[float, float] | None = None  # of a similarity task
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # first existing one is read
    file_format: FileFormat = PLAIN_FORMAT
    columns: Columns | None = None  # of the official files
    hub_id: str | None = None  # ``owner/name`` or ``owner/name:config`` of the copy
    hub_columns: Columns | None = None  # of the copy
    hub_tests: Mapping[str, str] = field(default_factory=dict)  # other test sets, by split
    metrics: tuple[str, ...] | None = None  # the official ones, the primary one first
    submission: Submission | None = None  # to the GLUE server
    undecided: tuple[str, ...] = ()  # labels of skipped rows, without agreement of the annotators
    scheme: str | None = None  # of tags


# The course's files are called .csv and are tab-separated.
COURSE_FORMAT = FileFormat(delimiter="\t")
GLUE_FORMAT = FileFormat(delimiter="\t", quoting=False)


def _course_files(name: str) -> dict[str, tuple[str, ...]]:
    """Return the files of a dataset of Stanford's CS 224N."""
    splits = {"train": "train", "validation": "dev", "test": "test-student"}
    return {split: (f"{name}-{word}.csv",) for split, word in splits.items()}


def _glue_files(folder: str) -> dict[str, tuple[str, ...]]:
    """Return the files of a task of GLUE."""
    splits = {"train": "train", "validation": "dev", "test": "test"}
    return {split: (f"{folder}/{word}.tsv",) for split, word in splits.items()}


def _squad_files(version: str) -> dict[str, tuple[str, ...]]:
    """Return the files of a version of SQuAD; its test questions are secret."""
    splits = {"train": "train", "validation": "dev", "test": "test"}
    return {split: (f"{word}-{version}.json",) for split, word in splits.items()}


DATASETS: dict[str, DatasetRow] = {
    "sst": DatasetRow(
        problem_type="classification",
        labels=SENTIMENTS,
        files=_course_files("ids-sst"),
        file_format=COURSE_FORMAT,
        columns=Columns(("sentence",), "sentiment", "id"),
        hub_id="SetFit/sst5",
        hub_columns=Columns(("text",), "label"),
    ),
    "cfimdb": DatasetRow(
        problem_type="classification",
        labels=("negative", "positive"),
        files=_course_files("ids-cfimdb"),
        file_format=COURSE_FORMAT,
        columns=Columns(("sentence",), "sentiment", "id"),
    ),
    "quora": DatasetRow(
        problem_type="paraphrase",
        files=_course_files("quora"),
        file_format=COURSE_FORMAT,
        columns=Columns(("sentence1", "sentence2"), "is_duplicate", "id"),
        hub_id="nyu-mll/glue:qqp",
        hub_columns=Columns(("question1", "question2"), "label", "idx"),
    ),
    "sts": DatasetRow(
        problem_type="similarity",
        score_range=(0.0, 5.0),
        files=_course_files("sts"),
        file_format=COURSE_FORMAT,
        columns=Columns(("sentence1", "sentence2"), "similarity", "id"),
        hub_id="nyu-mll/glue:stsb",
        hub_columns=Columns(("sentence1", "sentence2"), "label", "idx"),
    ),
    "cola": DatasetRow(
        problem_type="classification",
        labels=("unacceptable", "acceptable"),
        files=_glue_files("CoLA"),
        file_format=replace(GLUE_FORMAT, header=("source", "label", "mark", "sentence")),
        columns=Columns(("sentence",), "label"),
        hub_id="nyu-mll/glue:cola",
        hub_columns=Columns(("sentence",), "label", "idx"),
        metrics=("matthews_correlation",),
        submission=Submission({"test": "CoLA"}),
    ),
    "sst2": DatasetRow(
        problem_type="classification",
        labels=("negative", "positive"),
        files=_glue_files("SST-2"),
        file_format=GLUE_FORMAT,
        columns=Columns(("sentence",), "label"),
        hub_id="nyu-mll/glue:sst2",
        hub_columns=Columns(("sentence",), "label", "idx"),
        metrics=("accuracy",),
        submission=Submission({"test": "SST-2"}),
    ),
    "mrpc": DatasetRow(
        problem_type="paraphrase",
        files=_glue_files("MRPC"),
        file_format=GLUE_FORMAT,
        columns=Columns(("#1 String", "#2 String"), "Quality"),
        hub_id="nyu-mll/glue:mrpc",
        hub_columns=Columns(("sentence1", "sentence2"), "label"),
        metrics=("f1", "accuracy"),
        submission=Submission({"test": "MRPC"}),
    ),
    "qqp": DatasetRow(
        problem_type="paraphrase",
        files=_glue_files("QQP"),
        file_format=GLUE_FORMAT,
        columns=Columns(("question1", "question2"), "is_duplicate", "id"),
        hub_id="nyu-mll/glue:qqp",
        hub_columns=Columns(("question1", "question2"), "label", "idx"),
        metrics=("f1", "accuracy"),
        submission=Submission({"test": "QQP"}),
    ),
    "stsb": DatasetRow(
        problem_type="similarity",
        score_range=(0.0, 5.0),
        files=_glue_files("STS-B"),
        file_format=GLUE_FORMAT,
        columns=Columns(("sentence1", "sentence2"), "score", "index"),
        hub_id="nyu-mll/glue:stsb",
        hub_columns=Columns(("sentence1", "sentence2"), "label", "idx"),
        metrics=("pearson", "spearman"),
        submission=Submission({"test": "STS-B"}),
    ),
    "mnli": DatasetRow(
        problem_type="classification",
        labels=INFERENCES,
        files={
            "train": ("MNLI/train.tsv",),
            "validation": ("MNLI/dev_matched.tsv",),
            "test": ("MNLI/test_matched.tsv",),
            "validation_mismatched": ("MNLI/dev_mismatched.tsv",),
            "test_mismatched": ("MNLI/test_mismatched.tsv",),
            # the diagnostic set, which models of MNLI predict
            "test_ax": ("AX/AX.tsv", "AX/test.tsv", "AX.tsv", "diagnostic/diagnostic.tsv"),
        },
        file_format=GLUE_FORMAT,
        columns=Columns(("sentence1", "sentence2"), "gold_label", "index"),
        hub_id="nyu-mll/glue:mnli",
        hub_columns=Columns(("premise", "hypothesis"), "label", "idx"),
        hub_tests={"test_ax": "nyu-mll/glue:ax"},
        metrics=("accuracy",),
        submission=Submission(
            {"test": "MNLI-m", "test_mismatched": "MNLI-mm", "test_ax": "AX"}, labels=True
        ),
    ),
    "qnli": DatasetRow(
        problem_type="classification",
        labels=("entailment", "not_entailment"),
        files=_glue_files("QNLI"),
        file_format=GLUE_FORMAT,
        columns=Columns(("question", "sentence"), "label", "index"),
        hub_id="nyu-mll/glue:qnli",
        hub_columns=Columns(("question", "sentence"), "label", "idx"),
        metrics=("accuracy",),
        submission=Submission({"test": "QNLI"}, labels=True),
    ),
    "rte": DatasetRow(
        problem_type="classification",
        labels=("entailment", "not_entailment"),
        files=_glue_files("RTE"),
        file_format=GLUE_FORMAT,
        columns=Columns(("sentence1", "sentence2"), "label", "index"),
        hub_id="nyu-mll/glue:rte",
        hub_columns=Columns(("sentence1", "sentence2"), "label", "idx"),
        metrics=("accuracy",),
        submission=Submission({"test": "RTE"}, labels=True),
    ),
    "wnli": DatasetRow(
        problem_type="classification",
        labels=("not_entailment", "entailment"),
        files=_glue_files("WNLI"),
        file_format=GLUE_FORMAT,
        columns=Columns(("sentence1", "sentence2"), "label", "index"),
        hub_id="nyu-mll/glue:wnli",
        hub_columns=Columns(("sentence1", "sentence2"), "label", "idx"),
        metrics=("accuracy",),
        submission=Submission({"test": "WNLI"}),
    ),
    # The order of the labels is that of the copies on the Hub; other programs use other orders.
    "snli": DatasetRow(
        problem_type="classification",
        labels=INFERENCES,
        files={
            "train": ("snli_1.0_train.jsonl", "snli_1.0/snli_1.0_train.jsonl"),
            "validation": ("snli_1.0_dev.jsonl", "snli_1.0/snli_1.0_dev.jsonl"),
            "test": ("snli_1.0_test.jsonl", "snli_1.0/snli_1.0_test.jsonl"),
        },
        columns=Columns(("sentence1", "sentence2"), "gold_label"),
        hub_id="stanfordnlp/snli",
        hub_columns=Columns(("premise", "hypothesis"), "label"),
        undecided=("-", "-1"),
    ),
    "multi_nli": DatasetRow(
        problem_type="classification",
        labels=INFERENCES,
        files={
            "train": ("multinli_1.0_train.jsonl", "multinli_1.0/multinli_1.0_train.jsonl"),
            "validation": (
                "multinli_1.0_dev_matched.jsonl",
                "multinli_1.0/multinli_1.0_dev_matched.jsonl",
            ),
            "validation_mismatched": (
                "multinli_1.0_dev_mismatched.jsonl",
                "multinli_1.0/multinli_1.0_dev_mismatched.jsonl",
            ),
        },
        columns=Columns(("sentence1", "sentence2"), "gold_label"),
        hub_id="nyu-mll/multi_nli",
        hub_columns=Columns(("premise", "hypothesis"), "label"),
        undecided=("-", "-1"),
    ),
    # Tjong Kim Sang and De Meulder 2003, in IOB1 but for one B-MISC after an O in eng.train; the
    # copy on the Hub is in IOB2
    "conll2003": DatasetRow(
        problem_type="token_classification",
        files={
            "train": ("eng.train",),
            "validation": ("eng.testa",),
            "test": ("eng.testb",),
        },
        columns=Columns(("0",), "3"),
        hub_id="tomaarsen/conll2003",
        hub_columns=Columns(("tokens",), "ner_tags", document="document_id"),
        scheme="iob",
    ),
    "squad": DatasetRow(
        problem_type="question_answering",
        files=_squad_files("v1.1"),
        columns=Columns(("question", "context"), "answers", "id"),
        hub_id="rajpurkar/squad",
        hub_columns=Columns(("question", "context"), "answers", "id"),
    ),
    "squad_v2": DatasetRow(
        problem_type="question_answering",
        files=_squad_files("v2.0"),
        columns=Columns(("question", "context"), "answers", "id"),
        hub_id="rajpurkar/squad_v2",
        hub_columns=Columns(("question", "context"), "answers", "id"),
    ),
    "sample_sst": DatasetRow(problem_type="classification", labels=SENTIMENTS),
    "sample_quora": DatasetRow(problem_type="paraphrase"),
    "sample_sts": DatasetRow(problem_type="similarity", score_range=(0.0, 5.0)),
}
