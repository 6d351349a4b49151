"""``minbert check``."""

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


@pytest.mark.usefixtures("folder")
def test_a_pre_training_is_checked_by_its_keys(capsys):
    recipe = "corpus: {mine: {train_file: text.txt}}\ntrain_tokenizer: true\n" + TINY
    Path("recipe.yaml").write_text(recipe.replace("vocab_size: 200, ", ""))
    minbert.main(["check", "recipe.yaml"])

    text = capsys.readouterr().out
    assert "text: pretraining, mine, " in text
    assert text.endswith("\nok\n")
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("recipe", "flags", "message"),
    [
        ("seed: 1", (), "recipe.yaml: no key says which program it is for"),
        ("rows: {a: {base: sst}}", (), "use minbert experiments FILE --dry_run"),
        (FINETUNE, ("--tasks.own.label_column", "lable"), "'lable'"),
        (FINETUNE, ("--model_name_or_path", "no/such/folder"), "no/such/folder"),
        (FINETUNE, ("--learning_rate", "-1"), "learning_rate"),
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
