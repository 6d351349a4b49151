"""Documents of files: formats, shards, encodings, and sentences."""

import bz2
import gzip
import lzma
import re

import datasets
import pyarrow as pa
import pytest

from datasets_scripts.corpus.sources import (
    cut_file,
    find_lines,
    split_sentences,
    warn_of_language,
)
from tests.datasets_scripts.corpus.corpora import write

PROSE = "\n\n".join(f"First {n}.\nSecond {n}." for n in range(40))


def read(path, documents="blank_line", shard_bytes=1 << 20, column="text"):
    shards = cut_file(str(path), documents, column, shard_bytes)
    return [document for shard in shards for document in shard.read()]


def texts(*args, **kwargs):
    return [document.text.strip() for document in read(*args, **kwargs)]


def test_a_line_of_white_space_parts_documents(tmp_path):
    write(tmp_path, a_txt="\n \none\ntwo\n\t \n\nthree")

    assert [document.text for document in read(tmp_path / "a.txt")] == ["one\ntwo\n", "three"]


def test_windows_line_ends_separate_documents(tmp_path):
    write(tmp_path, a_txt="one\r\ntwo\r\n\r\nthree\r\n")

    assert texts(tmp_path / "a.txt") == ["one\r\ntwo", "three"]


def test_a_document_is_a_line_or_a_file(tmp_path):
    write(tmp_path, a_txt="one\n\ntwo\n")

    assert texts(tmp_path / "a.txt", "line") == ["one", "two"]
    assert texts(tmp_path / "a.txt", "file") == ["one\n\ntwo"]


@pytest.mark.parametrize("documents", ["blank_line", "line", "file"])
def test_a_byte_order_mark_is_not_text(tmp_path, documents):
    write(tmp_path, a_txt="\ufeffone")

    assert texts(tmp_path / "a.txt", documents) == ["one"]


def test_json_lines_are_documents(tmp_path):
    write(tmp_path, a_jsonl='{"text": "one\\ntwo", "id": 1}\n\n{"text": ""}\n')

    assert texts(tmp_path / "a.jsonl") == ["one\ntwo", ""]


@pytest.mark.parametrize("shard_bytes", [1, 1 << 20])
def test_parquet_rows_are_documents(tmp_path, shard_bytes):
    path = tmp_path / "a.parquet"
    rows = [f"text {n}" for n in range(25)]
    datasets.Dataset.from_dict({"id": range(25), "body": [*rows, None][:25]}).to_parquet(
        path, batch_size=10
    )

    found = read(path, shard_bytes=shard_bytes, column="body")

    assert [document.text for document in found] == rows
    assert [document.position for document in found] == list(range(1, 26))
    assert len(cut_file(str(path), "blank_line", "body", shard_bytes)) == (
        3 if shard_bytes == 1 else 1
    )


@pytest.mark.parametrize("documents", ["blank_line", "line"])
@pytest.mark.parametrize("end", ["", "\n", "\n\n \n"])
def test_shards_of_any_size_give_the_same_documents(tmp_path, documents, end):
    write(tmp_path, a_txt=f"\n{PROSE}{end}")
    path = tmp_path / "a.txt"
    whole = read(path, documents)

    for shard_bytes in range(1, 200):
        assert read(path, documents, shard_bytes) == whole
    assert len(cut_file(str(path), documents, "text", 50)) > 10


def test_shards_begin_and_end_with_the_file(tmp_path):
    write(tmp_path, a_txt=PROSE)
    shards = cut_file(str(tmp_path / "a.txt"), "blank_line", "text", 64)

    assert [shard.first for shard in shards] == [0, *(shard.last for shard in shards[:-1])]
    assert shards[-1].last == len(PROSE)


def test_a_document_without_an_end_is_one_shard(tmp_path):
    write(tmp_path, a_txt="a line\n" * 100)

    assert len(cut_file(str(tmp_path / "a.txt"), "blank_line", "text", 50)) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"5", "not a JSON object"),
        (b"{", "not valid JSON"),
        (b'{"txet": "a"}', "no column 'text'"),
        (b'{"text": 5}', "column 'text' holds 5, not text"),
        (b'{"text": null}', "column 'text' holds None, not text"),
        (b'{"text": ["%s"]}' % (80 * b"a"), r"column 'text' holds \['a{38}\.\.\., not text"),
        (b'{"text": "\\ud800"}', "not valid Unicode .half of a surrogate pair"),
        (b'{"text": "\xff"}', r"not UTF-8 \(invalid start byte at byte 27\); save the file"),
    ],
)
def test_lines_that_cannot_be_used_are_named(tmp_path, line, problem):
    write(tmp_path, a_jsonl=b'{"text": "good"}\n' + line + b"\n")

    good, bad = read(tmp_path / "a.jsonl")

    assert (good.text, good.problem, bad.text) == ("good", "", "")
    assert bad.position == 17
    assert re.search(problem, bad.problem)


COMPRESS = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


@pytest.mark.parametrize("kind", COMPRESS)
@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("txt", f"\ufeff{PROSE}"),
        ("jsonl", '{"text": "one"}\n\n{"text": 5}\n{"text": "two"}\n'),
        ("csv", 'id,text\n1,"one\n\ntwo"\n2\n3,three\n'),
    ],
)
def test_a_compressed_file_has_the_documents_of_the_file(tmp_path, kind, suffix, text):
    write(tmp_path, **{f"a_{suffix}": text, f"b_{suffix}.{kind}": COMPRESS[kind](text.encode())})
    path, compressed = tmp_path / f"a.{suffix}", tmp_path / f"b.{suffix}.{kind}"

    found = read(compressed, shard_bytes=20)

    assert found == read(path)
    assert len(cut_file(str(compressed), "blank_line", "text", 20)) == 1
    positions = [document.position for document in found]
    assert find_lines(str(compressed), positions) == find_lines(str(path), positions)


@pytest.mark.parametrize("documents", ["line", "file"])
def test_compressed_documents_are_lines_or_files(tmp_path, documents):
    write(tmp_path, **{"a_txt": PROSE, "b_txt.gz": gzip.compress(PROSE.encode())})

    assert read(tmp_path / "b.txt.gz", documents) == read(tmp_path / "a.txt", documents)


def test_a_compressed_file_that_was_cut_off_is_refused(tmp_path):
    write(tmp_path, **{"a_txt.gz": gzip.compress(PROSE.encode())[:-20]})

    with pytest.raises(ValueError, match=r"a\.txt\.gz: cannot be decompressed as \.gz"):
        read(tmp_path / "a.txt.gz")


def test_a_file_without_a_suffix_is_plain_text(tmp_path):
    write(tmp_path, corpus=PROSE, a_txt=PROSE, b_gz=gzip.compress(PROSE.encode()))

    assert read(tmp_path / "corpus") == read(tmp_path / "b.gz") == read(tmp_path / "a.txt")


@pytest.mark.parametrize(("suffix", "delimiter"), [("csv", ","), ("tsv", "\t")])
def test_rows_of_a_table_are_documents(tmp_path, suffix, delimiter):
    rows = ["id,body", '1,"one ""1""', 'more"', "2", "", f"3,{200_000 * 'x'}"]
    write(tmp_path, **{f"a_{suffix}": "\n".join(rows).replace(",", delimiter)})

    first, second, third = read(tmp_path / f"a.{suffix}", column="body")

    assert (first.text, first.position) == ('one "1"\nmore', 2)
    assert (second.problem, second.position) == ("too few columns (1, the header has 2)", 4)
    assert third.text == 200_000 * "x"
    assert find_lines(str(tmp_path / f"a.{suffix}"), [2, 4]) == [2, 4]


def test_text_of_another_encoding_is_named(tmp_path):
    write(tmp_path, a_txt=b"good\n\nM\xfcller\n")

    good, bad = read(tmp_path / "a.txt")

    assert (good.text, good.problem) == ("good\n", "")
    assert bad.problem == (
        "not UTF-8 (invalid start byte at byte 7); save the file with that encoding"
    )


@pytest.mark.parametrize(
    ("name", "text", "error", "message"),
    [
        ("a_txt", None, FileNotFoundError, r"a\.txt: there is no such file"),
        ("a_txt", "", ValueError, r"a\.txt: the file is empty"),
        (
            "a_docx",
            "x",
            ValueError,
            r"suffix '\.docx'; known: \.txt, .* compressed \(\.gz, \.bz2, \.xz, \.zst\); rename",
        ),
        ("a_docx.gz", "x", ValueError, r"unknown suffix '\.docx'"),
        ("a_parquet.gz", "x", ValueError, "Parquet has its own compression; decompress the file"),
        (
            "a_txt.gz",
            "x",
            ValueError,
            r"cannot be decompressed as \.gz \(.*\); the file is truncated or",
        ),
        ("a_txt.xz", "x", ValueError, r"cannot be decompressed as \.xz"),
        ("a_txt.bz2", "x", ValueError, r"cannot be decompressed as \.bz2"),
        ("a_txt.zst", "x", ValueError, r"cannot be decompressed as \.zst"),
        (
            "a_csv",
            "title\nx",
            ValueError,
            r"no column \['text'\]; its columns are \['title'\]",
        ),
        ("a_tsv", "text\n", ValueError, "the file has no rows, only a header"),
        ("a_jsonl", '[{"text": "a"}]', ValueError, "a JSON array; write one JSON object on each"),
        (
            "a_json",
            '{"body": "a"}\n',
            ValueError,
            r"no column \['text'\]; its columns are \['body'\]",
        ),
        ("a_parquet", "x", ValueError, r"a\.parquet: cannot be read as Parquet"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path, name, text, error, message):
    if text is not None:
        write(tmp_path, **{name: text})

    with pytest.raises(error, match=message):
        read(tmp_path / name.replace("_", "."))


def test_a_parquet_file_without_the_column_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    datasets.Dataset.from_dict({"body": ["a"]}).to_parquet(path)

    with pytest.raises(ValueError, match=r"no column \['text'\]; its columns are \['body'\]"):
        cut_file(str(path), "blank_line", "text")


def test_prose_is_split_into_sentences():
    text = 'Dr. Smith went home.  "Really?" she\tasked.\n\nA new line\nends it. And so'

    assert split_sentences(text, "en") == [
        "Dr. Smith went home.",
        '"Really?" she asked.',
        "A new line",
        "ends it.",
        "And so",
    ]


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u2028", "\u3000"])
def test_white_space_beyond_ascii_parts_words_as_any(space):
    found = split_sentences(f"We take plan B{space}. Then we go.", "en")

    assert found == ["We take plan B .", "Then we go."]


def test_sentences_of_other_languages_are_split():
    assert split_sentences("今天很好。我们走吧。", "zh") == ["今天很好。", "我们走吧。"]
    assert split_sentences("Das ist z.B. ein Satz. Gut?", "de") == [
        "Das ist z.B. ein Satz.",
        "Gut?",
    ]


def test_a_language_without_rules_is_split_as_english():
    text = "Das ist z.B. Ein Satz. M. Dupont. O Sr. Silva."

    assert split_sentences(text, "xq") == split_sentences(text, "en")
    assert split_sentences(text, "pt-br") == split_sentences(text, "pt")
    assert split_sentences(text, "fr") != split_sentences(text, "en")


@pytest.mark.parametrize(("language", "warned"), [("xq", True), ("pt-br", False), ("en", False)])
def test_a_language_without_rules_is_logged(caplog, language, warned):
    warn_of_language("corpus 'mine'", language)

    found = "corpus 'mine': language='xq' has no rules of its own" in caplog.text
    assert found is warned
    assert bool(caplog.text) is warned


def test_a_line_can_be_a_sentence():
    assert split_sentences(" One. Two.\r\n\n\u00a0\nThree ", None) == ["One. Two.", "Three"]


def test_bytes_are_found_on_their_lines(tmp_path):
    write(tmp_path, a_txt="ab\n\ncd\nef")

    assert find_lines(str(tmp_path / "a.txt"), [0, 1, 3, 4, 7, 8]) == [1, 1, 2, 3, 4, 4]
