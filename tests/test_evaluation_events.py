"""Callbacks and schedulers of transformers hear of an evaluation once, with all of its metrics."""

import pytest
from transformers import EarlyStoppingCallback, TrainerCallback

from tests.trainers.tiny import make_trainer

EVERY_EPOCH = {
    "eval_strategy": "epoch",
    "num_train_epochs": 9,
    "learning_rate": 0.0,
    "own": {"steps_per_epoch": 3},
}
NAMES = {"eval_moods_accuracy", "eval_pairs_accuracy", "eval_scores_pearson", "eval_mean"}


class Heard(TrainerCallback):
    """Notes the metrics of every event."""

    def __init__(self):
        self.metrics = []

    def on_evaluate(self, *_, metrics, **__):
        self.metrics.append(dict(metrics))
        metrics.clear()  # as the callback for notebooks removes some


@pytest.mark.parametrize("metric", ["scores_pearson", "mean"])
def test_early_stopping_of_transformers_counts_every_evaluation_once(tmp_path, caplog, metric):
    trainer = make_trainer(
        tmp_path, callbacks=[EarlyStoppingCallback(3)], **EVERY_EPOCH,
        metric_for_best_model=metric, load_best_model_at_end=True, save_strategy="epoch",
    )  # fmt: skip

    trainer.train()

    # the first one is the best, and three more are not better
    assert trainer.state.global_step == 4 * 3
    assert "early stopping required metric_for_best_model" not in caplog.text


def test_an_evaluation_is_one_event_with_the_metrics_of_all_tasks(tmp_path):
    heard = Heard()
    trainer = make_trainer(tmp_path, callbacks=[heard], **EVERY_EPOCH)

    trainer.train()
    returned = trainer.evaluate()
    some = trainer.evaluate({"moods": trainer.tasks["moods"].evaluation})

    assert len(heard.metrics) == 9 + 2
    assert all(set(metrics) >= NAMES for metrics in heard.metrics[:10])
    assert heard.metrics[9] == returned
    assert heard.metrics[10] == some
    logged = [name for entry in trainer.state.log_history for name in entry if name in NAMES]
    assert sorted(logged) == sorted([*NAMES] * 10 + ["eval_moods_accuracy"])


def test_a_plateau_is_one_of_the_metric_that_chooses_the_best_model(tmp_path, monkeypatch):
    rising = iter(range(1, 100))  # better in every evaluation
    kind = type(make_trainer(tmp_path / "other").problems["moods"])
    monkeypatch.setattr(kind, "compute_metrics", lambda *_: {"accuracy": next(rising)})
    trainer = make_trainer(
        tmp_path, lr_scheduler_type="reduce_lr_on_plateau", lr_scheduler_kwargs={"patience": 1},
        metric_for_best_model="moods_accuracy", warmup_steps=0,
        **EVERY_EPOCH | {"learning_rate": 0.01, "own": {"steps_per_epoch": 3}},
    )  # fmt: skip

    trainer.train()

    assert trainer.optimizer.param_groups[0]["lr"] == 0.01


def test_a_plateau_needs_a_metric(tmp_path):
    expected = "lr_scheduler_type='greedy' needs metric_for_best_model: unknown metric 'loss'"
    with pytest.raises(ValueError, match=expected):  # transformers' default
        make_trainer(tmp_path, lr_scheduler_type="greedy", eval_strategy="epoch")


@pytest.mark.parametrize(
    ("name", "greater"), [("moods_accuracy", True), ("eval_pairs_loss", False), ("mean", True)]
)
def test_the_worst_model_is_not_chosen_as_the_best(tmp_path, name, greater):
    plain = {"metric_for_best_model": name, "eval_strategy": "epoch"}
    scheduler = {"lr_scheduler_type": "reduce_lr_on_plateau"}

    trainer = make_trainer(tmp_path, **plain, **scheduler)
    trainer.create_optimizer_and_scheduler(3)

    assert trainer.args.greater_is_better is greater
    assert trainer.args.lr_scheduler_kwargs is None  # they may be used for another metric
    assert trainer.lr_scheduler.mode == ("max" if greater else "min")
    with pytest.raises(ValueError, match=f"greater_is_better={not greater}, but a .* is better"):
        make_trainer(tmp_path, **plain, greater_is_better=not greater)
    wrong = {"lr_scheduler_kwargs": {"mode": "min" if greater else "max"}}
    with pytest.raises(ValueError, match=r"mode='.*', but for"):
        make_trainer(tmp_path, **plain, **scheduler, **wrong)
