"""The built-in sample: the same every time, fair, and with new texts in the held-out rows."""

from collections import Counter, defaultdict

import pytest

from datasets_scripts import DATASETS, TaskData, load_task
from datasets_scripts.samples.task_rows import SIZES, generate_rows

SAMPLES = ["sample_sst", "sample_quora", "sample_sts"]


def texts_of(row):
    return tuple(text for key, text in row.items() if key != "label")


def words_of(text):
    return text.lower().rstrip(".?").replace(",", "").split()


def score_of_guess(rows, feature):
    """Share of rows that the best label for each value of a feature gets right."""
    counts = defaultdict(Counter)
    for row in rows:
        counts[feature(row)][row["label"]] += 1
    return sum(count.most_common(1)[0][1] for count in counts.values()) / len(rows)


@pytest.mark.parametrize("dataset", SAMPLES)
def test_loads_as_a_task(dataset, tmp_path):
    task = load_task(TaskData.from_recipe("t", {"dataset": dataset}), cache_dir=tmp_path)

    assert {split: len(rows) for split, rows in task.splits.items()} == SIZES
    assert task.labels == DATASETS[dataset].labels
    assert task.bad_rows == []
    assert set(task.splits["test"].column_names) >= {"id", "sentence1", "label"}


@pytest.mark.parametrize("dataset", SAMPLES)
def test_a_seed_fixes_the_rows(dataset):
    assert generate_rows(dataset) == generate_rows(dataset)
    assert generate_rows(dataset) != generate_rows(dataset, seed=1)


@pytest.mark.parametrize("dataset", SAMPLES)
def test_no_text_of_a_split_occurs_in_another(dataset):
    splits = [
        {text for row in rows for text in texts_of(row)} for rows in generate_rows(dataset).values()
    ]

    assert sum(map(len, splits)) == len(set.union(*splits))


@pytest.mark.parametrize("dataset", SAMPLES)
def test_held_out_rows_use_known_words(dataset):
    splits = generate_rows(dataset)
    known, held_out = (
        {word for row in splits[split] for text in texts_of(row) for word in words_of(text)}
        for split in ("train", "test")
    )

    assert held_out <= known


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_classes_are_balanced(split):
    grades = Counter(row["label"] for row in generate_rows("sample_sst")[split])
    pairs = Counter(row["label"] for row in generate_rows("sample_quora")[split])

    assert min(grades.values()) / max(grades.values()) > 0.5
    assert min(pairs.values()) / max(pairs.values()) > 0.7


def test_scores_cover_the_range():
    scores = Counter(row["label"] for row in generate_rows("sample_sts")["train"])

    assert {0.0, 1.0, 2.5, 4.0, 5.0} <= set(scores)
    assert max(scores.values()) < 0.3 * sum(scores.values())


@pytest.mark.parametrize(("dataset", "chance"), [("sample_sst", 0.2), ("sample_quora", 0.5)])
def test_length_does_not_give_the_label_away(dataset, chance):
    rows = generate_rows(dataset)["train"]

    score = score_of_guess(rows, lambda row: len(" ".join(texts_of(row)).split()))

    assert score < chance + 0.12


def test_shared_words_do_not_give_the_paraphrase_away():
    rows = generate_rows("sample_quora")["train"]

    def overlap(row):
        first, second = (set(words_of(text)) for text in texts_of(row))
        return round(len(first & second) / len(first | second), 1)

    assert score_of_guess(rows, overlap) < 0.75


def test_an_unknown_sample_is_refused():
    with pytest.raises(ValueError, match="unknown sample 'sample_ner'; did you mean"):
        generate_rows("sample_ner")
