"""`CorpusData.from_recipe`: defaults and checks."""

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


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "exactly one source of text.*given: none"),
        ({"validation_file": "a.txt"}, "exactly one source of text.*given: validation_file"),
        ({"dataset": "wiki"}, "unknown dataset 'wiki'; known: sample_text, sst"),
        ({"dataset": "cfimdb"}, "'cfimdb' has no copy on the Hub; give data_dir"),
        ({"dataset": "sample_text", "data_dir": "a"}, "is generated and reads no files"),
        (
            {"dataset": "sst", "text_column": "a"},
            "text_column has no effect for 'sst'; remove it",
        ),
        ({"train_file": "a.txt", "streaming": True}, "streaming has no effect for 'a.txt'"),
    ],
)
def test_sources_that_contradict_each_other_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        parse(**keys)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("validation_share", 1, r"validation_share=1; expected a fraction in \[0, 1\)"),
        ("max_documents", True, "max_documents=True; expected a whole number of at least 1"),
        ("validation_file", [3], r"validation_file=\[3\]; expected a path, a pattern"),
    ],
)
def test_values_of_another_kind_are_refused(key, value, message):
    with pytest.raises(ValueError, match=f"corpus 'mine': {message}"):
        parse(**{"train_file": "a.txt", key: value})


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        ("a.txt", {"text_column": "body"}, "text_column='body' has no effect on .*a.txt"),
        ("a.jsonl", {"documents": "file"}, r"documents='file' has no effect on .*a.jsonl"),
    ],
)
def test_keys_of_other_formats_are_refused(tmp_path, name, keys, message):
    path = tmp_path / name
    path.write_text('{"text": "a"}\n')

    with pytest.raises(ValueError, match=message):
        find_sources(parse(train_file=str(path), **keys))
