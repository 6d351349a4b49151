"""Whole files or nothing."""

import pytest

from trainers.files import replaced_when_done


def test_a_failing_writer_leaves_nothing(tmp_path):
    def write_half():
        with replaced_when_done(tmp_path / "plot.png") as path:
            path.write_text("half")
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        write_half()

    assert list(tmp_path.iterdir()) == []


def test_a_written_file_takes_its_place(tmp_path):
    with replaced_when_done(tmp_path / "new" / "plot.png") as path:
        path.write_text("whole")
        suffix = path.suffix

    assert suffix == ".png"
    assert (tmp_path / "new" / "plot.png").read_text() == "whole"
