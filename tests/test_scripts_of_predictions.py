"""Predictions keep the characters of all scripts, in every format."""

import csv
import json

import pytest

from minbert_cli import __main__ as minbert
from tests import small_run

ODD = {
    "zero-width non-joiner": "می‌خواهم",
    "zero-width joiner": "क्‍ष, 👩‍👩‍👧",
    "soft hyphen": "Donau\u00addampfschiff",
    "ideographic space": "北京\u3000上海",
    "no-break space": "10\u00a0km",
    "direction marks": "\u200f\u05e9\u05dc\u05dd\u200e",
    "private use": "\uf8ff",
    "variation selector": "❤\ufe0f",
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    tasks = {"tone": {"problem_type": "classification", "labels": ["好", "坏\u3000的"]}}
    small_run.save_model(folder, tasks, ["a"], max_position_embeddings=512)
    return folder


def run(checkpoint, texts, output):
    source = output.parent / "texts.jsonl"
    lines = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    source.write_text(lines, encoding="utf-8")
    flags = ["--file", str(source), "--text_columns", "text", "--output", str(output)]
    minbert.main(["predict", str(checkpoint), *flags, "--device", "cpu"])
    content = output.read_bytes().decode("utf-8")
    if output.suffix == ".jsonl":
        return [json.loads(line)["text"] for line in content.split("\n")[:-1]]
    if output.suffix == ".csv":
        return [row["text"] for row in csv.DictReader(content.splitlines(keepends=True))]
    return [line.split("\t")[2] for line in content.split("\n")[1:-1]]


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_what_is_printable_to_somebody_is_kept(checkpoint, tmp_path, suffix):
    texts = [*ODD.values()]

    assert run(checkpoint, texts, tmp_path / f"found.{suffix}") == texts
