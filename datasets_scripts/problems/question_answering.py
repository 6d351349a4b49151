"""Questions about passages (Rajpurkar et al. 2016, SQuAD 1.1, and 2018, SQuAD 2.0)."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import ne
from typing import Any, ClassVar

import datasets
import numpy as np
from numpy.typing import NDArray

from datasets_scripts.files.characters import is_blank
from datasets_scripts.files.readers import FileFormat, Record, shorten
from datasets_scripts.files.splits import is_test
from datasets_scripts.files.squad import ANSWER_COLUMN, SQUAD_SUFFIXES, read_squad

from .encoding.windows import WindowSizes, encode_questions
from .row_format import Row, RowFormat, add_id, make_features

logger = logging.getLogger(__name__)


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
        return encode_questions(rows, tokenizer, WindowSizes(**given))

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
