"""The installed wheel works far from any clone."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path

import pytest

from tests.processes import ROOT, run_python

RECIPES = {path.relative_to(ROOT / "recipes") for path in (ROOT / "recipes").rglob("*.yaml")}
PACKAGES = ("minbert_cli", "modeling_minbert", "trainers", "datasets_scripts")
PACKAGES += ("minbert_onnx",)
FILES = ("setup.py", "minbert.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE")
BUILD = "import sys; from setuptools import build_meta; build_meta.build_{}(sys.argv[1])"
# Parses every recipe by its name with the program that reads it.
PARSE = """
import json
from minbert_cli import finetune, pretrain, recipes
from minbert_cli.experiment_plan import read_file
from minbert_cli import find_program, load_kinds
from minbert_cli import fill_arguments, read_recipe

runs = 0
for name in recipes.list_recipes():
    path, flags = recipes.find_recipe(name), ["--use_cpu", "true"]
    text, recipe = path.read_text(encoding="utf-8"), read_recipe(path)
    kind = find_program(recipe)
    if kind == "experiments":
        runs += sum(len(row.runs) for row in read_file([str(path)])[1])
        continue
    if "--model_name_or_path" in text:
        flags += ["--model_name_or_path", "weights"]
    fill_arguments(load_kinds(kind), recipe, flags, where=path)
found = {
    "file": recipes.__file__,
    "recipes": recipes.list_recipes(),
    "runs": runs,
    "quickstarts": [program.QUICKSTART.is_file() for program in (finetune, pretrain)],
    "card": recipes.MODEL_CARD.read_text(encoding="utf-8"),
}
print(json.dumps(found))
"""

pytestmark = pytest.mark.slow


def build(kind, folder):
    """Build from a copy of the sources, and return the folder it is unpacked to."""
    pytest.importorskip("setuptools")
    source = folder / "source"
    for name in (*PACKAGES, "recipes"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in (*FILES, "model_card.md"):
        shutil.copy(ROOT / name, source)
    command = [sys.executable, "-c", BUILD.format(kind), str(folder)]
    subprocess.run(command, cwd=source, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Return a folder with the installed wheel; the sources are gone."""
    folder = build("wheel", tmp_path_factory.mktemp("wheel"))
    shutil.rmtree(folder.with_name("source"))
    return folder


@pytest.fixture
def run(installed, tmp_path):
    """Return a function that runs Python with the wheel, in an empty folder, without a network."""

    environment = os.environ | {"PYTHONPATH": str(installed), "HF_HUB_OFFLINE": "1"}
    return partial(run_python, folder=tmp_path, environment=environment)


def test_every_recipe_is_found_by_name(run, installed):
    found = json.loads(run("-c", PARSE).stdout.splitlines()[-1])

    assert Path(found["file"]).is_relative_to(installed)
    assert set(found["recipes"]) == {path.with_suffix("").as_posix() for path in RECIPES}
    assert found["runs"] > 40
    assert found["quickstarts"] == [True, True]
    assert found["card"] == (ROOT / "model_card.md").read_text(encoding="utf-8")
    assert "model and data:" in run("-m", "minbert_cli", "finetune", "--help").stdout


def test_experiments_start_their_runs(run, tmp_path):
    flags = ["--rows", "plain", "--seeds", "1", "--max_steps", "2", "--use_cpu", "true"]

    run("-m", "minbert_cli", "experiments", "experiments/quickstart", *flags)

    assert "| plain" in (tmp_path / "runs/experiments/table.md").read_text()
