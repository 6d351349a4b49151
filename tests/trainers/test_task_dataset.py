"""Rows of several tasks as one dataset."""

import datasets
import pytest

from trainers import TaskDataset
from trainers.data.dataset import count_tokens, longest_first, read_lengths


def test_rows_carry_their_task_and_only_model_inputs(train_rows):
    dataset = TaskDataset(train_rows)

    joined = dataset[40 + 3]

    assert len(dataset) == 170
    assert joined.task == "pairs"
    assert joined.input_ids.tolist() == train_rows["pairs"][3]["input_ids"]


def test_a_mixed_step_has_the_rows_of_each_task(train_rows):
    dataset = TaskDataset(train_rows)

    parts = dataset.__getitems__([0, 5, 169, 45, 41])

    assert [(part.task, part.places.tolist()) for part in parts] == [
        ("moods", [[0, 0], [0, 5]]),
        ("scores", [[0], [29]]),
        ("pairs", [[0, 0], [5, 1]]),
    ]


@pytest.mark.parametrize("task", ["moods", "scores"])
@pytest.mark.parametrize(
    "choose",
    [
        lambda rows: rows,
        lambda rows: rows.select([5, 3, 9, 9]),
        lambda rows: rows.select(range(7, 20)),
        lambda rows: datasets.concatenate_datasets([rows.select(range(4)), rows]),
    ],
)
def test_all_sentences_of_a_row_count(task, choose, train_rows):
    rows = choose(train_rows[task])

    counts = count_tokens(rows)

    is_pair = task == "scores"
    assert counts.tolist() == [
        sum(map(len, ids)) if is_pair else len(ids) for ids in rows["input_ids"]
    ]


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


def test_without_a_length_the_order_stays():
    columns = {"input_ids": [[1], [2, 2]], "token_type_ids": [[0], [0, 0]]}
    dataset = datasets.Dataset.from_dict(columns)

    _, order = longest_first("a", dataset, "length")

    assert order.tolist() == [0, 1]


def test_grouping_by_a_missing_column_is_refused():
    dataset = datasets.Dataset.from_dict({"input_ids": [[1]]})

    with pytest.raises(ValueError, match="needs the column 'length'; task 'a' has input_ids"):
        read_lengths("a", dataset, "length")
