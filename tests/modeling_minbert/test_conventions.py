"""The files that travel with the weights follow the conventions of transformers' own models."""

from pathlib import Path

import mlinter
import pytest

import modeling_minbert

PACKAGE = Path(modeling_minbert.__file__).parent
FILES = sorted(mlinter.iter_modeling_files(search_paths=[PACKAGE]))

# TRF057 wants @auto_docstring, which outside of transformers writes docs without the model's name.
RULES = mlinter.DEFAULT_ENABLED_TRF_RULES - {"TRF057"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_follows_the_conventions_of_transformers(path):
    violations = mlinter.analyze_file(path, path.read_text(), RULES)

    assert [mlinter.format_violation(violation) for violation in violations] == []


def test_the_linter_sees_the_model_and_its_configuration():
    names = {path.name for path in FILES}

    assert {"configuration_minbert.py", "modeling_minbert.py"} <= names
