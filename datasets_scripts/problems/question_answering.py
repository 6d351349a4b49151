"""Questions about passages: SQuAD's JSON files, nested or flat, and rows in their form.

Source: Rajpurkar et al. 2016 (v1.1) and 2018 (v2.0, with questions that no passage answers).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from typing import Any

import datasets

from datasets_scripts.catalog import FileFormat
from datasets_scripts.files.compression import find_suffix, open_bytes
from datasets_scripts.files.readers import (
    PLAIN_FORMAT,
    Record,
    check_file,
    check_header,
    read_records,
)
from datasets_scripts.tasks.task_data import (
    ANSWER_COLUMN,
    QUESTION_COLUMNS,
    QUESTION_SUFFIXES,
    is_test,
)

from .texts import find_text_problem, to_text


@dataclass(frozen=True)
class QuestionFormat:
    """How the questions of a task become rows.

    The text of a passage stays as it is, to the character: answers are places in it.

    Args:
        text_columns: Columns with the question and the passage.
        label_column: Column with the answers: ``{"text": [...], "answer_start": [...]}``, or a list
            of ``{"text": ..., "answer_start": ...}``; of a question without an answer it is empty.
        id_column: Column with the id; None takes a column ``id``, else the number of the question.
    """

    text_columns: tuple[str, ...] = QUESTION_COLUMNS
    label_column: str = ANSWER_COLUMN
    id_column: str | None = None

    problem_type = "question_answering"
    labels = None
    score_range = None

    @property
    def features(self) -> datasets.Features:
        """Columns of the rows.

        ``sentence1`` is the question and ``sentence2`` the passage; ``answers`` and
        ``answer_starts``, in characters, are parallel. ``label`` is 1 if there is an answer, 0 if
        there is none, and None if nobody says. ``moved`` counts answers that do not stand where
        they are said to be, but elsewhere in the passage.
        """
        types = {"id": "string", "sentence1": "string", "sentence2": "string"}
        features = {name: datasets.Value(kind) for name, kind in types.items()}
        features["answers"] = datasets.List(datasets.Value("string"))
        features["answer_starts"] = datasets.List(datasets.Value("int32"))
        types = {"label": "int64", "moved": "int32", "line": "int64", "problem": "string"}
        return datasets.Features(
            features | {name: datasets.Value(kind) for name, kind in types.items()}
        )

    def required_columns(self, split: str) -> tuple[str, ...]:
        """Columns that the rows of a split must have; test rows need no answers."""
        answers = () if is_test(split) else (self.label_column,)
        ids = () if self.id_column is None else (self.id_column,)
        return (*self.text_columns, *answers, *ids)

    def read(
        self,
        path: str,
        split: str,
        file_format: FileFormat = PLAIN_FORMAT,  # noqa: ARG002  (questions are never delimited)
    ) -> Iterator[Record]:
        """Read the questions of a file; see `read_questions`."""
        return read_questions(path, self.required_columns(split))

    def to_row(self, record: Record, number: int, split: str) -> dict[str, Any]:
        """Convert one record; see `RowFormat.to_row`."""
        texts = [record.values.get(column) for column in self.text_columns]
        problem = record.problem or find_text_problem(self.text_columns, texts)
        row_id = to_text(record.values.get(self.id_column or "id"))
        row: dict[str, Any] = {"answers": [], "answer_starts": [], "label": None, "moved": 0}
        if not problem:
            try:
                row |= self._parse_answers(record.values, str(texts[1]))
            except ValueError as error:
                problem = str(error)
        if not problem and row["label"] is None and not is_test(split):
            problem = "no answers, which only test questions may lack"
        if problem and row_id:
            problem = f"{problem} (id {row_id})"
        question, passage = (text if isinstance(text, str) else "" for text in texts)
        return row | {
            "id": row_id or str(number),
            "sentence1": question.strip(),
            "sentence2": passage,
            "line": record.line,
            "problem": problem,
        }

    def _parse_answers(self, values: Mapping[str, Any], passage: str) -> dict[str, Any]:
        """Read the answers of a question, and find them in its passage.

        Raises:
            ValueError: If they are of another form, or one is not in the passage.
        """
        given = _list_answers(values.get(self.label_column))
        is_impossible = values.get("is_impossible")
        if given is None and not is_impossible:
            return {}
        if is_impossible or not given:
            if given:
                raise ValueError("is_impossible, though it has answers")
            return {"label": 0}
        texts, starts, moved = [], [], 0
        for text, start in given:
            found = find_answer(passage, text, start)
            moved += found != start
            texts.append(text)
            starts.append(found)
        return {"answers": texts, "answer_starts": starts, "label": 1, "moved": moved}


def find_answer(passage: str, text: str, start: int) -> int:
    """Find where an answer begins in its passage.

    Args:
        passage: The passage.
        text: The answer.
        start: Where it is said to begin, in characters.

    Returns:
        ``start`` if it is there, else the start of the nearest place where it is, the first of two.

    Raises:
        ValueError: If it is nowhere in the passage.
    """
    if not text.strip():
        raise ValueError("an answer without text")
    if start >= 0 and passage.startswith(text, start):
        return start
    before = passage.rfind(text, 0, max(0, start) + len(text))
    after = passage.find(text, max(0, start))
    places = [place for place in (before, after) if place >= 0]
    if not places:
        where = f"{start} is beyond its {len(passage)} characters"
        if 0 <= start < len(passage):
            where = f"at {start} there is {passage[start : start + len(text)]!r}"
        raise ValueError(f"the answer {text!r} is not in the passage; {where}")
    return min(places, key=lambda place: abs(place - start))


def _list_answers(given: Any) -> list[tuple[str, int]] | None:
    """List the answers and where they begin; None if there is no such value.

    Raises:
        ValueError: If they are of another form.
    """
    if given is None:
        return None
    try:
        if isinstance(given, Mapping):
            pairs = list(zip(given["text"], given["answer_start"], strict=True))
        else:
            pairs = [(answer["text"], answer["answer_start"]) for answer in given]
    except (TypeError, KeyError, ValueError):
        pairs = [(None, None)]
    if not all(isinstance(text, str) and _is_place(start) for text, start in pairs):
        raise ValueError(
            "answers are neither a list of {text, answer_start} nor a mapping of two lists, text "
            "and answer_start"
        )
    return [(text, int(start)) for text, start in pairs]


def _is_place(start: Any) -> bool:
    return isinstance(start, int) and not isinstance(start, bool)


def read_questions(path: str, columns: tuple[str, ...]) -> Iterator[Record]:
    """Read the questions of a file.

    Args:
        path: SQuAD's JSON; JSON with a list of questions as ``data``; JSON lines; or Parquet.
        columns: Columns that must be there.

    Yields:
        Every question, also those that cannot be used. ``line`` is that of JSON lines, else the
        number of the question, from 1.

    Raises:
        ValueError: If the file cannot be read as what it seems to be, or lacks a column.
        FileNotFoundError: If there is no such file.
    """
    check_file(path, QUESTION_SUFFIXES)
    content = _read_json(path) if find_suffix(path) == ".json" else None
    if content is None:
        yield from read_records(path, columns)
        return
    records = enumerate(_walk(path, content), start=1)
    is_empty = True
    for number, values in records:
        if is_empty:
            # the first question alone does not tell whether a file has answers
            check_header(path, list(values), tuple(c for c in columns if c != ANSWER_COLUMN))
        is_empty = False
        yield Record(number, values)
    if is_empty:
        raise ValueError(f"{path}: there is no question in the file")


def _read_json(path: str) -> Any:
    """Read a file that is one JSON value; None if it is JSON lines."""
    with open_bytes(path) as raw, TextIOWrapper(raw, "utf-8-sig") as file:
        try:
            content = json.load(file)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: the file is not UTF-8 ({error.reason}); save it with that encoding"
            ) from error
        except json.JSONDecodeError as error:
            if error.msg == "Extra data":  # the first line was a whole value
                return None
            raise ValueError(f"{path}:{error.lineno}: not valid JSON ({error.msg})") from error
    return None if isinstance(content, dict) and "data" not in content else content


def _walk(path: str, content: Any) -> Iterator[dict[str, Any]]:
    """List the questions of articles and paragraphs, or of a flat list.

    Raises:
        ValueError: If the content is of another form.
    """
    entries = content["data"] if isinstance(content, dict) else content
    if not isinstance(entries, list):
        raise ValueError(  # noqa: TRY004  (the file is wrong, not an argument)
            f"{path}: 'data' is no list; SQuAD has articles there"
        )
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, dict):
            raise ValueError(  # noqa: TRY004
                f"{path}: entry {number} of 'data' is no JSON object"
            )
        if "paragraphs" not in entry:
            yield entry
            continue
        try:
            for paragraph in entry["paragraphs"]:
                for question in paragraph["qas"]:
                    yield {**question, "context": paragraph["context"]}
        except (TypeError, KeyError) as error:
            raise ValueError(
                f"{path}: article {number} is not as in SQuAD ({error!r}); expected paragraphs, "
                "each with a context and qas"
            ) from error


def check_questions(rows: datasets.Dataset, where: str, split: str) -> datasets.Dataset:
    """Mark ids that stand twice, and refuse rows of which none has an answer.

    Args:
        rows: All questions of a split, as a `QuestionFormat` made them.
        where: The split, for the message.
        split: Its name. Test questions whose lists of answers are all
            empty have answers that are kept secret: they lose their labels.

    Raises:
        ValueError: If no training or validation question has an answer.
    """
    labels = set(rows["label"][:])
    if labels == {0} and not is_test(split):
        raise ValueError(
            f"{where}: none of its {len(rows)} questions has an answer; only a test_file may lack "
            "them"
        )
    if labels == {0}:
        rows = rows.map(lambda _: {"label": None}, features=rows.features)
    seen: set[str] = set()
    problems = []
    for row_id, problem in zip(rows["id"][:], rows["problem"][:], strict=True):
        problems.append(problem or (f"the id {row_id!r} stands twice" if row_id in seen else ""))
        seen.add(row_id)
    if problems == rows["problem"][:]:
        return rows
    return rows.remove_columns("problem").add_column("problem", problems)
