"""`CorpusData.from_recipe`: defaults and checks."""

import pytest

from datasets_scripts import CorpusData
from datasets_scripts.corpus.sources import find_sources


def parse(folder_of_the_run=None, **keys):
    return CorpusData.from_recipe("mine", keys, folder_of_the_run)


def test_files_are_paths_patterns_or_lists_of_them():
    data = parse(train_file=["a.txt", "b/*.jsonl"], validation_file="c.txt")

    assert data.train_file == ("a.txt", "b/*.jsonl")
    assert data.validation_file == ("c.txt",)


def test_the_folder_is_joined_to_relative_files():
    data = parse(train_file=["a.txt", "/b.txt"], validation_file="c.txt", data_dir="texts")

    assert data.train_file == ("texts/a.txt", "/b.txt")
    assert data.validation_file == ("texts/c.txt",)


def test_the_folder_of_the_run_is_for_built_in_datasets():
    assert parse("run", train_file="a.txt").train_file == ("a.txt",)
    assert parse("run", dataset="cfimdb").to_task().train_file == "run/ids-cfimdb-train.csv"
    assert parse("run", dataset="sample_text").data_dir is None
    assert parse("run", dataset="sample_sst").to_task().files == {}


def test_the_folder_of_a_corpus_beats_the_folder_of_the_run():
    data = parse("run", dataset="cfimdb", data_dir="own")

    assert data.to_task().train_file == "own/ids-cfimdb-train.csv"


def test_a_dataset_with_an_owner_is_on_the_hub():
    assert parse(dataset="owner/texts:small").hub_id == "owner/texts:small"
    assert parse(hub_id="owner/texts").hub_id == "owner/texts"


def test_the_built_in_text_has_a_sentence_on_each_line():
    assert parse(dataset="sample_text").sentences == "line"


def test_empty_keys_are_defaults():
    assert parse(train_file="a.txt", validation_file=None, language=None) == parse(
        train_file="a.txt"
    )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"train_fiel": "a"},
            r"corpus 'mine': unknown key 'train_fiel'; did you mean 'train_file'",
        ),
        ({}, "exactly one source of text.*given: none"),
        ({"dataset": "sst", "hub_id": "a/b"}, "exactly one source of text.*given: dataset, hub_id"),
        ({"hub_id": "a/b", "train_file": "a.txt"}, "given: hub_id, train_file"),
        ({"validation_file": "a.txt"}, "exactly one source of text.*given: validation_file"),
        ({"dataset": "wiki"}, "unknown dataset 'wiki'; known: sample_text, sst"),
        ({"dataset": "cfimdb"}, "'cfimdb' has no copy on the Hub; give data_dir"),
        ({"dataset": "sample_text", "data_dir": "a"}, "is generated and reads no files"),
        (
            {"dataset": "sst", "text_column": "a"},
            "text_column has no effect for 'sst'; remove it",
        ),
        ({"hub_id": "a/b", "documents": "line"}, "documents has no effect for 'a/b'"),
        ({"hub_id": ".", "revision": "v1"}, "revision='v1' has no effect on local data"),
        ({"train_file": "a.txt", "revision": "v1"}, "revision has no effect for 'a.txt'"),
        ({"hub_id": "a/b", "data_dir": "c"}, "data_dir has no effect for 'a/b'"),
        ({"train_file": "a.txt", "streaming": True}, "streaming has no effect for 'a.txt'"),
        (
            {"train_file": "a.txt", "sentences": "line", "language": "de"},
            "language='de' has no effect with sentences: line",
        ),
    ],
)
def test_sources_that_contradict_each_other_are_refused(keys, message):
    with pytest.raises(ValueError, match=message):
        parse(**keys)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("validation_share", 1, r"validation_share=1; expected a fraction in \[0, 1\)"),
        ("validation_share", "a", "validation_share='a'; expected a fraction"),
        (
            "documents",
            "page",
            "documents='page'; known: blank_line, file, line",
        ),
        ("sentences", "prose", "sentences='prose'; known: split, line"),
        ("language", False, "language=False; expected text; quote it"),  # Norwegian in YAML
        ("language", "english", "language='english'; expected the code of a language with rules"),
        ("language", "xq", "language='xq'; expected .* with sentences: line every line is"),
        ("language", "de_DE", "language='de_DE'; expected the code of a language"),
        ("streaming", "yes", "streaming='yes'; expected true or false"),
        ("max_documents", 0, "max_documents=0; expected a whole number of at least 1"),
        ("max_documents", True, "max_documents=True; expected a whole number of at least 1"),
        ("max_invalid_fraction", 2, r"max_invalid_fraction=2; expected a fraction in \[0, 1\]"),
        ("train_file", [], r"train_file=\[\]; expected a path, a pattern or a list of them"),
        ("validation_file", [3], r"validation_file=\[3\]; expected a path, a pattern"),
    ],
)
def test_values_of_another_kind_are_refused(key, value, message):
    with pytest.raises(ValueError, match=f"corpus 'mine': {message}"):
        parse(**{"train_file": "a.txt", key: value})


def test_a_share_beside_held_out_files_is_refused():
    with pytest.raises(ValueError, match=r"validation_share=0\.2 has no effect with"):
        parse(train_file="a.txt", validation_file="b.txt", validation_share=0.2)


def test_only_data_of_the_hub_have_a_name_there(tmp_path):
    assert parse(hub_id="owner/name:config").hub_dataset == "owner/name"
    assert parse(hub_id=str(tmp_path)).hub_dataset is None
    assert parse(train_file="a.txt").hub_dataset is None


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
        find_sources(parse(train_file=str(path), **keys), None)
