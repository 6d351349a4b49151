"""Recipes that are written are read as they were."""

import pytest

from trainers.runs.recipe_files import format_recipe, read_recipe


@pytest.mark.parametrize(
    "value",
    [
        1e-5,
        3.0,
        7,
        True,
        None,
        "no",
        "2e-5",
        "1e5",
        "true",
        "null",
        "",
        "a: b # c",
        "über",
        [1, "no", None],
        {"sst": {"dataset": "sst", "labels": ["no", "yes"], "score_range": [0, 5.0]}},
        {},
    ],
    ids=repr,
)
def test_what_is_written_is_read_again(tmp_path, value):
    path = tmp_path / "recipe.yaml"

    path.write_text(format_recipe({"first": value, "again": value}), encoding="utf-8")

    assert read_recipe(path) == {"first": value, "again": value}
    assert type(read_recipe(path)["first"]) is type(value)


def test_the_order_of_keys_stays(tmp_path):
    path = tmp_path / "recipe.yaml"

    path.write_text(format_recipe({"tasks": {"sts": {}, "quora": {}, "a": {}}, "a": 1}))

    assert list(read_recipe(path)) == ["tasks", "a"]
    assert list(read_recipe(path)["tasks"]) == ["sts", "quora", "a"]
