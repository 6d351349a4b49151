"""Recipes that are written are read as they were."""

import pytest

from minbert_cli.recipe import format_recipe, read_recipe


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


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 10)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: !!bool maybe", "a tag does not fit its value"),
        ('a: !!int ""', "a tag does not fit its value"),
        ("a: !!float x", "a tag does not fit its value"),
        ("a: !!timestamp x", "a tag does not fit its value"),
        ("a: !!python/object:os.system x", "could not determine a constructor"),
        ("[" * 3000, "nested deeper than 50"),
        ("a: " + "[" * 60 + "]" * 60, "nested deeper than 50"),
        ("a: &a [*a]", "nested deeper than 50"),
        ("a: &a {b: *a}", "nested deeper than 50"),
        (BOMB, "more than 100,000 values"),
        ("a: " + "x" * 1_000_001, "longer than 1,000,000 characters"),
        ("a: \x00", "not a YAML file in UTF-8"),
        ("{a: 1}: 2", "unhashable"),
    ],
    ids=lambda text: text[:20],
)
def test_hostile_yaml_is_one_error(tmp_path, text, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)

    with pytest.raises(ValueError, match=message):
        read_recipe(path)


def test_paths_of_a_recipe_are_expanded_as_in_a_shell(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/home/ann")
    monkeypatch.setenv("DATA", "/data")
    path = tmp_path / "recipe.yaml"
    path.write_text("""
output_dir: ~/runs/one
model_name_or_path: owner/name
run_name: ~
data_dir: $DATA/cs224n
tasks:
  own:
    train_file: ${DATA}/train.tsv
    extra_files: {validation_hard: ~/hard.tsv}
    labels: [~/a, $DATA]
    label_column: $DATA
overrides: {tasks.own.test_file: $DATA/test.tsv}
rows: {a: {base: ~/recipe.yaml}}
unknown_variable: $NO_SUCH/x
resume_from_checkpoint: $NO_SUCH/x
""")

    recipe = read_recipe(path)

    assert recipe == {
        "output_dir": "/home/ann/runs/one",
        "model_name_or_path": "owner/name",
        "run_name": None,
        "data_dir": "/data/cs224n",
        "tasks": {
            "own": {
                "train_file": "/data/train.tsv",
                "extra_files": {"validation_hard": "/home/ann/hard.tsv"},
                "labels": ["~/a", "$DATA"],
                "label_column": "$DATA",
            }
        },
        "overrides": {"tasks.own.test_file": "/data/test.tsv"},
        "rows": {"a": {"base": "/home/ann/recipe.yaml"}},
        "unknown_variable": "$NO_SUCH/x",
        "resume_from_checkpoint": "$NO_SUCH/x",
    }
