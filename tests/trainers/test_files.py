"""Whole files or nothing."""

import os
import stat

import pytest

from trainers import replaced_when_done, write_text
from trainers.files import remove_leftovers


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
