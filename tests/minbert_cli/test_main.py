"""The command ``minbert``, and recipes by name."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from minbert_cli import __main__ as minbert
from minbert_cli import command_line, resources
from minbert_cli.experiments.compare import ComparisonArguments
from minbert_cli.experiments.experiment_arguments import ExperimentArguments
from trainers import FinetuneArguments, PretrainArguments, ProgramTrainingArguments

ROOT = Path(__file__).parents[2]


def test_the_help_lists_the_commands(capsys):
    minbert.main([])
    minbert.main(["--help"])

    first, second = capsys.readouterr().out.split("usage: minbert")[1:]
    assert first == second
    assert all(f"  {name} " in first for name in minbert.COMMANDS)


@pytest.mark.parametrize("name", minbert.COMMANDS)
def test_help_does_not_wait_for_torch(name):
    code = f"""
import sys
from minbert_cli.__main__ import main
try:
    main([{name!r}, "--help"])
except SystemExit as stopped:
    assert stopped.code == 0
assert "torch" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.startswith(f"usage: minbert {name}")


@pytest.mark.parametrize("path", sorted(ROOT.glob("*.py")), ids=lambda path: path.name)
def test_a_program_at_the_top_level_shows_the_help_of_its_command(path):
    if path.name == "setup.py":
        return
    done = subprocess.run(
        [sys.executable, path, "--help"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("usage: minbert ")
    assert done.stderr == ""


@pytest.mark.parametrize("argv", [["-h"], ["recipe.yaml", "--help"], ["compare", "--help"]])
def test_help_may_follow_other_arguments(capsys, argv):
    minbert.main(["experiments", *argv])

    text = capsys.readouterr().out
    assert "compare FIRST_RUN SECOND_RUN" in text
    assert "--overrides dict[str, Any] | None" in text
    assert "--resamples int" in text


@pytest.mark.parametrize(
    "kind",
    [
        ExperimentArguments,
        ComparisonArguments,
        FinetuneArguments,
        PretrainArguments,
        ProgramTrainingArguments,
    ],
)
def test_the_help_has_every_flag_with_the_text_of_its_field(kind):
    options = command_line.read_options(kind.__name__)

    declared = {entry.name: entry for entry in fields(kind) if entry.init}
    assert options.keys() == declared.keys()
    for name, entry in declared.items():
        assert options[name].help == entry.metadata.get("help", ""), name
        if isinstance(entry.default, int | str):
            assert str(entry.default) in options[name].default or name == "optim"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("finetun", "unknown command 'finetun'; did you mean 'finetune'?"),
        ("x", "unknown command 'x'; known: finetune, pretrain, predict, embeddings, export, exp"),
    ],
)
def test_an_unknown_command_is_one_line(capsys, name, message):
    with pytest.raises(SystemExit) as stopped:
        minbert.main([name])

    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"minbert: error: {message}")


def test_a_subcommand_gets_its_arguments(capsys):
    with pytest.raises(SystemExit):
        minbert.main(["finetune", "cs224m"])

    assert "minbert finetune: error: recipe 'cs224m' is not a file" in capsys.readouterr().err


def test_a_recipe_is_found_by_name_unless_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resources.find_recipe("glue/cola") == ROOT / "recipes/glue/cola.yaml"

    Path("sst").write_text("tasks: {}")
    assert resources.find_recipe("sst") == Path("sst")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("glue/colla", r"did you mean 'glue/cola'"),
        ("recipes/cs224n.yml", r"did you mean 'cs224n'"),
        ("?", r"names: cfimdb, "),
    ],
)
def test_a_misspelt_recipe_is_refused(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=message):
        resources.find_recipe(name)


def test_a_command_shows_the_name_of_a_packaged_recipe():
    argv = resources.with_recipe(["glue/cola", "--seed", "1"])

    assert argv[0] == str(ROOT / "recipes/glue/cola.yaml")
    assert resources.with_recipe_name(argv) == ["glue/cola", "--seed", "1"]
    assert resources.with_recipe_name(["--seed", "1"]) == ["--seed", "1"]
    assert resources.with_recipe_name(["recipes/sst.yaml"]) == ["recipes/sst.yaml"]
