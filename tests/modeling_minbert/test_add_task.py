"""Tasks given while loading: one more, others, and the same with another meaning."""

import logging

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import TASKS, MinBertForMultiTask

LABELS = {"labels": ["no", "yes"]}
FIELDS = {
    "classification": {**LABELS, "class_weights": [1, 2]},
    "multi_label_classification": LABELS,
    "paraphrase": {},
    "similarity": {"score_range": [0, 5]},
    "regression": {"targets": ["cohesion", "syntax"], "mean": [3, 1e4], "std": [1, 0.5]},
    "multi_output_classification": {"outputs": ["tone"], "classes": [["a", "b"]]},
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


TRAINED = {
    "tone": {"problem_type": "classification", "labels": ["bad", "good"]},
    "price": {"problem_type": "regression", "targets": ["eur"], "mean": [500.0], "std": [100.0]},
    "near": {"problem_type": "similarity", "score_range": [0, 5], "head": "concat",
             "pair_encoding": "separate"},
}  # fmt: skip
CHANGED = {
    "order of labels": ("tone", {"labels": ["good", "bad"]}, "labels=['bad', 'good']"),
    "moved label": ("tone", {"labels": ["good", "great"]}, "labels=['bad', 'good']"),
    "type": ("tone", {"problem_type": "multi_label_classification"}, "='classification'"),
    "pooling": ("tone", {"pooling": "mean"}, "pooling='pooler'"),
    "layer": ("tone", {"pooling_layer": 1}, "pooling_layer=-1"),
    "head": ("tone", {"head": "mlp"}, "head='linear'"),
    "pairs": ("tone", {"pair_encoding": "joint"}, "pair_encoding=None"),
    "range": ("near", {"score_range": [0, 1]}, "score_range=[0, 5]"),
    "target": ("price", {"targets": ["usd"]}, "targets=['eur']"),
}


@pytest.mark.parametrize("case", CHANGED)
@pytest.mark.parametrize("with_info", [False, True])
def test_a_trained_head_is_not_that_of_a_task_with_another_meaning(
    build_multitask, tmp_path, case, with_info
):
    build_multitask(TRAINED).save_pretrained(tmp_path)
    name, changes, trained = CHANGED[case]
    tasks = {**TRAINED, name: {**TRAINED[name], **changes}}
    (key,) = changes

    with pytest.raises(ValueError, match="give the task another name") as error:
        MinBertForMultiTask.from_pretrained(tmp_path, tasks=tasks, output_loading_info=with_info)

    assert f"task '{name}' was trained with {key}=" in str(error.value)
    assert trained in str(error.value)
    renamed = {"new": tasks[name]}
    MinBertForMultiTask.from_pretrained(tmp_path, tasks=renamed)


def test_labels_may_have_new_names(build_multitask, tmp_path, caplog):
    before = build_multitask(TRAINED)
    before.save_pretrained(tmp_path)
    caplog.set_level("WARNING")

    for labels in (["no", "yes"], ["bad", "great"]):
        tasks = {"tone": {**TRAINED["tone"], "labels": labels}}
        model = MinBertForMultiTask.from_pretrained(tmp_path, tasks=tasks)
        assert f"trained with labels=['bad', 'good'], has now labels={labels}" in caplog.text
        assert_close(model.heads.tone.state_dict(), before.heads.tone.state_dict())


def test_a_regression_keeps_the_scaling_of_its_head(build_multitask, tmp_path, tiny_batch, caplog):
    before = build_multitask(TRAINED).eval()
    before.save_pretrained(tmp_path)
    of_new_rows = {**TRAINED["price"], "mean": [-3.0], "std": [2.0]}
    caplog.set_level("WARNING")

    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks={"price": of_new_rows}).eval()

    assert "task 'price' keeps the scaling of its head, {'mean': [500.0], 'std'" in caplog.text
    assert model.config.tasks["price"] == before.config.tasks["price"]
    with torch.no_grad():
        found, expected = (each(**tiny_batch, task="price").logits for each in (model, before))
    assert_close(found, expected)


def test_what_a_task_leaves_out_of_its_head_is_as_before(build_multitask, tmp_path):
    near = {**NEW["similarity"], "pair_encoding": "separate", "head": "cosine"}
    tasks = {"kind": {**NEW["classification"], "temperature": 2.0}, "zeta": near | {"loss": "bce"}}
    tasks["pages"] = {**NEW["classification"], "max_length": 16, "truncation": "windows"}
    tasks["tags"] = {**NEW["token_classification"], "words": "whitespace"}
    tasks["found"] = {**NEW["question_answering"], "max_length": 40, "max_answer_length": 3,
                      "null_score_diff_threshold": -3.0}  # fmt: skip
    cosine = {**NEW["paraphrase"], "pair_encoding": "separate", "head": "cosine"}
    tasks["echo"] = {**cosine, "loss": "bce", "thresholds": [0.3]}
    tasks["twin"] = {**cosine, "loss": "cosine_embedding", "margin": 0.3, "threshold": 0.8}
    before = build_multitask(tasks, default_task="zeta")
    before.save_pretrained(tmp_path)
    given = {name: NEW[task["problem_type"]] for name, task in tasks.items()}
    given |= {"alpha": NEW["contrastive"], "zeta": near, "echo": cosine, "twin": cosine}

    config = MinBertForMultiTask.from_pretrained(tmp_path, tasks=given).config

    assert {name: config.tasks[name] for name in tasks} == before.config.tasks
    assert (config.default_task, config.embedding_task) == ("zeta", "zeta")
    others = {  # with a scale, an overlap and a stride of their own
        "zeta": near | {"loss": "mse"},
        "echo": cosine | {"loss": "cosine_embedding"},
        "pages": NEW["classification"] | {"max_length": 8},
        "found": NEW["question_answering"] | {"max_length": 24},
    }
    config = MinBertForMultiTask.from_pretrained(tmp_path, tasks=given | others).config
    assert config.tasks["zeta"]["cosine_scale"] == 10
    assert config.tasks["echo"]["thresholds"] is None
    assert config.tasks["pages"]["window_overlap"] == 2
    assert config.tasks["found"]["doc_stride"] == 6
    before.base_model.save_pretrained(tmp_path / "encoder")
    given["kind"] = {"problem_type": "classification", "labels": ["yes", "no"]}
    new = MinBertForMultiTask.from_pretrained(tmp_path / "encoder", tasks=given)
    assert new.config.tasks["kind"]["temperature"] is None
    assert new.config.tasks["kind"]["class_weights"] is None  # of labels in another order


def test_a_task_that_was_changed_beside_its_head_is_not_saved(build_multitask, tmp_path):
    tasks = {"tone": {"problem_type": "classification", "labels": ["bad", "good"]}}
    model = build_multitask(tasks)
    model.config.tasks = {"tone": model.config.tasks["tone"] | {"temperature": 2.0}}

    # it predicts without a temperature, and the loaded one would with it
    with pytest.raises(ValueError, match=r"config\.tasks\['tone'\] was changed"):
        model.save_pretrained(tmp_path)
    assert not list(tmp_path.iterdir())
