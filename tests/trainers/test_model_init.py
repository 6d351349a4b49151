"""A fresh model for every training, and searches for hyperparameters with optuna."""

import os
import subprocess
import sys
from pathlib import Path

import optuna
import pytest
import torch
from transformers import TrainerState, TrainingArguments

from tests.trainers import search_ranks
from tests.trainers.tiny import make_model, make_rows, make_tasks, weights
from trainers import (
    AggregateEarlyStopping,
    MethodArguments,
    Mixed,
    MultiTaskTrainer,
    Task,
    TrainingDivergedError,
)

optuna.logging.set_verbosity(optuna.logging.WARNING)

# Every method that keeps something from step to step, and settings that its first steps depend on.
STATEFUL = {
    "none": {},
    "average": {"weight_averaging": "ema"},
    "smart": {"smart": {"bregman_weight": 1.0}},
    "layers": {"layerwise_lr_decay": 0.5, "r_drop": 1.0},
}
SETTINGS = {"learning_rate": 0.02, "num_train_epochs": 2, "per_device_train_batch_size": 3}


@pytest.fixture
def make(tmp_path):
    """Build a trainer that makes its own models, from new weights of its seed."""

    def build(folder="run", *, methods=None, callbacks=None, own=None, model=None, **arguments):
        defaults = {
            "use_cpu": True,
            "disable_tqdm": True,
            "save_strategy": "no",
            "logging_steps": 1,
            "learning_rate": 0.01,
            "num_train_epochs": 1,
            "per_device_train_batch_size": 4,
        }
        methods = MethodArguments(**(methods or {}))
        is_mixed = methods.gradient_surgery is not None
        return MultiTaskTrainer(
            model_init=model or seeded_model,
            args=TrainingArguments(str(tmp_path / folder), **(defaults | arguments)),
            callbacks=callbacks,
            **({"tasks": make_tasks(), "steps_per_epoch": 4} | (own or {})),
            methods=methods.make_methods(),
            sampling=Mixed() if is_mixed else None,
        )

    return build


def seeded_model():
    """Make a model whose weights follow from the seed of the run."""
    return make_model(dropout=0.2, seed=None)


def fixed(**settings):
    """Return a search space with a single point."""
    return lambda trial: {
        name: trial.suggest_categorical(name, [value]) for name, value in settings.items()
    }


class Notes(list):
    """Notes the weights at the end of every trial, before they are given up."""

    def __call__(self, metrics):
        self.append(weights(self.trainer))
        return metrics["eval_mean"]


def losses_of(trainer):
    """The losses of all steps and evaluations."""
    names = ("loss", "grad_norm", "eval_moods_loss", "eval_mean")
    log = trainer.state.log_history
    return [{name: entry[name] for name in names if name in entry} for entry in log]


def search(trainer, **options):
    notes = Notes()
    notes.trainer = trainer
    best = trainer.hyperparameter_search(
        compute_objective=notes, direction="maximize", **({"n_trials": 2} | options)
    )
    return best, notes


@pytest.mark.parametrize("methods", STATEFUL.values(), ids=STATEFUL)
def test_every_training_begins_with_a_new_model(make, methods):
    trainer = make(methods=methods)
    trainer.train()
    first = weights(trainer)

    trainer.train()

    torch.testing.assert_close(weights(trainer), first, rtol=0, atol=0)


@pytest.mark.parametrize("methods", STATEFUL.values(), ids=STATEFUL)
def test_every_trial_equals_a_plain_run_with_its_settings(make, methods):
    expected = make("plain", methods=methods, **SETTINGS)
    expected.train()

    _, found = search(make(methods=methods), hp_space=fixed(**SETTINGS))

    assert len(found) == 2
    for state in found:
        torch.testing.assert_close(state, weights(expected), rtol=0, atol=0)


def test_the_seed_of_a_trial_is_also_that_of_its_model(make):
    expected = make("plain", seed=5)
    expected.train()

    _, found = search(make(seed=3), hp_space=fixed(seed=5), n_trials=1)

    torch.testing.assert_close(found[0], weights(expected), rtol=0, atol=0)


def test_settings_of_a_trial_end_with_it(make):
    trainer = make()
    rates = []

    def space(trial):
        return {"learning_rate": 0.5} if trial.number == 0 else {"weight_decay": 0.1}

    def objective(metrics):
        rates.append(trainer.args.learning_rate)
        return metrics["eval_mean"]

    trainer.hyperparameter_search(space, objective, n_trials=2, direction="maximize")

    assert rates == [0.5, 0.01]
    assert (trainer.args.learning_rate, trainer.args.weight_decay) == (0.01, 0.0)


def test_the_best_trial_has_the_highest_mean_and_can_be_trained_again(make, tmp_path):
    trainer = make(eval_strategy="epoch", save_strategy="epoch", num_train_epochs=2)

    def space(trial):
        return {
            "learning_rate": trial.suggest_float("learning_rate", 1e-4, 0.1, log=True),
            "num_train_epochs": trial.suggest_int("num_train_epochs", 1, 2),
            "per_device_train_batch_size": trial.suggest_categorical(
                "per_device_train_batch_size", [2, 5]
            ),
        }

    sampler = optuna.samplers.RandomSampler(seed=1)
    best = trainer.hyperparameter_search(space, n_trials=4, sampler=sampler)

    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        *(f"run-{number}" for number in range(4))
    }
    states = {
        number: TrainerState.load_from_json(str(last / "trainer_state.json"))
        for number, last in (
            (path.name.removeprefix("run-"), max(path.iterdir(), key=lambda one: one.name))
            for path in (tmp_path / "run").iterdir()
        )
    }
    means = {
        number: [entry["eval_mean"] for entry in state.log_history if "eval_mean" in entry][-1]
        for number, state in states.items()
    }
    assert best.objective == max(means.values()) == means[best.run_id]
    assert min(means.values()) < best.objective
    for name, value in best.hyperparameters.items():
        setattr(trainer.args, name, value)
    trainer.train()
    assert trainer.evaluate()["eval_mean"] == best.objective


def test_a_trial_after_one_that_was_pruned_starts_anew(make):
    methods = {"smart": {"bregman_weight": 1.0}, "weight_averaging": "ema"}
    options = {"num_train_epochs": 2, "eval_strategy": "steps", "eval_steps": 2}
    expected = make("plain", methods=methods, **options)
    expected.train()
    trainer = make(methods=methods, **options)

    class PruneFirst(optuna.pruners.BasePruner):
        def prune(self, _, trial):
            return trial.number == 0

    best = trainer.hyperparameter_search(fixed(seed=42), n_trials=2, pruner=PruneFirst())

    assert best.run_id == "1"
    assert losses_of(trainer) == losses_of(expected)


def test_a_run_with_new_models_is_resumed_exactly(make, tmp_path):
    options = {"methods": {"weight_averaging": "ema"}, "save_strategy": "steps", "save_steps": 3}
    trainer = make(**options)
    trainer.train()
    expected = weights(trainer)

    trainer.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-3"))

    torch.testing.assert_close(weights(trainer), expected, rtol=0, atol=0)


def test_trials_have_names_and_may_have_two_objectives(make, tmp_path):
    trainer = make(eval_strategy="epoch", save_strategy="epoch")

    best = trainer.hyperparameter_search(
        lambda trial: {"learning_rate": [0.05, 1e-9][trial.number]},
        lambda metrics: (metrics["eval_mean"], metrics["eval_moods_loss"]),
        n_trials=2,
        direction=["maximize", "minimize"],
        backend="optuna",
        hp_name=lambda trial: f"try-{trial.number}",
    )

    assert {path.name for path in (tmp_path / "run").iterdir()} == {"try-0", "try-1"}
    assert {run.run_id for run in best} <= {"0", "1"}
    assert all(len(run.objective) == 2 for run in best)


def test_a_search_goes_on_after_a_trial_that_diverged(make):
    def space(trial):
        return {"learning_rate": [1e30, 0.01][trial.number]}

    trainer = make()

    with pytest.raises(TrainingDivergedError):
        trainer.hyperparameter_search(fixed(learning_rate=1e30), n_trials=1)
    best = trainer.hyperparameter_search(space, n_trials=2, catch=(TrainingDivergedError,))

    assert best.run_id == "1"


def test_early_stopping_counts_anew_in_every_trial(make):
    trainer = make(
        callbacks=[AggregateEarlyStopping(1)],
        num_train_epochs=5,
        eval_strategy="epoch",
        save_strategy="epoch",
        metric_for_best_model="mean",
        load_best_model_at_end=True,
    )
    steps = []

    def objective(metrics):
        steps.append(trainer.state.global_step)
        return metrics["eval_mean"]

    trainer.hyperparameter_search(
        fixed(learning_rate=1e-30), objective, n_trials=2, direction="maximize"
    )

    assert steps == [4, 8, 4, 8]  # the second evaluation of a trial is no better


def test_tasks_follow_the_model_of_a_trial(make):
    """The heads may be others in each trial: losses, operations and decisions are theirs."""
    sizes = []

    def make_one(trial):
        layers = 1 if trial is None else 2
        return make_model(layers=layers, seed=None)

    trainer = make(model=make_one)

    def objective(metrics):
        sizes.append(trainer.floating_point_ops(trainer.data_collator(rows)))
        assert trainer.evaluator.decoder("moods").func.__self__ is trainer.model
        assert all(head.gathers for head in trainer.model.heads.values())
        return metrics["eval_mean"]

    rows = [{"task": "moods", **row} for row in make_rows("moods", 4).remove_columns(["id"])]
    one_layer = trainer.floating_point_ops(trainer.data_collator(rows))

    trainer.hyperparameter_search(fixed(seed=1), objective, n_trials=1, direction="maximize")

    assert sizes[0] > one_layer


def test_the_rows_of_every_trial_have_its_batch_size_and_the_same_order(make):
    seen = []
    collate = make().data_collator

    def note(rows, task):
        seen.append([row["input_ids"] for row in rows])
        return collate([{"task": task, **row} for row in rows])

    trainer = make(own={"data_collator": note})
    search(trainer, hp_space=fixed(per_device_train_batch_size=5))

    trained = [batch for batch in seen if len(batch) == 5]
    assert trained[:4] == trained[4:8]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_jobs": 2}, "n_jobs=2: trials share the trainer"),
        ({"compute_objective": len}, "needs a direction for compute_objective"),
        ({"hp_space": fixed(learning_rate=-1.0)}, "learning_rate=-1.0; expected a number >= 0"),
    ],
)
def test_searches_that_cannot_work_are_refused(make, options, message):
    with pytest.raises(ValueError, match=message):
        make().hyperparameter_search(**({"hp_space": fixed(seed=1), "n_trials": 1} | options))


def test_a_search_needs_rows_to_evaluate_and_a_way_to_make_models(make, make_trainer):
    tasks = [Task("moods", "classification", make_rows("moods", 8))]

    with pytest.raises(ValueError, match="give the tasks evaluation rows"):
        make(own={"tasks": tasks}).hyperparameter_search()
    with pytest.raises(ValueError, match="give the trainer a model_init instead of a model"):
        make_trainer().hyperparameter_search()


@pytest.mark.parametrize("model", [None, "both"])
def test_a_trainer_takes_a_model_or_makes_one(tmp_path, model):
    args = TrainingArguments(str(tmp_path), use_cpu=True)
    model_init = None if model is None else seeded_model

    with pytest.raises(ValueError, match="give a model, or a model_init that makes one"):
        MultiTaskTrainer(
            None if model is None else make_model(), args, make_tasks(), model_init=model_init
        )


@pytest.mark.slow
def test_a_search_in_two_processes_equals_one_with_twice_the_batch(tmp_path):
    root = Path(__file__).parents[2]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *launch, "-m", "tests.trainers.search_ranks", str(tmp_path)],
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (torch.load(tmp_path / f"rank-{rank}.pt") for rank in range(2))

    expected = search_ranks.search(tmp_path / "one", batch_size=6)

    assert [rate for rate, *_ in first] == [rate for rate, *_ in expected]
    assert len({rate for rate, *_ in first}) == 2
    torch.testing.assert_close(second, first, rtol=0, atol=0)
    for (_, mean, state), (_, other, same) in zip(first, expected, strict=True):
        assert mean == pytest.approx(other, abs=1e-4)
        torch.testing.assert_close(state, same, atol=1e-5, rtol=1e-4)
