"""What is written in a recipe is what is read, or it is refused."""

from pathlib import Path

import pytest

from minbert_cli import __main__ as minbert
from minbert_cli.recipe import read_recipe
from tests import small_run

TEXTS = [
    "010",
    "08",
    "1:30",
    "1:30:00.5",
    "2024-01-02",
    "2001-12-14t21:59:43.10-05:00",
    "1_000",
    "1_0.5",
    "0x1F",
    "0o17",
    "0b101",
    "+5",
    "-0",
    "-012",
    "=",
    "yes",
    "No",
    "on",
    "off",
    "y",
]
VALUES = {"7": 7, "-7": -7, "0": 0, "2e-5": 2e-5, "1.5": 1.5, "+1.5": 1.5, "true": True}
VALUES |= {"null": None, "~": None, "": None, ".5": 0.5}


def read(folder, text):
    path = folder / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return read_recipe(path)


@pytest.mark.parametrize("text", TEXTS)
def test_what_is_no_number_of_json_is_text(tmp_path, text):
    assert read(tmp_path, f"x: {text}\nz: [{text}, a]\n{text}: 1\n") == {
        "x": text,
        "z": [text, "a"],
        text: 1,
    }


@pytest.mark.parametrize("text", VALUES)
def test_numbers_and_switches_are_values(tmp_path, text):
    assert read(tmp_path, f"x: {text}\n") == {"x": VALUES[text]}


def test_labels_are_those_that_are_written(tmp_path, capsys):
    small_run.write_files(tmp_path)
    for path in tmp_path.glob("moods-*.tsv"):
        text = path.read_text().replace("\tgood\n", "\t010\n").replace("\tbad\n", "\t1:30\n")
        path.write_text(text)
    recipe = small_run.make_recipe(tmp_path)
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    path = small_run.write_recipe(tmp_path, recipe)
    text = Path(path).read_text(encoding="utf-8")
    keys = "    label_column: mood\n    labels: [1:30, 010]"
    Path(path).write_text(text.replace("    label_column: mood", keys), encoding="utf-8")

    minbert.main(["check", path])

    assert capsys.readouterr().out.endswith("\nok\n")  # rows with other labels would be refused


@pytest.mark.parametrize("value", ["0x10", "1:30", "2024-01-02", "0b11", "="])
def test_a_number_that_is_text_is_refused(tmp_path, capsys, value):
    small_run.write_files(tmp_path)
    path = small_run.write_recipe(tmp_path, small_run.make_recipe(tmp_path))
    text = Path(path).read_text(encoding="utf-8").replace("max_length: 17", f"max_length: {value}")
    Path(path).write_text(text, encoding="utf-8")

    with pytest.raises(SystemExit):
        minbert.main(["check", path])

    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert "max_length" in line
    assert value in line
