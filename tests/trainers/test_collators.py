"""Rows of one task as a batch: padded, packed, or packed in few shapes."""

import numpy as np
import pytest
import torch
from transformers import DataCollatorWithFlattening
from transformers.trainer_pt_utils import find_batch_size

from tests.trainers.tiny import collate, make_rows
from trainers import FixedShapes, Task, TaskCollator

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


def test_both_sentences_of_a_packed_pair_follow_each_other():
    batch = collate("b", SEPARATE, packed=True)

    assert batch["input_ids"].tolist() == [[5, 6, 7, 8, 9, 4, 3]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 0, 0, 1]]
    assert batch["cu_seq_lens_q"].tolist() == [0, 3, 4, 5, 7]
    assert batch["labels"].tolist() == [2.5, 1.0]


def test_packed_batches_have_the_names_and_values_of_transformers():
    rows = make_rows("moods", 9)
    theirs = DataCollatorWithFlattening(return_flash_attn_kwargs=True)(
        [{"input_ids": row["input_ids"]} for row in rows]
    )

    ours = collate("moods", rows, packed=True)

    for name in ("input_ids", "position_ids", "cu_seq_lens_q"):
        assert torch.equal(ours[name], theirs[name])
        assert ours[name].dtype == theirs[name].dtype
    assert ours["max_length_q"] == theirs["max_length_q"]


@pytest.mark.parametrize("options", [{}, {"packed": True}])
@pytest.mark.parametrize("rows", [SINGLE, SEPARATE])
def test_the_size_of_a_batch_is_its_number_of_rows(options, rows):
    assert find_batch_size(collate("a", rows, **options)) == 2


def test_fixed_shapes_are_for_packed_batches():
    with pytest.raises(ValueError, match="fixed_shapes are for packed batches; give packed=True"):
        TaskCollator(0, fixed_shapes=FixedShapes({"a": 64}))


@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("task", ["moods", "scores"])
def test_fillers_come_after_the_real_rows(task, labelled):
    rows = make_rows(task, 5)
    rows = rows if labelled else rows.remove_columns("labels")
    plain = collate(task, rows, padding=9, packed=True)
    per_row = 2 if task == "scores" else 1

    shapes = FixedShapes({task: 200})
    batch = collate(task, rows, padding=9, packed=True, fixed_shapes=shapes)

    tokens, count = plain["input_ids"].shape[1], 5 * per_row
    starts, positions = batch["cu_seq_lens_q"], batch["position_ids"][0]
    assert batch["num_rows"] == 5
    for name in ("input_ids", "token_type_ids", "position_ids"):
        assert torch.equal(batch[name][:, :tokens], plain[name])
    assert torch.equal(starts[: count + 1], plain["cu_seq_lens_q"])
    assert set(batch["input_ids"][0, tokens:].tolist()) == {9}
    assert set(batch["token_type_ids"][0, tokens:].tolist()) == {0}
    assert (positions[starts[:-1].long()] == 0).all()
    assert positions.max() < plain["max_length_q"]
    assert starts[-1] == batch["input_ids"].shape[1]
    assert (starts.diff() >= 1).all()
    assert batch["max_length_q"] == 32
    if labelled:
        fillers = (len(starts) - 1) // per_row - 5
        assert torch.equal(batch["labels"][:5], plain["labels"])
        assert batch["labels"][5:].tolist() == [-100] * fillers
        assert list(batch)[1] == "labels"
    else:
        assert "labels" not in batch


def random_batches(count, most, generator):
    """Lengths of the sequences of batches that come close to ``most`` tokens."""
    for _ in range(count):
        lengths = np.clip(generator.lognormal(3.1, 0.45, size=1000).astype(int), 3, 128)
        yield lengths[: np.searchsorted(np.cumsum(lengths), most, side="right")]


@pytest.mark.parametrize("most", [512, 2048, 4096, 16384])
def test_batches_by_tokens_have_few_shapes_and_little_filling(most):
    shapes = FixedShapes({"a": most})
    generator = np.random.default_rng(0)
    found, filling = set(), []

    for lengths in random_batches(300, most, generator):
        shape = shapes.fit("a", int(lengths.sum()), len(lengths), int(lengths.max()), 1)
        found.add(shape)
        filling.append(1 - lengths.sum() / shape.tokens)

    assert len(found) <= 8
    assert np.mean(filling) < 0.1


@pytest.mark.parametrize("per_row", [1, 2])
def test_there_is_room_for_all_rows_and_fillers_of_one_token_or_more(per_row):
    shapes = FixedShapes({"a": 1000})
    generator = np.random.default_rng(0)
    sizes = set()

    for _ in range(2000):
        longest = int(generator.integers(2, 60))
        count = int(generator.integers(1, 60)) * per_row
        lengths = generator.integers(1, longest + 1, size=count)
        longest, tokens = int(lengths.max()), int(lengths.sum())
        shape = shapes.fit("a", tokens, count // per_row, longest, per_row)
        filling, fillers = shape.tokens - tokens, shape.rows * per_row - count
        assert fillers <= filling <= fillers * max(longest, 2)
        assert shape.max_length >= longest
        assert shape.tokens % 32 == 0
        if 250 < tokens <= 1000:
            sizes.add(shape.tokens)

    assert len(sizes) <= 8


@pytest.mark.parametrize("rows", [SINGLE[:1], SEPARATE[:1]])
@pytest.mark.parametrize("packed", [False, True])
def test_several_scores_of_a_row_are_no_labels_of_its_tokens(rows, packed):
    labels = [0.0, 1.0, 1.0][: len(rows[0]["input_ids"])]
    task = Task("a", "multi_label_classification", [{**rows[0], "labels": labels}])

    batch = collate("a", task.train, packed=packed)

    assert batch["labels"].tolist() == [labels]
    assert "label_positions" not in batch
