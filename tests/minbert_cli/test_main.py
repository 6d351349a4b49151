"""The command ``minbert``, and recipes by name."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import modeling_minbert
from minbert_cli import __main__ as minbert, help as program_help, recipes

ROOT = Path(__file__).parents[2]
PAGES = json.loads(program_help.FILE.read_text(encoding="utf-8"))
COMMANDS = [command.name for command in minbert.app.registered_commands]


def test_the_help_lists_the_commands(capsys):
    minbert.main([])
    minbert.main(["--help"])

    first, second = capsys.readouterr().out.split("Usage: minbert")[1:]
    assert first == second
    assert all(f"  {name} " in first for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
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

    assert done.stdout.lower().startswith(f"usage: minbert {name}")


def test_the_shell_completes_commands():
    words = {"_MINBERT_COMPLETE": "complete_bash", "COMP_WORDS": "minbert pre", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "minbert_cli"]
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ | words, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["pretrain", "predict"]


@pytest.mark.parametrize("name", ["finetune.py", "pretrain.py"])
def test_a_program_at_the_top_level_shows_the_help_of_its_command(name):
    done = subprocess.run(
        [sys.executable, ROOT / name, "--help"],
        cwd=ROOT.parent,
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.startswith("usage: minbert ")
    assert done.stderr == ""


def test_the_version_is_that_of_the_package(capsys):
    minbert.main(["--version"])

    assert capsys.readouterr().out == f"minbert {modeling_minbert.__version__}\n"


def test_the_common_flags_are_those_of_the_dataclasses():
    for program, page in PAGES.items():
        declared = program_help.list_flags(program)
        common = [name for flags in page["groups"].values() for name in flags]
        assert len(set(common)) == len(common)
        for flags in page["groups"].values():
            current = {name: declared[name] for name in flags}
            assert flags == current, "run `python -m minbert_cli.help`"


def test_the_help_is_short_and_names_defaults_in_plain_words(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    minbert.main(["finetune", "--help"])

    text = capsys.readouterr().out
    assert len(text.splitlines()) < 90
    assert "--weight_averaging one of ema, swa" in text
    assert "by default chosen by the width of the model.\n" in text
    assert "--weight_decay" not in text
    assert not re.search(r" \| None|dict\[|Literal|None\b|True\b", text)


@pytest.mark.parametrize("program", PAGES)
def test_the_examples_of_the_help_name_recipes_and_flags(program):
    declared = program_help.list_flags(program) | program_help.list_flags("finetune")
    examples = "\n".join(PAGES[program]["text"]).partition("examples:")[2]
    for line in re.findall(r"^  minbert .*", examples, re.MULTILINE):
        words = line.split("  ")[1].split()
        for word in words[2:3]:
            assert word in recipes.list_recipes(), line
        for word in words:
            if word.startswith("--"):
                assert word[2:].partition(".")[0] in declared, line


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("finetun", "No such command 'finetun'. Did you mean 'finetune'?"),
        ("x", "No such command 'x'. (see minbert --help)"),
    ],
)
def test_an_unknown_command_is_one_line(capsys, name, message):
    with pytest.raises(SystemExit) as stopped:
        minbert.main([name])

    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(f"minbert: error: {message}")


def test_a_recipe_is_found_by_name_unless_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipes.find_recipe("glue/cola") == ROOT / "recipes/glue/cola.yaml"

    Path("sst").write_text("tasks: {}")
    assert recipes.find_recipe("sst") == Path("sst")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("glue/colla", r"did you mean 'glue/cola'"),
        ("recipes/cs224n.yml", r"did you mean 'cs224n'"),
        ("?", r"known: cfimdb, "),
    ],
)
def test_a_misspelt_recipe_is_refused(tmp_path, monkeypatch, name, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=message):
        recipes.find_recipe(name)
