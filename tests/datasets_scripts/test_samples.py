"""The built-in samples: fair, and with new texts in the held-out rows."""

import re
from collections import Counter, defaultdict

import pytest

from datasets_scripts import DATASETS, TaskData, load_task
from datasets_scripts.samples import SAMPLES, read_sample

TASKS = ["sample_sst", "sample_quora", "sample_sts"]
SIZES = {"train": 2000, "validation": 300, "test": 200}


def texts_of(row):
    return (row,) if isinstance(row, str) else tuple(row[key] for key in row if key != "label")


def words_of(text):
    return re.findall(r"[\w'-]+", text.lower())


def score_of_guess(rows, feature):
    """Share of rows that the best label for each value of a feature gets right."""
    counts = defaultdict(Counter)
    for row in rows:
        counts[feature(row)][row["label"]] += 1
    return sum(count.most_common(1)[0][1] for count in counts.values()) / len(rows)


@pytest.mark.parametrize("dataset", TASKS)
def test_loads_as_a_task(dataset, tmp_path):
    task = load_task(TaskData.from_recipe("t", {"dataset": dataset}), cache_dir=tmp_path)

    assert {split: len(rows) for split, rows in task.splits.items()} == SIZES
    assert task.labels == DATASETS[dataset].labels
    assert task.bad_rows == []
    assert set(task.splits["test"].column_names) >= {"id", "sentence1", "label"}


@pytest.mark.parametrize("name", SAMPLES)
def test_no_text_of_a_split_occurs_in_another(name):
    splits = [
        {text for row in rows for text in texts_of(row)} for rows in read_sample(name).values()
    ]

    assert sum(map(len, splits)) == len(set.union(*splits))


@pytest.mark.parametrize("name", SAMPLES)
def test_held_out_rows_use_known_words(name):
    learnt, *held_out = (
        {word for row in rows for text in texts_of(row) for word in words_of(text)}
        for rows in read_sample(name).values()
    )

    assert set.union(*held_out) <= learnt


@pytest.mark.parametrize("split", SIZES)
def test_classes_are_balanced(split):
    grades = Counter(row["label"] for row in read_sample("sample_sst")[split])
    pairs = Counter(row["label"] for row in read_sample("sample_quora")[split])

    assert min(grades.values()) / max(grades.values()) > 0.5
    assert min(pairs.values()) / max(pairs.values()) > 0.7


def test_scores_cover_the_range():
    scores = Counter(row["label"] for row in read_sample("sample_sts")["train"])

    assert {0.0, 1.0, 2.5, 4.0, 5.0} <= set(scores)
    assert max(scores.values()) < 0.3 * sum(scores.values())


@pytest.mark.parametrize(("dataset", "chance"), [("sample_sst", 0.2), ("sample_quora", 0.5)])
def test_length_does_not_give_the_label_away(dataset, chance):
    rows = read_sample(dataset)["train"]

    score = score_of_guess(rows, lambda row: len(" ".join(texts_of(row)).split()))

    assert score < chance + 0.12


def test_shared_words_do_not_give_the_paraphrase_away():
    rows = read_sample("sample_quora")["train"]

    def overlap(row):
        first, second = (set(words_of(text)) for text in texts_of(row))
        return round(len(first & second) / len(first | second), 1)

    assert score_of_guess(rows, overlap) < 0.75


def test_a_document_is_ten_to_sixteen_sentences_one_a_line():
    documents = read_sample("sample_text")
    sentences = {split: [text.split("\n") for text in texts] for split, texts in documents.items()}

    assert {split: len(texts) for split, texts in sentences.items()} == {
        "train": 2400,
        "validation": 200,
    }
    assert set(map(len, sentences["train"])) == set(range(10, 17))
    for document in sentences["train"]:
        for sentence in document:
            assert re.fullmatch(r"[A-Z][A-Za-z, ]+[a-z]\.", sentence), sentence


def test_most_held_out_sentences_are_new():
    train, held_out = (
        [sentence for text in texts for sentence in text.split("\n")]
        for texts in read_sample("sample_text").values()
    )

    learnt = set(train)
    assert sum(sentence in learnt for sentence in held_out) < 0.25 * len(held_out)
