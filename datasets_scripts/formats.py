"""The formats of rows with words, questions or choices, and the table of all formats."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import ne
from string import ascii_uppercase
from typing import Any, ClassVar, NamedTuple, Self

import datasets
import numpy as np
from numpy.typing import NDArray

from .checking import Columns, option
from .conll_squad import ANSWER_COLUMN, SQUAD_SUFFIXES, count_columns, read_conll, read_squad
from .encoding import encode_choices, encode_questions, encode_tagged
from .readers import (
    FileFormat,
    Record,
    describe_twins,
    find_suffix,
    find_twin,
    is_blank,
    is_test,
    read_records,
    shorten,
)
from .row_format import (
    Row,
    RowFormat,
    RowSource,
    add_id,
    check_classes,
    list_names,
    make_features,
    normalize_value,
)
from .sentence_formats import (
    ClassificationFormat,
    ContrastiveFormat,
    MultiLabelFormat,
    OrdinalFormat,
    ParaphraseFormat,
    RegressionFormat,
    SentenceFormat,
    SimilarityFormat,
)

# Schemes of tags: in IOB1 a span begins with ``I-``, and with ``B-`` only directly after another
# span; in IOB2 every span begins with ``B-`` (Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra
# 1999). Read as conlleval does, where a span begins with ``B-`` or a change of type, both give the
# same spans. The schemes called BIOES, BILOU or BMES also name the last word of a span (E or L) and
# a span of one word (S, U or W), and some call the words between M.


logger = logging.getLogger(__name__)

SCHEMES = ("iob1", "iob2", "iob", "bioes", "plain")
OUTSIDE = "O"
SPAN_TAG = re.compile(r"[BIELSUMW][-_].")
LAST, SINGLE = "ELSUW", "SUW"
# Share of the spans of a file that may begin as in the other IOB scheme: errors of annotators.
MOST_MIXED = 0.01

# The tags of a sentence, with its record.
TaggedRecord = tuple[Record, Sequence[str]]


class Evidence(NamedTuple):
    """Where only one scheme allows a tag."""

    line: int  # the first one
    tag: str
    number: int


def find_scheme(path: str, sentences: Iterable[TaggedRecord], declared: str | None) -> str:
    """Detect the scheme of a file, or check the declared one.

    It is one of ``iob1``, ``iob2``, ``iob`` for both, ``bioes`` for all that name the ends of
    spans, or ``plain``.
    """
    found = _find_evidence(sentences)
    if declared == "plain":
        return "plain"
    spans: dict[str, Evidence] = {kind: found[kind] for kind in ("iob1", "iob2") if kind in found}
    if "plain" in found:
        if not spans and declared is None:
            return "plain"
        line, tag, _ = found["plain"]
        raise ValueError(
            f"{path}:{line}: the tag {tag!r} is not part of a span ('O', 'B-...', 'I-...', or one "
            "of E, S, L, U, M, W), but others are; correct it, or declare scheme: plain if the "
            "tags are of single tokens"
        )
    if declared in ("iob", "bioes"):
        return declared
    if "bioes" in found and declared is not None:
        _refuse_declared(path, declared, "bioes", found["bioes"])
    _check_spans(path, spans, declared)
    if "bioes" in found:
        return "bioes"
    return declared or max(spans, key=lambda kind: spans[kind].number, default="iob2")


def _check_spans(path: str, spans: dict[str, Evidence], declared: str | None) -> None:
    """Reject spans of both schemes, or of another one than declared."""
    if wrong := [kind for kind in spans if declared not in (None, kind)]:
        _refuse_declared(path, declared, wrong[0], spans[wrong[0]])
    if len(spans) < 2:
        return
    (line1, tag1, count1), (line2, tag2, count2) = spans["iob1"], spans["iob2"]
    if min(count1, count2) > MOST_MIXED * (count1 + count2):
        raise ValueError(
            f"{path}:{max(line1, line2)}: mixed IOB schemes: a span begins with {tag1!r} in line "
            f"{line1}, as in IOB1, and with {tag2!r} in line {line2}, as in IOB2; correct the "
            "file, or declare scheme: iob to allow both"
        )
    line, tag, count = min(spans.values(), key=lambda each: each.number)
    logger.warning(
        "%s:%d: a span begins with %r, unlike %s others, and is read as conlleval does",
        path,
        line,
        tag,
        f"{count1 + count2 - count:,}",
    )


def _refuse_declared(path: str, declared: str | None, kind: str, found: Evidence) -> None:
    raise ValueError(
        f"{path}:{found.line}: scheme={declared!r}, but a span begins with {found.tag!r} here, as "
        f"in {kind.upper()}; correct the file or the scheme"
    )


def _find_evidence(sentences: Iterable[TaggedRecord]) -> dict[str, Evidence]:
    """Return by scheme the first line and tag that only this scheme allows, and how many are."""
    found: dict[str, Evidence] = {}
    for record, tags in sentences:
        for place, (previous, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
            if (kind := _only_scheme(previous, tag)) is not None:
                first = found.get(kind) or Evidence(record.line_of(place), tag, 0)
                found[kind] = first._replace(number=first.number + 1)
    return found


def _only_scheme(previous: str, tag: str) -> str | None:
    """Return the only scheme in which a tag may follow another one; None for several."""
    if tag == OUTSIDE:
        return None
    if not SPAN_TAG.match(tag):
        return "plain"
    if tag[0] not in "BI" or tag[1] == "_":
        return "bioes"
    if tag.startswith("B-"):
        return "iob2" if previous == OUTSIDE else None
    return None if previous[2:] == tag[2:] else "iob1"


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence from any scheme of spans to IOB2."""
    converted, previous = [], OUTSIDE
    for tag in tags:
        begins = tag[:1] in f"B{SINGLE}" or previous[:1] in f"{OUTSIDE}{LAST}"
        begins = begins or previous[2:] != tag[2:]
        converted.append(tag if tag == OUTSIDE else f"{'B' if begins else 'I'}-{tag[2:]}")
        previous = tag
    return converted


def list_tags(tags: Iterable[str], scheme: str) -> tuple[str, ...]:
    """List the names of all tags: ``O`` first, and both for every type of span."""
    distinct = set(tags)
    if scheme == "plain":
        return tuple(sorted(distinct, key=lambda tag: (tag != OUTSIDE, tag)))
    types = sorted({tag[2:] for tag in distinct if tag != OUTSIDE})
    return (OUTSIDE, *(f"{letter}-{kind}" for kind in types for letter in "BI"))


# Words with tags


RECORD_SUFFIXES = (".jsonl", ".json", ".parquet")
# evenly spread, whose words tell how the texts were split
MEASURED_SENTENCES = 2000
FEWEST_DOCUMENTS = 10  # of which whole ones are held out; of fewer, sentences


@dataclass(frozen=True)
class TagFormat(RowFormat):
    """Rows with ``words``, ``tags`` (numbers) and ``document`` (a number)."""

    scheme: str | None = None  # None detects it
    document_column: str | None = None  # column of the number of the document, not for CoNLL's
    document_context: bool = False  # whether to encode a sentence with its neighbors
    tag_names: tuple[str, ...] | None = None  # set by `resolve`; spans are in IOB2
    num_columns: int = 0  # of the training file, set by `resolve`; 0 if unknown

    problem_type = "token_classification"
    text_counts = (0, 1)
    own_keys = ("label_column", "labels", "scheme", "document_column", "document_context")
    required_keys = ()
    hub_keys = RowFormat.required_keys
    file_suffixes = None
    text_names = ("words",)
    label_name = "tags"

    @property
    def features(self) -> datasets.Features:
        return make_features(
            id="string",
            words=["string"],
            tags=["int64"],
            document="int64",
            line="int64",
            problem="string",
        )

    @property
    def label_names(self) -> tuple[str, ...] | None:
        return self.tag_names or self.labels

    def expected_labels(self, count: int = 2) -> tuple[str, ...] | None:
        return self.labels or ("O", *(f"B-X{number or ''}" for number in range(count - 1)))

    def example_labels(self) -> list[Any]:
        return [[number] for number in range(len(self.label_names or ()))]

    def count_labels(self, rows: datasets.Dataset) -> list[int]:
        tags = np.fromiter(chain.from_iterable(rows["tags"][:]), np.int64)
        return np.bincount(tags, minlength=len(self.label_names or ())).tolist()

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        if find_suffix(path) in RECORD_SUFFIXES:
            for number, record in enumerate(read_records(path, self.required_columns(split))):
                yield self._check_lists(record, number)
            return
        word, tag = self._columns("0", "-1")
        has_tags = not is_test(split) or count_columns(path) >= self.num_columns
        for record in read_conll(path, (word, tag) if has_tags else (word,)):
            values = record.values
            if not record.problem:
                tags = values[tag] if has_tags else None
                values = {"words": values[word], "tags": tags, "document": values["document"]}
            yield replace(record, values=values)

    def required_columns(self, split: str) -> tuple[str, ...]:
        word, tag = self._columns("tokens", "tags")
        return (word,) if is_test(split) else (word, tag)

    def from_hub(self, number: int, values: Row, names: tuple[str, ...] | None) -> Record:
        _, tag = self._columns("tokens", "tags")
        tags = values.get(tag)
        if names is not None and isinstance(tags, list):
            known = dict(enumerate(names))
            values = {**values, tag: [known.get(each, str(each)) for each in tags]}
        return self._check_lists(Record(number + 1, values), number)

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        paths = [source.name for source in sources.values() if source.rows is None]
        conll = [path for path in paths if find_suffix(path) not in RECORD_SUFFIXES]
        counted = replace(self, num_columns=count_columns(conll[0])) if conll else self
        tags: dict[str, set[str]] = {split: set() for split in sources}
        schemes = {
            split: find_scheme(source.name, counted._read_tags(source, tags[split]), self.scheme)
            for split, source in sources.items()
        }
        # whether tags are of tokens or of spans is decided by the training rows
        scheme = schemes["train"]
        names = self.labels or list_tags(tags["train"], scheme)
        if scheme == "bioes":
            names = list_tags(names, scheme)
        # without any valid sentence, their problems are reported with the rows
        if tags["train"]:
            key = f"label_column={self.label_column!r}"
            check_classes(sources["train"].name, "tags", names, key)
        if spaced := [name for name in names if len(name.split()) != 1]:
            raise ValueError(
                f"{where}: the tag {shorten(spaced[0])!r} has white space, which separates the "
                "columns of prediction files; rename it"
            )
        return replace(counted, scheme=scheme, tag_names=names)

    def to_row(self, record: Record, number: int, split: str) -> Row:
        values, problem, line = record.values, record.problem, record.line
        tags = values.get("tags")
        numbers = None
        if not problem and all(map(is_blank, values.get("words", []))):
            problem = "empty text: no word is visible"
        elif not problem and tags is not None:
            numbers, unknown = self._number_tags(tags)
            if unknown is not None:
                problem, line = self._describe_unknown(tags[unknown]), record.line_of(unknown)
        elif not problem and not is_test(split):
            problem = "no tags, which only test rows may lack"
        return {
            "id": str(number),
            "words": values.get("words", []),
            "tags": None if problem else numbers,
            "document": values.get("document", 0),
            "line": line,
            "problem": problem,
        }

    def head_facts(self, train: datasets.Dataset) -> dict[str, Any]:
        step = max(1, len(train) // MEASURED_SENTENCES)
        is_read = "words" in train.column_names  # not of a placeholder
        sentences = train[::step]["words"] if is_read else []
        return super().head_facts(train) | {"sentences": sentences}

    def count(self, where: str, valid: datasets.Dataset, drawn: datasets.Dataset) -> dict[str, int]:
        return {"words": sum(map(len, drawn["words"]))}

    def unit_columns(self, rows: datasets.Dataset) -> tuple[str, ...]:
        is_by_document = FEWEST_DOCUMENTS <= len(rows.unique("document")) < len(rows)
        return ("document",) if is_by_document else self.text_names

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        return (" ".join(words) for words in rows["words"][:])

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        return encode_tagged(rows, tokenizer, document_context=self.document_context, **options)

    def references(self, rows: datasets.Dataset) -> NDArray[Any] | None:
        names = self.label_names or ()
        return np.fromiter(([names[tag] for tag in tags] for tags in rows["tags"][:]), dtype=object)

    def _columns(self, word: str, tag: str) -> tuple[str, str]:
        return (self.text_columns or (word,))[0], self.label_column or tag

    def _read_tags(self, source: RowSource, distinct: set[str]) -> Iterator[TaggedRecord]:
        """Yield the valid sentences that have tags, and collect the distinct tags."""
        for record in source.read(self):
            tags = record.values.get("tags")
            if not record.problem and tags is not None:
                distinct.update(tags)
                yield record, tags

    def _check_lists(self, record: Record, number: int) -> Record:
        """Check a record with lists of words and tags."""
        if record.problem:
            return record
        word, tag = self._columns("tokens", "tags")
        words, tags = record.values.get(word), record.values.get(tag)
        document = record.values.get(self.document_column or "", number)
        if problem := _find_list_problem(word, words, tag, tags):
            return replace(record, values={}, problem=problem)
        if not isinstance(document, int):
            given = f"{self.document_column}={shorten(repr(document))}"
            problem = f"{given}; expected the number of a document"
            return replace(record, values={}, problem=problem)
        named = None if tags is None else self._name_tags(tags)
        return replace(record, values={"words": words, "tags": named, "document": document})

    def _name_tags(self, tags: list[Any]) -> list[str]:
        """Name tags, which may be given as numbers of declared labels."""
        names = self.labels or ()
        if all(isinstance(tag, int) and 0 <= tag < len(names) for tag in tags):
            return [names[tag] for tag in tags]
        return list(map(str, tags))

    def _number_tags(self, tags: list[str]) -> tuple[list[int] | None, int | None]:
        """Return the numbers of tags, or the position of the first unknown one."""
        numbers = {name: number for number, name in enumerate(self.label_names or ())}
        normal = tags if self.scheme == "plain" else to_iob2(tags)
        unknown = next((place for place, tag in enumerate(normal) if tag not in numbers), None)
        return (None, unknown) if unknown is not None else ([numbers[tag] for tag in normal], None)

    def _describe_unknown(self, tag: str) -> str:
        names = self.label_names or ()
        if twin := find_twin(tag, names):
            return f"the tags {describe_twins(tag, twin)}"
        return (
            f"unknown tag {shorten(tag)!r}; the tags of the training rows are {list_names(names)}; "
            "correct it, or list all tags as labels"
        )


def _find_list_problem(word: str, words: Any, tag: str, tags: Any) -> str:
    if not isinstance(words, list) or not words or not all(isinstance(x, str) for x in words):
        return f"{word}={shorten(repr(words))}; expected a list of words"
    if tags is None or (isinstance(tags, list) and len(tags) == len(words)):
        return ""
    many = len(tags) if isinstance(tags, list) else shorten(repr(tags))
    return f"{len(words)} words in {word!r}, but {many} tags in {tag!r}; every word needs one"


# Questions


@dataclass(frozen=True)
class QuestionFormat(RowFormat):
    """Rows with a question, ``sentence1``, and its passage, ``sentence2``.

    The passage is kept as it is, character by character: answers are positions in it.
    ``label_column`` holds the answers, ``{"text": [...], "answer_start": [...]}`` or a list of
    ``{"text": ..., "answer_start": ...}``; an unanswerable question has empty lists.
    """

    problem_type = "question_answering"
    text_counts = (2,)
    default_keys: ClassVar[Mapping[str, Any]] = {
        "text_columns": ("question", "context"),
        "label_column": ANSWER_COLUMN,
    }
    file_suffixes = SQUAD_SUFFIXES
    text_names = ("sentence1", "sentence2")
    shared_names = ("sentence2",)
    helper_columns = ("moved",)

    @property
    def features(self) -> datasets.Features:
        return make_features(
            id="string",
            sentence1="string",
            sentence2="string",
            answers=["string"],
            answer_starts=["int32"],  # in characters, one for each answer
            label="int64",  # 1 with an answer, 0 without, None if unknown
            moved="int32",  # answers that are not at their start, but elsewhere in the passage
            line="int64",
            problem="string",
        )

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        return read_squad(path, self.required_columns(split))

    def to_row(self, record: Record, number: int, split: str) -> Row:
        (question, passage), row_id, problem = self.read_texts(record)
        row: Row = {"answers": [], "answer_starts": [], "label": None, "moved": 0}
        if not problem:
            try:
                row |= self._parse_answers(record.values, passage, split)
            except ValueError as error:
                problem = str(error)
        return {
            **row,
            "id": row_id or str(number),
            "sentence1": question.strip(),
            "sentence2": passage,
            "line": record.line,
            "problem": add_id(problem, row_id),
        }

    def check_split(self, rows: datasets.Dataset, where: str, split: str) -> datasets.Dataset:
        is_unanswered = set(rows["label"][:]) == {0}
        if is_unanswered and not is_test(split):
            raise ValueError(
                f"{where}: none of its {len(rows)} questions has an answer; only a test_file may "
                "lack them"
            )
        if is_unanswered:
            rows = _replace_column(rows, "label", [None] * len(rows))
        seen: set[str] = set()
        problems = []
        for row_id, problem in zip(rows["id"][:], rows["problem"][:], strict=True):
            problems.append(problem or (f"duplicate id {row_id!r}" if row_id in seen else ""))
            seen.add(row_id)
        if problems == rows["problem"][:]:
            return rows
        return _replace_column(rows, "problem", problems)

    def count(self, where: str, valid: datasets.Dataset, drawn: datasets.Dataset) -> dict[str, int]:
        moved = sum(valid["moved"])
        if moved:
            logger.warning(
                "%s: %d answers do not begin at their answer_start; the nearest occurrence in the "
                "passage was used",
                where,
                moved,
            )
        return {"moved_answers": moved}

    def unit_columns(self, rows: datasets.Dataset) -> tuple[str, ...]:
        return ("sentence2",)  # questions of one passage are learned together

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        pairs = zip(rows["sentence1"][:], rows["sentence2"][:], strict=True)
        return (text for pair in pairs for text in pair)

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        given = {name: size for name, size in options.items() if size is not None}
        return encode_questions(rows, tokenizer, **given)

    def head_facts(self, train: datasets.Dataset) -> dict[str, Any]:
        return super().head_facts(train) | {"has_unanswerable": 0 in train.unique("label")}

    def references(self, rows: datasets.Dataset) -> NDArray[Any] | None:
        return np.fromiter(rows["answers"][:], dtype=object)

    def _parse_answers(self, values: Mapping[str, Any], passage: str, split: str) -> Row:
        """Read the answers of a question, and locate them in its passage."""
        given = _list_answers(values.get(self.label_column or ""))
        if values.get("is_impossible"):
            if given:
                raise ValueError("is_impossible, although it has answers")
            given = []
        if given is None:
            if is_test(split):
                return {}
            raise ValueError("no answers, which only test questions may lack")
        if not given:
            return {"label": 0}
        starts = [find_answer(passage, text, start) for text, start in given]
        return {
            "answers": [text for text, _ in given],
            "answer_starts": starts,
            "label": 1,
            "moved": sum(map(ne, starts, (start for _, start in given))),
        }


def _replace_column(rows: datasets.Dataset, name: str, values: list[Any]) -> datasets.Dataset:
    return rows.remove_columns(name).add_column(name, values, feature=rows.features[name])


def find_answer(passage: str, text: str, start: int) -> int:
    """Return where an answer begins in its passage: at ``start``, else its nearest occurrence."""
    if is_blank(text):
        raise ValueError("an answer without text")
    if start >= 0 and passage.startswith(text, start):
        return start
    before = passage.rfind(text, 0, max(0, start) + len(text))
    after = passage.find(text, max(0, start))
    places = [place for place in (before, after) if place >= 0]
    if not places:
        where = f"{start} is beyond its {len(passage)} characters"
        if 0 <= start < len(passage):
            where = f"at {start} there is {shorten(passage[start : start + len(text)])!r}"
        raise ValueError(f"the answer {shorten(text)!r} is not in the passage; {where}")
    return min(places, key=lambda place: abs(place - start))


def _list_answers(given: Any) -> list[tuple[str, int]] | None:
    """List answers with their starts; None if there is no value."""
    if given is None:
        return None
    try:
        if isinstance(given, Mapping):
            pairs = list(zip(given["text"], given["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in given]
    except (TypeError, KeyError, ValueError):
        pairs = [(None, None)]
    if not all(isinstance(text, str) and type(start) is int for text, start in pairs):
        raise ValueError(
            "answers are neither a list of {text, answer_start} nor a mapping of two lists, text "
            "and answer_start"
        )
    return [(text, int(start)) for text, start in pairs]


# Choices


EXPECTED_CHOICES = 4  # of a task whose rows have not been read


class Choices(NamedTuple):
    """The choices of a row."""

    texts: tuple[str, ...]
    names: tuple[str, ...] | None = None  # by which the label may name them, such as letters


@dataclass(frozen=True)
class ChoiceFormat(SentenceFormat):
    """Rows with a context, ``sentence1``, ``choices`` and the index of the right one, ``label``.

    A second text, ``sentence2``, is put before every choice: a question, or the start of a sentence
    that the choices end. ``choice_columns`` are a column for each choice, or one column of lists,
    whose length may differ. ``labels`` are names of the choices in their order, for the label.
    """

    choice_columns: Columns = option((), of_type=True)
    num_choices: int | None = None  # of a row, at most; from the rows

    problem_type = "multiple_choice"
    has_unlabeled_rows = False
    text_counts = (1, 2)
    own_keys = ("label_column", "labels")

    @property
    def features(self) -> datasets.Features:
        return datasets.Features({**super().features, **make_features(choices=["string"])})

    @property
    def text_names(self) -> tuple[str, ...]:
        return (*super().text_names, "choices")

    @property
    def shared_names(self) -> tuple[str, ...]:
        return ("sentence1",)

    @property
    def label_names(self) -> tuple[str, ...] | None:
        return None  # the choices of every row are others

    def required_columns(self, split: str) -> tuple[str, ...]:
        return (*super().required_columns(split), *self.choice_columns)

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        if not self.choice_columns:
            raise ValueError(
                f"{where}: choice_columns is missing; give a column for each choice, such as "
                "[ending0, ending1], or one column with lists of choices"
            )
        labels = self.labels or sources["train"].class_names(self)
        known = replace(self, labels=labels)
        count = len(self.choice_columns)
        if count == 1:
            count = max(map(known.count_choices, sources.values()))
        if count < 2:
            raise ValueError(
                f"{where}: column {self.choice_columns[0]!r} has no list of at least two choices; "
                "check choice_columns"
            )
        if labels is not None and len(labels) < count:
            raise ValueError(
                f"{where}: labels={list(labels)} must name all of the {count} choices of a row"
            )
        return replace(known, num_choices=count)

    def count_choices(self, source: RowSource) -> int:
        """Return the largest number of choices of a row, 0 if none is valid."""
        return max((len(self._try_choices(each).texts) for each in source.read(self)), default=0)

    def from_hub(self, number: int, values: Row, names: tuple[str, ...] | None) -> Record:
        label: Any = values.get(self.label_column or "")
        if names is not None and isinstance(label, int) and 0 <= label < len(names):
            values = {**values, str(self.label_column): names[label]}
        return Record(number + 1, values)

    def to_row(self, record: Record, number: int, split: str) -> Row:
        texts, row_id, problem = self.read_texts(record)
        choices, label = Choices(()), None
        try:
            if not problem:
                choices = self.read_choices(record)
                label = self._read_label(record, choices, split)
        except ValueError as error:
            problem = str(error)
        sentences = (f"sentence{place}" for place, _ in enumerate(texts, start=1))
        return {
            "id": row_id or str(number),
            **dict(zip(sentences, map(str.strip, texts), strict=True)),
            "choices": list(map(str.strip, choices.texts)),
            "label": None if problem else label,
            "line": record.line,
            "problem": add_id(problem, row_id),
        }

    def read_choices(self, record: Record) -> Choices:
        """Return the choices of a record; the message of a ValueError is the problem of the row."""
        values = [record.values.get(column) for column in self.choice_columns]
        if len(values) > 1:
            places = [f"column {column!r}" for column in self.choice_columns]
            return Choices(_check_texts(values, places))
        column = self.choice_columns[0]
        found = _list_choices(values[0])
        if found is None:
            raise ValueError(
                f"column {column!r} holds {shorten(repr(values[0]))}, not a list of choices"
            )
        texts, names = found
        if len(texts) < 2:
            raise ValueError(
                f"column {column!r} has {len(texts)} choice(s), at least two are needed"
            )
        places = [f"choice {number} of column {column!r}" for number, _ in enumerate(texts)]
        return Choices(_check_texts(texts, places), names)

    def parse_label(self, text: str) -> int:
        """Convert a label of a row with as many choices as possible."""
        return self.parse_choice(text, Choices(("",) * (self.num_choices or 0)))

    def parse_choice(self, text: str, choices: Choices) -> int:
        """Return the index of the choice that a label names."""
        count = len(choices.texts)
        names = (self.labels or choices.names or ())[:count]
        if text in names:
            return names.index(text)
        if not names:
            numbers, letters = list(map(str, range(count))), list(ascii_uppercase[:count])
            for each in (numbers, letters):
                if text.upper() in each:
                    return each.index(text.upper())
            names = (*numbers, *letters)
        known = f"the {count} choices are named {list_names(names)}"
        raise ValueError(f"label {shorten(text)!r} names no choice; {known}")

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        columns = [rows[name][:] for name in self.text_names]
        for *texts, choices in zip(*columns, strict=True):
            yield from (*texts, *choices)

    def encode(self, rows: datasets.Dataset, tokenizer: Any, **options: Any) -> datasets.Dataset:
        counts = {"num_choices": self.num_choices or len(self.choice_columns)}
        return encode_choices(rows, tokenizer, **counts | options)

    def head_facts(self, train: datasets.Dataset) -> dict[str, Any]:
        own = len(self.choice_columns) if len(self.choice_columns) > 1 else EXPECTED_CHOICES
        return super().head_facts(train) | {"num_choices": self.num_choices or own}

    def _try_choices(self, record: Record) -> Choices:
        try:
            return self.read_choices(record)
        except ValueError:
            return Choices(())

    def _read_label(self, record: Record, choices: Choices, split: str) -> int | None:
        text = normalize_value(record.values.get(str(self.label_column)))
        if is_test(split) and text in {"", "-1"}:  # kept secret
            return None
        if not text:
            raise ValueError("no label")
        return self.parse_choice(text, choices)


def _check_texts(values: Sequence[Any], places: Sequence[str]) -> tuple[str, ...]:
    """Check that all choices are texts; `places` name them."""
    for value, place in zip(values, places, strict=True):
        if value is None or (isinstance(value, str) and is_blank(value)):
            raise ValueError(f"empty text in {place}")
        if not isinstance(value, str):
            raise ValueError(f"{place} holds {shorten(repr(value))}, not text")  # noqa: TRY004
    return tuple(values)


def _list_choices(value: Any) -> tuple[list[Any], tuple[str, ...] | None] | None:
    """List choices, and their names if they have any; None if a value is no list of choices.

    A value is a list of texts, a list of ``{"label": "A", "text": ...}``, or two lists,
    ``{"label": ["A", ...], "text": [...]}``, as in the copies of CommonsenseQA and ARC on the Hub.
    """
    if isinstance(value, list) and all(isinstance(each, Mapping) for each in value) and value:
        value = {key: [each.get(key) for each in value] for key in ("label", "text")}
    if isinstance(value, list):
        return value, None
    if not isinstance(value, Mapping):
        return None
    names, texts = value.get("label"), value.get("text")
    if not isinstance(names, list) or not isinstance(texts, list) or len(names) != len(texts):
        return None
    return texts, tuple(map(normalize_value, names))


# All formats


# None: the rows are made from a corpus, by `make_text_rows`.
FORMATS: dict[str, type[RowFormat] | None] = {
    "classification": ClassificationFormat,
    "multi_label_classification": MultiLabelFormat,
    "ordinal": OrdinalFormat,
    "paraphrase": ParaphraseFormat,
    "similarity": SimilarityFormat,
    "regression": RegressionFormat,
    "multiple_choice": ChoiceFormat,
    "contrastive": ContrastiveFormat,
    "token_classification": TagFormat,
    "question_answering": QuestionFormat,
    "masked_lm": None,
    "next_sentence": None,
    "pretraining": None,
}
# Those whose rows are read one by one.
ROW_FORMATS: dict[str, type[RowFormat]] = {
    name: kind for name, kind in FORMATS.items() if kind is not None
}
