"""The trainer on a task without labels, beside one with labels and alone."""

import datasets
import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny
from trainers import Task, TaskTraining, evaluate_run


def make_rows(sentences, count=12, seed=0):
    """Encoded rows of some sentences each, whose first two share their first tokens."""
    generator = np.random.default_rng((seed, sentences))
    ids = [
        [generator.integers(5, tiny.VOCABULARY, size=size).tolist() for size in lengths]
        for lengths in generator.integers(3, 9, size=(count, sentences))
    ]
    for row in ids:
        row[-1][:2] = row[0][:2]
    types = [[[0] * len(text) for text in row] for row in ids]
    lengths = [max(map(len, row)) for row in ids]
    names = [str(row) for row in range(count)]
    return datasets.Dataset.from_dict(
        {"id": names, "input_ids": ids, "token_type_ids": types, "length": lengths}
    )


def make_model(sentences, dropout=0.0):
    torch.manual_seed(0)
    tasks = {
        "near": {"problem_type": "contrastive", "num_sentences": sentences},
        "moods": {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
    }
    return MinBertForMultiTask(tiny.make_config(tasks, dropout))


def make_trainer(folder, sentences, tasks=("near",), dropout=None, train=None, **arguments):
    # single sentences differ from themselves by dropout
    dropout = (0.1 if sentences == 1 else 0.0) if dropout is None else dropout
    rows = {"near": train or make_rows(sentences), "moods": tiny.make_rows("moods", 12)}
    held_out = {"near": make_rows(sentences, 9, seed=1), "moods": tiny.make_rows("moods", 9)}
    kinds = {"near": "contrastive", "moods": "classification"}
    own = {"tasks": [Task(task, kinds[task], rows[task], held_out[task]) for task in tasks]}
    own["methods"] = arguments.pop("methods", ())
    steps = {"max_steps": 4, "per_device_eval_batch_size": 5}
    model = make_model(sentences, dropout)
    return tiny.make_trainer(folder, model=model, own=own, **steps | arguments)


def test_vectors_come_back_in_the_order_of_the_rows(tmp_path):
    sentences = 3
    trainer = make_trainer(tmp_path, sentences)
    rows = make_rows(sentences, 9, seed=1)

    vectors = trainer.predict_task("near", rows)

    assert vectors.shape == (9, sentences, 12)
    model = trainer.model.eval()
    for vector, texts in zip(vectors, rows["input_ids"], strict=True):
        for found, text in zip(vector, texts, strict=True):
            states = model.bert(torch.tensor([text])).last_hidden_state[0].detach()
            assert_close(torch.tensor(found), F.normalize(states.mean(dim=0), dim=0))


@pytest.mark.parametrize("sentences", [1, 2])
def test_beside_a_task_with_labels_it_counts_if_it_has_pairs(tmp_path, sentences):
    trainer = make_trainer(tmp_path, sentences, tasks=("near", "moods"))
    trainer.train()

    metrics = trainer.evaluate()
    encoded = {
        "near": {"validation": make_rows(sentences, 9, seed=1)},
        "moods": {"validation": tiny.make_rows("moods", 9)},
    }
    results, predictions = evaluate_run(trainer, encoded)

    counted = ["moods", "near"][:sentences]
    mean = np.mean([metrics[f"eval_{name}_accuracy"] for name in counted])
    assert metrics["eval_mean"] == pytest.approx(mean)
    assert results["validation"].metrics["near_uniformity"] == pytest.approx(
        metrics["eval_near_uniformity"], rel=1e-4
    )
    assert set(predictions) == {("moods", "validation")}
    assert ("near" in results["validation"].standard_errors) == (sentences > 1)
    table = results["validation"].table(trainer.problems)
    assert table.count("| near ") == (4 if sentences > 1 else 1)


def test_rows_that_it_cannot_learn_from_are_refused(tmp_path):
    labelled = make_rows(2).add_column("labels", [0] * 12)

    with pytest.raises(ValueError, match="training set of task 'near' has labels, but contrast"):
        make_trainer(tmp_path, 2, train=labelled)
    with pytest.raises(ValueError, match=r"'near' is of a contrastive task: .* list for every"):
        make_trainer(tmp_path, 2, train=tiny.make_rows("moods", 8).remove_columns("labels"))


@pytest.mark.parametrize("name", ["mean", "near_accuracy"])
def test_what_single_sentences_do_not_have_cannot_be_the_best(tmp_path, name):
    with pytest.raises(ValueError, match=r"known: near_uniformity, near_loss$"):
        make_trainer(tmp_path, 1, metric_for_best_model=name, eval_strategy="epoch")


def test_losses_that_compare_rows_see_all_processes(tmp_path):
    trainer = make_trainer(tmp_path, 2)

    assert [head.gathers for head in trainer.model.heads.values()] == [True, True]
    assert not make_model(2).heads["near"].gathers  # who trains by himself asks for it


def test_single_sentences_beside_an_auxiliary_task_have_no_mean(tmp_path):
    trainer = make_trainer(tmp_path, 1)
    rows = tiny.make_rows("moods", 12)
    helper = Task("moods", "classification", rows, rows, TaskTraining(auxiliary=True))
    own = {"tasks": [*trainer.tasks.values(), helper]}
    model = make_model(1, dropout=0.1)

    assert "eval_mean" not in tiny.make_trainer(tmp_path, model=model, own=own).evaluate()
    with pytest.raises(ValueError, match="metric_for_best_model: unknown metric 'mean'"):
        tiny.make_trainer(tmp_path, model=model, own=own, metric_for_best_model="mean")
