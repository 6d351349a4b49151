"""Sentences with a tag for every word: CoNLL columns, JSON lines, Parquet or the Hub."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Self

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.characters import describe_twins, find_twin, is_blank
from datasets_scripts.files.compression import find_suffix
from datasets_scripts.files.conll import count_columns, read_conll
from datasets_scripts.files.readers import FileFormat, Record, read_records, shorten
from datasets_scripts.files.splits import is_test

from .encoding.tags import encode_tagged
from .row_format import Row, RowFormat, RowSource, check_classes, list_names, make_features
from .tag_schemes import TaggedRecord, find_scheme, list_tags, to_iob2

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
