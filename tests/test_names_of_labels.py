"""Names of labels that a caller or an edited file gives are those of predictions, or refused."""

import json

import pytest
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification as Bert,
    BertTokenizer,
)

from modeling_minbert import (
    MinBertConfig,
    MinBertForMultiTask,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
)

NAMES = {0: "no", 1: "yes"}
TONE = {"problem_type": "classification", "labels": ["down", "up"]}
TASKS = {
    "tone": TONE,
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X"]},
    "near": {"problem_type": "similarity", "score_range": [0, 5]},
}
CLASSES = [MinBertForMultiTask, AutoModelForSequenceClassification]


@pytest.fixture
def folder(tiny_sizes, tmp_path):
    """Return a folder with a model of several tasks, of which `tone` is the default, and tokens."""
    config = MinBertConfig(**tiny_sizes, tasks=TASKS)
    MinBertForMultiTask(config).save_pretrained(tmp_path / "run")
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    tokenizer.save_pretrained(tmp_path / "run")
    return tmp_path / "run"


def edit(folder, **changes):
    """Change keys of the configuration."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def read_labels(model):
    """Return the labels that a model predicts, and those of its configuration."""
    rows = model.predict("tone", ["a cat"], top_k=2)[0]
    assert model.config.label2id == {name: place for place, name in model.config.id2label.items()}
    return sorted(row["label"] for row in rows), model.config.id2label


@pytest.mark.parametrize("model_class", CLASSES)
def test_names_of_a_caller_are_predicted_and_saved(folder, model_class, tmp_path):
    model = model_class.from_pretrained(folder, id2label=NAMES)
    assert read_labels(model) == (["no", "yes"], NAMES)
    model.tokenizer.save_pretrained(tmp_path / "again")
    model.save_pretrained(tmp_path / "again")
    assert read_labels(model_class.from_pretrained(tmp_path / "again")) == (["no", "yes"], NAMES)


@pytest.mark.parametrize("model_class", CLASSES)
def test_a_file_with_other_names_in_both_places_is_refused(folder, model_class):
    edit(folder, id2label={"0": "no", "1": "yes"}, label2id={"no": 0, "yes": 1})
    with pytest.raises(ValueError, match="'tone' no, yes in id2label, but down, up in tasks: make"):
        model_class.from_pretrained(folder)
    edit(folder, tasks={**TASKS, "tone": {**TONE, "labels": ["no", "yes"]}})
    assert read_labels(model_class.from_pretrained(folder)) == (["no", "yes"], NAMES)


def test_names_of_an_edited_configuration_are_predicted(folder, tmp_path):
    model = MinBertForMultiTask.from_pretrained(folder)
    model.tokenizer.save_pretrained(tmp_path / "again")
    model.config.id2label = NAMES
    model.save_pretrained(tmp_path / "again")
    loaded = MinBertForMultiTask.from_pretrained(tmp_path / "again")
    assert read_labels(loaded) == (["no", "yes"], NAMES)


@pytest.mark.parametrize("kind", ["paraphrase", "multi_label_classification", "ordinal"])
def test_every_task_with_labels_takes_names(tiny_sizes, kind):
    fields = {"problem_type": kind} | ({} if kind == "paraphrase" else {"labels": ["x", "y"]})
    config = MinBertConfig(**tiny_sizes, tasks={"own": fields})
    config.id2label = NAMES
    MinBertForMultiTask(config)
    assert config.task("own").labels == ["no", "yes"]


@pytest.mark.parametrize("model_class", CLASSES)
@pytest.mark.parametrize(
    "given", [{"id2label": {0: "a", 1: "b", 2: "c"}}, {"num_labels": 5}, {"num_labels": 1}]
)
def test_names_that_do_not_fit_are_refused(folder, model_class, given):
    with pytest.raises(ValueError, match=r"default task 'tone', whose outputs are down, up: pass"):
        model_class.from_pretrained(folder, **given)


def test_names_of_a_task_without_labels_are_refused(folder):
    with pytest.raises(ValueError, match=r"default task 'near', whose outputs are score: pass"):
        MinBertForMultiTask.from_pretrained(folder, default_task="near", id2label=NAMES)


def test_labels_of_other_tasks_are_no_choice(folder, tmp_path, tiny_sizes):
    """A changed default task or list of tasks takes the labels of its own."""
    model = MinBertForMultiTask.from_pretrained(folder, default_task="tags")
    assert model.config.id2label == {0: "O", 1: "B-X"}
    new = {"spam": {"problem_type": "classification", "labels": ["ham", "spam"]}}
    assert MinBertForMultiTask.from_pretrained(folder, tasks=new).config.id2label[0] == "ham"
    config = MinBertConfig.from_pretrained(folder)
    config.tasks, config.default_task = new, None
    assert MinBertForMultiTask(config).config.id2label[0] == "ham"
    config = MinBertConfig.from_pretrained(folder)
    config.tasks = {"tone": {**TONE, "labels": ["x", "y"]}}
    assert MinBertForMultiTask(config).config.id2label == {0: "x", 1: "y"}

    Bert(BertConfig(**tiny_sizes, id2label={0: "-", 1: "+"})).save_pretrained(tmp_path / "bert")
    model = MinBertForMultiTask.from_pretrained(tmp_path / "bert", tasks=new)
    assert model.config.id2label == {0: "ham", 1: "spam"}
    fields = model.config.to_dict()
    assert not {"_first_labels", "_contradicts"} & fields.keys()
    assert MinBertForMultiTask(
        MinBertConfig(**{**fields, "tasks": {"tone": TONE}, "default_task": None})
    ).config.id2label == {0: "down", 1: "up"}


def test_a_model_with_one_head_takes_any_names(folder):
    for model_class in (MinBertForSequenceClassification, MinBertForTokenClassification):
        model = model_class.from_pretrained(folder, id2label={0: "a", 1: "b", 2: "c"})
        assert model.classifier.out_features == 3
    assert MinBertForTokenClassification.from_pretrained(folder).config.id2label[1] == "B-X"
