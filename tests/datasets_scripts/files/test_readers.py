"""`read_records`: formats, line numbers, and files that cannot be read."""

import pytest

from datasets_scripts.readers import read_records


def read(folder, name, content, columns=("text", "label"), **kwargs):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return list(read_records(str(path), columns, **kwargs))


def test_a_byte_order_mark_is_not_part_of_the_header(tmp_path):
    (record,) = read(tmp_path, "a.tsv", b"\xef\xbb\xbftext\tlabel\nx\tup\n")

    assert record.values == {"text": "x", "label": "up"}


def test_quoted_fields_hold_tabs_quotes_and_newlines(tmp_path):
    content = 'text\tlabel\n"a\tb"\tup\n"say ""hi"""\tdown\n"two\nlines"\tup\nlast\tup\n'

    records = read(tmp_path, "a.tsv", content)

    assert [record.values["text"] for record in records] == [
        "a\tb",
        'say "hi"',
        "two\nlines",
        "last",
    ]
    assert [record.line for record in records] == [2, 3, 4, 6]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("text", "too few columns (1, the header has 2)"),
        ("text\tup\tmore", "too many columns (3, the header has 2)"),
    ],
)
def test_a_row_of_another_width_is_a_problem(tmp_path, row, problem):
    first, second = read(tmp_path, "a.tsv", f"text\tlabel\nx\tup\n{row}\n")

    assert (first.problem, second.problem) == ("", problem)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "", r"a\.tsv: the file is empty"),
        ("a.tsv", "text\tlabel\n", r"a\.tsv: the file has no rows, only a header"),
        ("a.tsv", "text^label\nx^up\n", r"a\.tsv: no column .*; its columns are \['text\^label'"),
        ("a.tsv", "words\tlabel\nx\tup\n", r"a\.tsv: no column \['text'\]; .* \['words', 'la"),
        ("a.jsonl", '{"words": "x"}', r"a\.jsonl: no column .*; its columns are \['words'"),
        ("a.tsv", b"text\tlabel\ncaf\xe9\tup\n", r"a\.tsv: the file is not UTF-8"),
        ("a.jsonl", b'{"text": "caf\xe9"}', r"a\.jsonl: the file is not UTF-8"),
        ("a.tsv", 'text\tlabel\nx\tup\n"y\tup\nz\tup\n', r"a\.tsv:3: the record that starts here"),
        ("a.json", "[\n{}\n]", r"a\.json: a JSON array; write one JSON object on each line"),
        ("a.parquet", "x", r"a\.parquet: cannot be read as Parquet"),
        ("a.xls", "x", r"a\.xls: unknown suffix '\.xls'; known: \.csv"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read(tmp_path, name, content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label,text\nx,up,y\n"),
        ("a.tsv", "text\tlabel\tnote\ttext \nx\tup\ty\tz\n"),
        ("a.csv", "text,label,note,note\nx,up,y,z\n"),
    ],
)
def test_columns_with_the_same_name_are_an_error(tmp_path, name, content):
    message = r"duplicate column \['(text|note)'\]; its columns are \['text', 'label',"

    with pytest.raises(ValueError, match=message):
        read(tmp_path, name, content)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text": "x", "label": 1, "text": "y"}', "not valid JSON (duplicate key 'text')"),
        ("[" * 100_000, "not valid JSON (too many levels)"),
        ("9" * 5000, "not valid JSON (Exceeds the limit"),
    ],
)
def test_json_that_python_reads_otherwise_is_a_problem(tmp_path, line, problem):
    first, second = read(tmp_path, "a.jsonl", f'{{"text": "x", "label": 1}}\n{line}\n')

    assert first.problem == ""
    assert second.problem.startswith(problem)


def test_half_of_a_character_is_a_problem_and_a_whole_one_is_not(tmp_path):
    lines = ['{"text": "\\ud83d", "label": 1}', '{"text": "\\ud83d\\ude00", "label": 1}']

    first, second = read(tmp_path, "a.jsonl", "".join(f"{line}\n" for line in lines))

    assert first.problem.startswith("not valid Unicode (half of a surrogate pair)")
    assert second.values == {"text": "\U0001f600", "label": 1}
