"""The example of the documentation, as ``make quickstart`` runs it."""

import re
from pathlib import Path

import pytest

from modeling_minbert import MinBertForMultiTask
from tests import small_run

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_the_example_of_the_quickstart_is_answered_as_the_page_says(tmp_path):
    page = (ROOT / "docs/start/quickstart.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"minbert predict (minbert --task sst \".*\")", page)
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert command in (ROOT / "Makefile").read_text(encoding="utf-8")
    sentence = command.partition('"')[2].removesuffix('"')
    flags = ["--use_cpu", "--disable_tqdm=true"]
    small_run.train("--output_dir", str(tmp_path / "minbert"), *flags)

    (found,) = MinBertForMultiTask.from_pretrained(tmp_path / "minbert").predict("sst", [sentence])

    assert f"answers `{found['label']}`" in page.replace("\n", " ")
