"""Files of tags as people have them: other schemes, metadata, and the official CoNLL-2003."""

import json

import pytest

from datasets_scripts import TaskData, load_task
from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run

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


def test_a_wrong_tag_among_named_ends_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"tags.conll:3: the tag 'PER' is not part of a span"):
        load(tmp_path, write_lines(SCHEMES["BIOES"].replace("S-PER", "PER")))


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


def test_the_word_for_a_number_sign_stays(tmp_path):
    text = "# NN I-NP O\n1 CD I-NP B-X\n\nis X X O\n# id X O\n\n#ner=x X X B-X\n"

    assert read(load(tmp_path, text))[0] == ["# 1", "is #", "#ner=x"]


def test_a_new_document_begins_as_in_conll_u(tmp_path):
    text = "# newdoc id = a\n# sent_id = 1\na O\n\nb B-X\n\n# newdoc id = b\nc O\n"

    assert load(tmp_path, text).splits["train"]["document"][:] == [1, 1, 2]


def test_predictions_of_named_ends_are_entities(tmp_path):
    lines = write_lines(SCHEMES["BIOES"])
    (tmp_path / "tags.conll").write_text("\n".join([lines] * 8))
    recipe = small_run.make_recipe(tmp_path)
    files = dict.fromkeys(("train_file", "validation_file"), str(tmp_path / "tags.conll"))
    recipe["tasks"] = {"names": {"problem_type": "token_classification"} | files}
    recipe |= {"steps_per_epoch": "60", "num_train_epochs": 1, "learning_rate": 0.02}
    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["validation"]["metrics"]["names_f1"] == 1
    assert {one["name"] for one in metrics["validation"]["types"]["names"]} == {"LOC", "PER"}
    model = MinBertForMultiTask.from_pretrained(tmp_path / "out")
    (found,) = model.predict("names", [" ".join(WORDS)])
    entities = [one["text"] for one in found["entities"]]
    assert entities == ["Ann Lee", "Bob", "New York City"]
