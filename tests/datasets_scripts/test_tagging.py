"""Words with tags: read from every format in one scheme, or refused by line, and cut to windows."""

import json
import re

import datasets
import pytest
from transformers import BertTokenizer

from datasets_scripts import Encoding, TaskData, encode_tagged, load_task
from modeling_minbert import TASKS, cut_word_windows
from tests.small_run import write_hub

IOB1 = """-DOCSTART- -X- O O

Ann NNP I-NP I-PER
Lee NNP I-NP I-PER
Bob NNP I-NP B-PER
left VBD I-VP O

Rome NNP I-NP I-LOC

-DOCSTART- -X- O O

EU NNP I-NP I-ORG
of IN I-PP I-LOC"""
UNIVERSAL = "".join(
    f"{line}{f'{chr(9)}_' * 6}\n"
    for line in ("1-2\tdu\t_\t_", "1\tde\tde\tADP", "2\tle\tle\tDET", "3\tchat\tchat\tNOUN")
)
LABELS = ("O", "B-LOC", "I-LOC", "B-ORG", "I-ORG", "B-PER", "I-PER")
# Ann Lee met Bob in New York City; spans of two words, of one, and of three, and two in a row
WORDS = ["Ann", "Lee", "Bob", "went", "to", "New", "York", "City", "."]
SPANS = "B-PER I-PER B-PER O O B-LOC I-LOC I-LOC O"
SCHEMES = {
    "IOB2": SPANS,
    "IOB1": "I-PER I-PER B-PER O O I-LOC I-LOC I-LOC O",
    "BIOES": "B-PER E-PER S-PER O O B-LOC I-LOC E-LOC O",
    "BILOU": "B-PER L-PER U-PER O O B-LOC I-LOC L-LOC O",
    "BMES": "B-PER E-PER S-PER O O B-LOC M-LOC E-LOC O",
    "underscores": SPANS.replace("-", "_"),
}


def load(folder, train, validation=None, test=None, suffix="conll", **keys):
    """Load sentences, which are also the validation rows unless others are given."""
    task = {"problem_type": "token_classification"}
    files = {"train": train, "validation": validation or train, "test": test}
    for split, text in files.items():
        if text is not None:
            path = folder / f"my.{split}.{suffix}"
            path.write_text(text, encoding="utf-8", newline="")
            task[f"{split}_file"] = str(path)
    return load_task(TaskData.from_recipe("ner", task | keys))


def names(task, split="train"):
    return [" ".join(task.labels[tag] for tag in tags) for tags in task.splits[split]["tags"]]


def write_lines(tags):
    return "".join(f"{word} {tag}\n" for word, tag in zip(WORDS, tags.split(), strict=True))


def test_sentences_documents_and_tags_are_read_and_test_rows_may_lack_tags(tmp_path, caplog):
    task = load(tmp_path, IOB1, test="Ann\nleft\n")

    assert task.labels == LABELS
    rows = task.splits["train"]
    assert rows["words"][:] == [["Ann", "Lee", "Bob", "left"], ["Rome"], ["EU", "of"]]
    assert names(task) == ["B-PER I-PER B-PER O", "B-LOC", "B-ORG B-LOC"]
    assert rows["document"][:] == [1, 1, 2]  # the last sentence has no empty line behind it
    assert rows["id"][:] == ["0", "1", "2"]
    assert task.facts["train"] == {"rows": 3, "usable_rows": 3}
    assert task.splits["test"].column_names == ["id", "words", "document"]
    assert "read without tags" not in caplog.text
    load(tmp_path, IOB1, test="Ann I-PER\nleft O\n")
    assert "my.test.conll: read without tags, since its columns are not those of" in caplog.text


def test_the_official_files_of_conll2003_are_found(tmp_path):
    (tmp_path / "eng.train").write_text(IOB1 + "\n\nx X O O\ny X I-NP B-PER\n")
    (tmp_path / "eng.testa").write_text(IOB1)

    # the training file has a B- after an O, as the official one
    task = load_task(TaskData.from_recipe("ner", {"dataset": "conll2003"}, tmp_path))

    assert task.labels == LABELS
    assert names(task)[-1] == "O B-PER"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_marks_the_same_entities(scheme, tmp_path):
    task = load(tmp_path, write_lines(SCHEMES[scheme]))

    assert (task.splits["train"]["words"][:], names(task)) == ([WORDS], [SPANS])
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.mark.parametrize("scheme", [scheme for scheme in SCHEMES if scheme != "underscores"])
def test_letters_alone_are_tags_of_spans(scheme, tmp_path):
    text = write_lines(re.sub("-[A-Z]+", "", SCHEMES[scheme]))

    assert names(load(tmp_path, text)) == [re.sub("[A-Z]{3}", "entity", SPANS)]
    assert load(tmp_path, text, scheme="plain").labels[0] == "O"


@pytest.mark.parametrize("scheme", [None, "spans", "plain"])
def test_a_declared_scheme_is_part_of_the_task(scheme, tmp_path):
    task = load(tmp_path, "a B-X\nb I-X\n", scheme=scheme)

    facts = task.head_facts() | {"max_length": 9}
    assert TASKS["token_classification"].complete({}, facts).get("scheme") == scheme


def test_lists_of_tags_with_declared_names_are_converted(tmp_path):
    declared = sorted(set(SCHEMES["BIOES"].split()))
    tags = [declared.index(tag) for tag in SCHEMES["BIOES"].split()]
    for numbers in (tags, list(map(float, tags))):
        line = json.dumps({"tokens": WORDS, "tags": numbers})
        task = load(tmp_path, line, suffix="jsonl", labels=declared)
        assert names(task) == [SPANS]
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert load(tmp_path, "a I-X\nb O\n", labels=["O", "I-X"]).labels == ("O", "B-X", "I-X")
    # a part of speech with a hyphen is no end of a span
    assert load(tmp_path, "Ann NN\nruns S-V\nnow RB\n").labels == ("NN", "RB", "S-V")


def test_names_that_a_file_declares_for_the_usual_column_are_read(tmp_path):
    text, tag = datasets.Value("string"), datasets.ClassLabel(names=["O", "B-X"])
    features = {"tokens": datasets.List(text), "tags": datasets.List(tag)}
    rows = {"tokens": [["a", "b"]], "tags": [[0, 1]]}
    hub_id = write_hub(tmp_path, datasets.Features(features), train=rows, validation=rows)
    file = f"{hub_id}/data/train-00000-of-00001.parquet"

    for keys in ({"hub_id": hub_id}, {"train_file": file, "validation_file": file}):
        keys["problem_type"] = "token_classification"
        assert names(load_task(TaskData.from_recipe("ner", keys))) == ["O B-X"]


@pytest.mark.parametrize("missing", [None, -1, -100])
def test_a_word_without_a_tag_of_declared_names_is_a_problem(tmp_path, missing):
    tag = datasets.List(datasets.ClassLabel(names=["NOUN", "VERB"]))
    features = datasets.Features({"tokens": datasets.List(datasets.Value("string")), "tags": tag})
    rows = {"tokens": [["a", "b"]] * 3, "tags": [[0, 1], [0, missing], [missing] * 2]}
    test = {"tokens": [["a", "b"]], "tags": [[missing] * 2]}
    hub_id = write_hub(tmp_path, features, train=rows, validation=rows, test=test)
    keys = {"problem_type": "token_classification", "hub_id": hub_id}

    task = load_task(TaskData.from_recipe("ner", {**keys, "max_invalid_fraction": 0.7}))

    assert [row.reason.partition(",")[0] for row in task.bad_rows] == ["word 2", "no tags"] * 2
    assert (task.labels, names(task)) == (("NOUN", "VERB"), ["NOUN VERB"])
    assert "tags" not in task.splits["test"].column_names


def test_negative_numbers_that_are_names_are_tags(tmp_path):
    line = json.dumps({"tokens": ["a", "b"], "tags": [-1, 1]})

    assert names(load(tmp_path, line, suffix="jsonl", labels=["-1", "1"])) == ["-1 1"]


def test_white_space_of_other_kinds_is_a_word(tmp_path):
    task = load(tmp_path, "\u00a0 O\n\x85 O\n\u200b I-PER\nleft O\n")

    assert task.splits["train"]["words"][:] == [["\u00a0", "\x85", "\u200b", "left"]]


@pytest.mark.parametrize(
    ("metadata", "documents"),
    [
        ("# text = Ann Lee", [0, 0]),
        ("# source=web part 4", [0, 0]),
        ("# id 1 domain=train\n# text = a b", [0, 0]),
        ("# newdoc id = a\n# sent_id = 1", [1, 2]),
    ],
)
def test_metadata_is_no_word_and_may_begin_a_document(metadata, documents, tmp_path):
    sentences = ["Ann _ _ B-PER\nleft _ _ O\n", "Oslo _ _ B-LOC\n"]
    task = load(tmp_path, "".join(f"{metadata}\n{sentence}\n" for sentence in sentences))

    assert task.splits["train"]["words"][:] == [["Ann", "left"], ["Oslo"]]
    assert task.splits["train"]["document"][:] == documents
    assert names(task) == ["B-PER O", "B-LOC"]
    assert not task.bad_rows


@pytest.mark.parametrize(
    ("train", "validation", "keys", "message"),
    [
        (IOB1, "Ann X X I-PER\nleft X O\n", {}, r"1 of 1 .*line 2: 3 columns, but the first"),
        (IOB1, "Ann X X I-PER\n\nhe X X I-XYZ\n", {}, r"1 of 2 .*line 3: unknown tag 'I-XYZ'; "),
        ("a B-A\nb A\n", "a O\n", {}, r"my.train.conll:1: the tag 'A' is not part of a span"),
        ("a A\nb B\n", "a O\n", {"scheme": "spans"}, r"my.train.conll:1: the tag 'A' is not part"),
        ("a A-B\nb A-I\n", "a O\n", {}, "tags 'A-B', 'A-I' are like those of spans, but written"),
        ("a b-A\nb i-A\n", "a O\n", {}, "tags 'b-A', 'i-A' are like those of spans, but written"),
        ("a B-A\n", "a XYA\n", {}, r"line 1: unknown tag 'XYA'"),
        ("-DOCSTART- -X- O O\n\n", IOB1, {}, "my.train.conll: the file has no tokens"),
        ("a O\n", "a O\n", {}, r"the training rows have the tags \['O'\], at least two"),
        (IOB1, IOB1, {"label_column": 7}, r"no column 7; the first line has 4 columns"),
        (IOB1, IOB1, {"label_column": "ner"}, "have no names: give a number from 0"),
        ("Ann,B-PER\n", "a,O\n", {}, "same column, with 'Ann,B-PER'; .* a space, not by ','"),
        ("a O\nb B-X\n", "a\n", {}, r"validation.conll: words and tags .*a tab or a space$"),
        ("a 0\nb 2\n", "a 0\n", {}, "train.conll: the tags are the numbers '0', '2'; give labels"),
        (
            *('{"tokens": ["a", "b"], "tags": [0.0, 0.5]}\n', None, {"suffix": "jsonl"}),
            "the tags are the numbers '0', '0.5'; give labels",
        ),
        (UNIVERSAL, UNIVERSAL, {"label_column": 3}, "CoNLL-U .*; give both keys"),
        (IOB1, IOB1, {"scheme": "bio"}, "scheme='bio'; .*known: spans, plain"),
        (
            *('{"tokens": ["a", "b"], "tags": [0, 1]}', '{"tokens": ["a", "b"], "tags": [0, 9]}'),
            *({"suffix": "jsonl", "labels": ["O", "B-X"]}, "unknown tag '9'"),
        ),
        (
            *('{"tokens": ["a", "b"], "tags": ["O", "1"]}\n', None),
            *({"suffix": "jsonl", "labels": ["O", "B-X"]}, "unknown tag '1'"),
        ),
        (
            *('{"tokens": ["a", "b"], "tags": [0, -100]}\n', None),
            *({"suffix": "jsonl", "labels": ["O", "B-X"]}, "line 1: word 2, 'b', has no tag, but"),
        ),
        (
            *('{"tokens": ["a", "b"], "tags": [null, "B-X"]}\n', None, {"suffix": "jsonl"}),
            "line 1: word 1, 'a', has no tag, but null or a negative number; every word needs",
        ),
        (
            *('{"tokens": ["a", "b"], "tags": ["O", "B-a name"]}\n', None, {"suffix": "jsonl"}),
            "the tag 'B-a name' has white space, which separates",
        ),
    ],
)
def test_bad_files_are_refused_by_line(tmp_path, train, validation, keys, message):
    with pytest.raises(ValueError, match=message) as caught:
        load(tmp_path, train, validation, **keys)

    assert "\n" not in str(caught.value)


def test_contractions_of_conllu_are_no_words(tmp_path):
    task = load(tmp_path, UNIVERSAL, text_columns="1", label_column=3)

    assert task.splits["train"]["words"][:] == [["de", "le", "chat"]]
    assert (task.labels, names(task)) == (("ADP", "DET", "NOUN"), ["ADP DET NOUN"])
    plain = load(tmp_path, "a 0\nb 2\n", scheme="plain")
    assert plain.labels == ("0", "2")
    for text in ("a 0\nb 2\n", "a 0.0\nb 2.0\n"):
        assert names(load(tmp_path, text, labels=["O", "B-X", "I-X"])) == ["O B-X"]


def test_ten_columns_are_conllu_only_if_they_begin_with_numbers(tmp_path):
    rows = [[word, *"........", tag] for word, tag in (("1", "O"), ("2-3", "B-X"), ("win", "O"))]
    text = "".join(" ".join(row) + "\n" for row in rows)

    numbered = load(tmp_path, text, text_columns="0", label_column=9)
    assert numbered.splits["train"]["words"][:] == [["1", "2-3", "win"]]
    plain = load(tmp_path, text.replace("1 ", "a ", 1))
    assert plain.splits["train"]["words"][:] == [["a", "2-3", "win"]]


def test_invalid_sentences_are_skipped_within_the_tolerance(tmp_path):
    validation = "Ann I-PER\nleft X O\n\nhe O\n\nhe O\n\nLee I-XYZ\n\nBob I-PER\n"
    train = IOB1.replace("-X- O O", "")
    columns = {"text_columns": "0", "label_column": "-1", "max_invalid_fraction": 0.4}
    task = load(tmp_path, train, validation, **columns)

    assert [(row.line, row.reason.partition(";")[0]) for row in task.bad_rows] == [
        (2, "3 columns, but the first line has 2"),
        (8, "unknown tag 'I-XYZ'"),
    ]
    rows = task.splits["validation"]
    assert (rows["id"][:], rows["words"][:]) == (["1", "2", "4"], [["he"], ["he"], ["Bob"]])
    assert task.facts["validation"]["unusable_rows"] == 2


# Tokens


PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", "##b", "##c"]


@pytest.fixture
def tokenizer():
    """Return a tokenizer of single letters."""
    return BertTokenizer(vocab={piece: number for number, piece in enumerate(PIECES)})


def make_rows(*sentences, tags=True):
    words = [sentence.split(" ") for sentence in sentences]
    columns = {"id": [f"s{number}" for number, _ in enumerate(words)], "words": words}
    if tags:
        columns["tags"] = [list(range(len(sentence))) for sentence in words]
    return datasets.Dataset.from_dict(columns)


def test_the_first_token_of_a_word_has_its_label(tokenizer):
    (row,) = encode_tagged(make_rows("a bbc c"), tokenizer, Encoding(10))

    tokens = tokenizer.convert_ids_to_tokens(row["input_ids"])
    assert tokens == ["[CLS]", "a", "b", "##b", "##c", "c", "[SEP]"]
    assert row["labels"] == [-100, 0, 1, -100, -100, 2, -100]
    assert (row["id"], row["sentence"], row["length"]) == ("s0", 0, 7)
    assert row["token_type_ids"] == [0] * 7
    (row,) = encode_tagged(make_rows("a bb", tags=False), tokenizer, Encoding(10))
    assert row["labels"] == [-100, -1, -1, -100, -100]  # words of unknown tags


@pytest.mark.parametrize("word", ["\u200b", "\U0001f600", "x\x07", ""])
def test_a_word_without_a_token_keeps_its_place(tokenizer, word):
    rows = datasets.Dataset.from_dict({"id": ["0"], "words": [[word, "a"]], "tags": [[3, 4]]})
    (row,) = encode_tagged(rows, tokenizer, Encoding(10))

    assert tokenizer.convert_ids_to_tokens(row["input_ids"]) == ["[CLS]", "[UNK]", "a", "[SEP]"]
    assert row["labels"] == [-100, 3, 4, -100]


@pytest.mark.parametrize("sizes", [[1] * 23, [3, 1, 2, 5, 1, 1, 4, 2, 2, 1, 5, 5, 5], [1]])
@pytest.mark.parametrize("room", [5, 9])
def test_every_word_belongs_to_the_window_with_most_around_it(sizes, room):
    windows = cut_word_windows(sizes, room)

    owned = [word for window in windows for word in range(window.first, window.last)]
    assert owned == list(range(len(sizes)))
    for window in windows:
        assert sum(sizes[window.start : window.end]) <= room
        assert window.start <= window.first < window.last <= window.end
        for word in range(window.first, window.last):
            around = [
                min(sum(sizes[other.start : word]), sum(sizes[word + 1 : other.end]))
                for other in windows
                if other.start <= word < other.end
            ]
            left, right = sum(sizes[window.start : word]), sum(sizes[word + 1 : window.end])
            assert min(left, right) == max(around)


def test_a_long_sentence_becomes_rows_that_miss_no_word(tokenizer):
    sentence = " ".join("abcdefgh" * 3)
    rows = encode_tagged(make_rows("a b", sentence), tokenizer, Encoding(9))

    assert rows["sentence"][:] == [0] + [1] * (len(rows) - 1)
    assert [word for row in rows["words"] for word in row] == [*"ab", *"abcdefgh" * 3]
    labels = [label for row in rows["labels"] for label in row if label != -100]
    assert labels == [0, 1, *range(24)]
    assert max(rows["length"]) <= 9
