"""Exit statuses of all programs: 0 for help, 1 for refused input, 2 for wrong flags."""

import pytest

from minbert_cli import __main__ as minbert

HELP = [(command.name, ["--help"]) for command in minbert.app.registered_commands]
WRONG_FLAGS = [
    ("finetune", ["--no_such_flag", "1"]),
    ("finetune", ["--learning_rate", "fast"]),
    ("finetune", ["--learning_rate"]),
    ("finetune", ["quickstart", "another"]),
    ("finetune", ["--tasks", "no_such_task"]),
    ("finetune", ["--model_config", "{a"]),
    ("pretrain", ["--no_such_flag", "1"]),
    ("pretrain", ["--objective", "next_word"]),
    ("predict", []),
    ("predict", ["folder", "--no_such_flag"]),
    ("predict", ["folder", "--top_k", "0"]),
    ("predict", ["folder", "--query", "a"]),
    ("predict", ["folder", "--embed", "a.npy", "--corpus", "a.txt"]),
    ("embeddings", ["folder"]),
    ("embeddings", ["folder", "--sts", "sts", "--folds", "1.5"]),
    ("export", ["folder"]),
    ("export", ["folder", "--format", "pdf", "--output_dir", "out"]),
    ("export", ["", "--format", "bert", "--output_dir", "out"]),
    ("experiments", ["--seeds", "many"]),
    ("experiments", ["compare", "one"]),
    ("experiments", ["compare", "one", "two", "--no_such_flag", "1"]),
    ("check", []),
    ("check", ["quickstart", "--no_such_flag", "1"]),
    ("recipes", ["sst", "sts"]),
]
REFUSED_INPUT = [
    ("finetune", ["no_such_recipe"]),
    ("finetune", ["--learning_rate", "-1"]),
    ("finetune", ["--model_name_or_path", "no/such/folder"]),
    ("pretrain", ["no_such_recipe"]),
    ("pretrain", ["--mlm_probability", "2"]),
    ("predict", ["no/such/folder", "a text"]),
    ("embeddings", ["no/such/folder", "--sts", "no_such_dataset"]),
    ("export", ["no/such/folder", "--format", "bert", "--output_dir", "out"]),
    ("experiments", ["no_such_file"]),
    ("experiments", ["--seeds", "-1"]),
    ("experiments", ["compare", "one", "one"]),
    ("check", ["no_such_recipe"]),
    ("recipes", ["no_such_recipe"]),
]


def run(capsys, monkeypatch, tmp_path, name, argv):
    """Run a program in an empty folder; return its exit status and what it wrote to stderr."""
    monkeypatch.chdir(tmp_path)
    status = 0
    try:
        minbert.main([name, *argv])
    except SystemExit as exited:
        status = exited.code or 0
    assert list(tmp_path.iterdir()) == []
    return status, capsys.readouterr().err


@pytest.mark.parametrize(("name", "argv"), HELP)
def test_help_is_no_error(capsys, monkeypatch, tmp_path, name, argv):
    assert run(capsys, monkeypatch, tmp_path, name, argv) == (0, "")


@pytest.mark.parametrize(
    ("name", "argv", "expected"),
    [(*case, 2) for case in WRONG_FLAGS] + [(*case, 1) for case in REFUSED_INPUT],
)
def test_a_mistake_is_one_line_with_a_status(capsys, monkeypatch, tmp_path, name, argv, expected):
    status, text = run(capsys, monkeypatch, tmp_path, name, argv)

    assert status == expected
    assert text.startswith(f"minbert {name}: error: ")
    assert text.count("\n") == 1
