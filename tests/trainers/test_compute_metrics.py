"""Metrics of a user beside those of the tasks, and names that belong to one task each."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file

from minbert_cli import finetune
from modeling_minbert import MinBertForMultiTask
from tests import small_run
from tests.trainers.tiny import change_task, make_config, make_rows
from trainers import PROBLEMS, Task, make_problems
from trainers.training.callbacks import find_kept_step

MODULE = """
import datasets
import evaluate

class {title}(evaluate.Metric):
    def _info(self):
        value = datasets.Value("int64")
        features = datasets.Features({{"predictions": value, "references": value}})
        return evaluate.MetricInfo(
            description="", citation="", inputs_description="", features=features
        )

    def _compute(self, predictions, references):
        wrong = sum(a != b for a, b in zip(predictions, references, strict=True))
        return {returned}
"""


@pytest.fixture
def write_module(tmp_path):
    """Write a metric for the library evaluate into a folder; gives the folder."""

    def write(name, returned="{'wrong': wrong}"):
        folder = tmp_path / name
        folder.mkdir()
        content = MODULE.format(title=name.title(), returned=returned)
        (folder / f"{name}.py").write_text(content)
        return folder

    return write


def test_a_function_for_all_tasks_measures_each(make_trainer):
    count = {"compute_metrics": lambda prediction: {"rows": len(prediction.predictions)}}

    metrics = make_trainer(own=count).evaluate()

    assert {name for name in metrics if name.endswith("_rows")} == {
        f"eval_{task}_rows" for task in ("moods", "pairs", "scores")
    }


def test_a_function_gets_values_and_labels_in_the_order_of_the_rows(make_trainer):
    rows = make_rows("moods", 7)
    seen = []
    own = {
        "tasks": [Task("moods", "classification", rows, rows)],
        "compute_metrics": lambda prediction: seen.append(prediction) or {},
    }
    trainer = make_trainer(own=own)

    trainer.evaluate()

    assert seen[0].label_ids.tolist() == rows["labels"]
    np.testing.assert_allclose(seen[0].predictions, trainer.predict_task("moods", rows), atol=1e-6)


def test_the_best_evaluation_has_its_checkpoint_between_those_of_the_interval(make_trainer):
    values = iter([0.1, 0.9, 0.5, 0.2])
    own = {"compute_metrics": {"moods": lambda _: {"luck": next(values)}}}
    trainer = make_trainer(
        own=own,
        max_steps=4,
        eval_strategy="steps",
        eval_steps=1,
        save_strategy="steps",
        save_steps=3,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="moods_luck",
    )

    trainer.train()

    best = Path(trainer.args.output_dir) / "checkpoint-2"
    assert trainer.state.best_model_checkpoint == str(best)
    assert find_kept_step(trainer.args, trainer.state) == 2
    torch.testing.assert_close(trainer.model.state_dict(), load_file(best / "model.safetensors"))
    trainer.state.best_model_checkpoint = None  # as when its folder was deleted before a restart
    assert find_kept_step(trainer.args, trainer.state) is None


@pytest.mark.parametrize(
    ("name", "given", "greater"),
    [
        ("hamming_loss", None, False),
        ("hamming_loss", False, False),
        ("hamming_loss", True, True),
        ("wer", None, False),
        ("hit_rate", None, True),
        ("misses", None, True),
        ("misses", False, False),
    ],
)
@pytest.mark.parametrize("kind", ["module", "function"])
def test_what_is_best_by_a_metric_of_a_user(make_trainer, write_module, kind, name, given, greater):
    if kind == "module":
        own = {"tasks": change_task("moods", metrics=[f"evaluate/{write_module(name)}"])}
    else:
        own = {"compute_metrics": lambda _: {name: 1.0}}

    trainer = make_trainer(own=own, metric_for_best_model=f"moods_{name}", greater_is_better=given)

    assert trainer.args.greater_is_better is greater
    if kind == "module":
        means = [trainer.aggregate({f"moods_{name}": value})["mean"] for value in (1.0, 2.0)]
        assert (means[1] > means[0]) is greater


@pytest.mark.parametrize(
    ("returned", "error", "message"),
    [
        ({"accuracy": 1.0}, ValueError, "'accuracy', which is a metric of the task already"),
        ({"loss": 1.0}, ValueError, "'loss', which is a metric of the task already"),
        ({"runtime": 1.0}, ValueError, "'runtime', which is a metric of the task already"),
        (0.5, TypeError, "returned a float; expected a mapping"),
    ],
)
def test_what_a_function_returns_must_fit(make_trainer, returned, error, message):
    trainer = make_trainer(own={"compute_metrics": {"moods": lambda _: returned}})

    with pytest.raises(error, match=message):
        trainer.evaluate()


@pytest.mark.parametrize("names", [("x", "x_y"), ("x_y", "x")])
def test_a_metric_of_a_user_never_has_the_name_of_one_of_another_task(make_trainer, names):
    rows, head = (
        make_rows("moods", 6),
        {"problem_type": "classification", "labels": ["a", "b", "c"]},
    )
    model = MinBertForMultiTask(make_config(dict.fromkeys(names, head), 0.0, 1))
    own = {
        "tasks": [Task(name, "classification", rows, rows) for name in names],
        "compute_metrics": {"x": lambda _: {"y_accuracy": 9.0}},
    }
    trainer = make_trainer(model=model, own=own)

    with pytest.raises(ValueError, match="two tasks the metric 'eval_x_y_accuracy'"):
        trainer.evaluate()


@pytest.mark.parametrize(
    ("names", "shared"),
    [(("x", "x_macro"), "eval_x_macro_f1"), (("moods", "Moods"), "moods")],
)
def test_two_tasks_never_share_a_name(make_trainer, names, shared):
    rows = make_rows("moods", 6), make_rows("pairs", 6)
    heads = [
        {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
        {"problem_type": "paraphrase"},
    ]
    model = MinBertForMultiTask(make_config(dict(zip(names, heads, strict=True)), 0.0, 1))
    given = zip(names, heads, rows, strict=True)
    tasks = [Task(name, head["problem_type"], own, own) for name, head, own in given]

    with pytest.raises(ValueError, match=f"would both have '{shared}'; rename one"):
        make_trainer(model=model, own={"tasks": tasks})


def test_a_recipe_takes_a_module_of_evaluate_as_a_metric(write_module, tmp_path):
    folder = write_module("wrong")
    small_run.write_files(tmp_path)
    recipe = small_run.make_recipe(tmp_path)
    recipe["tasks"]["moods"]["metrics"] = [f"evaluate/{folder}", "accuracy"]
    recipe["metric_for_best_model"] = "moods_wrong"

    finetune.main([small_run.write_recipe(tmp_path, recipe)])

    out = tmp_path / "out"
    content = json.loads((out / "metrics.json").read_text())
    found, rows = content["validation"], content["validation"]["rows"]["moods"]
    wrong = found["metrics"]["moods_wrong"]
    assert wrong == round((1 - found["metrics"]["moods_accuracy"]) * rows)
    assert found["standard_errors"]["moods"] >= 0
    assert "wrong" in (out / "report.html").read_text()
    problem = make_problems({"moods": "classification"}, metrics=content["metrics"])["moods"]
    assert problem.headline == ("wrong", "accuracy")


def test_a_module_is_loaded_and_computes_without_a_random_number(write_module):
    problem = PROBLEMS["classification"]("t", metrics=(f"evaluate/{write_module('misses')}",))
    outputs = problem.collect(np.eye(3), Dataset.from_dict({"labels": [0, 2, -100]}))
    before = random.getstate()

    metrics = problem.compute_metrics(outputs)

    assert random.getstate() == before
    assert metrics == {"misses": 1.0, "accuracy": 0.5, "macro_f1": pytest.approx(1 / 3)}


@pytest.mark.parametrize(
    ("kind", "names", "message"),
    [
        ("classification", ["evaluate/nowhere/to/be"], "cannot be loaded .*; expected a folder"),
        ("classification", ["evaluate/"], "names no module"),
        ("classification", ["evaluate/x/accuracy"], "two metrics would have the name 'accuracy'"),
        ("classification", ["evaluate/x/a", "evaluate/y/a"], "two metrics would have the name 'a'"),
        ("token_classification", ["evaluate/seqeval"], "token_classification tasks are fixed"),
    ],
)
def test_a_module_that_cannot_be_a_metric_is_refused(kind, names, message):
    rows = make_rows("moods", 3)

    with pytest.raises(ValueError, match=message):
        PROBLEMS[kind]("t", metrics=names).check("here", rows)
