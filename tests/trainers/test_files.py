"""Whole files or nothing, and errors for people."""

import os
import re
import stat

import pytest
from huggingface_hub.errors import StrictDataclassFieldValidationError

from trainers import WriteError, named_writes, readable_errors, replaced_when_done, write_text
from trainers.files import HTTPError, remove_leftovers


def test_a_failing_writer_leaves_nothing(tmp_path):
    def write_half():
        with replaced_when_done(tmp_path / "plot.png") as path:
            path.write_text("half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()

    assert list(tmp_path.iterdir()) == []


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_text(pipe, "through")

    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_the_file_behind_a_link_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file.txt").write_text("old")
    link = tmp_path / "link.txt"
    link.symlink_to(tmp_path / "real" / "file.txt")

    write_text(link, "new")

    assert link.is_symlink()
    assert (tmp_path / "real" / "file.txt").read_text() == "new"


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(IsADirectoryError, match="is a folder; name a file"):
        write_text(tmp_path, "text")


def test_the_permissions_of_the_file_stay(tmp_path):
    path = tmp_path / "private.txt"
    path.write_text("old")
    path.chmod(0o600)

    write_text(path, "new")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_temporary_files_of_killed_processes_are_removed(tmp_path):
    kept = [
        tmp_path / name
        for name in (".notes-12.txt", "a-12.partial", f".mine-{os.getpid()}.partial")
    ]
    for path in (*kept, tmp_path / ".history-99999.partial.png", tmp_path / ".run-99.partial"):
        path.write_text("")

    remove_leftovers(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted(kept)


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
