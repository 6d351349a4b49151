"""``minbert finetune`` with a training file alone."""

import json

from tests import small_run

NOTE = "validation: 10 % of the training rows, at most 10,000, chosen at random (2 of 20)"


def test_the_run_says_what_was_held_out(tmp_path):
    rows = [(f"the {n} is {'fine' if n % 2 else 'dull'}", n % 2) for n in range(20)]
    small_run.write_tsv(tmp_path / "train.tsv", ("text", "mood"), rows)
    recipe = small_run.make_recipe(tmp_path) | small_run.QUICK | {"max_steps": 2}
    moods = recipe["tasks"]["moods"] | {"train_file": str(tmp_path / "train.tsv")}
    for key in ("validation_file", "test_file"):
        del moods[key]
    recipe["tasks"] = {"moods": moods}

    printed = small_run.train(small_run.write_recipe(tmp_path, recipe))

    folder = tmp_path / "out"
    metrics = json.loads((folder / "metrics.json").read_text())
    assert f"moods: {NOTE}\n" in printed
    assert metrics["notes"]["moods"][0] == NOTE
    assert metrics["validation"]["rows"] == {"moods": 2}
    assert metrics["splits"]["moods"]["validation"]["held_out_of"] == 20
    assert f"moods: {NOTE}" in (folder / "report.html").read_text()
    assert f"moods: {NOTE}" in (folder / "README.md").read_text()
    assert "| 18 / 2 / none |" in (folder / "README.md").read_text()
