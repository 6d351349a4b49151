"""Delimiters, stray quotes, lists in cells, and keys of JSON: read as meant, or refused by name."""

import csv
import io
import json
import random

import pytest

from minbert_cli import __main__ as minbert
from tests.small_run import load_rows

ROWS = [(f"the film number {number} is long", str(number % 2)) for number in range(60)]


def load(folder, name, content, **keys):
    """Load a task of a file; every row is used."""
    columns = {"text_columns": ["text"], "label_column": "label"}
    keys = {"problem_type": "classification", **columns, **keys}
    return load_rows(folder, name, content, "films", **keys)


def join(rows, delimiter, header=("text", "label")):
    return "".join(delimiter.join(row) + "\n" for row in (header, *rows))


def write_csv(rows, delimiter=","):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=delimiter).writerows(rows)
    return file.getvalue()


def texts_of(task):
    return task.splits["train"]["sentence1"][:]


def find_mistake(folder, name, content, **keys):
    with pytest.raises(ValueError, match="films") as caught:
        load(folder, name, content, **keys)
    return str(caught.value)


@pytest.mark.parametrize("delimiter", [",", "\t"])
@pytest.mark.parametrize(("first", "last", "column"), [(0, 56, 0), (10, 40, 1), (3, 4, 2)])
def test_quotes_that_swallow_rows_are_named(tmp_path, delimiter, first, last, column):
    rows = [[f"t{number}", text, label] for number, (text, label) in enumerate(ROWS)]
    rows[first][column] = f'"{rows[first][column]}'
    rows[last][column] = f'{rows[last][column]}"'
    suffix = "tsv" if delimiter == "\t" else "csv"
    content = join(rows, delimiter, ("id", "text", "label"))

    message = find_mistake(tmp_path, f"films.{suffix}", content)

    assert f"films.{suffix}:{first + 2}: quotes join the lines {first + 2} to {last + 2}" in message
    assert "quoting: false" in message
    assert "quoting: true" in message
    task = load(tmp_path, f"films.{suffix}", content, quoting=False, delimiter=delimiter)
    assert len(texts_of(task)) == 60


def test_quotes_that_swallow_rows_with_empty_cells_are_named(tmp_path):
    rows = [[f"t{n}", "", text.replace(",", ""), label] for n, (text, label) in enumerate(ROWS)]
    rows[10][2] = f'"{rows[10][2]}'
    rows[40][2] = f'{rows[40][2]}"'

    message = find_mistake(tmp_path, "films.csv", join(rows, ",", ("id", "place", "text", "label")))

    assert "quotes join the lines 12 to 42" in message


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_texts_of_several_lines_are_read_as_they_were_written(tmp_path, delimiter):
    generator = random.Random(delimiter)
    words = ["good", "long", "1,000", "said", '"so"', "well", "and", "Bad", "x;y"]
    rows = []
    for number in range(300):
        lines = []
        for _ in range(generator.choice((1, 1, 2, 2, 3, 4))):
            marks = [generator.choice(("", "", ",", ";", ".")) for _ in range(6)]
            lines.append(" ".join(generator.choice(words) + mark for mark in marks))
        rows.append((f"{number} " + "\n".join(lines), generator.choice(("0", "1"))))
    rows.append(("Roses are red,\nviolets are blue,\nsugar is sweet,\nand so are you", "1"))

    task = load(tmp_path, "films.csv", write_csv([("text", "label"), *rows], delimiter))

    assert texts_of(task) == [text for text, _ in rows]


@pytest.mark.parametrize(
    ("name", "delimiter", "title"),
    [
        ("films.csv", ";", "semicolon"),
        ("films.tsv", ",", "comma"),
    ],
)
def test_another_delimiter_is_found_in_the_header_and_named(
    tmp_path, caplog, name, delimiter, title
):
    task = load(tmp_path, name, join(ROWS, delimiter))

    assert len(texts_of(task)) == 60
    (message,) = {record.getMessage() for record in caplog.records if "read as" in record.msg}
    assert f"{name}: read as {title}-separated, as its first line is" in message
    (tmp_path / "new").mkdir()
    caplog.clear()
    assert len(texts_of(load(tmp_path / "new", name, join(ROWS, delimiter), delimiter=title))) == 60
    assert not [record for record in caplog.records if "read as" in record.msg]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"delimiter": ","}, "no column ['text', 'label']; its columns are ['text;label']"),
        (
            {"problem_type": "question_answering", "text_columns": ["q", "c"], "quoting": False},
            "question_answering tasks have no quo",
        ),
    ],
)
def test_a_wrong_format_is_refused(tmp_path, keys, message):
    assert message in find_mistake(tmp_path, "films.csv", join(ROWS, ";"), **keys)


@pytest.mark.parametrize("missing", ["text", "label"])
def test_the_order_of_json_lines_does_not_matter(tmp_path, missing):
    rows = [{"text": text, "label": label} for text, label in ROWS]
    del rows[0][missing]
    content = ["".join(json.dumps(row) + "\n" for row in some) for some in (rows, rows[::-1])]

    tasks = [
        load(tmp_path, f"{number}.jsonl", lines, max_invalid_fraction=0.05)
        for number, lines in enumerate(content)
    ]

    assert sorted(texts_of(tasks[0])) == sorted(texts_of(tasks[1]))
    (row, _) = tasks[0].bad_rows
    assert (row.line, missing in row.reason) == (1, True)


LISTS = {
    "python": "['joy', 'anger']",
    "json": '["joy", "anger"]',
    "names": "joy, anger",
}


@pytest.mark.parametrize("kind", LISTS)
def test_lists_in_cells_are_lists_of_labels(tmp_path, kind):
    cells = [LISTS[kind], LISTS[kind].replace("anger", "fear"), LISTS[kind]]
    content = write_csv([("text", "label"), *zip("abc", cells, strict=True)])
    content += "d,[]\n" * (kind in ("python", "json"))

    task = load(tmp_path, "films.csv", content, problem_type="multi_label_classification")

    assert task.labels == ("anger", "fear", "joy")
    assert task.splits["train"]["label"][:][:3] == [[1, 0, 1], [0, 1, 1], [1, 0, 1]]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("['joy' 'anger']", "is no list that can be read; write it as JSON"),  # as NumPy writes it
        ("[1, 0, 0, 1]", "are not names, but 0 or 1 for each label"),
    ],
)
def test_what_is_no_list_of_labels_is_refused(tmp_path, cell, message):
    rows = [("a", '"joy,anger"'), ("b", "joy"), ("c", f'"{cell}"')]
    keys = {"problem_type": "multi_label_classification"}

    assert message in find_mistake(tmp_path, "films.csv", join(rows, ","), **keys)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_list_is_no_name_of_a_class(tmp_path, suffix):
    cells = [["joy"], ["anger"], ["joy", "anger"]]
    content = "".join(json.dumps({"text": "a", "label": cell}) + "\n" for cell in cells)
    if suffix == "csv":
        content = "text;label\n" + "".join(f"a;{cell}\n" for cell in cells)

    message = find_mistake(tmp_path, f"films.{suffix}", content)

    assert (
        "label_column='label' has lists of labels, such as ['joy']; write problem_type" in message
    )


@pytest.mark.parametrize(
    ("header", "is_doubted"),
    [
        (("text", "label"), False),
        (ROWS[0], True),
    ],
)
def test_new_says_if_the_first_line_may_be_a_row(tmp_path, capsys, header, is_doubted):
    path = tmp_path / "films.csv"
    path.write_text(join(ROWS, ",", header))

    minbert.main(["new", str(path), "--output", str(tmp_path / "new.yaml")])

    output = capsys.readouterr().out
    assert ("if this line is a row, which is not read now" in output) == is_doubted
