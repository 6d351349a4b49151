"""Metrics of a user beside those of the tasks, and names that belong to one task each."""

import numpy as np
import pytest

from modeling_minbert import MinBertForMultiTask
from tests.trainers.tiny import make_config, make_rows
from trainers import Task


def share_of_first(prediction):
    """Measure how often class 0 wins; checks that labels and logits belong together."""
    assert len(prediction.predictions) == len(prediction.label_ids)
    return {"share_of_first": float(np.mean(prediction.predictions[:, 0] > 0))}


def test_one_function_measures_the_task_that_it_is_given_for(make_trainer):
    trainer = make_trainer(own={"compute_metrics": {"moods": share_of_first}})

    metrics = trainer.evaluate()

    assert 0 <= metrics["eval_moods_share_of_first"] <= 1
    assert "eval_moods_accuracy" in metrics
    assert not any("share_of_first" in name for name in metrics if "moods" not in name)


def test_a_function_for_all_tasks_measures_each(make_trainer):
    count = {"compute_metrics": lambda prediction: {"rows": len(prediction.predictions)}}

    metrics = make_trainer(own=count).evaluate()

    assert {name for name in metrics if name.endswith("_rows")} == {
        f"eval_{task}_rows" for task in ("moods", "pairs", "scores")
    }


def test_a_function_gets_values_and_labels_in_the_order_of_the_rows(make_trainer):
    rows = make_rows("moods", 7)
    seen = []
    own = {
        "tasks": [Task("moods", "classification", rows, rows)],
        "compute_metrics": lambda prediction: seen.append(prediction) or {},
    }
    trainer = make_trainer(own=own)

    trainer.evaluate()

    assert seen[0].label_ids.tolist() == rows["labels"]
    np.testing.assert_allclose(seen[0].predictions, trainer.predict_task("moods", rows), atol=1e-6)


def test_a_metric_of_a_user_chooses_the_best_model(make_trainer):
    values = iter([0.1, 0.9, 0.5])
    own = {"compute_metrics": {"moods": lambda _: {"luck": next(values)}}}
    trainer = make_trainer(
        own=own,
        num_train_epochs=3,
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        metric_for_best_model="moods_luck",
    )

    trainer.train()

    assert trainer.state.best_metric == 0.9


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"mods": share_of_first}, ValueError, "unknown task 'mods'; did you mean 'moods'"),
        ({"moods": 3}, TypeError, "compute_metrics of task 'moods' is not callable: 3"),
        ("f1", TypeError, "compute_metrics of task 'moods' is not callable: 'f1'"),
    ],
)
def test_what_is_no_function_of_a_task_is_refused(make_trainer, given, error, message):
    with pytest.raises(error, match=message):
        make_trainer(own={"compute_metrics": given})


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ({"accuracy": 1.0}, ValueError, "'accuracy', which is a metric of the task already"),
        (0.5, TypeError, "returned a float; expected a mapping"),
    ],
)
def test_what_a_function_returns_must_fit(make_trainer, returned, error, message):
    trainer = make_trainer(own={"compute_metrics": {"moods": lambda _: returned}})

    with pytest.raises(error, match=message):
        trainer.evaluate()


@pytest.mark.parametrize(
    ("names", "shared"),
    [(("x", "x_macro"), "eval_x_macro_f1"), (("moods", "Moods"), "moods")],
)
def test_two_tasks_never_share_a_name(make_trainer, names, shared):
    rows = make_rows("moods", 6), make_rows("pairs", 6)
    heads = [
        {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
        {"problem_type": "paraphrase"},
    ]
    model = MinBertForMultiTask(make_config(dict(zip(names, heads, strict=True)), 0.0, 1))
    given = zip(names, heads, rows, strict=True)
    tasks = [Task(name, head["problem_type"], own, own) for name, head, own in given]

    with pytest.raises(ValueError, match=f"would both have '{shared}'; rename one"):
        make_trainer(model=model, own={"tasks": tasks})
