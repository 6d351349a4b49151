"""The built-in datasets, one row each: official files, copy on the Hub, columns, labels."""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from .readers import PLAIN_FORMAT, FileFormat

SENTIMENTS = ("negative", "somewhat negative", "neutral", "somewhat positive", "positive")
INFERENCES = ("entailment", "neutral", "contradiction")
ENTAILMENTS = ("entailment", "not_entailment")


@dataclass(frozen=True)
class DatasetRow:
    """A built-in dataset; without ``files`` it is a sample that this package generates."""

    problem_type: str
    labels: tuple[str, ...] | None = None  # in the order of their numbers in the files
    score_range: tuple[float, float] | None = None  # of a similarity task
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # first existing one is read
    file_format: FileFormat = PLAIN_FORMAT
    columns: Mapping[str, Any] = field(default_factory=dict)  # keys of a recipe, for the files
    hub_id: str | None = None  # ``owner/name`` or ``owner/name:config`` of the copy
    hub_columns: Mapping[str, Any] = field(default_factory=dict)  # the same for the copy
    metrics: tuple[str, ...] | None = None  # the official ones, the primary one first
    is_of_glue: bool = False
    undecided: tuple[str, ...] = ()  # labels of skipped rows, without agreement of the annotators
    scheme: Literal["spans", "plain"] | None = None  # of tags, as in a recipe
    is_of_course: bool = False  # of Stanford CS 224N, whose project has a format of predictions


# The course's files are called .csv and are tab-separated.
COURSE_FORMAT = FileFormat(delimiter="\t")
GLUE_FORMAT = FileFormat(delimiter="\t", quoting=False)


def _columns(texts: tuple[str, ...], label: str, row_id: str | None = None) -> dict[str, Any]:
    """Return the keys of a recipe for columns; without an id, rows are numbered."""
    return {"text_columns": texts, "label_column": label, "id_column": row_id}


def _files(pattern: str, *words: str) -> dict[str, tuple[str, ...]]:
    """Return the files of the three splits, which differ in a word."""
    splits = ("train", "validation", "test")
    return {split: (pattern.format(word),) for split, word in zip(splits, words, strict=True)}


def _course(name: str, problem_type: str, columns: dict[str, Any], **facts: Any) -> DatasetRow:
    """Describe a dataset of Stanford's CS 224N."""
    files = _files(f"{name}-{{}}.csv", "train", "dev", "test-student")
    facts |= {"files": files, "file_format": COURSE_FORMAT, "is_of_course": True}
    return DatasetRow(problem_type, columns=columns, **facts)


def _glue(folder: str, problem_type: str, columns: dict[str, Any], **facts: Any) -> DatasetRow:
    """Describe a task of GLUE; the copy on the Hub has the same texts, unless it is given."""
    defaults = {
        "files": _files(f"{folder}/{{}}.tsv", "train", "dev", "test"),
        "file_format": GLUE_FORMAT,
        "hub_id": f"nyu-mll/glue:{folder.replace('-', '').lower()}",
        "hub_columns": {**columns, "label_column": "label", "id_column": "idx"},
        "metrics": ("accuracy",),
        "is_of_glue": True,
    }
    return DatasetRow(problem_type, columns=columns, **{**defaults, **facts})


def _nli(name: str, hub_id: str, **words: str) -> DatasetRow:
    """Describe JSON lines with two sentences, in the folder of their archive or without it."""
    paths = {split: f"{name}_{word}.jsonl" for split, word in words.items()}
    return DatasetRow(
        "classification",
        labels=INFERENCES,
        files={split: (path, f"{name}/{path}") for split, path in paths.items()},
        columns=_columns(("sentence1", "sentence2"), "gold_label"),
        hub_id=hub_id,
        hub_columns=_columns(("premise", "hypothesis"), "label"),
        undecided=("-", "-1"),
    )


def _squad(version: str, hub_id: str) -> DatasetRow:
    """Describe a version of SQuAD; its test questions are secret."""
    columns = _columns(("question", "context"), "answers", "id")
    return DatasetRow(
        "question_answering",
        files=_files(f"{{}}-{version}.json", "train", "dev", "test"),
        columns=columns,
        hub_id=hub_id,
        hub_columns=columns,
    )


PAIR = ("sentence1", "sentence2")
DATASETS: dict[str, DatasetRow] = {
    "sst": _course(
        "ids-sst",
        "classification",
        _columns(("sentence",), "sentiment", "id"),
        labels=SENTIMENTS,
        hub_id="SetFit/sst5",
        hub_columns=_columns(("text",), "label"),
    ),
    "cfimdb": _course(
        "ids-cfimdb",
        "classification",
        _columns(("sentence",), "sentiment", "id"),
        labels=("negative", "positive"),
    ),
    "quora": _course(
        "quora",
        "paraphrase",
        _columns(PAIR, "is_duplicate", "id"),
        hub_id="nyu-mll/glue:qqp",
        hub_columns=_columns(("question1", "question2"), "label", "idx"),
    ),
    "sts": _course(
        "sts",
        "similarity",
        _columns(PAIR, "similarity", "id"),
        score_range=(0.0, 5.0),
        hub_id="nyu-mll/glue:stsb",
        hub_columns=_columns(PAIR, "label", "idx"),
    ),
    "cola": _glue(
        "CoLA",
        "classification",
        _columns(("sentence",), "label"),
        labels=("unacceptable", "acceptable"),
        file_format=replace(GLUE_FORMAT, header=("source", "label", "mark", "sentence")),
        metrics=("matthews_correlation",),
    ),
    "sst2": _glue(
        "SST-2", "classification", _columns(("sentence",), "label"), labels=("negative", "positive")
    ),
    "mrpc": _glue(
        "MRPC",
        "paraphrase",
        _columns(("#1 String", "#2 String"), "Quality"),
        hub_columns=_columns(PAIR, "label"),
        metrics=("f1", "accuracy"),
    ),
    "qqp": _glue(
        "QQP",
        "paraphrase",
        _columns(("question1", "question2"), "is_duplicate", "id"),
        metrics=("f1", "accuracy"),
    ),
    "stsb": _glue(
        "STS-B",
        "similarity",
        _columns(PAIR, "score", "index"),
        score_range=(0.0, 5.0),
        metrics=("pearson", "spearman"),
    ),
    "mnli": _glue(
        "MNLI",
        "classification",
        _columns(PAIR, "gold_label", "index"),
        labels=INFERENCES,
        files={
            **_files("MNLI/{}.tsv", "train", "dev_matched", "test_matched"),
            "validation_mismatched": ("MNLI/dev_mismatched.tsv",),
            "test_mismatched": ("MNLI/test_mismatched.tsv",),
        },
        hub_columns=_columns(("premise", "hypothesis"), "label", "idx"),
    ),
    "qnli": _glue(
        "QNLI",
        "classification",
        _columns(("question", "sentence"), "label", "index"),
        labels=ENTAILMENTS,
    ),
    "rte": _glue("RTE", "classification", _columns(PAIR, "label", "index"), labels=ENTAILMENTS),
    "wnli": _glue(
        "WNLI", "classification", _columns(PAIR, "label", "index"), labels=ENTAILMENTS[::-1]
    ),
    # The labels are in the order of the copies on the Hub; other programs use different orders.
    "snli": _nli("snli_1.0", "stanfordnlp/snli", train="train", validation="dev", test="test"),
    "multi_nli": _nli(
        "multinli_1.0",
        "nyu-mll/multi_nli",
        train="train",
        validation="dev_matched",
        validation_mismatched="dev_mismatched",
    ),
    # Tjong Kim Sang and De Meulder 2003, in IOB1 but for one B-MISC after an O in eng.train; the
    # copy on the Hub is in IOB2
    "conll2003": DatasetRow(
        problem_type="token_classification",
        files=_files("eng.{}", "train", "testa", "testb"),
        columns=_columns(("0",), "3"),
        hub_id="tomaarsen/conll2003",
        hub_columns=_columns(("tokens",), "ner_tags"),
        scheme="spans",
    ),
    "squad": _squad("v1.1", "rajpurkar/squad"),
    "squad_v2": _squad("v2.0", "rajpurkar/squad_v2"),
    "sample_sst": DatasetRow(
        "classification", labels=SENTIMENTS, columns=_columns(("sentence1",), "label")
    ),
    "sample_quora": DatasetRow("paraphrase", columns=_columns(PAIR, "label")),
    "sample_sts": DatasetRow("similarity", score_range=(0.0, 5.0), columns=_columns(PAIR, "label")),
}


def read_sample(name: str) -> dict[str, list[Any]]:
    """Read a small generated data set of this package, by split.

    No text of a split occurs in another one, and held-out texts consist of words that occur in
    training. In ``sample_text`` every sentence shows the theme of its document.

    Returns:
        Rows with ``sentence1``, ``sentence2`` (pairs only) and ``label``; of ``sample_text`` the
        documents, one sentence per line.
    """
    path = Path(__file__).parent / "samples" / f"{name}.json.gz"
    return dict(json.loads(gzip.decompress(path.read_bytes())))
