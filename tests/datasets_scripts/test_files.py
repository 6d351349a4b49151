"""Files of rows: formats, line numbers, and files that cannot be read or never end."""

import bz2
import gzip
import io
import json
import lzma
import tracemalloc
from functools import partial

import datasets
import pyarrow as pa
import pytest

from tests.small_run import load_rows

KEYS = {
    "classification": {"text_columns": ["text"], "label_column": "label"},
    "token_classification": {},
    "question_answering": {},
}


def load(folder, name, content, kind="classification", **keys):
    """Load a file as the training and the validation rows."""
    recipe = {"problem_type": kind, "max_invalid_fraction": 0.7, **KEYS[kind], **keys}
    return load_rows(folder, name, content, **recipe)


def texts_of(task):
    return task.splits["train"]["sentence1"][:]


def test_a_byte_order_mark_and_empty_lines_are_not_part_of_the_header(tmp_path):
    assert texts_of(load(tmp_path, "a.tsv", b"\xef\xbb\xbftext\tlabel\nx\tup\ny\tlow\n")) == [*"xy"]
    assert texts_of(load(tmp_path, "a.csv", "\n \ntext,label\nx,up\ny,low\n")) == [*"xy"]


def test_quoted_fields_hold_tabs_quotes_and_newlines(tmp_path):
    content = 'text\tlabel\n"a\tb"\tup\n"say ""hi"""\tdown\n"two\nlines"\tup\nlast\t\n'

    task = load(tmp_path, "a.tsv", content)

    assert texts_of(task) == ["a\tb", 'say "hi"', "two\nlines"]
    assert [row.line for row in task.bad_rows] == [6, 6]


def test_a_quoted_field_may_begin_with_a_space_and_quotes(tmp_path):
    content = 'text,label\n" ""Yes, it is"" ",up\nno,down\n'
    assert texts_of(load(tmp_path, "a.csv", content)) == ['"Yes, it is"', "no"]


@pytest.mark.parametrize("suffix", ["tsv.gz", "jsonl.gz", "csv", "parquet"])
def test_every_format_has_the_same_rows(tmp_path, suffix):
    rows = [{"text": "good film", "label": "up"}, {"text": "bad film", "label": "down"}]
    mark = "," if suffix == "csv" else "\t"
    table = "".join(mark.join(row) + "\n" for row in [rows[0], *(row.values() for row in rows)])
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    folder = tmp_path / "data [1]"
    folder.mkdir()
    parquet = io.BytesIO()
    datasets.Dataset.from_list(rows).to_parquet(parquet)
    content = {
        "tsv.gz": gzip.compress(table.encode()),
        "jsonl.gz": gzip.compress(lines.encode()),
        "csv": table,
        "parquet": parquet.getvalue(),
    }[suffix]

    task = load(folder, f"a.{suffix}", content)

    assert task.labels == ("down", "up")
    assert task.splits["train"].to_dict() == {
        "id": ["0", "1"],
        "sentence1": ["good film", "bad film"],
        "label": [1, 0],
    }


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"words": "x"}', r"a\.jsonl: no column .*; its columns are \['words'"),
        ("a.tsv", b"text\tlabel\ncaf\xe9\tup\n", r"a\.tsv: the file is not UTF-8"),
        ("a.tsv", 'text\tlabel\nx\tup\n"y\tup\nz\tup\n', r"a\.tsv:3: the record that starts here"),
        ("a.csv", 'text,label\nx, "up"\ny, "low"\n', r'a\.csv:2: "up" has a space before'),
        ("a.csv", "text,label\na,b,up\nc,d,low\n", "2 of 2 rows .* line 2: too many columns"),
        ("a.xls", "x", r"a\.xls: unknown suffix '.xls'; known: .csv, .tsv, .jsonl"),
        ("a.parquet", "x", r"a\.parquet: cannot be read as Parquet"),
        ("a.tsv", "text\tlabel\ttext \nx\tup\ty\n", r"duplicate column \['text'\]; its columns"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "row", "problem"),
    [
        ("a.tsv", "text\tup\tmore", "too many columns (3, the header has 2)"),
        ("a.jsonl", '{"text": "x", "label": 1, "text": "y"}', "not valid JSON (duplicate key 'tex"),
        ("a.jsonl", "[" * 100_000, "not valid JSON (too many levels)"),
        ("a.jsonl", "9" * 5000, "not valid JSON (Exceeds the limit"),
        (
            "a.jsonl",
            '{"text": "\\ud83d", "label": 1}',
            "not valid Unicode (half of a surrogate pai",
        ),
    ],
)
def test_a_row_that_cannot_be_read_is_a_problem(tmp_path, name, row, problem):
    valid = "text\tlabel\nx\tup\ny\tlow\n"
    if name == "a.jsonl":
        valid = '{"text": "\\ud83d\\ude00", "label": 1}\n{"text": "x", "label": 0}\n'

    task = load(tmp_path, name, f"{valid}{row}\n")

    assert texts_of(task) == (["x", "y"] if name == "a.tsv" else ["\U0001f600", "x"])
    assert all(bad.reason.startswith(problem) for bad in task.bad_rows)
    assert len(task.bad_rows) == 2


# Lines without an end, which are refused before they fill the memory


MILLION = 1_000_000
LONG = b"a" * (10 * MILLION)
PACK = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": partial(pa.compress, codec="zstd", asbytes=True),
}
STARTS = {
    "rows.csv": (b"text,label\nx,1\n", "classification"),
    "quoted.csv": (b'text,label\nx,1\n"', "classification"),
    "rows.tsv": (b"text\tlabel\nx\t1\n", "classification"),
    "rows.jsonl": (b'{"text": "x"}\n{"text": "x"}\n{"text": "', "classification"),
    "tags.conll": (b"a O\n\n", "token_classification"),
    "questions.jsonl": (b'{"question": "a"}\n' * 2 + b'{"question": "', "question_answering"),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "gz") for name in STARTS), *(("rows.csv", kind) for kind in ("bz2", "xz", "zst"))],
)
def test_a_row_without_end_is_refused_early(tmp_path, name, kind):
    start, problem_type = STARTS[name]
    long = PACK[kind](LONG)
    content = b"".join([PACK[kind](start), *[long] * 4])  # all formats join streams
    keys = {"quoting": False} if name == "rows.tsv" else {}

    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r":3: the line is longer than 10,000,000 char"):
            load(tmp_path, f"{name}.{kind}", content, problem_type, **keys)
        assert tracemalloc.get_traced_memory()[1] < 80 * MILLION
    finally:
        tracemalloc.stop()
