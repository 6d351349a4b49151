"""``minbert recipes``."""

from pathlib import Path

from minbert_cli import __main__ as minbert, recipes

ROOT = Path(__file__).parents[2]


def test_the_list_has_every_recipe_with_its_first_line(capsys):
    minbert.main(["recipes"])

    text = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{text}" for name in recipes.list_recipes())
    assert "cs224n                    One model for sentiment (SST-5), paraphrase (Quora)" in text
    assert all(len(line) <= 100 for line in text.splitlines())
    assert all(recipes.describe_recipe(name).endswith(".") for name in recipes.list_recipes())

    minbert.main(["recipes", "glue/cola"])
    assert capsys.readouterr().out == (ROOT / "recipes/glue/cola.yaml").read_text("utf-8")
