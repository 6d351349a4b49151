"""Words with tags: CoNLL files, schemes of tags, and sentences as tokens."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase as Tokenizer

from modeling_minbert.pieces import split_sentences

from .readers import (
    Record,
    check_file,
    describe_twin,
    find_suffix,
    is_blank,
    is_numeral,
    is_test,
    normalize_value,
    open_text,
    read_lines,
    shorten,
)
from .row_format import (
    IGNORED_LABEL,
    UNKNOWN_LABEL,
    Encoding,
    Row,
    RowFormat,
    Types,
    check_classes,
    list_names,
    list_written,
    make_features,
    note_length,
    sort_labels,
)

logger = logging.getLogger(__name__)

# CoNLL columns: a line is a token with its columns, separated by spaces or tabs; an empty line ends
# a sentence, and a line that starts with ``-DOCSTART-`` or ``# newdoc`` starts a document. Other
# lines of metadata before a sentence, such as ``# id 1 domain=news``, are skipped.


DOCUMENT_START = "-DOCSTART-"
# A line of metadata. As a token, # is followed by a part of speech or a tag.
METADATA = re.compile(r"# +(?:[\w.:-]+ *=|(?:\w+_)?id\b|newdoc\b|newpar\b)", re.IGNORECASE)
SEPARATORS = ",;|/_"  # that other files use
# CoNLL-U numbers the words of a sentence in the first column; 1-2 is a contraction of two words,
# and 1.1 a word that is left out. Both have no tag.
CONLLU_COLUMNS = 10
FIRST_NUMBER, NO_WORD = re.compile(r"1|1-\d+|0\.1"), re.compile(r"\d+[-.]\d+")


def read_conll(path: str, columns: Sequence[str]) -> Iterator[Record]:
    """Read sentences: lists by column, numbered from 0 or back from -1, and ``document``."""
    first = _read_first(path)
    count, places = len(first), dict[str, int]()
    for column in columns:
        try:
            number = int(column)
        except ValueError:
            raise ValueError(
                f"{path}: no column {column!r}; the columns of CoNLL files have no names: give a "
                "number from 0, or from -1 backward"
            ) from None
        if not -count <= number < count:
            raise ValueError(f"{path}: no column {column}; the first line has {count} columns")
        places[column] = number % count
    if len({*places.values()}) < len(columns):
        raise ValueError(f"{path}: {_describe_same(first)}")
    # a first column of words may have numbers, too
    is_numbered = 0 not in places.values() and _is_numbered(first)
    document = 0
    for start, lines in _group_lines(path):
        wrong = next((number for number, parts in enumerate(lines) if len(parts) != count), None)
        if not lines:
            document += 1
        elif wrong is not None:
            yield Record(
                start + wrong,
                {},
                f"{len(lines[wrong])} columns, but the first line has {count}; a line is a token "
                "with all its columns, and an empty line ends a sentence",
            )
        else:
            words = [parts for parts in lines if not (is_numbered and NO_WORD.fullmatch(parts[0]))]
            values = {name: [parts[place] for parts in words] for name, place in places.items()}
            yield Record(start, {**values, "document": document})


def _describe_same(first: Sequence[str]) -> str:
    """Say why words and tags are the same column."""
    if len(first) > 1:
        return f"text_columns and label_column are the same of {len(first)} columns; choose two"
    marks = [mark for mark in SEPARATORS if mark in first[0]]
    return (
        f"words and tags are the same column, with {shorten(first[0])!r}; separate them by a tab "
        f"or a space{f', not by {marks[0]!r}' if marks else ''}"
    )


def find_words(path: str) -> str:
    """Find the column of the words: the first one, or after the numbers of CoNLL-U."""
    return "1" if _is_numbered(_read_first(path)) else "0"


def _is_numbered(first: Sequence[str]) -> bool:
    """Return whether the columns of a first token are those of CoNLL-U."""
    return len(first) == CONLLU_COLUMNS and FIRST_NUMBER.fullmatch(first[0]) is not None


def _read_first(path: str) -> list[str]:
    """Read the columns of the first token."""
    if (first := next((lines for _, lines in _group_lines(path) if lines), None)) is None:
        raise ValueError(f"{path}: the file has no tokens")
    return first[0]


def _group_lines(path: str) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield each sentence with its first line, and an empty list where a document starts."""
    check_file(path, suffixes=None)
    start = 0
    sentence: list[list[str]] = []
    with open_text(path) as file:
        for line, text in read_lines(file, path):
            # other white space, such as a no-break space, may be a token
            text = text.strip(" \t\r\n")  # noqa: PLW2901
            is_metadata = not sentence and METADATA.match(text) is not None
            is_document = text.startswith(DOCUMENT_START)
            if is_metadata:
                is_document = text[1:].split()[0] == "newdoc"
            if text and not is_document and not is_metadata:
                start = start if sentence else line
                sentence.append(re.split("\t" if "\t" in text else " +", text))
                continue
            if sentence:
                yield start, sentence
                sentence = []
            if is_document:
                yield line, []
    if sentence:  # no empty line is needed after the last one
        yield start, sentence


# Schemes of tags


# In IOB1 a span begins with ``I-``, and with ``B-`` only directly after another span; in IOB2 every
# span begins with ``B-`` (Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra 1999). Read as
# conlleval does, where a span begins with ``B-`` or a change of type, both give the same spans. The
# schemes called BIOES, BILOU or BMES also name the last word of a span (E or L) and a span of one
# word (S, U or W), and some call the words between M. Tags of other words are plain.
OUTSIDE = "O"
SPAN_TAG = re.compile(r"[BIELSUMW][-_].")
LETTERS, LAST, SINGLE = "BIELSUMW", "ELSUW", "SUW"
UNTYPED = "entity"  # the type of spans with nothing but letters, as in BioBERT's files
# spans in a way that is not read: letters last, or small
OTHER_SPAN_TAG = re.compile(r".+[-_](?P<last>[BIELSUMW])|(?P<small>[bielsumw])[-_].+")


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


def type_spans(tags: Iterable[str]) -> list[str]:
    """Give tags of spans that are nothing but letters a type."""
    return [tag if tag == OUTSIDE else f"{tag}-{UNTYPED}" for tag in tags]


def are_letters(tags: Iterable[str]) -> bool:
    """Return whether tags of spans are nothing but letters."""
    letters = {*tags} - {OUTSIDE}
    return letters <= {*LETTERS} and any(letters.issuperset(x) for x in ("BI", "BES", "BME", "BLU"))


def are_like_spans(tags: Iterable[str]) -> bool:
    """Return whether tags look like those of spans that are written in another way."""
    matches = [OTHER_SPAN_TAG.fullmatch(tag) for tag in tags if tag not in "Oo"]
    letters = {str(match[match.lastgroup or 0]).upper() for match in matches if match}
    return all(matches) and letters >= {"B", "I"}


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
    """Rows with ``words``, ``tags`` (numbers; spans are in IOB2) and ``document`` (a number)."""

    scheme: str | None = None  # set by `resolve`
    has_types: bool = True  # set by `resolve`

    label_name = "tags"
    unread_labels = ("O", "B-X")
    text_names = ("words",)
    columns: ClassVar[Types] = {"words": ["string"], "tags": ["int64"], "document": "int64"}
    written_type = ["string"]  # noqa: RUF012  (no value is changed)

    @property
    def label_column(self) -> str:
        return self._columns("tokens", "tags")[1]

    def count_labels(self, rows: Dataset) -> list[int]:
        tags = np.fromiter(chain.from_iterable(rows["tags"][:]), np.int64)
        return np.bincount(tags, minlength=len(self.labels or ())).tolist()

    def read(self, path: str, split: str) -> Iterator[Record]:
        if find_suffix(path) in RECORD_SUFFIXES:
            yield from super().read(path, split)
            return
        word, tag = self._columns("0", "-1")
        train, first = str(self.data.train_file), _read_first(path)
        is_chosen = None not in (self.data.text_columns, self.data.label_column)
        if not is_chosen and (_is_numbered(first) or find_suffix(path) == ".conllu"):
            raise ValueError(
                f"{path}: CoNLL-U has several columns of words and tags; give both keys, as in "
                'text_columns: ["1"] and label_column: 3 for words and parts of speech'
            )
        has_tags = not is_test(split) or (
            find_suffix(train) not in RECORD_SUFFIXES and len(first) >= len(_read_first(train))
        )
        if not has_tags and len(first) > 1:
            message = (
                "%s: read without tags, since its columns are not those of %s; write all of them, "
                "if it has tags"
            )
            logger.warning(message, path, train)
        for record in read_conll(path, (word, tag) if has_tags else (word,)):
            values = record.values
            if not record.problem:
                tags = self._name_tags(values[tag]) if has_tags else None
                values = {"words": values[word], "tags": tags, "document": values["document"]}
            yield replace(record, values=values)

    def required_columns(self, split: str) -> tuple[str, ...]:
        word, tag = self._columns("tokens", "tags")
        return (word,) if is_test(split) else (word, tag)

    def from_hub(self, record: Record) -> Record:
        """Check a record with lists of words and tags; its line is its number, from 1."""
        record = super().from_hub(record)
        if record.problem:
            return record
        word, tag = self._columns("tokens", "tags")
        words: Any = record.values.get(word)
        tags: Any = record.values.get(tag)
        problem = ""
        if not isinstance(words, list) or not words or not all(isinstance(x, str) for x in words):
            problem = f"{word}={shorten(repr(words))}; expected a list of words"
        elif tags is not None and (not isinstance(tags, list) or len(tags) != len(words)):
            many = len(tags) if isinstance(tags, list) else shorten(repr(tags))
            problem = (
                f"{len(words)} words in {word!r}, but {many} tags in {tag!r}; every word needs one"
            )
        elif any(isinstance(each, Mapping | list) for each in tags or ()):
            problem = f"{tag}={shorten(repr(tags))}; expected a list of names of tags"
        if problem:
            return replace(record, values={}, problem=problem)
        tags = None if tags is None else self._name_tags(tags)
        return replace(record, values={"words": words, "tags": tags, "document": record.line})

    def resolve(self, splits: Mapping[str, Dataset]) -> Self:
        tags = set(chain.from_iterable(list_written(splits["train"], "tags")))
        is_unnamed = (self.labels, self.data.scheme) == (None, None)
        if is_unnamed and all(map(is_numeral, tags)):
            raise ValueError(
                f"{self._train_name}: the tags are the numbers {list_names(sort_labels(tags))}; "
                "give labels, the names of the tags in the order of their numbers from 0, or "
                "scheme: plain if the numbers are names"
            )
        has_types = self.data.scheme == "plain" or not are_letters(self.labels or tags)
        labels = self.labels if has_types or self.labels is None else type_spans(self.labels)
        tags = tags if has_types else {*type_spans(tags)}
        scheme = self._find_scheme(splits["train"], tags)
        names = tuple(labels or list_tags(tags, scheme))
        spans = [name for name in names if name != OUTSIDE]
        is_iob2 = all(name[:2] in ("B-", "I-") and f"B{name[1:]}" in spans for name in spans)
        if scheme == "spans" and not is_iob2 and all(map(SPAN_TAG.match, spans)):
            names = list_tags(names, scheme)
        keys = f"label_column={self.data.label_column!r}"
        check_classes(self._train_name, "tags", names, keys)
        if spaced := [name for name in names if len(name.split()) != 1]:
            raise ValueError(
                f"{self.data.where}: the tag {shorten(spaced[0])!r} has white space, which "
                "separates the columns of prediction files; rename it"
            )
        return replace(self, scheme=scheme, labels=names, has_types=has_types)

    def _find_scheme(self, train: Dataset, tags: set[str]) -> str:
        """Tell whether the tags of the training rows are of spans."""
        scheme = self.data.scheme
        plain = {tag for tag in tags if tag != OUTSIDE and not SPAN_TAG.match(tag)}
        # a part of speech with a hyphen, such as S-V, is no span
        has_spans = scheme is None and any(map(re.compile("[BI]-.").match, tags))
        if plain and (has_spans or scheme == "spans"):
            for line, written in zip(train["line"][:], train["tags"][:], strict=True):
                if wrong := [tag for tag in written or () if tag in plain]:
                    raise ValueError(
                        f"{self._train_name}:{line}: the tag {wrong[0]!r} is not part of a span "
                        "('O', 'B-...', 'I-...', or one of E, S, L, U, M, W), but others are; "
                        "correct it, or declare scheme: plain if the tags are of single tokens"
                    )
        if scheme is None and plain and are_like_spans(tags):
            raise ValueError(
                f"{self._train_name}: the tags {list_names(sort_labels(tags))} are like those of "
                "spans, but written in another way; write 'B-...' and 'I-...', or declare scheme: "
                "plain if the tags are of single words"
            )
        return scheme or ("plain" if plain else "spans")

    @property
    def _train_name(self) -> str:
        return self.data.train_file or f"{self.data.hub_id}:train"

    def read_texts(self, record: Record) -> tuple[list[str], str]:
        return [], record.problem

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        values = record.values
        if all(map(is_blank, values["words"])):
            raise ValueError("empty text: no word is visible")
        tags: Any = values["tags"] if any(values["tags"] or ()) else None
        if tags is None and not is_test(split):
            raise ValueError("no tags, which only test rows may lack")
        if "" in (tags or ()):
            word = shorten(repr(values["words"][tags.index("")]))
            raise ValueError(
                f"word {tags.index('') + 1}, {word}, has no tag, but null or a negative number; "
                "every word needs one"
            )
        return {**values, "tags": tags}

    def to_label(self, written: list[str]) -> list[int]:
        names = self.labels or ()
        numbers = []
        tags = written if self.has_types else type_spans(written)
        for place, tag in enumerate(to_iob2(tags) if self.scheme == "spans" else tags):
            if tag not in names:
                if twin := describe_twin(written[place], names):
                    raise ValueError(f"the tags {twin}")
                raise ValueError(
                    f"unknown tag {shorten(written[place])!r}; the tags of the training rows are "
                    f"{list_names(names)}; correct it, or list all tags as labels"
                )
            numbers.append(names.index(tag))
        return numbers

    def head_facts(self, train: Dataset | None) -> Row:
        step = max(1, len(train or ()) // MEASURED_SENTENCES)
        sentences = [] if train is None else train[::step]["words"]
        facts = {"sentences": sentences, "scheme": self.data.scheme}
        return super().head_facts(train) | facts

    def unit_columns(self, rows: Dataset) -> tuple[str, ...]:
        is_by_document = FEWEST_DOCUMENTS <= len(rows.unique("document")) < len(rows)
        return ("document",) if is_by_document else self.text_names

    def texts(self, rows: Dataset) -> Iterator[str]:
        return (" ".join(words) for words in rows["words"][:])

    def encode(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        return encode_tagged(rows, tokenizer, encoding)

    def _columns(self, word: str, tag: str) -> tuple[str, str]:
        return (self.data.text_columns or (word,))[0], self.data.label_column or tag

    def _name_tags(self, written: Sequence[Any]) -> list[str]:
        """Write tags as text, with names for numbers of declared labels; missing ones are empty."""
        names = {str(number): name for number, name in enumerate(self.labels or ())}
        tags = list(map(normalize_value, written))
        for place, tag in enumerate(written):  # -1 and -100 are usual for none
            is_below = isinstance(tag, int | float) and tag < 0
            if is_below and tags[place] not in names.values():
                tags[place] = ""
        # a sentence with a name has no numbers
        is_named = any(map(is_numeral, names.values())) or not {*names.values()}.isdisjoint(tags)
        return tags if is_named else [names.get(tag, tag) for tag in tags]


# Tagged words


TOKENIZED_SENTENCES = 1000


def encode_tagged(rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
    """Encode sentences with tags; a long sentence becomes several rows.

    The first token of a word has its label, all others have -100. A word without any token, such as
    a control character, becomes the unknown token.

    Returns:
        Rows with id and number (``sentence``) of the sentence, the labeled words, input_ids,
        token_type_ids, length and labels, -1 for a word with an unknown tag.
    """
    tags = rows["tags"][:] if "tags" in rows.column_names else None
    names, words = rows["id"][:], rows["words"][:]
    encoded: list[Row] = []
    for begin in range(0, len(words), TOKENIZED_SENTENCES):
        sentences = words[begin : begin + TOKENIZED_SENTENCES]
        for window in split_sentences(tokenizer, sentences, encoding.max_length):
            number, (first, last) = begin + window.sentence, window.tagged
            (ids,), (types,) = window.encoded
            labels = [IGNORED_LABEL] * len(ids)
            for place, word in zip(window.places, range(first, last), strict=True):
                labels[place] = UNKNOWN_LABEL if tags is None else tags[number][word]
            row = {
                "id": names[number],
                "sentence": number,
                "words": words[number][first:last],
                "input_ids": ids,
                "token_type_ids": types,
                "length": len(ids),
                "labels": labels,
            }
            encoded.append(row)
    features = make_features(
        id="string",
        sentence="int64",
        words=["string"],
        input_ids=["int32"],
        token_type_ids=["int8"],
        length="int32",
        labels=["int16"],
    )
    return note_length(Dataset.from_list(encoded, features), encoding.max_length)
