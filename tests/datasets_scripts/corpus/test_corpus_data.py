"""`CorpusData.from_recipe`: defaults and checks."""

from pathlib import Path

import pytest

from datasets_scripts import CorpusData
from datasets_scripts.corpus import find_sources


def parse(folder_of_the_run=None, **keys):
    return CorpusData.from_recipe("mine", keys, folder_of_the_run)


def test_the_folder_is_joined_to_relative_files():
    data = parse(train_file=["a.txt", "/b.txt"], validation_file="c.txt", data_dir="texts")

    assert data.train_file == ("texts/a.txt", "/b.txt")
    assert data.validation_file == ("texts/c.txt",)


def test_the_folder_of_the_run_is_for_built_in_datasets():
    assert parse("run", train_file="a.txt").train_file == ("a.txt",)
    assert parse("run", dataset="cfimdb").to_task().train_file == "run/ids-cfimdb-train.csv"
    assert parse("run", dataset="sample_text").data_dir is None
    assert parse("run", dataset="sample_sst").to_task().files == {}
    names = [parse(dataset=name).fetched for name in ("quora", "sample_sst", "a/b")]
    assert names == ["nyu-mll/glue:qqp", None, "a/b"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "exactly one source of text.*given: none"),
        ({"validation_file": "a.txt"}, "exactly one source of text.*given: validation_file"),
        ({"dataset": "wiki"}, "unknown dataset 'wiki'; known: sample_text, sst"),
        ({"dataset": "cfimdb"}, "'cfimdb' has no copy on the Hub; give data_dir"),
        ({"dataset": "sample_text", "data_dir": "a"}, "is generated and reads no files"),
        ({"dataset": "sst", "text_column": "a"}, "text_column has no effect for 'sst'; remove it"),
        ({"train_file": "a.txt", "streaming": True}, "streaming has no effect for 'a.txt'"),
        ({"train_file": "a.txt", "text_column": "b"}, "text_column='b' has no effect on .*a.txt"),
        ({"train_file": "a.json", "documents": "file"}, "documents='file' has no effect on .*json"),
        ({"validation_share": 1}, r"validation_share=1; expected a fraction in \[0, 1\)"),
        ({"max_documents": True}, "max_documents=True; expected a whole number of at least 1"),
        ({"validation_file": [3]}, r"validation_file=\[3\]; expected a path, a pattern"),
    ],
)
def test_a_wrong_recipe_is_refused(tmp_path, monkeypatch, keys, message):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.json"):
        Path(name).write_text('{"text": "a"}\n')

    with pytest.raises(ValueError, match=f"'?mine.*{message}"):
        find_sources(parse(**keys))
