"""Errors for people."""

import re

import pytest
from huggingface_hub.errors import StrictDataclassFieldValidationError

from trainers import WriteError, named_writes, readable_errors
from trainers.files import HTTPError


def make_strict():
    error = StrictDataclassFieldValidationError("size", ValueError("size=0 must be above 0"))
    error.__cause__ = ValueError("size=0 must be above 0")
    return error


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("bad value"), "run.py: error: bad value\n"),
        (ValueError("two\n  lines\n"), "run.py: error: two lines\n"),
        (FileNotFoundError("gone.tsv is missing"), "run.py: error: gone.tsv is missing\n"),
        (HTTPError("no answer"), "run.py: error: no answer\n"),
        (make_strict(), "run.py: error: size=0 must be above 0\n"),
    ],
    ids=["value", "lines", "file", "http", "strict"],
)
def test_a_mistake_of_a_user_is_one_line_and_status_1(capsys, error, line):
    with pytest.raises(SystemExit) as exited, readable_errors("run.py"):
        raise error

    assert exited.value.code == 1
    assert capsys.readouterr().err == line


@pytest.mark.parametrize("name", ["out.tsv", "out.tsv/part", ".out-17.partial.tsv"])
def test_what_belongs_to_the_target_cannot_be_written(tmp_path, name):
    message = re.escape(f"{str(tmp_path / 'out.tsv')!r} cannot be written")
    with pytest.raises(WriteError, match=message), named_writes(tmp_path / "out.tsv"):
        (tmp_path / name).read_text()
