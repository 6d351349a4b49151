"""Names of labels that a caller or an edited file gives are those of predictions, or refused."""

import json

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification as Bert,
)

from modeling_minbert import (
    MinBertForMultiTask,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
)
from tests import small_run

NAMES = {0: "no", 1: "yes"}
TONE = {"problem_type": "classification", "labels": ["down", "up"]}
TASKS = {
    "tone": TONE,
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5]},
}
CLASSES = [MinBertForMultiTask, AutoModelForSequenceClassification]


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a model of several tasks, of which `tone` is the default, and tokens."""
    small_run.save_model(tmp_path / "run", TASKS, ["a", "cat"])
    return tmp_path / "run"


def edit(folder, **changes):
    """Change keys of the configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_names_of_labels_are_changed_in_tasks_alone(folder, tmp_path):
    tasks = {**TASKS, "tone": {**TONE, "labels": ["no", "yes"]}}
    model = MinBertForMultiTask.from_pretrained(folder, tasks=tasks)

    assert {row["label"] for row in model.predict("tone", ["a cat"], top_k=2)[0]} == {"no", "yes"}
    assert model.config.id2label == NAMES
    model.config.id2label = {0: "a", 1: "b"}
    with pytest.raises(ValueError, match="id2label names the labels a, b, but the outputs of the"):
        model.save_pretrained(tmp_path / "again")


@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize(
    "given", [{"id2label": NAMES}, {"id2label": {0: "a", 1: "b", 2: "c"}}]
)
def test_other_names_are_refused(folder, model_class, given):
    with pytest.raises(ValueError, match=r"tone: down, up.* Leave id2label and num_labels out"):
        model_class.from_pretrained(folder, **given)


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_number_of_labels_of_another_task_is_refused(folder, model_class):
    with pytest.raises(ValueError, match="num_labels=2, but the outputs of task 'near' are score"):
        model_class.from_pretrained(folder, default_task="near", num_labels=2)


def test_a_classifier_of_its_own_has_the_number_that_it_is_given(folder, tmp_path):
    kinds = {"default_task": "near", "num_labels": 2, "ignore_mismatched_sizes": True}
    model = MinBertForSequenceClassification.from_pretrained(folder, **kinds)
    model.save_pretrained(tmp_path / "own")

    assert model.config.num_labels == 2
    assert "asked_num_labels" not in (tmp_path / "own/config.json").read_text()


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_file_with_other_names_in_both_places_is_refused(folder, model_class):
    edit(folder, id2label={"0": "no", "1": "yes"}, label2id={"no": 0, "yes": 1})
    with pytest.raises(ValueError, match="id2label names the labels no, yes"):
        model_class.from_pretrained(folder)
    edit(folder, tasks={**TASKS, "tone": {**TONE, "labels": ["no", "yes"]}})
    assert model_class.from_pretrained(folder).config.id2label == NAMES


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_problem_type_of_no_task_is_refused(folder, model_class):
    with pytest.raises(ValueError, match="problem_type='multi_label_classification' has no effect"):
        model_class.from_pretrained(folder, problem_type="multi_label_classification")


def test_labels_of_other_tasks_are_no_choice(folder, tmp_path, tiny_sizes):
    """A changed default task or list of tasks takes the labels of its own."""
    model = MinBertForMultiTask.from_pretrained(folder, default_task="tags")
    assert model.config.id2label == {0: "O", 1: "B-X"}
    model.config.default_task = "tone"
    model(torch.tensor([[2, 3]]))
    assert model.config.id2label == {0: "down", 1: "up"}
    model.config.default_task = "tags"
    model.save_pretrained(tmp_path)
    assert model.config.id2label == {0: "O", 1: "B-X"}
    new = {"spam": {"problem_type": "classification", "labels": ["ham", "spam"]}}
    assert MinBertForMultiTask.from_pretrained(folder, tasks=new).config.id2label[0] == "ham"

    Bert(BertConfig(**tiny_sizes, id2label={0: "-", 1: "+"})).save_pretrained(tmp_path / "bert")
    model = MinBertForMultiTask.from_pretrained(tmp_path / "bert", tasks=new)
    assert model.config.id2label == {0: "ham", 1: "spam"}


def test_a_model_with_one_head_takes_any_names(folder):
    for model_class in (MinBertForSequenceClassification, MinBertForTokenClassification):
        model = model_class.from_pretrained(folder, id2label={0: "a", 1: "b", 2: "c"})
        assert model.classifier.out_features == 3
