"""Lines have a largest length: one that never ends is refused before it fills the memory."""

import bz2
import gzip
import io
import lzma
import tracemalloc
from functools import partial

import pyarrow as pa
import pytest

from datasets_scripts.questions import read_squad
from datasets_scripts.readers import FileFormat, read_records
from datasets_scripts.tagging import read_conll
from minbert_cli.texts import decode_lines

MILLION = 1_000_000
ZSTANDARD = partial(pa.compress, codec="zstd", asbytes=True)


def compress(path, content):
    """Write some parts to a file in the format of its suffix; all formats join streams."""
    make = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": ZSTANDARD}
    kind = path.suffix[1:]
    parts = {part: make[kind](part) for part in set(content)}
    path.write_bytes(b"".join(parts[part] for part in content))


def measure_error(function):
    """Return the message of a function's ValueError and the most memory it used, in MB."""
    tracemalloc.start()
    try:
        with pytest.raises(ValueError) as caught:  # noqa: PT011  (callers match the message)
            function()
        return str(caught.value), tracemalloc.get_traced_memory()[1] / MILLION
    finally:
        tracemalloc.stop()


LONG = b"a" * (10 * MILLION)
READERS = {
    "rows.csv": (b"text,label\nx,1\n", lambda path: read_records(path, ("text",))),
    "quoted.csv": (b'text,label\nx,1\n"', lambda path: read_records(path, ("text",))),
    "rows.tsv": (
        b"text\tlabel\nx\t1\n",
        lambda path: read_records(path, ("text",), file_format=FileFormat("\t", quoting=False)),
    ),
    "rows.jsonl": (
        b'{"text": "x"}\n{"text": "x"}\n{"text": "',
        lambda path: read_records(path, ("text",)),
    ),
    "tags.conll": (b"a O\n\n", lambda path: read_conll(path, ("0", "1"))),
    "questions.jsonl": (
        b'{"question": "a"}\n{"question": "a"}\n{"question": "',
        lambda path: read_squad(path, ("question",)),
    ),
    "sentences.txt": (
        b"x\ny\n",
        lambda path: decode_lines(io.BytesIO(path.read_bytes()), str(path)),
    ),
}


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz", "zst"])
@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_a_compressed_row_without_end_is_refused_early(tmp_path, name, kind):
    path = tmp_path / f"{name}.{kind}"
    compress(path, [READERS[name][0], *[LONG] * 10])

    message, peak = measure_error(lambda: list(READERS[name][1](str(path))))

    assert f"{path}:3: the line is longer than 10,000,000 characters, the limit" in message
    assert peak < 70


@pytest.mark.parametrize("name", [name for name in READERS if name != "sentences.txt"])
def test_every_reader_has_the_limit(tmp_path, name):
    path = tmp_path / f"{name}.gz"
    compress(path, [READERS[name][0], *[LONG] * 3])

    message, peak = measure_error(lambda: list(READERS[name][1](str(path))))

    assert f"{path}:3: the line is longer than 10,000,000 characters" in message
    assert peak < 70


def test_sentences_to_predict_have_the_limit(tmp_path):
    path = tmp_path / "sentences.txt"
    path.write_bytes(READERS["sentences.txt"][0] + 2 * LONG)

    with pytest.raises(ValueError, match=r"sentences\.txt:3: the line is longer"):
        list(READERS["sentences.txt"][1](path))
