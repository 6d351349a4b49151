"""Distillation by a recipe: all problem types, the cache, resuming, mistakes."""

import json
import shutil

import datasets
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.testing import assert_close

from minbert_cli import finetune, main
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.problem_examples import EXAMPLES
from tests.small_tokenizers import save_start
from trainers import PROBLEMS

TAUGHT = [name for name, problem in PROBLEMS.items() if problem.teaching]


def train(folder, recipe, name, **changes):
    """Train; returns the output folder."""
    recipe = recipe | small_run.QUICK | {"output_dir": str(folder / name)} | changes
    recipe = {key: value for key, value in recipe.items() if value is not None}
    (folder / f"{name}.yaml").write_text(json.dumps(recipe))
    finetune.main([str(folder / f"{name}.yaml")])
    return folder / name


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """A folder with two teachers of three tasks, and their recipe."""
    folder = tmp_path_factory.mktemp("teachers")
    small_run.write_files(folder)
    recipe = small_run.make_recipe(folder) | {"num_train_epochs": 1}
    for seed in (1, 2):
        train(folder, recipe, f"seed{seed}", seed=seed)
    return folder, recipe


@pytest.fixture
def student(teachers, tmp_path):
    """Return a function that trains a student; ``{1}`` and ``{2}`` in values are the teachers."""
    folder, recipe = teachers

    def run(name="student", **changes):
        return train(tmp_path, recipe, name, seed=3, **changes)

    run.teachers = [str(folder / f"seed{seed}") for seed in (1, 2)]
    run.recipe = recipe
    return run


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    return tmp_path / "cache" / "minbert_teachers"


def test_a_student_learns_from_an_ensemble(student, cache, capsys):
    output = student(teacher=student.teachers)
    shown = capsys.readouterr().out
    assert f"moods: {student.teachers[1]} predicts the 24 training rows" in shown
    assert len(list(cache.iterdir())) == 6
    again = student("again", teacher=",".join(student.teachers))
    assert "predicts" not in capsys.readouterr().out

    first, second = (load_file(each / "model.safetensors") for each in (output, again))
    assert_close(first, second, rtol=0, atol=0)


def test_the_cache_has_what_the_teacher_predicts(student, cache):
    tasks = {"moods": student.recipe["tasks"]["moods"]}
    student(tasks=tasks, teacher=student.teachers[0])
    (file,) = cache.iterdir()
    rows = [text for _, text, *_ in small_run.make_rows("train")]
    model = MinBertForMultiTask.from_pretrained(student.teachers[0])

    one_by_one = torch.cat([model.teach("moods", [row]) for row in rows])
    np.testing.assert_allclose(np.load(file), one_by_one, atol=1e-5)
    predicted = [row["label"] for row in model.predict("moods", rows)]
    names = model.config.task("moods").labels
    assert [names[place] for place in np.load(file).argmax(axis=1)] == predicted


def teach(folder, kinds, **settings):
    """Train a student that starts as its teacher, of a task of each type; return both."""
    tasks = {}
    for kind in kinds:
        task = {"problem_type": kind, "batch_size": 4, "dropout": 0.0, "loss_weight": 1.0}
        tasks[kind] = task | EXAMPLES[kind].write(folder)
    recipe = small_run.make_recipe(folder) | {"tasks": tasks} | settings
    recipe["model_config"] |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    teacher = train(folder, recipe, "teacher", seed=1)
    changes = {"teacher": str(teacher), "save_strategy": "epoch", "seed": 2}
    start = {"model_name_or_path": str(teacher), "model_config": None}
    return recipe, train(folder, recipe, "student", **changes, **start)


def test_every_problem_type_can_be_taught(tmp_path):
    count = len(TAUGHT)  # a step has a batch of each
    settings = {"gradient_accumulation_steps": count, "steps_per_epoch": 3 * count}
    _, student = teach(tmp_path, TAUGHT, **settings)
    state = json.loads((student / "checkpoint-6" / "trainer_state.json").read_text())
    first, *others = [entry for entry in state["log_history"] if "loss" in entry]

    shares = {kind: 1.0 if kind == "contrastive" else 0.5 for kind in TAUGHT}
    for kind in TAUGHT:  # every row and token meets its own teacher
        assert first[f"distillation_{kind}"] == pytest.approx(0, abs=1e-4), kind
    for entry in others:
        assert all(entry[f"distillation_{kind}"] > 0 for kind in TAUGHT)
        losses = [
            (1 - share) * entry[f"loss_{kind}"] + share * entry[f"distillation_{kind}"]
            for kind, share in shares.items()
        ]
        assert entry["loss"] == pytest.approx(sum(losses) / count, rel=1e-3)


@pytest.fixture(scope="module", params=["token_classification", "question_answering"])
def taught_type(request, tmp_path_factory):
    """Return type, folder, recipe and student of a run that teaches it."""
    folder = tmp_path_factory.mktemp(request.param)
    return request.param, folder, *teach(folder, [request.param])


@pytest.mark.parametrize("taught_type", ["token_classification"], indirect=True)
def test_a_resumed_student_of_tokens_equals_the_whole_one(taught_type):
    _, folder, _, student = taught_type

    small_run.assert_resumes(folder / "student.yaml", student, 3)


def test_a_run_does_not_go_on_with_another_teacher(student, tmp_path, capsys):
    teacher = tmp_path / "teacher"
    shutil.copytree(student.teachers[0], teacher)
    tasks = {"moods": student.recipe["tasks"]["moods"]}
    student(tasks=tasks, teacher=str(teacher), save_strategy="epoch")
    shutil.copy(f"{student.teachers[1]}/model.safetensors", teacher)

    with pytest.raises(SystemExit):
        finetune.main([str(tmp_path / "student.yaml"), "--resume_from_checkpoint", "true"])
    assert f"resumes with other data of teacher {teacher}" in capsys.readouterr().err


def test_a_wider_teacher_of_vectors_may_be_any_encoder(tmp_path, teachers):
    folder, recipe = teachers
    task = {"problem_type": "contrastive"} | EXAMPLES["contrastive"].write(tmp_path)
    model = MinBertForMultiTask.from_pretrained(folder / "seed1")
    model.save_as_sentence_transformers(tmp_path / "encoder", pooling="mean")
    sizes = recipe["model_config"] | {"hidden_size": 6}
    recipe = recipe | {"tasks": {"own": task}, "model_config": sizes}
    taught, alone = (
        train(tmp_path, recipe, name, teacher=path)
        for name, path in (("student", str(tmp_path / "encoder")), ("alone", None))
    )
    weights = [MinBertForMultiTask.from_pretrained(each).state_dict() for each in (taught, alone)]
    assert any(not torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"teacher": "/no/where"}, "teacher='/no/where' cannot be loaded: there is no such folder"),
        ({"teacher": "{1}", "distillation_alpha": 2}, "distillation_alpha=2; expected a number"),
        ({"teacher": [True]}, "teacher=[True]; expected"),
        (
            {"teacher": "{1}", "moods": None},
            "teacher='{1}' teaches no task, since each has its own",
        ),
        ({"moods": {"path": "{1}", "name": "x"}}, "teacher: unknown key 'name'; known: path, task"),
        ({"moods": {"path": "{1}", "task": "mood"}}, "has no task mood, but: moods, pairs, scores"),
        (
            {"moods": {"path": "{1}", "task": "pairs"}},
            "task 'moods' cannot learn from task 'pairs' of teacher='{1}': it is a paraphrase task",
        ),
        (
            {"teacher": "{1}", "labels": ["bad", "good", "odd"]},
            "it has the labels ['bad', 'good'], but the task to learn has ['bad', 'good', 'odd']",
        ),
        ({"teacher": "{1}", "name": "other"}, "teacher='{1}' has no task other, but: moods, pairs"),
    ],
)
def test_mistakes_are_told_before_anything_is_written(student, tmp_path, capsys, keys, message):
    def fill(value):
        text = json.dumps(value).replace("{1}", student.teachers[0])
        return json.loads(text.replace("{2}", student.teachers[1]))

    task = dict(student.recipe["tasks"]["moods"])
    if "labels" in keys:
        task["labels"] = keys.pop("labels")
    if "moods" in keys:
        task["teacher"] = fill(keys.pop("moods"))
    name = keys.pop("name", "moods")
    with pytest.raises(SystemExit):
        student(tasks={name: task}, **fill(keys))

    error = capsys.readouterr().err
    assert message.replace("{1}", student.teachers[0]) in error
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize(
    ("file", "message"),
    [("tokenizer.json", "has no tokenizer"), ("model.safetensors", "has no weights: give another")],
)
def test_a_teacher_that_is_not_whole_is_told_before_the_run_begins(
    student, tmp_path, capsys, file, message
):
    shutil.copytree(student.teachers[0], tmp_path / "teacher")
    (tmp_path / "teacher" / file).unlink()
    with pytest.raises(SystemExit):
        student(teacher=str(tmp_path / "teacher"))

    assert message in capsys.readouterr().err
    assert not (tmp_path / "student").exists()


@pytest.mark.parametrize("taught_type", ["question_answering"], indirect=True)
def test_tokens_need_the_same_vocabulary_and_enough_positions(taught_type, tmp_path, capsys):
    _, folder, recipe, _ = taught_type
    sizes = recipe["model_config"] | {"vocab_size": 60}
    with pytest.raises(SystemExit):
        train(tmp_path, recipe, "other", model_config=sizes, teacher=str(folder / "teacher"))
    assert f"teacher='{folder / 'teacher'}' has another vocabulary" in capsys.readouterr().err

    shutil.copytree(folder / "teacher", tmp_path / "short")
    config = json.loads((tmp_path / "short" / "config.json").read_text())
    config["max_position_embeddings"] = 3
    (tmp_path / "short" / "config.json").write_text(json.dumps(config))
    with pytest.raises(SystemExit):
        train(tmp_path, recipe, "other", teacher=str(tmp_path / "short"))
    assert "short' has 3 positions, but sequences have" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("taught_type", ["token_classification"], indirect=True)
def test_tags_are_taught_by_word_where_tokens_differ(taught_type, tmp_path, cache, monkeypatch):
    _, folder, recipe, student = taught_type
    start = {"teacher": str(folder / "teacher"), "model_name_or_path": str(folder / "teacher")}
    start |= {"model_config": None, "seed": 2}
    with monkeypatch.context() as patch:
        patch.setattr("minbert_cli.teachers.Teaching._compare_tokens", lambda *_: "other tokens")
        by_word = train(tmp_path, recipe, "by_word", **start)
    whole, words = (load_file(path / "model.safetensors") for path in (student, by_word))
    assert_close(words, whole, atol=1e-5, rtol=1e-4)

    shutil.rmtree(cache)
    save_start(tmp_path / "start", "roberta")
    changes = {"model_name_or_path": str(tmp_path / "start"), "model_config": None}
    train(tmp_path, recipe, "roberta", teacher=str(folder / "teacher"), **changes)
    (file,) = cache.iterdir()
    model = MinBertForMultiTask.from_pretrained(folder / "teacher")
    rows = [text.split() for _, text, *_ in small_run.make_rows("train")]
    tags = [tag for row in model.predict("token_classification", rows) for tag in row["tags"]]
    labels = model.config.task("token_classification").labels
    assert [labels[place] for place in np.load(file).argmax(axis=1)] == tags
    train(tmp_path, recipe, "bert", teacher=str(tmp_path / "roberta"))  # the other way round


def test_a_check_runs_no_teacher(student, tmp_path, cache, capsys):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(json.dumps(student.recipe | {"output_dir": str(tmp_path / "out")}))
    main(["check", str(recipe), "--teacher", student.teachers[0]])

    shown = capsys.readouterr().out
    assert "predicts" not in shown
    assert not cache.exists()
