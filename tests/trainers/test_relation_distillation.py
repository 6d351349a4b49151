"""Relation distillation: the paper's formula over transformers' BERT, and the whole trainer."""

import math
from itertools import pairwise

import pytest
import torch
from torch.testing import assert_close
from transformers import BertModel

from modeling_minbert import MinBertModel
from tests.trainers import tiny
from trainers import Distillation, MethodArguments, RDrop, RelationDistillation, Smart, TaskCollator
from trainers.data.collators import FixedShapes
from trainers.data.task_dataset import TaskDataset
from trainers.methods.distillation import relations
from trainers.methods.distillation.encoder_pass import project, watch
from trainers.methods.distillation.relations import choose_relation_heads, compare_relations
from trainers.task import find_rows

KINDS = ("query", "key", "value")


def make_teacher(layers=3, hidden_size=18, seed=9, **sizes):
    """An encoder with other sizes than the student, whose attention is far from uniform."""
    model = tiny.make_model(seed=seed, layers=layers, hidden_size=hidden_size, **sizes)
    sharpen(model)
    return model.base_model


def sharpen(model):
    with torch.no_grad():
        for layer in model.base_model.encoder.layer:
            for kind in KINDS:
                getattr(layer.attention.self, kind).weight.mul_(40)


def to_transformers(encoder, folder):
    encoder.save_as_bert(folder)
    return BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()


def read_vectors(bert, layer, ids, types):
    """Queries, keys and values of a single sequence in transformers' BERT, by hooks."""
    found = {}
    attention = bert.encoder.layer[layer - 1].attention.self
    handles = [
        getattr(attention, kind).register_forward_hook(
            lambda _, __, output, kind=kind: found.update({kind: output[0]})
        )
        for kind in KINDS
    ]
    bert(input_ids=ids[None], token_type_ids=types[None])
    for handle in handles:
        handle.remove()
    return found


def relate(vectors, heads):
    """Rows of softmax(A A^T / sqrt(d)) for each relation head."""
    parts = vectors.chunk(heads, dim=1)
    return [torch.softmax(part @ part.T / math.sqrt(part.shape[1]), dim=1) for part in parts]


def paper_loss(student, teacher, layers, heads, sequences):
    """KL(teacher || student) of sequences of ids and segment ids; the mean over three relations."""
    losses = []
    for ids, types in sequences:
        own = read_vectors(student, layers[0], ids, types)
        with torch.no_grad():
            other = read_vectors(teacher, layers[1], ids, types)
        for kind in KINDS:
            total = 0.0
            for q, p in zip(relate(own[kind], heads), relate(other[kind], heads), strict=True):
                for row in range(len(ids)):
                    total = total + (p[row] * (p[row].log() - q[row].log())).sum()
            losses.append(total / (heads * len(ids)))
    return sum(losses) / len(losses)


def list_sequences(batch):
    """Ids and segment ids of the sequences of a padded batch."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    ids, types, mask = (batch[name].flatten(0, -2) for name in names)
    return [(a[m > 0], b[m > 0]) for a, b, m in zip(ids, types, mask, strict=True)]


def make_batches(task, rows=range(6)):
    """The same rows as a padded and a packed batch."""
    data = TaskDataset(find_rows(tiny.make_tasks(), "train"))
    start = sum(list(tiny.SIZES.values())[: list(tiny.SIZES).index(task)])
    places = [start + row for row in rows]
    return [TaskCollator(0, packed=packed)(data.__getitems__(places)) for packed in (False, True)]


def compute(student, teacher, batch, layer, heads):
    """The divergence of a batch, by the parts of the method."""
    with watch(student.base_model) as seen:
        student(**batch)
    with torch.no_grad():
        outputs = teacher(**seen.inputs, read="tokens", num_layers=layer - 1)
    other = seen.take_tokens(outputs.last_hidden_state)
    known = project(teacher.encoder.layer[layer - 1].attention.self, other)
    own = project(seen.attention, seen.take_tokens(seen.hidden))
    return compare_relations(own, known, seen.find_sequences(0), heads)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("task", tiny.SIZES)
@pytest.mark.parametrize(("layer", "heads"), [(3, 6), (1, 2)])
def test_value_and_gradient_are_those_of_the_paper(tmp_path, task, attention, layer, heads):
    student, teacher = tiny.make_model().double(), make_teacher().double().eval()
    sharpen(student)
    student.set_attn_implementation(attention)
    padded, packed = make_batches(task)
    bert, other = (
        to_transformers(model, tmp_path / name)
        for name, model in (("student", student.base_model), ("teacher", teacher))
    )
    expected = paper_loss(bert, other, (2, layer), heads, list_sequences(padded))
    expected.backward()
    assert expected > 0.01

    for batch in (padded, packed):
        student.zero_grad()
        found = compute(student, teacher, batch, layer, heads)
        found.backward()
        assert_close(found, expected, rtol=1e-9, atol=0)
        gradients = dict(student.base_model.named_parameters())
        for name, value in bert.named_parameters():
            if value.grad is not None:
                assert_close(gradients[name].grad, value.grad, rtol=1e-7, atol=1e-12)


def test_memory_bounds_the_groups_and_not_the_result(monkeypatch):
    student, teacher = tiny.make_model().double(), make_teacher().double()
    _, packed = make_batches("moods", range(20))
    whole = compute(student, teacher, packed, 3, 6)
    bounds = packed["cu_seq_lens_q"].tolist()
    spans = list(pairwise(bounds))
    groups = list(relations.group_sequences(spans, 6))
    assert len(groups) < len(spans)
    tokens = torch.cat([rows[real] for rows, real in groups])
    assert_close(tokens.sort().values, torch.arange(bounds[-1]))

    monkeypatch.setattr(relations, "MAX_RELATIONS", 300)
    groups = [rows for rows, _ in relations.group_sequences(spans, 6)]
    assert all(len(rows) == 1 or 6 * len(rows) * rows.shape[1] ** 2 <= 300 for rows in groups)
    assert_close(compute(student, teacher, packed, 3, 6), whole)


def test_sequences_that_fill_a_batch_do_not_count():
    student, teacher = tiny.make_model().double(), make_teacher().double()
    rows = TaskDataset({"moods": tiny.make_rows("moods", 8)}).__getitems__([0])
    fixed = TaskCollator(0, packed=True, fixed_shapes=FixedShapes({"moods": 64}))(rows)
    plain = TaskCollator(0, packed=True)(rows)
    fixed.pop("num_rows")
    assert len(fixed["cu_seq_lens_q"]) > len(plain["cu_seq_lens_q"])

    first, second = (compute(student, teacher, batch, 3, 6) for batch in (fixed, plain))
    assert_close(first, second)


@pytest.mark.parametrize(
    ("widths", "heads"),
    [((384, 768), 48), ((384, 1024), 64), ((312, 768), 24), ((128, 768), 32), ((7, 12), 1)],
)
def test_relation_heads_divide_both_widths(widths, heads):
    assert choose_relation_heads(*widths) == heads


# Through the trainer


def train(make_trainer, *methods, own=None, model=None, **arguments):
    settings = {"max_steps": 4, "dropout": 0.1} | arguments
    trainer = make_trainer(own={"methods": list(methods)} | (own or {}), model=model, **settings)
    trainer.train()
    return trainer


def history_of(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


def test_a_copy_of_the_student_has_nothing_to_teach(make_trainer):
    twin = tiny.make_model().base_model
    trainer = train(make_trainer, RelationDistillation(twin), dropout=0.0, max_steps=1)

    assert history_of(trainer, "relations_moods") == [pytest.approx(0, abs=1e-6)]


def test_the_loss_mixes_task_and_relations(make_trainer):
    plain, half, soft = (
        train(make_trainer, RelationDistillation(make_teacher(), alpha), max_steps=1)
        for alpha in (0.0, 0.5, 1.0)
    )
    losses = [history_of(each, "loss")[0] for each in (plain, half, soft)]
    assert losses[0] == history_of(soft, "loss_moods")[0]
    assert losses[2] == pytest.approx(history_of(soft, "relations_moods")[0], rel=1e-4)
    assert losses[1] == pytest.approx((losses[0] + losses[2]) / 2, rel=1e-4)


def test_without_a_share_no_bit_changes(make_trainer):
    plain = train(make_trainer)
    method = RelationDistillation(make_teacher, 0.0)  # made when training starts
    taught = train(make_trainer, method)

    assert_close(taught.model.state_dict(), plain.model.state_dict(), rtol=0, atol=0)
    assert history_of(taught, "relations_pairs")[0] > 0


def test_the_student_learns_the_relations_of_every_task(make_trainer):
    method = RelationDistillation(make_teacher(), 1.0, heads=3)
    trainer = train(make_trainer, method, dropout=0.0, max_steps=150)

    for task in tiny.SIZES:
        history = history_of(trainer, f"relations_{task}")
        assert sum(history[-5:]) < 0.5 * sum(history[:5])


def test_the_teacher_is_neither_trained_nor_saved(make_trainer, tmp_path):
    teacher = make_teacher(dropout=0.5)
    before = {name: value.clone() for name, value in teacher.state_dict().items()}
    options = {"save_strategy": "steps", "save_steps": 4}
    trainer = train(make_trainer, RelationDistillation(teacher.train()), **options)

    assert_close(teacher.state_dict(), before, rtol=0, atol=0)
    assert not teacher.training
    plain = tiny.make_model()
    assert trainer.model.state_dict().keys() == plain.state_dict().keys()
    count = sum(len(group["params"]) for group in trainer.optimizer.param_groups)
    assert count == len(list(plain.parameters()))
    names = {path.name for path in (tmp_path / "run" / "checkpoint-4").iterdir()}
    train(make_trainer, save_strategy="steps", save_steps=3)
    assert names == {path.name for path in (tmp_path / "run" / "checkpoint-3").iterdir()}


METHODS = {
    "alone": {},
    "r_drop": {"r_drop": 0.5},
    "smart": {"smart": {"weight": 0.5, "epsilon": 0.1}},
    "accumulated": {},
}


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_is_the_same_bit_for_bit(make_trainer, tmp_path, name):
    def build():
        others = MethodArguments(**METHODS[name]).make_methods()
        own = {"methods": [RelationDistillation(make_teacher), *others]}
        steps = 2 if name == "accumulated" else 1
        settings = {"max_steps": 6, "save_strategy": "steps", "save_steps": 4}
        return make_trainer(own=own, dropout=0.1, gradient_accumulation_steps=steps, **settings)

    tiny.assert_resumes(build, tmp_path / "run" / "checkpoint-4")


def test_micro_batches_add_up_to_the_whole_batch(make_trainer):
    found = [
        train(
            make_trainer,
            RelationDistillation(make_teacher(), 1.0),
            own={"tasks": tiny.make_tasks()[:1]},
            dropout=0.0,
            max_steps=2,
            optim="sgd",
            per_device_train_batch_size=4 // steps,
            gradient_accumulation_steps=steps,
        )
        for steps in (1, 2)
    ]
    assert_close(*(each.model.state_dict() for each in found), rtol=1e-4, atol=1e-6)


def test_the_teacher_runs_once_for_both_passes_of_r_drop(make_trainer):
    teacher, passes = make_teacher(), []
    teacher.register_forward_hook(lambda *_: passes.append(torch.is_grad_enabled()))
    trainer = train(make_trainer, RelationDistillation(teacher), RDrop(), max_steps=3)

    assert passes == [False] * 3
    assert history_of(trainer, "rdrop_divergence_moods")


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_activations_change_nothing(make_trainer, reentrant):
    settings = {
        tiny.CHECKPOINTING: True,
        f"{tiny.CHECKPOINTING}_kwargs": {"use_reentrant": reentrant},
    }
    options = {"dropout": 0.0, "max_steps": 3}
    plain, saving = (
        train(make_trainer, RelationDistillation(make_teacher(), 1.0), **options, **more)
        for more in ({}, settings)
    )
    assert_close(saving.model.state_dict(), plain.model.state_dict(), rtol=1e-4, atol=1e-5)


def test_bfloat16_is_near_float32(make_trainer):
    options = {"dropout": 0.0, "max_steps": 6}
    plain, half = (
        train(make_trainer, RelationDistillation(make_teacher()), **options, bf16=bf16)
        for bf16 in (False, True)
    )
    for task in tiny.SIZES:
        found, expected = (history_of(each, f"relations_{task}") for each in (half, plain))
        assert found == pytest.approx(expected, rel=0.05)
        assert found != expected


def test_outputs_and_relations_of_teachers_go_together(make_trainer):
    labels = Distillation({"moods": torch.randn(40, 3)}, alpha=0.5)
    trainer = train(make_trainer, labels, RelationDistillation(make_teacher(), 0.5), max_steps=1)

    (logs,) = (entry for entry in trainer.state.log_history if "loss" in entry)
    inner = (logs["loss_moods"] + logs["distillation_moods"]) / 2
    assert logs["loss"] == pytest.approx((inner + logs["relations_moods"]) / 2, rel=1e-3)


@pytest.mark.parametrize("other", [RDrop(), Smart()])
def test_it_comes_before_methods_of_several_passes(make_trainer, other):
    with pytest.raises(ValueError, match=f"every pass of {type(other).__name__}; list it first"):
        train(make_trainer, other, RelationDistillation(make_teacher()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 2}, "relation_alpha=2; expected a number from 0 to 1"),
        ({"heads": 0}, "relation_heads=0; expected a whole number from 1"),
        ({"teacher_layer": 1.5}, "relation_teacher_layer=1.5; expected a whole number"),
        ({"teacher_layer": 4}, "relation_teacher_layer=4, but the teacher has 3 layers"),
        ({"heads": 4}, "relation_heads=4 must divide .* 12 and 18; leave it out for 1"),
        ({"teacher": torch.nn.Linear(2, 2)}, "needs encoders such as MinBertModel; Linear has no"),
    ],
)
def test_values_are_checked_before_training(make_trainer, options, message):
    options = {"teacher": make_teacher()} | options
    with pytest.raises(ValueError, match=message):
        make_trainer(own={"methods": [RelationDistillation(**options)]})


@pytest.mark.parametrize(
    ("name", "size", "message"),
    [
        ("vocab_size", 20, "has 20 tokens, but the student 23: both need the same tokenizer"),
        ("type_vocab_size", 1, r"has 1 segment\(s\), but the student 2: set type_vocab_size"),
    ],
)
def test_a_teacher_must_know_all_tokens(make_trainer, name, size, message):
    config = tiny.make_config({})
    setattr(config, name, size)
    method = RelationDistillation(MinBertModel(config))
    with pytest.raises(ValueError, match=message):
        make_trainer(own={"methods": [method]})


def test_hooks_are_not_for_compiled_models(make_trainer):
    method = RelationDistillation(make_teacher())
    with pytest.raises(ValueError, match="which torch_compile does not follow"):
        make_trainer(own={"methods": [method]}, torch_compile=True)
