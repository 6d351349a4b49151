"""``minbert recipes``."""

from pathlib import Path

import pytest

from minbert_cli import __main__ as minbert, recipes

ROOT = Path(__file__).parents[2]


def test_the_list_has_every_recipe_with_its_first_line(capsys):
    minbert.main(["recipes"])

    text = capsys.readouterr().out
    assert all(f"  {name} " in text for name in recipes.list_recipes())
    assert "\nglue:\n" in text
    assert "cs224n                  One model for sentiment (SST-5), paraphrase (Quora)" in text
    assert all(len(line) <= 100 for line in text.splitlines())


@pytest.mark.parametrize("name", recipes.list_recipes())
def test_a_recipe_begins_with_its_description(name):
    assert recipes.describe_recipe(name).endswith(".")


def test_a_copy_never_replaces_a_file(tmp_path, capsys):
    target = tmp_path / "mine.yaml"
    minbert.main(["recipes", "glue/cola", "--copy", str(target)])
    written = target.read_text("utf-8")
    target.write_text("mine", "utf-8")

    with pytest.raises(SystemExit) as stopped:
        minbert.main(["recipes", "glue/cola", "--copy", str(target)])

    assert written == (ROOT / "recipes/glue/cola.yaml").read_text("utf-8")
    assert target.read_text("utf-8") == "mine"
    assert stopped.value.code == 1
    assert "exists; name another file" in capsys.readouterr().err
