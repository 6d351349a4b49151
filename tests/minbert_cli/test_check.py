"""``minbert check``."""

import re
from pathlib import Path

import pytest

from minbert_cli import __main__ as minbert
from tests import small_run

TINY = """
model_config: {vocab_size: 200, hidden_size: 32, num_hidden_layers: 1, num_attention_heads: 2,
  intermediate_size: 32, max_position_embeddings: 32}
max_length: 32
use_cpu: true
output_dir: runs/mine
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return a working folder with rows, one of them invalid, and texts."""
    monkeypatch.chdir(tmp_path)
    rows = [(f"text number {n}", "good" if n % 4 else "bad") for n in range(40)]
    small_run.write_tsv(tmp_path / "rows.tsv", ("text", "label"), [*rows, ("", "bad")])
    Path("text.txt").write_text("\n\n".join(f"One text {n}. Another {n}." for n in range(80)))
    return tmp_path


def check(recipe, *flags):
    Path("recipe.yaml").write_text(recipe + TINY)
    minbert.main(["check", "recipe.yaml", *flags])


FINETUNE = """
tasks:
  own: {problem_type: classification, train_file: rows.tsv, text_columns: [text],
    label_column: label, max_invalid_fraction: 0.1}
"""


def test_a_fine_tuning_is_described_and_nothing_is_written(folder, capsys):
    check(FINETUNE, "--num_train_epochs", "2", "--push_to_hub", "true")

    text = capsys.readouterr().out
    assert "own: classification, rows.tsv, 36 train, 4 validation rows" in text
    assert text.count("own: 1 invalid rows are skipped\n") == 1
    assert "learning_rate" in text  # a choice
    assert "(2 epochs, " in text
    assert text.endswith("\nok\n")
    assert {path.name for path in folder.iterdir()} == {"rows.tsv", "text.txt", "recipe.yaml"}


@pytest.mark.parametrize(
    ("recipe", "flags", "message"),
    [
        ("seed: 1", (), "recipe.yaml: no key says which program it is for"),
        ("rows: {a: {base: sst}}", (), "use minbert experiments FILE --dry_run"),
        (FINETUNE, ("--tasks.own.label_column", "lable"), "'lable'"),
        (FINETUNE, ("--optim", "adamw_torch_xla"), "error: optim='adamw_torch_xla', optim_args="),
        (
            FINETUNE,
            ("--lr_scheduler_type", "cosine", "--lr_scheduler_kwargs.num_cycle", "2"),
            "error: lr_scheduler_type='cosine', lr_scheduler_kwargs={'num_cycle': 2}: ",
        ),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_mistake_is_one_line(capsys, recipe, flags, message):
    with pytest.raises(SystemExit) as stopped:
        check(recipe, *flags)

    found = capsys.readouterr()
    assert stopped.value.code == 1
    assert found.err.startswith("minbert check: error: ")
    assert message in found.err
    assert found.err.count("\n") == 1
    assert "ok" not in found.out.split()


@pytest.mark.parametrize("rows", [80, 100, 140, 250, 370])
def test_evaluations_are_evenly_spread_to_the_end(tmp_path, capsys, rows):
    recipe = small_run.make_recipe(tmp_path)
    small_run.write_files(tmp_path)
    for key in ("eval_strategy", "save_strategy", "steps_per_epoch", "num_train_epochs"):
        del recipe[key]
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    dev = [(number, "the garden is fine", "good") for number in range(rows * 10)]
    small_run.write_tsv(tmp_path / "moods-dev.tsv", ("id", "text", "mood"), dev)

    minbert.main(["check", small_run.write_recipe(tmp_path, recipe), "--max_steps", "30000"])

    printed = capsys.readouterr().out
    wanted = re.search(r"(\d+) evaluations of [\d,]+ rows", printed)
    planned = re.findall(r"(\d+) evaluations? of", printed)
    assert 2 <= int(wanted[1]) <= 10
    assert set(planned) == {wanted[1]}
