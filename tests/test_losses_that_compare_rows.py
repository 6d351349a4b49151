"""Losses that compare the rows of a batch are refused where there is nothing to compare."""

import datasets
import numpy as np
import pytest
import torch

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny
from trainers import Task, TaskTraining

SEPARATE = {"pair_encoding": "separate", "head": "cosine"}
RANKING = {"loss": "multiple_negatives_ranking"}
SCORES = {"problem_type": "similarity", "score_range": [0, 5], **SEPARATE}
HEADS = {
    "pairs": {"problem_type": "contrastive", "num_sentences": 2},
    "simcse": {"problem_type": "contrastive", "num_sentences": 1},
    "triples": {"problem_type": "contrastive", "num_sentences": 3},
    "cosent": {**SCORES, "loss": "cosent"},
    "ranked pairs": {"problem_type": "paraphrase", **SEPARATE, **RANKING},
}
COMPARING = [name for name in HEADS if name != "triples"]
TOKENS = 5  # of a sequence


def make_rows(head, count=12, labels=None):
    sentences = HEADS[head].get("num_sentences", 2)
    generator = np.random.default_rng((sentences, count))
    ids = generator.integers(5, tiny.VOCABULARY, size=(count, sentences, TOKENS)).tolist()
    columns = {"input_ids": ids, "token_type_ids": np.zeros_like(ids).tolist()}
    if HEADS[head]["problem_type"] != "contrastive":
        scale = 1 if head == "ranked pairs" else 5.0
        columns["labels"] = labels or [scale * (row % 2) for row in range(count)]
    return datasets.Dataset.from_dict(columns)


def make_trainer(folder, head, *, dropout=0.1, rows=None, held_out=None, **arguments):
    torch.manual_seed(0)
    training = TaskTraining(**arguments.pop("training", {}))
    model = MinBertForMultiTask(tiny.make_config({"own": HEADS[head]}, dropout))
    rows = make_rows(head) if rows is None else rows
    tasks = [Task("own", HEADS[head]["problem_type"], rows, held_out, training)]
    return tiny.make_trainer(folder, model=model, own={"tasks": tasks}, max_steps=2, **arguments)


BATCHES = {
    "rows of the run": {"per_device_train_batch_size": 1},
    "rows of the task": {"training": {"batch_size": 1}},
    "accumulation": {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4},
}


@pytest.mark.parametrize("head", COMPARING)
@pytest.mark.parametrize("batches", BATCHES)
def test_batches_of_one_row_are_refused(tmp_path, head, batches):
    message = "every batch has a single row, and the loss would be 0; give a larger batch_size"

    with pytest.raises(ValueError, match=f"task 'own': .*{message}"):
        make_trainer(tmp_path, head, **BATCHES[batches])


@pytest.mark.parametrize("head", COMPARING)
def test_evaluations_of_one_row_at_a_time_are_refused(tmp_path, head):
    with pytest.raises(ValueError, match="every evaluation; give per_device_eval_batch_size 2"):
        make_trainer(tmp_path, head, held_out=make_rows(head), per_device_eval_batch_size=1)


@pytest.mark.parametrize(
    ("count", "batch", "sizes"), [(9, 8, [7, 2]), (3, 2, [3]), (8, 4, [4, 4]), (7, 2, [4, 3])]
)
def test_no_row_is_evaluated_alone(tmp_path, count, batch, sizes):
    held_out = make_rows("pairs", count)
    trainer = make_trainer(
        tmp_path, "pairs", held_out=held_out, per_device_eval_batch_size=batch, dropout=0.0
    )

    loss = trainer.evaluate()["eval_own_loss"]

    vectors = torch.from_numpy(trainer.predict_task("own", held_out))
    expected = 0.0
    for part in vectors.split(sizes):
        scores = 20 * part[:, 0] @ part[:, 1].T
        expected += torch.nn.functional.cross_entropy(
            scores, torch.arange(len(part)), reduction="sum"
        ).item()
    assert loss == pytest.approx(expected / count, abs=1e-4)
    assert len(trainer.predict_task("own", held_out.select([0]))) == 1  # a row that has no others


@pytest.mark.parametrize(
    ("head", "labels", "message"),
    [
        ("cosent", [3.0] * 12, "all training rows have the score 3; give rows"),
        ("ranked pairs", [0] * 12, "no training row is positive; give rows"),
    ],
)
def test_labels_that_leave_nothing_to_compare_are_refused(tmp_path, head, labels, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(tmp_path, head, rows=make_rows(head, labels=labels))
