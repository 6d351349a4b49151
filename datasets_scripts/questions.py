"""Questions about passages: SQuAD files, and windows of passages as tokens."""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, ClassVar, Self

import datasets
from datasets import Dataset
from transformers import PreTrainedTokenizerBase as Tokenizer

from modeling_minbert.pieces import QuestionWindow, Span, split_questions

from .readers import (
    Record,
    check_file,
    check_json_columns,
    check_unicode,
    find_suffix,
    is_blank,
    is_test,
    load_json,
    open_text,
    read_records,
    shorten,
)
from .row_format import (
    ONE_SEQUENCE,
    Batch,
    Encoding,
    Row,
    RowFormat,
    Types,
    list_texts,
    list_written,
    map_rows,
    without_labels,
)
from .task_data import ROW_KINDS


def read_squad(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    """Read a file question by question, also invalid ones; a ``line`` of JSON is a question."""
    check_file(path, ROW_KINDS["question_answering"].suffixes)
    articles = _read_articles(path) if find_suffix(path) == ".json" else None
    if articles is None:
        yield from read_records(path, columns)
        return
    questions: list[dict[str, Any]] = []
    number = 0
    try:
        for article in articles:
            number += 1
            for paragraph in article["paragraphs"]:
                questions += [{**x, "context": paragraph["context"]} for x in paragraph["qas"]]
    except (TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: article {number} of 'data' is not in SQuAD's format ({error!r}); expected "
            "paragraphs, each with a context and qas; or JSON lines, with a question each"
        ) from error
    if not questions:
        raise ValueError(f"{path}: the file has no questions")
    records = (check_unicode(Record(*numbered)) for numbered in enumerate(questions, start=1))
    # a question need not have answers
    needed = tuple(column for column in columns if column != "answers")
    yield from check_json_columns(path, records, needed)


def _read_articles(path: str) -> Any:
    """Return the articles of a file in SQuAD's format; None for JSON lines, or no text."""
    with open_text(path) as file:
        text = file.read()
    if not text:
        return None
    try:
        content = load_json(text)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # the first line was a complete value
            return None
        raise ValueError(f"{path}:{error.lineno}: not valid JSON ({error.msg})") from error
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({error})") from error
    return content["data"] if isinstance(content, dict) and "data" in content else None


@dataclass(frozen=True)
class QuestionFormat(RowFormat):
    """Rows with a question, ``sentence1``, and its passage, ``sentence2``.

    The passage is kept as it is, character by character: answers are positions in it.
    ``label_column`` holds the answers, ``{"text": [...], "answer_start": [...]}`` or a list of
    ``{"text": ..., "answer_start": ...}``; an unanswerable question has empty lists.
    """

    has_unanswerable: bool = False  # in any split; set by `resolve`

    text_names = ("sentence1", "sentence2")
    columns: ClassVar[Types] = {
        "sentence1": "string",
        "sentence2": "string",
        "answers": ["string"],
        "answer_starts": ["int32"],  # in characters, one for each answer
        "label": "int64",  # 1 with an answer, 0 without, None if unknown
    }

    def read(self, path: str, split: str) -> Iterator[Record]:
        return read_squad(path, self.required_columns(split))

    def resolve(self, splits: Mapping[str, Dataset]) -> Self:
        # a split without any answer is unlabeled, or refused
        labels = (set(list_written(rows, "label")) for rows in splits.values())
        return replace(self, has_unanswerable={0, 1} in labels)

    def parse(self, record: Record, texts: list[str], split: str) -> Row:
        passage = texts[1]
        answers = _list_answers(record.values.get(str(self.data.label_column)))
        if record.values.get("is_impossible"):
            if answers:
                raise ValueError("is_impossible, although it has answers")
            answers = []
        if answers is None and not is_test(split):
            raise ValueError("no answers, which only test questions may lack")
        pairs = answers or []
        for text, start in pairs:
            if is_blank(text):
                raise ValueError("an answer without text")
            if start >= 0 and passage.startswith(text, start):
                continue
            where = f"{start} is beyond its {len(passage)} characters"
            if 0 <= start < len(passage):
                where = f"at {start} there is {shorten(passage[start : start + len(text)])!r}"
            if (place := passage.find(text)) >= 0:
                where += f", but it is at {place}: correct answer_start, in characters from 0"
            raise ValueError(
                f"the answer {shorten(text)!r} is not at its place in the passage; {where}"
            )
        return {
            "sentence2": passage,
            "answers": [text for text, _ in pairs],
            "answer_starts": [start for _, start in pairs],
            "label": None if answers is None else int(bool(answers)),
        }

    def check_split(self, rows: Dataset, problems: list[str], where: str, split: str) -> Dataset:
        seen: set[str] = set()
        for place, row_id in enumerate(rows["id"][:]):
            if problems[place]:
                continue
            if row_id in seen:
                problems[place] = f"duplicate id {row_id!r}"
            seen.add(row_id)
        labels = zip(rows["label"][:], problems, strict=True)
        if {label for label, problem in labels if not problem} != {0}:
            return rows
        if not is_test(split):
            raise ValueError(
                f"{where}: none of its {len(rows)} questions has an answer; only a test_file may "
                "lack them"
            )
        return without_labels(rows)

    def unit_columns(self, rows: Dataset) -> tuple[str, ...]:
        return ("sentence2",)  # questions of one passage are learned together

    def encode(self, rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
        return encode_questions(rows, tokenizer, encoding)

    def head_facts(self, train: Dataset | None) -> Row:
        return super().head_facts(train) | {"has_unanswerable": self.has_unanswerable}


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


BATCH = 200  # questions tokenized together, so that a shared passage is tokenized once


def encode_questions(rows: Dataset, tokenizer: Tokenizer, encoding: Encoding) -> Dataset:
    """Encode questions as ``[CLS] question [SEP] window [SEP]``, one row for each window.

    By default a question has 64 tokens at most, and a window begins every 128.

    Returns:
        Rows in the order of the questions, all windows of a question together:

        - ``id`` of the question, ``input_ids``, ``token_type_ids`` (1 for the passage), ``length``;
        - ``labels``: positions of the first and the last token of the first answer, [start, end];
          both are 0, the position of [CLS], unless the window contains the whole answer. Only if
          labeled;
        - ``answers``: the texts of all correct answers; only if labeled;
        - ``passage``: the text of the window, and ``passage_start``, its start in the whole passage
          in characters;
        - ``first_token``: position of the first passage token in ``input_ids``, and
          ``token_starts`` and ``token_ends``, the characters of each passage token in ``passage``;
        - ``owned``: [first, last + 1] of the passage tokens that have more context in this window
          than in any other one. Only these may start an answer.

    Raises:
        ValueError: If a size is below 1, a question may leave no room for a passage, or the
            tokenizer does not report the characters of tokens.
    """
    types = ONE_SEQUENCE | {
        "passage": "string",
        "passage_start": "int32",
        "first_token": "int32",
        "token_starts": ["int32"],
        "token_ends": ["int32"],
        "owned": ["int32"],
    }
    span = datasets.List(datasets.Value("int32"), length=2)
    labels: Types = {"labels": span, "answers": ["string"]}
    return map_rows(rows, _encode_questions, tokenizer, encoding, types, labels, batch_size=BATCH)


def _encode_questions(batch: Batch, *, tokenizer: Tokenizer, encoding: Encoding) -> Batch:
    encoded: list[Row] = []
    for window in split_questions(encoding, tokenizer, list_texts(batch)):
        question = {name: values[window.question] for name, values in batch.items()}
        ids, types = window.encoded.input_ids[0], window.encoded.token_type_ids[0]
        start, end = window.tokens
        characters = window.characters[start:end]
        first, last = (characters[0][0], characters[-1][1]) if characters else (0, 0)
        row = {
            "id": question["id"],
            "input_ids": ids,
            "token_type_ids": types,
            "length": len(ids),
            "passage": question["sentence2"][first:last],
            "passage_start": first,
            "first_token": window.first,
            "token_starts": [begin - first for begin, _ in characters],
            "token_ends": [stop - first for _, stop in characters],
            "owned": [token - start for token in window.owned],
        }
        if "labels" in batch:
            row |= {"labels": _find_answer(window, question), "answers": question["answers"]}
        encoded.append(row)
    return {name: [row[name] for row in encoded] for name in encoded[0]}


def _find_answer(window: QuestionWindow, question: Row) -> Span:
    """Return the places of the shortest span of tokens that covers the first answer.

    They are those of [CLS] unless the window contains the whole answer.
    """
    if not question["answers"]:
        return (0, 0)
    text, place = question["answers"][0], question["answer_starts"][0]
    start = place + len(text) - len(text.lstrip())
    end = place + len(text.rstrip())
    first = bisect_right(window.characters, start, key=itemgetter(1))
    last = bisect_left(window.characters, end, key=itemgetter(0)) - 1
    # else no token: the tokenizer drops all characters of the answer
    if window.tokens[0] <= first <= last < window.tokens[1]:
        shift = window.first - window.tokens[0]
        return (first + shift, last + shift)
    return (0, 0)
