"""``minbert finetune`` with a training file alone."""

import json
import shutil

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from tests import small_run

NOTE = "validation: 10 % of the training rows, at most 10,000, chosen at random (2 of 20)"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Train a task on 20 distinct texts; return the recipe, the folder and the output."""
    folder = tmp_path_factory.mktemp("run")
    rows = [(f"the {n} is {'fine' if n % 2 else 'dull'}", n % 2) for n in range(20)]
    small_run.write_tsv(folder / "train.tsv", ("text", "mood"), rows)
    recipe = small_run.make_recipe(folder)
    moods = recipe["tasks"]["moods"]
    for key in ("validation_file", "test_file"):
        del moods[key]
    recipe["tasks"] = {"moods": moods | {"train_file": str(folder / "train.tsv")}}
    path = small_run.write_recipe(folder, recipe)
    return path, folder / "out", small_run.train(path)


def test_the_run_says_what_was_held_out(run):
    _, folder, printed = run
    metrics = json.loads((folder / "metrics.json").read_text())

    assert f"moods: {NOTE}\n" in printed
    assert metrics["notes"]["moods"][0] == NOTE
    assert metrics["validation"]["rows"] == {"moods": 2}
    assert metrics["splits"]["moods"]["validation"]["held_out_of"] == 20
    assert f"moods: {NOTE}" in (folder / "report.html").read_text()
    assert f"moods: {NOTE}" in (folder / "README.md").read_text()
    assert "| 18 / 2 / none |" in (folder / "README.md").read_text()


def test_a_resumed_run_holds_out_the_same_rows(run):
    path, folder, _ = run
    whole = folder.rename(folder.with_name("whole"))
    folder.mkdir()
    shutil.copy(whole / "run.json", folder)
    shutil.copytree(whole / "checkpoint-3", folder / "checkpoint-3")

    small_run.train(path, "--resume_from_checkpoint", "true")

    weights = [load_file(one / "model.safetensors") for one in (whole, folder)]
    assert_close(*weights, rtol=0, atol=0)
    predicted = [sorted((one / "predictions").iterdir()) for one in (whole, folder)]
    assert [one.read_bytes() for one in predicted[0]] == [one.read_bytes() for one in predicted[1]]
