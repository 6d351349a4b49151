"""Documents of files: formats, encodings, places of what is wrong, and sentences."""

import re

import pytest

from datasets_scripts import CorpusData, corpus as module
from tests.datasets_scripts.corpus.corpora import write


def read(path, documents="blank_line", **keys):
    if documents != "blank_line":
        keys["documents"] = documents
    data = CorpusData.from_recipe("mine", {"train_file": str(path), **keys})
    return list(module.find_sources(data)["train"].read())


def texts(*args, **keys):
    return [document.text.strip() for document in read(*args, **keys)]


def test_a_line_of_white_space_parts_documents(tmp_path):
    write(tmp_path, a_txt="\n \none\ntwo\n\t\u3000\n\nthree")

    found = read(tmp_path / "a.txt")

    assert [document.text for document in found] == ["one\ntwo\n", "three"]
    assert [document.line for document in found] == [3, 7]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_document_is_a_line_a_part_or_a_file(tmp_path, mark):
    write(tmp_path, a_txt=f"{mark}one\nthree\n\ntwo\n")

    assert texts(tmp_path / "a.txt", "line") == ["one", "three", "two"]
    assert texts(tmp_path / "a.txt") == ["one\nthree", "two"]
    assert texts(tmp_path / "a.txt", "file") == ["one\nthree\n\ntwo"]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("5", "not a JSON object"),
        ('{"txet": "a"}', "no column 'text'"),
        ('{"text": null}', "column 'text' holds None, not text"),
        ('{"text": ["%s"]}' % (80 * "a"), r"column 'text' holds \['a{38}\.\.\., not text"),
    ],
)
def test_lines_that_cannot_be_used_are_named(tmp_path, line, problem):
    write(tmp_path, a_jsonl='{"text": "good\\nbad"}\n\n' + line + "\n")

    good, bad = read(tmp_path / "a.jsonl")

    assert (good.text, good.problem, bad.text, bad.line) == ("good\nbad", "", "", 3)
    assert re.fullmatch(problem, bad.problem)


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_rows_of_a_table_are_documents(tmp_path, suffix, delimiter):
    rows = ["id,body", '1,"one ""1""', 'more"', "2", "", f"3,{200_000 * 'x'}", "4,NaN"]
    write(tmp_path, **{f"a_{suffix}": "\n".join(rows).replace(",", delimiter)})

    first, second, third, fourth = read(tmp_path / f"a.{suffix}", text_column="body")

    assert (first.text, first.line) == ('one "1"\nmore', 2)
    assert (second.problem, second.line) == ("too few columns (1, the header has 2)", 4)
    assert third.text == 200_000 * "x"
    assert fourth.problem == "column 'body' holds 'NaN', not text"


def test_text_of_another_encoding_is_named(tmp_path):
    write(tmp_path, a_txt=b"good\n\nM\xfcller\n")

    good, bad = read(tmp_path / "a.txt")

    assert (good.text, good.problem) == ("good\n", "")
    assert bad.line == 3
    assert bad.problem == "not UTF-8 (invalid start byte); save the file with that encoding"


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("a_txt", None, FileNotFoundError, r"a\.txt: there is no such file"),
        ("a_txt.gz", "x", ValueError, r"cannot be decompressed as \.gz \(.*\); the file is trunc"),
        ("a_txt", "one\r\rtwo\r", ValueError, r"a\.txt: the file has carriage returns, as on old "),
        ("a_csv", "title\nx", ValueError, r"no column \['text'\]; its columns are \['title'\]"),
        ("a_json", '{"body": "a"}\n', ValueError, r"no column \['text'\]; its columns are"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path, name, text, error, message):
    if text is not None:
        write(tmp_path, **{name: text})

    with pytest.raises(error, match=message):
        read(tmp_path / name.replace("_", "."))


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        ("blank_line", r"a\.txt:3: the document that starts here is larger than 0 MB, the limit"),
        ("file", r"a\.txt:1: the document that starts here"),
        ("line", r"a\.txt:4: the line is longer than 20 characters"),
    ],
)
def test_a_document_that_fills_the_memory_is_refused(tmp_path, monkeypatch, documents, message):
    monkeypatch.setattr(module, "LARGEST_DOCUMENT", 20)
    long = "a" * (30 if documents == "line" else 12)
    write(tmp_path, a_txt=f"one\n\ntwo\n{long}\n{long}\n")

    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.txt", documents)


def test_prose_is_split_into_sentences():
    text = 'Dr. Smith went home.  "Really?" she\tasked.\n\nA new line\nends it. And so'

    assert module.split_sentences(text, is_prose=True) == [
        "Dr. Smith went home.",
        '"Really?" she asked.',
        "A new line",
        "ends it.",
        "And so",
    ]
