"""One more task for a model that has some, and the warning when tasks are replaced instead."""

import logging

import pytest
from torch.testing import assert_close

from modeling_minbert import TASKS, MinBertForMultiTask

LABELS = {"labels": ["no", "yes"]}
FIELDS = {
    "classification": {**LABELS, "class_weights": [1, 2]},
    "multi_label_classification": LABELS,
    "ordinal": LABELS,
    "paraphrase": {},
    "similarity": {"score_range": [0, 5]},
    "regression": {"targets": ["cohesion", "syntax"], "mean": [3, 1e4], "std": [1, 0.5]},
    "multi_output_classification": {"outputs": ["tone"], "classes": [["a", "b"]]},
    "multiple_choice": {"num_choices": 3},
    "contrastive": {"projection": "training"},
    "token_classification": LABELS,
    "question_answering": {},
    "masked_lm": {},
    "next_sentence": {},
    "pretraining": {},
}
NEW = {kind: {"problem_type": kind, **fields} for kind, fields in FIELDS.items()}


@pytest.fixture
def warnings(caplog):
    """Return a function with the warnings of transformers' logger so far."""
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    yield lambda: [row.getMessage() for row in caplog.records if "not loaded" in row.getMessage()]
    logger.removeHandler(caplog.handler)


def test_every_type_can_be_added():
    assert NEW.keys() == TASKS.keys()


@pytest.mark.parametrize("kind", NEW)
def test_a_task_is_added_to_those_of_a_checkpoint(build_multitask, tasks, tmp_path, kind):
    before = build_multitask(tasks)
    before.save_pretrained(tmp_path)
    more = {**before.config.tasks, "mine": NEW[kind]}

    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks=more, initializer_range=1e-4)

    old, state = before.state_dict(), model.state_dict()
    assert_close({name: state[name] for name in old}, old, rtol=0, atol=0)
    for name in state.keys() - old.keys() - {"cls.predictions.decoder.weight"}:
        assert state[name].abs().max() <= (1.0 if "LayerNorm.weight" in name else 1e-3), name


def test_replaced_tasks_are_named(build_multitask, tasks, tmp_path, warnings):
    build_multitask(tasks).save_pretrained(tmp_path)
    kept = {"tone": tasks["tone"], "near": tasks["near"], "mine": NEW["paraphrase"]}

    MinBertForMultiTask.from_pretrained(tmp_path, tasks=kept)

    (message,) = warnings()
    assert f"{tmp_path}: the heads of its tasks echo, same are not loaded" in message
    assert "tasks={**config.tasks, name: fields}" in message
