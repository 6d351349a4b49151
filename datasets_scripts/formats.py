"""The formats of rows with words, questions or choices, and the table of all formats."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from string import ascii_uppercase
from typing import Any, ClassVar, Self

import datasets
import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from .checking import Columns, option
from .encoding import Encoding, Row, Types, encode_choices, encode_questions, encode_tagged
from .readers import (
    ANSWER_COLUMN,
    SQUAD_SUFFIXES,
    FileFormat,
    Record,
    count_columns,
    describe_twins,
    find_suffix,
    find_twin,
    is_blank,
    is_test,
    read_conll,
    read_records,
    read_squad,
    shorten,
)
from .row_format import (
    HeadFacts,
    LineError,
    RowFormat,
    RowSource,
    check_classes,
    find_text_problem,
    list_names,
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

# Schemes of tags


# In IOB1 a span begins with ``I-``, and with ``B-`` only directly after another span; in IOB2 every
# span begins with ``B-`` (Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra 1999). Read as
# conlleval does, where a span begins with ``B-`` or a change of type, both give the same spans. The
# schemes called BIOES, BILOU or BMES also name the last word of a span (E or L) and a span of one
# word (S, U or W), and some call the words between M. Tags of other words are plain.
SCHEMES = ("spans", "plain")
OUTSIDE = "O"
SPAN_TAG = re.compile(r"[BIELSUMW][-_].")
LAST, SINGLE = "ELSUW", "SUW"


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence from any scheme of spans to IOB2."""
    converted, previous = [], OUTSIDE
    for tag in tags:
        begins = tag[:1] in f"B{SINGLE}" or previous[:1] in f"{OUTSIDE}{LAST}"
        begins = begins or previous[2:] != tag[2:]
        is_span = SPAN_TAG.match(tag) is not None
        converted.append(f"{'B' if begins else 'I'}-{tag[2:]}" if is_span else tag)
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
    columns: ClassVar[Types] = {"words": ["string"], "tags": ["int64"], "document": "int64"}

    @property
    def label_names(self) -> tuple[str, ...] | None:
        return self.tag_names or self.labels

    def expected_labels(self, count: int = 2) -> tuple[str, ...] | None:
        return self.labels or ("O", *(f"B-X{number or ''}" for number in range(count - 1)))

    def count_labels(self, rows: datasets.Dataset) -> list[int]:
        tags = np.fromiter(chain.from_iterable(rows["tags"][:]), np.int64)
        return np.bincount(tags, minlength=len(self.label_names or ())).tolist()

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        if find_suffix(path) in RECORD_SUFFIXES:
            for record in read_records(path, self.required_columns(split)):
                yield self._check_lists(record)
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

    def from_hub(self, record: Record, names: tuple[str, ...] | None) -> Record:
        return self._check_lists(super().from_hub(record, names))

    def resolve(self, where: str, sources: Mapping[str, RowSource]) -> Self:
        files = [source.name for source in sources.values() if source.rows is None]
        conll = [path for path in files if find_suffix(path) not in RECORD_SUFFIXES]
        counted = replace(self, num_columns=count_columns(conll[0])) if conll else self
        train = sources["train"]
        tags, scheme = counted.find_tags(train)
        names = self.labels or list_tags(tags, scheme)
        spans = [name for name in names if name != OUTSIDE]
        has_ends = any(name[:2] not in ("B-", "I-") for name in spans)
        if scheme == "spans" and has_ends and all(map(SPAN_TAG.match, spans)):
            names = list_tags(names, scheme)
        # without any valid sentence, their problems are reported with the rows
        if tags:
            check_classes(train.name, "tags", names, f"label_column={self.label_column!r}")
        if spaced := [name for name in names if len(name.split()) != 1]:
            raise ValueError(
                f"{where}: the tag {shorten(spaced[0])!r} has white space, which separates the "
                "columns of prediction files; rename it"
            )
        return replace(counted, scheme=scheme, tag_names=names)

    def find_tags(self, train: RowSource) -> tuple[set[str], str]:
        """Collect the tags of the training rows, and tell whether they are of spans."""
        tags = set[str]()
        plain = None  # the first tag that is not part of a span, and its line
        for record in train.read(self):
            for place, tag in enumerate(record.values.get("tags") or ()):
                tags.add(tag)
                if plain is None and tag != OUTSIDE and not SPAN_TAG.match(tag):
                    plain = (record.line_of(place), tag)
        # a part of speech with a hyphen, such as S-V, is no span
        has_spans = self.scheme is None and any(map(re.compile("[BI]-.").match, tags))
        if plain is not None and (has_spans or self.scheme == "spans"):
            raise ValueError(
                f"{train.name}:{plain[0]}: the tag {plain[1]!r} is not part of a span ('O', "
                "'B-...', 'I-...', or one of E, S, L, U, M, W), but others are; correct it, or "
                "declare scheme: plain if the tags are of single tokens"
            )
        return tags, self.scheme or ("spans" if plain is None else "plain")

    def read_texts(self, record: Record) -> tuple[list[str], str, str]:
        return [], "", record.problem

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        values, names = record.values, self.label_names or ()
        tags = values["tags"]
        if all(map(is_blank, values["words"])):
            raise ValueError("empty text: no word is visible")
        if tags is None and not is_test(split):
            raise ValueError("no tags, which only test rows may lack")
        numbers = None
        if tags is not None:
            numbers = []
            for place, tag in enumerate(tags if self.scheme == "plain" else to_iob2(tags)):
                if tag not in names:
                    raise LineError(record.line_of(place), self._describe_unknown(tags[place]))
                numbers.append(names.index(tag))
        return {"words": values["words"], "tags": numbers, "document": values["document"]}

    def head_facts(self, train: datasets.Dataset | None) -> HeadFacts:
        step = max(1, len(train or ()) // MEASURED_SENTENCES)
        sentences = [] if train is None else train[::step]["words"]
        return super().head_facts(train) | {"sentences": sentences}

    def unit_columns(self, rows: datasets.Dataset) -> tuple[str, ...]:
        is_by_document = FEWEST_DOCUMENTS <= len(rows.unique("document")) < len(rows)
        return ("document",) if is_by_document else self.text_names

    def texts(self, rows: datasets.Dataset) -> Iterator[str]:
        return (" ".join(words) for words in rows["words"][:])

    def encode(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        has_context = self.document_context
        return encode_tagged(rows, tokenizer, encoding, document_context=has_context)

    def references(self, rows: datasets.Dataset) -> NDArray[Any] | None:
        names = self.label_names or ()
        return np.fromiter(([names[tag] for tag in tags] for tags in rows["tags"][:]), dtype=object)

    def _columns(self, word: str, tag: str) -> tuple[str, str]:
        return (self.text_columns or (word,))[0], self.label_column or tag

    def _check_lists(self, record: Record) -> Record:
        """Check a record with lists of words and tags; its line is its number, from 1."""
        if record.problem:
            return record
        word, tag = self._columns("tokens", "tags")
        words, tags = record.values.get(word), record.values.get(tag)
        document = record.values.get(self.document_column or "", record.line)
        problem = _find_list_problem(word, words, tag, tags)
        if not problem and not isinstance(document, int):
            column = self.document_column
            problem = f"{column}={shorten(repr(document))}; expected the number of a document"
        if problem:
            return replace(record, values={}, problem=problem)
        names = self.labels or ()
        if tags and all(isinstance(number, int) and 0 <= number < len(names) for number in tags):
            tags = [names[number] for number in tags]  # numbers of declared labels
        tags = None if tags is None else list(map(str, tags))
        return replace(record, values={"words": words, "tags": tags, "document": document})

    def _describe_unknown(self, tag: str) -> str:
        names = self.label_names or ()
        if twin := find_twin(tag, names):
            return f"the tags {describe_twins(tag, twin)}"
        return (
            f"unknown tag {shorten(tag)!r}; the tags of the training rows are {list_names(names)}; "
            "correct it, or list all tags as labels"
        )


def _find_list_problem(word: str, words: object, tag: str, tags: object) -> str:
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
    columns: ClassVar[Types] = {
        "sentence1": "string",
        "sentence2": "string",
        "answers": ["string"],
        "answer_starts": ["int32"],  # in characters, one for each answer
        "label": "int64",  # 1 with an answer, 0 without, None if unknown
    }

    def read(self, path: str, split: str, file_format: FileFormat) -> Iterator[Record]:
        return read_squad(path, self.required_columns(split))

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        passage = texts[1]
        answers = _list_answers(record.values.get(self.label_column or ""))
        if record.values.get("is_impossible"):
            if answers:
                raise ValueError("is_impossible, although it has answers")
            answers = []
        if answers is None and not is_test(split):
            raise ValueError("no answers, which only test questions may lack")
        for text, start in answers or ():
            check_answer(passage, text, start)
        return {
            "sentence2": passage,
            "answers": [text for text, _ in answers or ()],
            "answer_starts": [start for _, start in answers or ()],
            "label": None if answers is None else int(bool(answers)),
        }

    def check_split(self, rows: datasets.Dataset, where: str, split: str) -> datasets.Dataset:
        if set(rows["label"][:]) == {0}:  # no question has an answer
            if not is_test(split):
                raise ValueError(
                    f"{where}: none of its {len(rows)} questions has an answer; only a test_file "
                    "may lack them"
                )
            rows = _replace_column(rows, "label", [None] * len(rows))
        seen: set[str] = set()
        problems = []
        for row_id, problem in zip(rows["id"][:], rows["problem"][:], strict=True):
            problems.append(problem or (f"duplicate id {row_id!r}" if row_id in seen else ""))
            seen.add(row_id)
        if problems == rows["problem"][:]:
            return rows
        return _replace_column(rows, "problem", problems)

    def unit_columns(self, rows: datasets.Dataset) -> tuple[str, ...]:
        return ("sentence2",)  # questions of one passage are learned together

    def encode(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        return encode_questions(rows, tokenizer, encoding)

    def head_facts(self, train: datasets.Dataset | None) -> HeadFacts:
        is_partial = train is not None and 0 in train.unique("label")
        return super().head_facts(train) | {"has_unanswerable": is_partial}

    def references(self, rows: datasets.Dataset) -> NDArray[Any] | None:
        return np.fromiter(rows["answers"][:], dtype=object)


def _replace_column(rows: datasets.Dataset, name: str, values: list[Any]) -> datasets.Dataset:
    return rows.remove_columns(name).add_column(name, values, feature=rows.features[name])


def check_answer(passage: str, text: str, start: int) -> None:
    """Check that an answer is in its passage where it should be."""
    if is_blank(text):
        raise ValueError("an answer without text")
    if start >= 0 and passage.startswith(text, start):
        return
    where = f"{start} is beyond its {len(passage)} characters"
    if 0 <= start < len(passage):
        where = f"at {start} there is {shorten(passage[start : start + len(text)])!r}"
    place = passage.find(text)
    if place >= 0:
        where += f", but it is at {place}: correct answer_start, in characters from 0"
    raise ValueError(f"the answer {shorten(text)!r} is not at its place in the passage; {where}")


def _list_answers(value: Any) -> list[tuple[str, int]] | None:
    """List answers with their starts; None if there is no value."""
    if value is None:
        return None
    try:
        if isinstance(value, Mapping):
            pairs = list(zip(value["text"], value["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in value]
    except (TypeError, KeyError, ValueError):
        pairs = [(None, None)]
    if not all(isinstance(text, str) and type(start) is int for text, start in pairs):
        raise ValueError(
            "answers are neither a list of {text, answer_start} nor a mapping of two lists, text "
            "and answer_start"
        )
    return pairs


# Choices


EXPECTED_CHOICES = 4  # of a task whose rows have not been read


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
    def columns(self) -> Types:
        return super().columns | {"choices": ["string"]}

    @property
    def text_names(self) -> tuple[str, ...]:
        return (*super().text_names, "choices")

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
        named = replace(self, labels=labels)
        count = len(self.choice_columns)
        if count == 1:
            count = 0
            for record in chain.from_iterable(source.read(named) for source in sources.values()):
                with suppress(ValueError):  # of an invalid row, which is reported later
                    count = max(count, len(named.read_choices(record)[0]))
        if count < 2:
            raise ValueError(
                f"{where}: column {self.choice_columns[0]!r} has no list of at least two choices; "
                "check choice_columns"
            )
        if labels is not None and len(labels) < count:
            raise ValueError(
                f"{where}: labels={list(labels)} must name all of the {count} choices of a row"
            )
        return replace(named, num_choices=count)

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        choices, names = self.read_choices(record)
        text = normalize_value(record.values.get(str(self.label_column)))
        label = None
        if not is_test(split) or text not in {"", "-1"}:  # kept secret
            if not text:
                raise ValueError("no label")
            label = self._find_choice(text, len(choices), names)
        return {"choices": list(map(str.strip, choices)), "label": label}

    def read_choices(self, record: Record) -> tuple[list[str], Sequence[str]]:
        """Return the choices of a record, and their names, if they have any; or a ValueError."""
        values: list[Any] = [record.values.get(column) for column in self.choice_columns]
        names: Sequence[str] = ()
        places = [f"column {column!r}" for column in self.choice_columns]
        if len(values) == 1:
            column = places[0]
            listed = _list_choices(values[0])
            if listed is None:
                raise ValueError(
                    f"{column} holds {shorten(repr(values[0]))}, not a list of choices"
                )
            values, names = listed
            if len(values) < 2:
                raise ValueError(f"{column} has {len(values)} choice(s), at least two are needed")
            places = [f"choice {number} of {column}" for number, _ in enumerate(values)]
        if problem := find_text_problem(values, places):
            raise ValueError(problem)
        return values, names

    def _find_choice(self, text: str, count: int, names: Sequence[str]) -> int:
        """Return the index of the choice that a label names."""
        names = tuple(self.labels or names)[:count]
        if text in names:
            return names.index(text)
        if not names:
            numbers, letters = list(map(str, range(count))), list(ascii_uppercase[:count])
            for places in (numbers, letters):
                if text.upper() in places:
                    return places.index(text.upper())
            names = (*numbers, *letters)
        raise ValueError(
            f"label {shorten(text)!r} names no choice; the {count} choices are named "
            f"{list_names(names)}"
        )

    def encode(
        self, rows: datasets.Dataset, tokenizer: PreTrainedTokenizerBase, encoding: Encoding
    ) -> datasets.Dataset:
        if encoding.num_choices is None:
            count = self.num_choices or len(self.choice_columns)
            encoding = replace(encoding, num_choices=count)
        return encode_choices(rows, tokenizer, encoding)

    def head_facts(self, train: datasets.Dataset | None) -> HeadFacts:
        columns = len(self.choice_columns)
        count = self.num_choices or (columns if columns > 1 else EXPECTED_CHOICES)
        return super().head_facts(train) | {"num_choices": count}


def _list_choices(value: object) -> tuple[list[Any], Sequence[str]] | None:
    """List choices, and their names if they have any; None if a value is no list of choices.

    A value is a list of texts, a list of ``{"label": "A", "text": ...}``, or two lists,
    ``{"label": ["A", ...], "text": [...]}``, as in the copies of CommonsenseQA and ARC on the Hub.
    """
    if isinstance(value, list) and all(isinstance(choice, Mapping) for choice in value) and value:
        value = {key: [choice.get(key) for choice in value] for key in ("label", "text")}
    if isinstance(value, list):
        return value, ()
    if not isinstance(value, Mapping):
        return None
    names, texts = value.get("label"), value.get("text")
    if not isinstance(names, list) or not isinstance(texts, list) or len(names) != len(texts):
        return None
    return texts, list(map(normalize_value, names))


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
