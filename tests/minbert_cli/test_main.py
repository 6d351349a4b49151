"""The command ``minbert``: its help, the statuses of its errors, and recipes by name."""

import gc
import importlib
import json
import re
from pathlib import Path

import pytest

import modeling_minbert
from minbert_cli import __main__ as minbert, help as program_help, recipes
from minbert_cli.command_line import quick_imports
from tests.processes import ENVIRONMENT, ROOT, run_python

PAGES = json.loads(program_help.FILE.read_text(encoding="utf-8"))
COMMANDS = [command.name for command in minbert.app.registered_commands]
# Others are among the frozen messages.
WRONG_FLAGS = [
    "finetune --model_config {a",
    "experiments --seeds many",
    "recipes sst sts",
]
REFUSED_INPUT = [
    "experiments no_such_file",
]


def test_the_help_lists_the_commands(capsys):
    minbert.main([])
    minbert.main(["--help"])

    first, second = capsys.readouterr().out.split("Usage: minbert")[1:]
    assert first == second
    assert all(f"  {name} " in first for name in COMMANDS)


def test_help_does_not_wait_for_torch():
    code = f"""
import sys
from minbert_cli import main
for name in {COMMANDS}:
    try:
        main([name, "--help"])
    except SystemExit as stopped:
        assert stopped.code == 0
    assert "torch" not in sys.modules, name
"""
    printed = run_python("-c", code).stdout.lower()

    assert all(f"usage: minbert {name}" in printed for name in COMMANDS)


def test_the_shell_completes_commands():
    words = {"_MINBERT_COMPLETE": "complete_bash", "COMP_WORDS": "minbert pre", "COMP_CWORD": "1"}

    done = run_python("-m", "minbert_cli", environment=ENVIRONMENT | words)
    assert done.stdout.split() == ["pretrain", "predict"]


@pytest.mark.parametrize("name", ["finetune.py", "pretrain.py"])
def test_a_program_at_the_top_level_shows_the_help_of_its_command(name):
    assert run_python(ROOT / name, "--help").stdout.startswith("usage: minbert ")


def test_the_version_is_that_of_the_package(capsys):
    minbert.main(["--version"])

    assert capsys.readouterr().out == f"minbert {modeling_minbert.__version__}\n"


@pytest.mark.parametrize("program", PAGES)
def test_the_help_is_that_of_the_dataclasses_and_its_examples_run(program):
    declared = program_help.list_flags(program)
    groups = PAGES[program]["groups"].values()

    for flags in groups:
        current = {name: declared[name] for name in flags}
        assert flags == current, "run `python -m minbert_cli.help`"
    common = [name for flags in groups for name in flags]
    assert len(set(common)) == len(common)
    declared |= program_help.list_flags("finetune")
    examples = "\n".join(PAGES[program]["text"]).partition("examples:")[2]
    for line in re.findall(r"^  minbert .*", examples, re.MULTILINE):
        words = line.split("  ")[1].split()
        assert {*words[2:3]} <= {*recipes.list_recipes()}, line
        flags = [word[2:].partition(".")[0] for word in words if word.startswith("--")]
        assert {*flags} <= declared.keys(), line


@pytest.mark.parametrize(
    ("words", "expected"),
    [(words, 2) for words in WRONG_FLAGS] + [(words, 1) for words in REFUSED_INPUT],
)
def test_a_mistake_is_one_line_with_a_status(capsys, monkeypatch, tmp_path, words, expected):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SystemExit) as stopped:
        minbert.main(words.split())

    text = capsys.readouterr().err
    assert stopped.value.code == expected
    assert text.startswith(f"minbert {words.split()[0]}: error: ")
    assert text.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_recipe_is_found_by_name_unless_there_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert recipes.find_recipe("glue/cola") == ROOT / "recipes/glue/cola.yaml"
    for name, message in (
        ("glue/colla", r"did you mean 'glue/cola'"),
        ("recipes/cs224n.yml", r"did you mean 'cs224n'"),
        ("?", r"known: cfimdb, "),
    ):
        with pytest.raises(FileNotFoundError, match=message):
            recipes.find_recipe(name)

    Path("sst").write_text("tasks: {}")
    assert recipes.find_recipe("sst") == Path("sst")


def test_the_list_has_every_recipe_with_its_first_line(capsys):
    minbert.main(["recipes"])

    text = capsys.readouterr().out
    assert all(f"\n{name} " in f"\n{text}" for name in recipes.list_recipes())
    assert all(len(line) <= 100 for line in text.splitlines())
    assert all(recipes.describe_recipe(name).endswith(".") for name in recipes.list_recipes())

    minbert.main(["recipes", "glue/cola"])
    assert capsys.readouterr().out == (ROOT / "recipes/glue/cola.yaml").read_text("utf-8")


def test_only_what_a_command_imports_is_kept_from_the_search_for_garbage(tmp_path, monkeypatch):
    (tmp_path / "a_module_of_this_test.py").write_text("ROWS = [[] for _ in range(100)]\n")
    monkeypatch.syspath_prepend(tmp_path)
    frozen = gc.get_freeze_count()
    with quick_imports():
        assert not gc.isenabled()
    assert (gc.isenabled(), gc.get_freeze_count()) == (True, frozen)
    try:
        with quick_imports():
            importlib.import_module("a_module_of_this_test")
        assert gc.get_freeze_count() >= frozen + 100
    finally:
        gc.unfreeze()
