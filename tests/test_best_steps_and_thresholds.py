"""Evenly spread evaluations, and thresholds of few rows."""

import re

import numpy as np
import pytest
import torch

from minbert_cli import check
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.trainers.tiny import make_config

LABELS = {"problem_type": "multi_label_classification", "labels": ["often", "rare"]}


@pytest.mark.parametrize("rows", [80, 100, 140, 250, 370])
def test_evaluations_are_evenly_spread_to_the_end(tmp_path, capsys, rows):
    recipe = small_run.make_recipe(tmp_path)
    small_run.write_files(tmp_path)
    for key in ("eval_strategy", "save_strategy", "steps_per_epoch", "num_train_epochs"):
        del recipe[key]
    recipe["tasks"] = {"moods": recipe["tasks"]["moods"]}
    dev = [(number, "the garden is fine", "good") for number in range(rows * 10)]
    small_run.write_tsv(tmp_path / "moods-dev.tsv", ("id", "text", "mood"), dev)

    check.main([small_run.write_recipe(tmp_path, recipe), "--max_steps", "30000"])

    printed = capsys.readouterr().out
    wanted = re.search(r"(\d+) evaluations of [\d,]+ rows", printed)
    planned = re.findall(r"(\d+) evaluations? of", printed)
    assert 2 <= int(wanted[1]) <= 10
    assert set(planned) == {wanted[1]}


def test_a_label_of_few_rows_keeps_its_threshold():
    model = MinBertForMultiTask(make_config({"own": LABELS}))
    generator = np.random.default_rng(0)
    labels = np.zeros((200, 2), np.float32)
    labels[::2, 0], labels[-1, 1] = 1, 1
    logits = generator.normal(-3, 1, size=(200, 2)).astype(np.float32)
    logits[-1, 1] = -5.0  # the only row with the label is among the least probable ones

    often, rare = model.fit_threshold("own", logits, labels)

    assert rare == 0.5
    assert often < 0.5
    decided = model.decode("own", torch.from_numpy(logits))[:, 1].numpy()
    assert (decided == (logits[:, 1] > 0)).all()
