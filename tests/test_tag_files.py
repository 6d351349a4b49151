"""Files of tags as people have them: other schemes, metadata, and the official CoNLL-2003."""

import json

import pytest

from datasets_scripts import TaskData, load_task

# Ann Lee met Bob in New York City; spans of two words, of one, and of three, and two in a row
WORDS = ["Ann", "Lee", "Bob", "went", "to", "New", "York", "City", "."]
SPANS = "B-PER I-PER B-PER O O B-LOC I-LOC I-LOC O"
SCHEMES = {
    "IOB2": SPANS,
    "IOB1": "I-PER I-PER B-PER O O I-LOC I-LOC I-LOC O",
    "BIOES": "B-PER E-PER S-PER O O B-LOC I-LOC E-LOC O",
    "BILOU": "B-PER L-PER U-PER O O B-LOC I-LOC L-LOC O",
    "BMES": "B-PER E-PER S-PER O O B-LOC M-LOC E-LOC O",
    "BMEWO": "B-PER E-PER W-PER O O B-LOC M-LOC E-LOC O",
    "IOBES": "I-PER E-PER S-PER O O I-LOC I-LOC E-LOC O",
    "underscores": SPANS.replace("-", "_"),
}


def load(folder, text, **keys):
    """Load sentences that are the training and the validation rows."""
    path = folder / "tags.conll"
    path.write_text(text, encoding="utf-8")
    files = {"train_file": str(path), "validation_file": str(path)}
    task = {"problem_type": "token_classification"} | files | keys
    return load_task(TaskData.from_recipe("names", task), folder / "cache")


def read(task):
    """Return the words of all sentences, and their tags."""
    rows = task.splits["train"]
    tags = [" ".join(task.labels[tag] for tag in sentence) for sentence in rows["tags"][:]]
    return [" ".join(words) for words in rows["words"][:]], tags


def write_lines(tags):
    return "".join(f"{word} {tag}\n" for word, tag in zip(WORDS, tags.split(), strict=True))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_every_scheme_marks_the_same_entities(scheme, tmp_path):
    task = load(tmp_path, write_lines(SCHEMES[scheme]))

    assert read(task) == ([" ".join(WORDS)], [SPANS])
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


@pytest.mark.parametrize("scheme", ["BIOES", "BILOU"])
def test_lists_of_tags_with_declared_names_are_converted(scheme, tmp_path):
    names = sorted(set(SCHEMES[scheme].split()))
    tags = [names.index(tag) for tag in SCHEMES[scheme].split()]
    path = tmp_path / "tags.jsonl"
    path.write_text(json.dumps({"tokens": WORDS, "tags": tags}) + "\n")
    files = {"train_file": str(path), "validation_file": str(path), "labels": names}
    data = {"problem_type": "token_classification"} | files
    task = load_task(TaskData.from_recipe("names", data), tmp_path / "cache")

    assert read(task)[1] == [SPANS]
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def test_a_part_of_speech_with_a_hyphen_is_no_end_of_a_span(tmp_path):
    task = load(tmp_path, "Ann NN\nruns S-V\nnow RB\n")

    assert task.labels == ("NN", "RB", "S-V")


@pytest.mark.parametrize(
    "metadata",
    [
        "# id 8f-3 domain=train",
        "# sent_id = 12",
        "# text = Ann Lee",
        "# newpar",
        "# source=web part 4",
        "# id 1 domain=train\n# text = a b",
    ],
)
def test_metadata_is_no_word(metadata, tmp_path):
    sentences = ["Ann _ _ B-PER\nleft _ _ O\n", "Oslo _ _ B-LOC\n"]
    task = load(tmp_path, "".join(f"{metadata}\n{sentence}\n" for sentence in sentences))

    assert read(task) == (["Ann left", "Oslo"], ["B-PER O", "B-LOC"])
    assert task.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert not task.bad_rows


def test_a_new_document_begins_as_in_conll_u(tmp_path):
    text = "# newdoc id = a\n# sent_id = 1\na O\n\nb B-X\n\n# newdoc id = b\nc O\n"

    assert load(tmp_path, text).splits["train"]["document"][:] == [1, 1, 2]
