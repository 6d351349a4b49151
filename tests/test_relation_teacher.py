"""Relation distillation by a recipe: all problem types, pre-training, two processes, mistakes."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file

from minbert_cli import finetune, pretrain
from minbert_cli.__main__ import main
from tests import runs, small_run
from tests.problem_examples import EXAMPLES
from tests.test_finetune_teacher import train

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}


def history_of(folder, name):
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"))
    return [e[name] for e in json.loads(states[-1].read_text())["log_history"] if name in e]


def equal(first, second):
    first, second = (load_file(folder / "model.safetensors") for folder in (first, second))
    return all(torch.equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("kind", EXAMPLES)
def test_students_of_every_type_learn_relations_and_resume(kind, tmp_path):
    task = {"problem_type": kind, "batch_size": 4} | EXAMPLES[kind].write(tmp_path)
    tasks = {"own": task}
    if kind in ("masked_lm", "next_sentence", "pretraining"):  # not without a labeled task
        small_run.write_files(tmp_path)
        tasks["moods"] = small_run.make_recipe(tmp_path)["tasks"]["moods"]
    recipe = small_run.make_recipe(tmp_path) | {"tasks": tasks, "evaluate_train": False}
    sizes = recipe["model_config"]
    teacher = train(tmp_path, recipe | {"model_config": sizes | SIZES}, "teacher", max_steps=1)
    recipe |= {"relation_teacher": str(teacher), "relation_heads": 2, "save_strategy": "epoch"}
    student = train(tmp_path, recipe, "student", seed=2, save_strategy="epoch")
    (state,) = student.glob("checkpoint-6/trainer_state.json")
    history = json.loads(state.read_text())["log_history"]
    own = [entry for entry in history if "relations_own" in entry]
    assert len(own) == (6 if len(tasks) == 1 else 4)
    for entry in own:
        plain, relations = entry["loss_own"], entry["relations_own"]
        assert 0 < relations < 10
        assert entry["loss"] == pytest.approx((plain + relations) / 2, rel=1e-3)

    flags = ["--output_dir", str(tmp_path / "again")]
    flags += ["--resume_from_checkpoint", str(student / "checkpoint-3")]
    finetune.main([str(tmp_path / "student.yaml"), *flags])
    assert equal(student, tmp_path / "again")


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A folder with a pre-trained teacher and its text."""
    folder = tmp_path_factory.mktemp("relations")
    sizes = {key: value for key, value in runs.SIZES.items() if key != "vocab_size"} | SIZES
    recipe = runs.write_pretraining(folder, model_config=sizes, max_steps=3, save_strategy="no")
    pretrain.main([str(recipe), "--output_dir", str(folder / "teacher")])
    return folder / "teacher"


def write_student(folder, teacher, **settings):
    """Write the recipe of a new model with the vocabulary of the teacher."""
    keys = {"train_tokenizer": False, "vocab_size": None, "relation_teacher": str(teacher)}
    keys |= {"tokenizer_name_or_path": str(teacher), "objective": "mlm"}
    return runs.write_pretraining(folder, **(keys | settings))


def test_adapters_learn_relations(tmp_path):
    pytest.importorskip("peft")
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    recipe["tasks"] = {"scores": recipe["tasks"]["scores"]}  # with two sequences in a row
    teacher = train(tmp_path, recipe, "teacher", max_steps=1)
    keys = {"relation_teacher": str(teacher), "relation_alpha": 1, "lora": {"r": 2}}
    keys |= {"num_train_epochs": 5, "save_strategy": "epoch", "seed": 2}
    student = train(tmp_path, recipe, "student", **keys)

    relations = history_of(student, "relations_scores")
    assert len(relations) == 15
    assert sum(relations[-3:]) < sum(relations[:3])


@pytest.mark.parametrize("objective", ["mlm", "nsp", "mlm_nsp"])
def test_pretraining_learns_relations_alone(tmp_path, teacher, objective, capsys):
    settings = {"objective": objective, "relation_alpha": 1, "save_steps": 9, "max_steps": 40}
    recipe = write_student(tmp_path, teacher, dropout=0.0, learning_rate=0.01, **settings)
    pretrain.main([str(recipe), "--output_dir", str(tmp_path / "run")])

    assert "share of the relations of tokens in the loss: 1\n" in capsys.readouterr().out
    losses, relations = (history_of(tmp_path / "run", x) for x in ("loss", "relations_text"))
    assert losses == pytest.approx(relations, rel=1e-3)
    assert sum(relations[-5:]) < 0.8 * sum(relations[:5])
    state = json.loads((tmp_path / "run" / "checkpoint-40" / "trainer_state.json").read_text())
    assert state["best_model_checkpoint"] is None


def test_pretraining_resumes_bit_for_bit(tmp_path, teacher):
    recipe = write_student(tmp_path, teacher, max_steps=6, save_steps=3, save_total_limit=None)
    pretrain.main([str(recipe), "--output_dir", str(tmp_path / "whole")])
    flags = ["--resume_from_checkpoint", str(tmp_path / "whole" / "checkpoint-3")]
    pretrain.main([str(recipe), "--output_dir", str(tmp_path / "again"), *flags])

    assert equal(tmp_path / "whole", tmp_path / "again")


@pytest.mark.slow
def test_two_processes_learn_the_same(tmp_path, teacher):
    weights = []
    for processes in (1, 2):
        output = tmp_path / str(processes) / "run"
        output.parent.mkdir()
        options = {"processes": processes, "dropout": 0.0, "objective": "nsp", "max_steps": 4}
        recipe = write_student(tmp_path, teacher, **options)
        status = runs.finetune(recipe, output, processes=processes)
        assert status == 0, runs.read_output(output, processes - 1)
        weights.append(load_file(output / "model.safetensors"))

    one, two = weights
    assert max(float((value - two[name]).abs().max()) for name, value in one.items()) < 1e-5


def test_a_run_does_not_go_on_with_another_teacher(tmp_path, teacher, capsys):
    other = tmp_path / "teacher"
    shutil.copytree(teacher, other)
    recipe = write_student(tmp_path, other, max_steps=2, save_steps=1)
    pretrain.main([str(recipe), "--output_dir", str(tmp_path / "run")])
    shutil.copy(tmp_path / "run" / "model.safetensors", other)
    shutil.copy(tmp_path / "run" / "config.json", other)

    flags = ["--output_dir", str(tmp_path / "run"), "--resume_from_checkpoint", "true"]
    with pytest.raises(SystemExit):
        pretrain.main([str(recipe), *flags])
    assert f"resumes with other data of relation_teacher {other}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"relation_teacher": "/no/where"}, "relation_teacher='/no/where' cannot be loaded: there"),
        ({"relation_teacher": None, "relation_alpha": 0.5}, "relation_alpha has no effect without"),
        ({"relation_alpha": 2}, "relation_alpha=2.0; expected a number from 0 to 1"),
        ({"relation_heads": 5}, "relation_heads=5 must divide the hidden sizes of student and"),
        ({"relation_teacher_layer": 9}, "relation_teacher_layer=9, but the teacher has 3 layers"),
        (
            {"tokenizer_name_or_path": None, "train_tokenizer": True, "vocab_size": 50},
            "has another vocabulary than the student, but their tokens are compared",
        ),
        (
            {"max_length": 40, "model_config": {"max_position_embeddings": 40, **SIZES}},
            "positions, but sequences have up to 40 tokens; lower max_length",
        ),
    ],
)
def test_mistakes_are_told_before_anything_is_written(tmp_path, teacher, capsys, keys, message):
    recipe = write_student(tmp_path, teacher, **keys)
    with pytest.raises(SystemExit):
        pretrain.main([str(recipe), "--output_dir", str(tmp_path / "run")])

    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_check_loads_no_teacher(tmp_path, teacher, capsys):
    (tmp_path / "teacher").mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(teacher / name, tmp_path / "teacher")
    main(["check", str(write_student(tmp_path, tmp_path / "teacher"))])

    assert "share of the relations of tokens in the loss: 0.5" in capsys.readouterr().out


def test_frozen_encoders_learn_no_relations(tmp_path, teacher, capsys):
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path) | {"relation_teacher": str(teacher)}
    with pytest.raises(SystemExit):
        train(tmp_path, recipe, "student", freeze_encoder=True)
    assert "freeze_encoder trains only the heads; leave relation_teacher" in capsys.readouterr().err
