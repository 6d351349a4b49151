"""What type checkers see of the package."""

import os

import pytest

from tests.processes import ROOT, run_python

SCRIPT = """
from typing import assert_type

import modeling_minbert as m
from trainers import Task

tasks = {"same": {"problem_type": "paraphrase"}}
model = m.MinBertForMultiTask.from_pretrained("folder", tasks=tasks)
assert_type(model, m.MinBertForMultiTask)
assert_type(m.MinBertModel.from_pretrained("folder"), m.MinBertModel)
assert_type(m.MinBertForMaskedLM.from_pretrained("folder"), m.MinBertForMaskedLM)
assert_type(m.MinBertForTokenClassification.from_pretrained("f"), m.MinBertForTokenClassification)
assert_type(m.MinBertForQuestionAnswering.from_pretrained("f"), m.MinBertForQuestionAnswering)
assert_type(m.MinBertConfig.from_pretrained("folder"), m.MinBertConfig)
model.config.hidden_size.bit_length()
Task("spam", "classification", [])
Task("spam", "clasification", [])  # type: ignore[arg-type]
"""


@pytest.mark.slow  # mypy reads transformers
def test_models_and_problem_types_have_types(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = ["-m", "mypy", "--strict", "--follow-imports=silent", "script.py"]
    environment = os.environ | {"MYPYPATH": str(ROOT)}

    done = run_python(*command, folder=tmp_path, environment=environment, status=None)

    assert done.stdout.startswith("Success"), done.stdout + done.stderr
