"""The trainer chooses the border of a loss that teaches none."""

import datasets
import numpy as np
import pytest
import torch

from modeling_minbert import MinBertForMultiTask, best_threshold
from tests.modeling_minbert.test_threshold import RANKED
from tests.trainers import tiny
from trainers import Task


def make_pairs(count, seed):
    """Pairs of random tokens; every other one is twice the same sentence but for one token."""
    generator = np.random.default_rng(seed)
    rows = []
    for row in range(count):
        first, second = generator.integers(5, tiny.VOCABULARY, size=(2, 6)).tolist()
        if row % 2:
            second = [*first[:-1], second[-1]]
        rows.append([first, second])
    columns = {"input_ids": rows, "token_type_ids": [[[0] * 6, [0] * 6]] * count}
    labels = [float(row % 2) for row in range(count)]
    return datasets.Dataset.from_dict(columns | {"labels": labels, "length": [6] * count})


def make_trainer(folder, **settings):
    torch.manual_seed(0)
    task = Task("pairs", "paraphrase", make_pairs(24, seed=0), make_pairs(40, seed=1))
    own = {"tasks": [task], "methods": settings.pop("methods", ())}
    model = settings.pop("model", None) or MinBertForMultiTask(tiny.make_config({"pairs": RANKED}))
    return tiny.make_trainer(folder, model=model, own=own, **{"max_steps": 4} | settings)


def cosines(trainer, rows):
    """Recompute the cosines by the encoder alone."""
    found = []
    for pair in rows["input_ids"]:
        vectors = trainer.model.eval().bert(torch.tensor(pair)).last_hidden_state.mean(dim=1)
        found.append(torch.cosine_similarity(*vectors, dim=0).item())
    return np.array(found)


def test_training_rows_choose_the_border(tmp_path):
    trainer = make_trainer(tmp_path)
    before = trainer.model.config.task("pairs").threshold

    trainer.train()

    threshold = trainer.model.config.task("pairs").threshold
    rows = make_pairs(24, seed=0)
    values, labels = cosines(trainer, rows), np.array(rows["labels"]) > 0
    best = max(((values > at) == labels).mean() for at in np.linspace(-1, 1, 4001))
    assert before is None
    assert ((values > threshold) == labels).mean() == best
    assert threshold == trainer.model.heads["pairs"].threshold
    held_out = make_pairs(40, seed=1)
    expected = ((cosines(trainer, held_out) > threshold) == np.array(held_out["labels"])).mean()
    assert trainer.evaluate()["eval_pairs_accuracy"] == pytest.approx(expected)
    assert trainer.model.config.task("pairs").threshold == threshold  # no held-out row moves it


def test_an_evaluation_in_training_has_the_border_of_then(tmp_path):
    trainer = make_trainer(tmp_path, eval_strategy="steps", eval_steps=2)

    trainer.train()

    logged = [
        entry["eval_pairs_accuracy"]
        for entry in trainer.state.log_history
        if "eval_pairs_accuracy" in entry
    ]
    assert len(logged) == 2
    assert trainer.evaluate()["eval_pairs_accuracy"] == logged[-1]


def test_training_on_chooses_it_anew(tmp_path):
    first = make_trainer(tmp_path)
    first.train()
    first.model.save_pretrained(tmp_path / "saved")
    before = first.model.config.task("pairs").threshold

    loaded = MinBertForMultiTask.from_pretrained(tmp_path / "saved")
    trainer = make_trainer(tmp_path / "again", model=loaded, learning_rate=0.05, max_steps=12)
    trainer.train()

    threshold = trainer.model.config.task("pairs").threshold
    rows = make_pairs(24, seed=0)
    values, labels = torch.tensor(cosines(trainer, rows)), torch.tensor(rows["labels"]) > 0
    assert threshold == pytest.approx(best_threshold(values, labels), abs=1e-5)
    assert abs(threshold - before) > 1e-3


def test_choosing_it_and_to_evaluate_leaves_the_weights_as_they_are(tmp_path):
    trainer = make_trainer(tmp_path, bf16_full_eval=True)

    trainer.train()
    trained = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.evaluate()

    torch.testing.assert_close(trained, trainer.model.state_dict(), rtol=0, atol=0)

    assert {weight.dtype for weight in trainer.model.parameters()} == {torch.float32}


def test_to_evaluate_changes_no_step(tmp_path):
    def train(**settings):
        torch.manual_seed(0)
        config = tiny.make_config({"pairs": RANKED | {"dropout": 0.1}})
        own = {"model": MinBertForMultiTask(config), "methods": {"r_drop": 1.0}}
        trainer = make_trainer(tmp_path, **own, **settings)
        trainer.train()
        return trainer

    plain, evaluated = train(), train(eval_strategy="steps", eval_steps=1)

    expected = plain.model.state_dict()
    torch.testing.assert_close(evaluated.model.state_dict(), expected, rtol=0, atol=0)
