"""``--smoke_test``: every stage of a recipe with few rows, in a folder of its own."""

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

import minbert
from minbert_cli import finetune, pretrain
from minbert_cli.experiments import program as experiments
from minbert_cli.launch import shrink
from tests import small_run
from tests.runs import write_pretraining


def run(program, *argv):
    """Run a program; return its output."""
    printed = StringIO()
    with redirect_stdout(printed):
        program.main([str(word) for word in argv])
    return printed.getvalue()


def read(folder, name):
    return json.loads((Path(folder) / name).read_text())


def test_the_quickstart_goes_through_every_stage_beside_its_folder(tmp_path):
    real, smoke = tmp_path / "real", tmp_path / "real-smoke"
    real.mkdir()
    (real / "mine.txt").write_text("precious")

    printed = run(
        *(finetune, "quickstart", "--output_dir", real, "--use_cpu", "--disable_tqdm", "true"),
        *("--save_total_limit", 2, "--smoke_test"),
    )

    assert [path.name for path in tmp_path.rglob("*") if real in path.parents] == ["mine.txt"]
    assert (real / "mine.txt").read_text() == "precious"
    results = read(smoke, "metrics.json")
    for splits in results["splits"].values():
        assert (splits["train"]["rows"], splits["validation"]["rows"]) == (64, 32)
    state = read(max(smoke.glob("checkpoint-*")), "trainer_state.json")
    assert state["max_steps"] == 6
    assert sum("eval_mean" in entry for entry in state["log_history"]) == 2
    assert Path(state["best_model_checkpoint"]).parent == smoke
    for name in ("model.safetensors", "report.html", "history.png", "README.md"):
        assert (smoke / name).stat().st_size
    for path in (smoke / "predictions").iterdir():
        assert len(path.read_text().splitlines()) == 33
    assert printed.splitlines()[-1].startswith(f"smoke test passed; its files are in {smoke}. Sk")


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write the files of three small tasks, and go there."""
    monkeypatch.chdir(tmp_path)
    small_run.write_files(tmp_path)
    return tmp_path


def test_own_limits_stay_and_large_splits_are_cut(files):
    recipe = small_run.make_recipe(files) | {"output_dir": "out", "save_strategy": "no"}
    del recipe["tasks"]["pairs"], recipe["tasks"]["scores"]
    recipe["tasks"]["moods"] |= {"max_train_samples": 7, "max_eval_samples_per_class": 4}
    rows = "".join(f"t{number}\tthe song is fine\n" for number in range(50))
    (files / "moods-test.tsv").write_text("id\ttext\n" + rows)

    run(finetune, small_run.write_recipe(files, recipe), "--smoke_test", "--max_steps", 3)

    (facts,) = read("out-smoke", "metrics.json")["splits"].values()
    rows = {split: found["rows"] for split, found in facts.items()}
    assert rows == {"train": 7, "validation": 9, "test": 32}
    assert not list(files.glob("out-smoke/checkpoint-*"))
    assert not Path("out").exists()


def test_a_smoke_test_replaces_the_last_one_but_no_run(files):
    recipe = small_run.make_recipe(files) | {"output_dir": "out"}
    path = small_run.write_recipe(files, recipe)
    run(finetune, path, "--smoke_test", "--tasks", "moods", "--seed", 1)
    run(finetune, path, "--smoke_test", "--tasks", "moods", "--seed", 2)
    assert read("out-smoke", "run.json")["settings"]["seed"] == 2

    real = ("--output_dir", "real-smoke", "--tasks", "moods", "--max_steps", 1)
    run(finetune, path, *real, "--eval_strategy", "no")
    with pytest.raises(SystemExit):
        run(finetune, path, "--smoke_test", "--output_dir", "real", "--tasks", "moods")

    assert read("real-smoke", "run.json")["settings"]["smoke_test"] is False


def test_from_python(files):
    recipe = small_run.make_recipe(files) | {"output_dir": "out", "smoke_test": True}
    del recipe["tasks"]["pairs"]

    with redirect_stdout(StringIO()):
        trainer = minbert.finetune(recipe)

    assert trainer.args.output_dir == "out-smoke"
    assert trainer.state.max_steps == 4


def test_pre_training_and_the_fine_tuning_after_it(files):
    small_run.write_recipe(files, small_run.make_recipe(files))
    chained = {"recipe": "recipe.yaml", "tasks": "moods"}
    recipe = write_pretraining(
        files, max_steps=500, eval_strategy="epoch", save_strategy="epoch", finetune=chained
    )

    printed = run(pretrain, recipe, "--output_dir", "out", "--smoke_test")

    assert printed.count("smoke test passed") == 2
    facts = read("out-smoke", "metrics.json")
    assert facts["validation"]["rows"]["text"] <= 32
    assert (files / "out-smoke/finetuned-smoke/model.safetensors").is_file()
    assert not Path("out").exists()


@pytest.mark.slow
def test_experiments_try_each_row_once_in_another_folder(files):
    recipe = small_run.make_recipe(files)
    del recipe["tasks"]["pairs"], recipe["tasks"]["scores"]
    small_run.write_recipe(files, recipe)
    rows = {"a": {}, "b": {"overrides": {"learning_rate": 0.1}}}
    Path("rows.yaml").write_text(
        json.dumps({"base": "recipe.yaml", "output_dir": "out", "seeds": [3, 4], "rows": rows})
    )

    printed = StringIO()
    with redirect_stdout(printed):
        assert experiments.run(["rows.yaml", "--smoke_test", "true"]) == 0

    assert printed.getvalue().splitlines()[-1].startswith("smoke test passed")
    runs = sorted(path.parent.relative_to(files) for path in files.glob("*/*/*/metrics.json"))
    assert runs == [Path("out-smoke/a/seed-3-smoke"), Path("out-smoke/b/seed-3-smoke")]
    assert read(runs[0], "run.json")["settings"]["max_steps"] == 4
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("recipe", "expected"),
    [
        ({"max_steps": 3}, {"max_steps": 3, "eval_steps": 1}),
        ({"max_steps": -1}, {"max_steps": 4, "eval_steps": 2}),
        ({"tasks": {name: {} for name in "abcdefghijklmnop"}}, {"max_steps": 20}),
        ({"eval_strategy": "epoch"}, {"eval_strategy": "steps"}),
        ({"corpus": {"a": {"max_documents": 9}, "b": {}}}, {"max_eval_samples": 32}),
    ],
)
def test_limits(recipe, expected):
    changes = shrink(recipe)

    assert {key: changes[key] for key in expected} == expected
    if "corpus" in recipe:
        assert changes["corpus"] == {"a": {"max_documents": 9}, "b": {"max_documents": 64}}
