"""Rows in flat arrays: the same batches as from lists, without copies of a mapped file."""

import pickle

import datasets
import numpy as np
import pytest
import torch

from tests.trainers.tiny import PROBLEM_TYPES, make_rows
from trainers import FixedShapes, TaskCollator, TaskDataset
from trainers.data.dataset import count_tokens
from trainers.data.rows import FlatRows, TaskBatch

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

    expected = [
        {"task": task, **row}
        for row in rows.select_columns(["input_ids", "token_type_ids", "labels"])
    ]
    assert isinstance(dataset.__getitems__([0, 1]), TaskBatch)
    assert [dataset[index] for index in range(len(dataset))] == expected
    assert list(dataset.__getitems__([3, 1, 3])) == [expected[3], expected[1], expected[3]]
    assert dataset.__getitems__(range(9))[2:4] == expected[2:4]
    assert count_tokens(rows).tolist() == [
        sum(np.size(ids) for ids in (row if task == "scores" else [row]))
        for row in rows["input_ids"]
    ]


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize(
    "options",
    [{}, {"packed": True}, {"packed": True, "fixed_shapes": FixedShapes(dict.fromkeys(TASKS, 99))}],
    ids=["padded", "packed", "fixed"],
)
@pytest.mark.parametrize("task", TASKS)
def test_batches_equal_lists(rows_of, task, options, labelled):
    rows = rows_of(task) if labelled else rows_of(task).remove_columns("labels")
    batch = TaskDataset({task: rows}).__getitems__([8, 3, 21, 5, 0])
    collator = TaskCollator(1, **options)

    ours, expected = collator(batch), collator(list(batch))

    assert list(ours) == list(expected)
    assert ("labels" in ours) == labelled
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(ours[name], value, rtol=0, atol=0)
        else:
            assert ours[name] == value


def first_tokens(rows):
    """View the tokens of the first record batch."""
    chunk = rows.data.column("input_ids").chunks[0]
    return chunk.flatten().to_numpy()


@pytest.mark.parametrize("choice", ["all", "part", "shuffled", "filtered"])
def test_a_dataset_in_one_piece_is_not_copied(rows_of, choice):
    rows = CHOICES[choice](rows_of("moods"))

    flat = FlatRows.read(rows)

    assert np.shares_memory(flat.tokens["input_ids"].values, first_tokens(rows))


def test_a_dataset_in_pieces_is_joined_once():
    rows = datasets.concatenate_datasets([make_rows("moods", 32), make_rows("moods", 9)])

    tokens = FlatRows.read(rows).tokens["input_ids"]

    assert not np.shares_memory(tokens.values, first_tokens(rows))
    assert len(tokens.values) == count_tokens(rows).sum()


def test_a_copy_for_another_process_holds_no_tokens_of_a_mapped_file(tmp_path):
    path = str(tmp_path / "rows.arrow")
    make_rows("moods", 5000).map(lambda row: row, cache_file_name=path)
    dataset = TaskDataset({"moods": datasets.Dataset.from_file(path)})

    copied = pickle.dumps(dataset)

    assert len(copied) < 10_000
    assert pickle.loads(copied)[77] == dataset[77]  # noqa: S301  what was just written


def lower(batch):
    """Double the labels, as a transform of a user would."""
    return {**batch, "labels": [2 * label for label in batch["labels"]]}


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.with_transform(lower),
        lambda rows: rows.with_format("numpy"),
        lambda rows: rows.cast_column("labels", datasets.Value("string")),
        lambda rows: datasets.concatenate_datasets(
            [rows, datasets.Dataset.from_dict({"input_ids": [[1]], "token_type_ids": [[0]]})]
        ),
        lambda rows: rows.select([]),
    ],
    ids=["transform", "format", "no numbers", "no label", "no rows"],
)
def test_other_rows_are_read_from_the_dataset(change):
    rows = change(make_rows("moods", 9))
    dataset = TaskDataset({"moods": rows})

    assert FlatRows.read(rows) is None
    if len(rows):
        batch = dataset.__getitems__(range(len(rows)))
        assert type(batch) is list
        assert [row["labels"] for row in batch] == [row["labels"] for row in rows]
