"""Rows in flat arrays: the same batches as from lists, without copies of a mapped file."""

import pickle

import datasets
import numpy as np
import pytest

from tests.trainers.tiny import PROBLEM_TYPES, make_rows
from trainers import TaskDataset, spread
from trainers.data.rows import FlatRows, longest_first

TASKS = list(PROBLEM_TYPES)
CHOICES = {
    "all": lambda rows: rows,
    "some": lambda rows: rows.select([5, 30, 9, 9, 0, 31, 2, 3, 4, 6, 7]),
    "part": lambda rows: rows.select(range(7, 29)),
    "shuffled": lambda rows: rows.shuffle(seed=1),
    "filtered": lambda rows: rows.filter(lambda length: length > 6, input_columns="length"),
    "twice": lambda rows: datasets.concatenate_datasets([rows.select(range(9)), rows]),
}


@pytest.fixture(params=["memory", "file"])
def rows_of(request, tmp_path):
    """Make rows of a task, in memory or as a mapped file of several record batches."""

    def make(task, count=32):
        rows = make_rows(task, count)
        if request.param == "memory":
            return rows
        path = str(tmp_path / f"{task}.arrow")
        rows.map(lambda row: row, writer_batch_size=5, cache_file_name=path)
        return datasets.Dataset.from_file(path)

    return make


@pytest.mark.parametrize("choice", list(CHOICES))
@pytest.mark.parametrize("task", TASKS)
def test_rows_equal_the_dataset(rows_of, task, choice):
    rows = CHOICES[choice](rows_of(task))
    dataset = TaskDataset({task: rows})

    for indices in ([0, 1], [3, 1, 3], range(9), [len(rows) - 1]):
        joined = dataset.__getitems__(list(indices))
        chosen = [rows[index] for index in indices]
        assert joined.task == task
        assert joined.labels.tolist() == [row["labels"] for row in chosen]
        assert joined.is_separate is (task == "scores")
        for name in ("input_ids", "token_type_ids"):
            sequences = [
                ids for row in chosen for ids in (row[name] if joined.is_separate else [row[name]])
            ]
            assert joined.lengths.tolist() == list(map(len, sequences))
            assert getattr(joined, name).tolist() == [number for ids in sequences for number in ids]
    assert FlatRows(rows).count_tokens().tolist() == [
        sum(np.size(ids) for ids in (row if task == "scores" else [row]))
        for row in rows["input_ids"]
    ]


def first_tokens(rows):
    """View the tokens of the first record batch."""
    chunk = rows.data.column("input_ids").chunks[0]
    return chunk.flatten().to_numpy()


@pytest.mark.parametrize("choice", ["all", "part", "shuffled", "filtered"])
def test_a_dataset_in_one_piece_is_not_copied(rows_of, choice):
    rows = CHOICES[choice](rows_of("moods"))

    flat = FlatRows(rows)

    assert np.shares_memory(flat.columns["input_ids"][0], first_tokens(rows))


def test_a_copy_for_another_process_holds_no_tokens_of_a_mapped_file(tmp_path):
    path = str(tmp_path / "rows.arrow")
    make_rows("moods", 5000).map(lambda row: row, cache_file_name=path)
    dataset = TaskDataset({"moods": datasets.Dataset.from_file(path)})

    copied = pickle.dumps(dataset)

    assert len(copied) < 10_000
    loaded = pickle.loads(copied)  # noqa: S301  what was just written
    assert loaded[77].input_ids.tolist() == dataset[77].input_ids.tolist()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda rows: datasets.concatenate_datasets(
                [rows, datasets.Dataset.from_dict({"input_ids": [[1]], "token_type_ids": [[0]]})]
            ),
            "labels are of int64, or missing",
        ),
        (lambda rows: rows.remove_columns("token_type_ids"), "'token_type_ids' is missing"),
        (
            lambda rows: rows.remove_columns("token_type_ids").add_column(
                "token_type_ids", [[0]] * len(rows)
            ),
            "token_type_ids and input_ids differ in length",
        ),
    ],
)
def test_other_rows_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        FlatRows(change(make_rows("moods", 9)))


def test_a_batch_has_the_rows_of_one_task(train_rows):
    dataset = TaskDataset(train_rows)

    found = dataset.__getitems__([45, 170 + 41])

    assert (found.task, found.places.tolist()) == ("pairs", [[0, 1], [5, 1]])


def test_longest_first_returns_the_original_places():
    dataset = datasets.Dataset.from_dict(
        {
            "input_ids": [[1], [2, 2], [3, 3, 3], [4, 4]],
            "token_type_ids": [[0], [0, 0], [0, 0, 0], [0, 0]],
            "length": [1, 2, 3, 2],
        }
    )

    rows, order = longest_first("a", dataset, "length")

    assert order.tolist() == [2, 1, 3, 0]
    assert [rows[index].input_ids[0] for index in range(4)] == [3, 2, 4, 1]


def test_a_sample_of_rows_does_not_take_one_label_alone():
    labels = [0, 1] * 2000

    assert 900 < sum(spread(datasets.Dataset.from_dict({"labels": labels}), 2000)["labels"]) < 1100
