"""What is written in a recipe is what is read, or it is refused."""

from minbert_cli import read_recipe

TEXTS = (
    *("010", "08", "1:30", "1:30:00.5", "2024-01-02", "2001-12-14t21:59:43.10-05:00", "1_000"),
    *("1_0.5", "0x1F", "0o17", "0b101", "+5", "-0", "-012", "=", "yes", "No", "on", "off", "y"),
)
VALUES = {"7": 7, "-7": -7, "0": 0, "2e-5": 2e-5, "1.5": 1.5, "+1.5": 1.5, "true": True}
VALUES |= {"null": None, "~": None, "": None, ".5": 0.5}


def test_only_numbers_of_json_and_switches_are_no_texts(tmp_path):
    path = tmp_path / "recipe.yaml"
    for text in TEXTS:
        path.write_text(f"x: {text}\nz: [{text}, a]\n{text}: 1\n", encoding="utf-8")
        assert read_recipe(path) == {"x": text, "z": [text, "a"], text: 1}
    for text, value in VALUES.items():
        path.write_text(f"x: {text}\n", encoding="utf-8")
        assert read_recipe(path) == {"x": value}
