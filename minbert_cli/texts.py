"""Files of texts for ``minbert predict``: lines, and tables read as in training."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import IO, Any

from datasets_scripts.readers import (
    DELIMITERS,
    FILE_SUFFIXES,
    LONGEST_LINE,
    FileFormat,
    Record,
    find_suffix,
    is_blank,
    list_columns,
    parse_json,
    read_lines,
    read_list,
    read_records,
)
from modeling_minbert import MinBertTask

CONLL = (".conll", ".conllu")
SUFFIXES = (*FILE_SUFFIXES, *CONLL)
SEEN_LINES = 20  # that tell whether lines are a table
MOST_NAMED = 3  # rows in a message
SENTENCE = 3  # words of a name of a column that may be a sentence
LIKE_WORDS = re.compile(r"\s*\[\s*['\"].*\]\s*$", re.DOTALL)  # a list that was written as text


def decode_lines(source: IO[bytes], name: str) -> list[str]:
    r"""Decode lines of UTF-8; only \n and \r\n end a line."""
    lines = []
    for number, line in read_lines(source, name):
        try:
            text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            raise ValueError(f"{name}:{number}: not UTF-8 ({error.reason})") from error
        if is_blank(text):
            raise ValueError(
                f"{name}:{number}: the line is empty; remove it, or if these are words and tags, "
                f"give the file a name that ends in {CONLL[0]}"
            )
        lines.append(text)
    return lines


def looks_like_table(lines: Sequence[str], columns: Sequence[str], *, has_pairs: bool) -> bool:
    """Tell whether the first lines have names of columns, such as ``columns``, or are JSON lines.

    With ``has_pairs`` tabs separate the texts of a row.
    """
    first = lines[0].strip()
    if first.startswith("{") and parse_json(1, first).values:
        return True
    csv.field_size_limit(LONGEST_LINE)
    for delimiter in DELIMITERS:
        try:
            rows = list(csv.reader(islice(lines, SEEN_LINES), delimiter=delimiter))
        except csv.Error:  # a carriage return inside of a line, as no table has
            return False
        header = [name.strip() for name in rows[0]]
        if columns and set(columns) <= set(header):
            return True
        has_names = len(header) > 1 and all(map(str.isidentifier, header))
        if has_names and not (has_pairs and delimiter == "\t"):
            return len(rows) > 1 and {len(row) for row in rows} == {len(header)}
    return False


def read_table(
    path: str, named: tuple[str, ...], task: MinBertTask | None, *, is_single: bool = False
) -> list[Any]:
    """Read the rows of a task, or single texts of any column.

    ``named`` are columns that a flag names; a task knows those that it was trained on.

    Raises:
        ValueError: If the columns are not clear, or rows are invalid.
    """
    # tables are rare, and the formats take seconds
    from datasets_scripts import TaskData, load_format

    stored = getattr(task, "data_keys", None) or {}
    kind, columns, count = find_columns(named, stored, None if is_single else task)
    suffix = find_suffix(path)
    is_squad = suffix == ".json" and kind == "question_answering"
    if named and len(named) != count and (is_squad or suffix in CONLL):
        wanted = "the question and the context" if is_squad else "the words alone"
        raise ValueError(f"{path}: --text_columns {' '.join(named)}: name {wanted}")
    records: Iterable[Record]
    if suffix in CONLL:
        from datasets_scripts.tagging import find_words, read_conll

        if not named and not "".join(columns).lstrip("-").isdecimal():  # not trained on CoNLL
            columns = (find_words(path),)
        records = read_conll(path, columns)
    elif is_squad:
        from datasets_scripts.questions import read_squad

        records = read_squad(path, columns)
    else:
        columns, file_format = choose_columns(path, columns, stored, count)
        records = read_records(path, columns, file_format=file_format)
    data = TaskData("", problem_type=kind, text_columns=columns)
    row_format = None if kind is None else load_format(data)
    rows, invalid = [], []
    for record in records:
        row, problem = read_row(record, row_format, columns[0])
        rows.append(row)
        if problem:
            invalid.append(f"line {record.line}: {problem}")
    if invalid:
        raise ValueError(
            f"{path}: {len(invalid)} of {len(rows)} rows are invalid; the first are: "
            f"{'; '.join(invalid[:MOST_NAMED])}; correct or remove them"
        )
    return rows


def read_row(record: Record, row_format: Any, column: str) -> tuple[Any, str]:
    """Return the texts of a row, and what is wrong with them; words if there is no format."""
    if row_format is not None:
        values = row_format.to_row(record, 0, "test")
        texts = [values[name] for name in row_format.text_names]
        return texts[0] if len(texts) == 1 else tuple(texts), values["problem"]
    row = record.values.get(column)
    if isinstance(row, str) and LIKE_WORDS.match(row):  # as pandas writes a list
        try:
            row = read_list(row)
        except ValueError as error:
            return row, str(error)
    words = row if isinstance(row, list) else [row]
    is_text = all(isinstance(word, str) for word in words) and not all(map(is_blank, words))
    return row, record.problem or ("" if is_text else f"no text and no words in {column!r}")


def find_columns(
    named: tuple[str, ...], stored: Mapping[str, Any], task: MinBertTask | None
) -> tuple[str | None, tuple[str, ...], int]:
    """Find the columns of the rows of a task, or of single texts without one.

    Returns:
        The type of the rows, None for lists of words; the columns of texts; and how many columns
        there must be.
    """
    columns, any_texts = named or tuple(stored.get("text_columns", ())), "contrastive"
    if task is None:
        return any_texts, columns, 1
    if task.answers_questions:
        return task.problem_type, columns or ("question", "context"), 2
    if task.is_token_level:
        return None, columns or ("tokens",), 1
    return any_texts, columns, task.num_texts


def choose_columns(
    path: str, columns: tuple[str, ...], stored: Mapping[str, Any], count: int
) -> tuple[tuple[str, ...], FileFormat]:
    """Choose the columns of one or two texts, and how the file is written."""
    delimiter, quoting = stored.get("delimiter"), stored.get("quoting")
    formats = [FileFormat(delimiter, quoting), FileFormat()]
    if header := stored.get("header"):
        headless = FileFormat(delimiter, quoting, tuple(header))
        first = next(read_records(path, (), file_format=headless)).values.values()
        if {str(cell).strip() for cell in first}.isdisjoint(columns):  # no names of columns
            formats.insert(0, headless)
    # the format of training first, if the file has it
    for file_format in formats:
        present = list_columns(path, file_format)
        if set(columns) <= set(present):
            break
    record = next(read_records(path, (), file_format=file_format), None)
    if not present and record is not None and record.problem:  # which cannot be read
        raise ValueError(f"{path}: line {record.line}: {record.problem}")
    if not columns and len(present) == 1 and count == 1 and len(present[0].split()) < SENTENCE:
        columns = tuple(present)
    named = f"its columns are {', '.join(map(repr, present))}"
    wanted = "the column of the texts" if count == 1 else "the two columns of the texts"
    way = f"{named}: give --text_columns with {wanted}, or --lines to read every line"
    if not columns:
        raise ValueError(f"{path}: which column has the texts? {way}")
    if missing := [column for column in columns if column not in present]:
        raise ValueError(f"{path}: no column {missing[0]!r}; {way}")
    if len(columns) != count:
        raise ValueError(f"{path}: the texts are in {', '.join(map(repr, columns))}; {way}")
    return columns, file_format
