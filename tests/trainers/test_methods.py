"""Methods of training through the whole trainer."""

import re
from functools import partial

import peft
import pytest
import torch
from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, get_scheduler

from minbert_cli import FinetuneArguments
from modeling_minbert import MinBertForMultiTask
from tests.trainers.test_contrastive import make_trainer as make_contrastive
from tests.trainers.tiny import (
    PROBLEM_TYPES,
    collate,
    make_config,
    make_model,
    make_rows,
    make_tasks,
    make_trainer as make_tiny_trainer,
    weights,
)
from trainers import FreezeLayers, HeadLearningRate, MultiTaskTrainer, RDrop, add_lora


def build(make_trainer, methods, **arguments):
    own = {"methods": methods} | arguments.pop("own", {})
    return make_trainer(own=own, **arguments)


def test_frozen_layers_stay_as_they_are(make_trainer):
    trainer = build(make_trainer, {"freeze_layers": 1}, max_steps=3, weight_decay=0.1)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()

    for name, value in trainer.model.named_parameters():
        if "heads.scores" in name or "pooler" in name:
            continue  # which not every step trains
        frozen = "embeddings" in name or "layer.0." in name
        assert torch.equal(value, before[name]) == frozen, name


def test_what_a_user_has_frozen_stays_frozen():
    model = make_model()
    model.bert.pooler.requires_grad_(False)

    FreezeLayers(1).prepare(model, None)

    assert not any(value.requires_grad for value in model.bert.pooler.parameters())


@pytest.mark.parametrize(
    ("methods", "has_optimizer", "message"),
    [
        ([HeadLearningRate(0.1)], True, "HeadLearningRate changes the .* optimizers has a SGD"),
        ([HeadLearningRate(0.1), HeadLearningRate(0.2)], False, "HeadLearningRate is there twice"),
    ],
)
def test_methods_that_would_have_no_effect_are_refused(
    make_trainer, methods, has_optimizer, message
):
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1) if has_optimizer else None

    with pytest.raises(ValueError, match=message):
        make_trainer(model=model, own={"methods": methods, "optimizers": (optimizer, None)})


def test_optimizers_and_schedules_of_something_else_are_refused(make_trainer):
    model, other = make_model(), make_model()
    optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)

    with pytest.raises(ValueError, match="the optimizer has no weight of this model"):
        make_trainer(model=model, own={"optimizers": (optimizer, None)})
    with pytest.raises(ValueError, match="the schedule changes the rates of an optimizer that is"):
        make_trainer(model=model, own={"optimizers": (None, schedule)})


@pytest.mark.parametrize("extends", [True, False, None])  # None: in vain, after one of its own
def test_a_method_for_an_optimizer_that_a_subclass_makes_is_refused(make_trainer, extends):
    class Own(MultiTaskTrainer):
        def create_optimizer(self, model=None):
            if extends:
                return super().create_optimizer(model)
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
            return self.optimizer if extends is False else super().create_optimizer(model)

    args, methods = make_trainer().args, [HeadLearningRate(0.1)]
    trainer = Own(make_model(), args, make_tasks(), methods=methods)
    if extends:
        trainer.train()
        assert {group["initial_lr"] for group in trainer.optimizer.param_groups} > {0.1}
        return
    before = weights(trainer)
    with pytest.raises(ValueError, match=r"HeadLearningRate .* of a subclass has made another one"):
        trainer.train()
    for name, value in weights(trainer).items():
        assert torch.equal(value, before[name]), name


def test_rdrop_needs_dropout_that_makes_its_passes_differ(make_trainer):
    with pytest.raises(ValueError, match="task 'moods': r_drop compares two passes"):
        make_trainer(own={"methods": [RDrop()]})


@pytest.mark.parametrize("task", PROBLEM_TYPES)
def test_rdrop_is_the_mean_loss_and_half_of_the_divergence(make_trainer, task):
    model = make_model(dropout=0.1).train()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.mul_(10)  # predictions that are not all alike
    inputs = collate(task, make_rows(task, 4))
    inputs = {name: value for name, value in inputs.items() if name != "num_rows"}
    trainer = make_trainer(model=model, own={"methods": [RDrop(alpha=0.7)]})

    torch.manual_seed(5)
    loss = trainer.compute_loss(model, dict(inputs))
    trainer.log({"loss": 0.0})
    logs = trainer.state.log_history[-1]

    torch.manual_seed(5)
    first, second = model(**inputs), model(**inputs)
    assert not torch.equal(first.logits, second.logits)  # the masks are other ones
    divergence = model.divergence(task, first.logits, second.logits)
    torch.testing.assert_close(loss, (first.loss + second.loss) / 2 + 0.35 * divergence)
    assert logs[f"rdrop_divergence_{task}"] == pytest.approx(divergence.item())
    assert logs[f"loss_{task}"] == pytest.approx(first.loss.item())


def test_a_weight_of_the_task_scales_its_regulariser(make_trainer):
    def train(weight):
        own = {"tasks": make_tasks(moods={"loss_weight": weight})}
        trainer = build(make_trainer, {"r_drop": 1.0}, max_steps=1, dropout=0.1, own=own)
        trainer.train()
        return trainer.state.log_history[0]

    one, three = train(1.0), train(3.0)
    assert three["loss"] == pytest.approx(3 * one["loss"])
    assert three["loss_moods"] == one["loss_moods"] < one["loss"]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"freeze_layers": -1}, "freeze_layers=-1; expected 0 or more"),
        ({"freeze_encoder": True, "lora": {"r": 2}}, "trains only the heads; leave lora out"),
    ],
)
def test_flags_are_checked(keys, message):
    with pytest.raises(ValueError, match=message):
        FinetuneArguments(tasks={"sst": {}}, **keys)


COSINE = {
    "problem_type": "similarity",
    "score_range": [0, 5],
    "pair_encoding": "separate",
    "head": "cosine",
}


def test_layers_with_other_names_are_not_left_to_train():
    sizes = {"dim": 12, "n_heads": 3, "n_layers": 2, "hidden_dim": 8, "vocab_size": 9}
    with pytest.raises(ValueError, match="layers of DistilBertModel are not named"):
        FreezeLayers(1).prepare(DistilBertModel(DistilBertConfig(**sizes)), None)


def test_layers_are_frozen_under_a_task_of_tokens_whatever_its_name():
    task = {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]}
    model = MinBertForMultiTask(make_config({"embeddings": task}))
    FreezeLayers(2).prepare(model, None)
    trained = [name for name, value in model.named_parameters() if value.requires_grad]
    assert not any("encoder" in name for name in trained)
    assert any("heads.embeddings" in name for name in trained)


def test_weights_decay_whatever_the_name_of_the_task():
    task = {"problem_type": "classification", "labels": ["a", "b"], "head": "mlp"}
    names = ("bias", "norm", "a_norm", "tone")
    model = MinBertForMultiTask(make_config(dict.fromkeys(names, task)))

    decayed = MultiTaskTrainer.__new__(MultiTaskTrainer).get_decay_parameter_names(model)

    found = {name for name in decayed if name.startswith("heads.")}
    assert found == {f"heads.{name}.{part}.weight" for name in names for part in ("dense", "out")}


@pytest.mark.parametrize(
    ("layers", "task", "is_refused"),
    [
        (2, {}, True),
        (2, {"pooling": "pooler"}, False),
        (2, {"projection": "training", "loss": "cosent"}, False),
        (1, {}, False),
        (1, {"pooling_layer": -2}, True),
    ],
)
def test_a_task_without_anything_to_learn_is_refused(tmp_path, layers, task, is_refused):
    model = MinBertForMultiTask(make_config({"scores": COSINE | task}))
    own = {"methods": {"freeze_layers": layers}, "tasks": make_tasks()[2:]}
    build_one = partial(make_tiny_trainer, tmp_path / "run", model=model, own=own, max_steps=1)

    if not is_refused:
        build_one().train()
        return
    with pytest.raises(ValueError, match="'scores' has nothing to learn under freeze_layers: a co"):
        build_one()
    assert not (tmp_path / "run").exists()


def test_tasks_that_a_regulariser_leaves_out_are_named(tmp_path, caplog):
    near = partial(make_contrastive, tmp_path, 2, methods=[RDrop()])

    with pytest.raises(ValueError, match=r"which no task is \(near\); leave r_drop out"):
        near(tasks=("near",))
    near(tasks=("near", "moods"))

    assert "near: trained without r_drop" in caplog.text


def test_a_task_that_is_not_regularised_takes_plain_steps(make_trainer, caplog):
    def train(methods, tasks):
        own = {"tasks": make_tasks(**{task: {"regularize": False} for task in tasks})}
        trainer = build(make_trainer, methods, max_steps=1, dropout=0.1, own=own)
        trainer.train()
        return trainer

    plain = train({}, ())
    others = train({"r_drop": 1.0}, ("moods",))  # of which the first step is
    torch.testing.assert_close(others.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)
    assert "moods: trained without r_drop" in caplog.text
    assert "rdrop_divergence_moods" not in others.state.log_history[0]

    with pytest.raises(ValueError, match=r"with regularize: true, which no task is \(moods, "):
        train({"r_drop": 1.0}, PROBLEM_TYPES)


BASE, HEADS = 0.01, 0.05


def adapted(model):
    add_lora(model, {"r": 2}, trained=("heads.", "cls.", "bert.pooler."))
    return model


def wrapped(model):
    config = peft.LoraConfig(target_modules=["query"], modules_to_save=["moods", "pairs", "scores"])
    return peft.get_peft_model(model, config)


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")  # of peft
@pytest.mark.parametrize(
    "change", [lambda model: model, adapted, wrapped], ids=["plain", "lora", "peft"]
)
def test_a_rate_of_the_heads_equals_an_optimizer_made_by_hand(make_trainer, change):
    def run(methods, make_optimizer=None):
        torch.manual_seed(3)  # of the adapters
        model = change(make_model())
        own = {"methods": methods}
        if make_optimizer is not None:
            own["optimizers"] = make_optimizer(model)
        trainer = make_trainer(model=model, own=own, max_steps=6, weight_decay=0.1)
        trainer.train()
        return trainer

    def by_hand(model):
        groups = []
        for name, value in model.named_parameters():
            if value.requires_grad:
                decayed = value.ndim > 1 and "LayerNorm" not in name
                rate = HEADS if re.search(r"(^|\.)heads\.", name) else BASE
                groups.append(
                    {"params": [value], "lr": rate, "weight_decay": 0.1 if decayed else 0.0}
                )
        optimizer = torch.optim.AdamW(groups, eps=1e-8)
        return optimizer, get_scheduler("linear", optimizer, 0, 6)

    expected = run({}, by_hand)
    found = run({"head_learning_rate": HEADS})

    torch.testing.assert_close(weights(found), weights(expected), atol=1e-6, rtol=1e-5)
    logged = [entry["learning_rate"] for entry in found.state.log_history if "loss" in entry]
    assert logged == pytest.approx([BASE * (6 - step) / 6 for step in range(6)])


def test_a_rate_of_the_heads_needs_heads():
    model = BertModel(BertConfig(vocab_size=9, hidden_size=4, num_attention_heads=1))

    with pytest.raises(ValueError, match=r"head_learning_rate=0.05, but BertModel has no"):
        HeadLearningRate(HEADS).prepare(model, None)
