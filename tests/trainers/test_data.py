"""Rows of several tasks as one dataset, and rows as a batch."""

import datasets
import pytest
import torch

from trainers import TaskCollator, TaskDataset
from trainers.data import longest_first, read_lengths

SINGLE = [
    {"task": "a", "input_ids": [5, 6, 7], "token_type_ids": [0, 0, 1], "labels": 2},
    {"task": "a", "input_ids": [8], "token_type_ids": [0], "labels": 0},
]
SEPARATE = [
    {
        "task": "b",
        "input_ids": [[5, 6, 7], [8]],
        "token_type_ids": [[0, 0, 0], [0]],
        "labels": 2.5,
    },
    {"task": "b", "input_ids": [[9], [4, 3]], "token_type_ids": [[0], [0, 0]], "labels": 1.0},
]


def test_single_sequences_are_padded_to_the_longest():
    batch = TaskCollator(pad_token_id=1)(SINGLE)

    assert batch["task"] == "a"
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [2, 0]
    assert {value.dtype for key, value in batch.items() if key != "task"} == {torch.int64}


def test_separate_pairs_get_a_dimension_of_their_own():
    batch = TaskCollator(pad_token_id=0)(SEPARATE)

    assert batch["input_ids"].tolist() == [[[5, 6, 7], [8, 0, 0]], [[9, 0, 0], [4, 3, 0]]]
    assert batch["attention_mask"].tolist() == [[[1, 1, 1], [1, 0, 0]], [[1, 0, 0], [1, 1, 0]]]
    assert batch["token_type_ids"].shape == (2, 2, 3)
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [2.5, 1.0]


@pytest.mark.parametrize(("multiple", "length"), [(None, 3), (1, 3), (2, 4), (8, 8)])
def test_lengths_are_rounded_up(multiple, length):
    batch = TaskCollator(0, pad_to_multiple_of=multiple)(SINGLE)

    assert batch["input_ids"].shape == (2, length)
    assert batch["attention_mask"].sum() == 4


def test_rows_without_labels_give_a_batch_without_labels():
    rows = [{key: value for key, value in row.items() if key != "labels"} for row in SINGLE]

    assert "labels" not in TaskCollator(0)(rows)


def test_a_batch_of_two_tasks_is_refused():
    with pytest.raises(ValueError, match=r"a batch mixes the tasks \['a', 'b'\]"):
        TaskCollator(0)([SINGLE[0], SEPARATE[0]])


def test_rows_carry_their_task_and_only_what_the_model_reads(train_rows):
    dataset = TaskDataset(train_rows)

    row = dataset[40 + 3]

    assert len(dataset) == 170
    assert set(row) == {"task", "input_ids", "token_type_ids", "labels"}
    assert row["task"] == "pairs"
    assert row["input_ids"] == train_rows["pairs"][3]["input_ids"]


@pytest.mark.parametrize("indices", [[45, 41, 139], [0, 169, 45]])
def test_reading_many_rows_equals_reading_each(indices, train_rows):
    dataset = TaskDataset(train_rows)

    assert dataset.__getitems__(indices) == [dataset[index] for index in indices]


def test_longest_first_says_where_the_rows_were():
    dataset = datasets.Dataset.from_dict(
        {
            "input_ids": [[1], [2, 2], [3, 3, 3], [4, 4]],
            "token_type_ids": [[0], [0, 0], [0, 0, 0], [0, 0]],
            "length": [1, 2, 3, 2],
        }
    )

    rows, order = longest_first("a", dataset, "length")

    assert order.tolist() == [2, 1, 3, 0]
    assert [rows[index]["input_ids"][0] for index in range(4)] == [3, 2, 4, 1]


def test_without_a_length_the_order_stays():
    dataset = datasets.Dataset.from_dict({"input_ids": [[1], [2, 2]], "token_type_ids": [[0]] * 2})

    _, order = longest_first("a", dataset, "length")

    assert order.tolist() == [0, 1]


def test_grouping_by_a_missing_column_is_refused():
    dataset = datasets.Dataset.from_dict({"input_ids": [[1]]})

    with pytest.raises(ValueError, match="needs the column 'length'; task 'a' has input_ids"):
        read_lengths("a", dataset, "length")
