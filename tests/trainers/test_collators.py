"""Rows of one task as a batch: padded or packed."""

import pytest
import torch

from tests.trainers.tiny import collate
from trainers import Task

SINGLE = [
    {"input_ids": [5, 6, 7], "token_type_ids": [0, 0, 1], "labels": 2},
    {"input_ids": [8], "token_type_ids": [0], "labels": 0},
]
SEPARATE = [
    {"input_ids": [[5, 6, 7], [8]], "token_type_ids": [[0, 0, 0], [0]], "labels": 2.5},
    {"input_ids": [[9], [4, 3]], "token_type_ids": [[0], [0, 0]], "labels": 1.0},
]


def test_single_sequences_are_padded_to_the_longest():
    batch = collate("a", SINGLE, padding=1)

    assert batch["task"] == "a"
    assert batch["input_ids"].tolist() == [[5, 6, 7], [8, 1, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 1], [0, 0, 0]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert batch["labels"].tolist() == [2, 0]
    assert {value.dtype for key, value in batch.items() if key != "task"} == {torch.int64}


def test_separate_pairs_get_an_extra_dimension():
    batch = collate("b", SEPARATE)

    assert batch["input_ids"].tolist() == [[[5, 6, 7], [8, 0, 0]], [[9, 0, 0], [4, 3, 0]]]
    assert batch["attention_mask"].tolist() == [[[1, 1, 1], [1, 0, 0]], [[1, 0, 0], [1, 1, 0]]]
    assert batch["token_type_ids"].shape == (2, 2, 3)
    assert batch["labels"].dtype == torch.float32
    assert batch["labels"].tolist() == [2.5, 1.0]


def test_packed_sequences_stand_in_one_row():
    batch = collate("a", SINGLE, padding=1, packed=True)

    assert list(batch)[:2] == ["task", "labels"]
    assert batch["input_ids"].tolist() == [[5, 6, 7, 8]]
    assert batch["token_type_ids"].tolist() == [[0, 0, 1, 0]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 4]
    assert batch["cu_seq_lens_q"].dtype == torch.int32
    assert batch["max_length_q"] == 3
    assert batch["labels"].tolist() == [2, 0]
    assert "attention_mask" not in batch


@pytest.mark.parametrize("rows", [SINGLE[:1], SEPARATE[:1]])
@pytest.mark.parametrize("packed", [False, True])
def test_several_scores_of_a_row_are_no_labels_of_its_tokens(rows, packed):
    labels = [0.0, 1.0, 1.0][: len(rows[0]["input_ids"])]
    task = Task("a", "multi_label_classification", [{**rows[0], "labels": labels}])

    batch = collate("a", task.train, packed=packed)

    assert batch["labels"].tolist() == [labels]
    assert "label_positions" not in batch
