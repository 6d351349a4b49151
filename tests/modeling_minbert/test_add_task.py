"""One more task for a model that has some, and the warning when tasks are replaced instead."""

import copy
import logging

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import TASKS, MinBertForMultiTask, MinBertModel

LABELS = {"labels": ["no", "yes"]}
FIELDS = {
    "classification": {**LABELS, "class_weights": [1, 2]},
    "multi_label_classification": LABELS,
    "ordinal": LABELS,
    "paraphrase": {},
    "similarity": {"score_range": [0, 5]},
    "regression": {"targets": ["cohesion", "syntax"], "mean": [3, 1e4], "std": [1, 0.5]},
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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_task_is_added_as_to_a_new_model(build_multitask, tasks, tmp_path, kind, dtype):
    build_multitask(tasks).save_pretrained(tmp_path / "old")
    model = MinBertForMultiTask.from_pretrained(tmp_path / "old", dtype=dtype)
    model.config.initializer_range = 1e-4
    before = copy.deepcopy(model.state_dict())
    model.add_task("mine", NEW[kind])
    model.save_pretrained(tmp_path / "new")

    fresh = MinBertForMultiTask(copy.deepcopy(model.config)).to(dtype)
    state = model.state_dict()
    assert list(state) == list(fresh.state_dict())
    assert_close({name: state[name] for name in before}, before, rtol=0, atol=0)
    for name in state.keys() - before.keys() - {"cls.predictions.decoder.weight"}:
        assert state[name].dtype == dtype
        assert state[name].abs().max() <= (1.0 if "LayerNorm.weight" in name else 1e-3), name
    for (name, ours), (_, theirs) in zip(model.named_buffers(), fresh.named_buffers(), strict=True):
        assert_close(ours.float(), theirs.float(), msg=name)
    assert model.config.to_dict() == fresh.config.to_dict()
    assert [part.training for part in model.modules()] == [False] * len(list(model.modules()))

    loaded = MinBertForMultiTask.from_pretrained(tmp_path / "new", dtype=dtype)
    assert_close(loaded.state_dict(), state, rtol=0, atol=0)
    assert loaded.config.default_task == "tone"


@pytest.mark.parametrize("kind", ["masked_lm", "pretraining"])
def test_an_added_vocabulary_head_is_tied(build_multitask, tasks, tmp_path, kind):
    model = build_multitask({**tasks, "order": NEW["next_sentence"]})
    order = model.cls.seq_relationship.weight.clone()
    model.add_task("words", NEW[kind])

    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert_close(model.cls.seq_relationship.weight, order)
    model.resize_token_embeddings(50)
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    model.save_pretrained(tmp_path)
    loaded = MinBertForMultiTask.from_pretrained(tmp_path)
    assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


def test_an_added_task_learns_and_the_others_stay(build_multitask, tasks, tiny_batch):
    model = build_multitask(tasks)
    expected = model(**tiny_batch, task="tone").logits
    model.add_task("mine", NEW["classification"])

    assert list(model.heads) == sorted([*tasks, "mine"])
    assert model.bert.config.tasks == model.config.tasks
    assert_close(model(**tiny_batch, task="tone").logits, expected)
    labels = torch.zeros(len(tiny_batch["input_ids"]), dtype=torch.long)
    model(**tiny_batch, labels=labels, task="mine").loss.backward()
    assert model.heads["mine"].out.weight.grad.abs().sum() > 0


def test_a_task_with_labels_becomes_the_default_of_one_without(build_multitask):
    model = build_multitask({"words": NEW["masked_lm"]})
    model.add_task("mine", NEW["classification"])

    assert model.config.default_task == "mine"
    assert model.config.id2label == {0: "no", 1: "yes"}


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("tone", NEW["paraphrase"], "there is a task 'tone' already"),
        ("a.b", NEW["paraphrase"], "task name 'a.b' must consist of"),
        ("mine", {"problem_type": "rhyme"}, "task 'mine': unknown problem_type 'rhyme'"),
        ("mine", {}, "task 'mine': problem_type is missing"),
        ("mine", {**NEW["paraphrase"], "label": "x"}, "task has no key 'label'"),
        (
            "mine",
            {**NEW["paraphrase"], "pooling_layer": 9},
            r"pooling_layer=9 must be in \[-3, 2\]",
        ),
    ],
)
def test_a_task_that_cannot_be_added_changes_nothing(build_multitask, tasks, name, fields, message):
    model = build_multitask(tasks)
    before, names = model.config.to_dict(), list(model.state_dict())

    with pytest.raises(ValueError, match=message):
        model.add_task(name, fields)

    assert model.config.to_dict() == before
    assert list(model.state_dict()) == names


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")
def test_a_task_beside_an_adapter_of_the_heads_is_refused(build_multitask, tasks):
    peft = pytest.importorskip("peft")
    model = build_multitask(tasks)
    peft.get_peft_model(model, peft.LoraConfig(modules_to_save=["heads"]))

    with pytest.raises(ValueError, match="an adapter wraps the heads; merge or unload it first"):
        model.add_task("mine", NEW["paraphrase"])


def test_replaced_tasks_are_named(build_multitask, tasks, tmp_path, warnings):
    build_multitask(tasks).save_pretrained(tmp_path)
    kept = {"tone": tasks["tone"], "near": tasks["near"], "mine": NEW["paraphrase"]}

    MinBertForMultiTask.from_pretrained(tmp_path, tasks=kept)

    (message,) = warnings()
    assert f"{tmp_path}: the heads of its tasks echo, same are not loaded" in message
    assert "model.add_task(name, fields)" in message


def test_no_warning_where_no_head_is_lost(build_multitask, tasks, tmp_path, warnings):
    model = build_multitask(tasks)
    model.save_pretrained(tmp_path / "model")
    model.bert.save_pretrained(tmp_path / "encoder")  # its configuration lists the tasks
    new = {"mine": NEW["paraphrase"]}

    MinBertForMultiTask.from_pretrained(tmp_path / "model")
    MinBertForMultiTask.from_pretrained(tmp_path / "model", tasks={**tasks, **new})
    MinBertForMultiTask.from_pretrained(tmp_path / "encoder", tasks=new)
    MinBertModel.from_pretrained(tmp_path / "model")

    assert not warnings()


def test_weights_may_come_without_a_configuration(build_multitask, tasks, tmp_path, warnings):
    model = build_multitask(tasks)
    model.save_pretrained(tmp_path)
    (tmp_path / "config.json").unlink()

    state = model.state_dict()
    for path, weights in ((tmp_path, None), (None, state)):
        options = {"config": copy.deepcopy(model.config), "state_dict": weights}
        loaded = MinBertForMultiTask.from_pretrained(path, **options)
        assert_close(loaded.state_dict(), state, rtol=0, atol=0)

    assert not warnings()
