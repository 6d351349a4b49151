"""Token tasks equal the classes with one head, which equal BERT, padded and packed."""

import copy
import re

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForTokenClassification

from modeling_minbert import MinBertForQuestionAnswering, MinBertForTokenClassification
from tests.modeling_minbert.test_packed import pack

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
TASKS = {
    "tags": {"problem_type": "token_classification", "labels": TAGS, "dropout": 0.0},
    "answers": {"problem_type": "question_answering"},
    "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
}
CLASSES = {"tags": MinBertForTokenClassification, "answers": MinBertForQuestionAnswering}
EXACT = {"atol": 1e-10, "rtol": 1e-10}

every_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])
every_layout = pytest.mark.parametrize("layout", ["padded", "packed"])


@pytest.fixture
def model(build_multitask):
    """Return a model without dropout, in float64."""
    settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return build_multitask(TASKS, **settings).double().train()


def make_tags(mask):
    """Return a tag for every second real token, -100 for the others."""
    rows, length = mask.shape
    tags = torch.arange(rows * length).view(rows, length) % len(TAGS)
    return torch.where((mask == 1) & (torch.arange(length) % 2 == 1), tags, -100)


NUMBER = {"num_items_in_batch": torch.tensor(3.0)}
# Starts and ends of answers beyond the sequence are ignored.
STARTS, ENDS = torch.tensor([1, 0, 5, 1, 90]), torch.tensor([6, 2, 5, -7, 90])


@every_attention
@every_layout
@pytest.mark.parametrize(("task", "more"), [("tags", {}), ("tags", NUMBER), ("answers", {})])
def test_a_task_equals_the_class_with_one_head(model, tiny_batch, task, more, layout, attention):
    """That class equals BERT."""
    config = copy.deepcopy(model.config)
    config.id2label = dict(enumerate(TAGS))
    one = CLASSES[task](config).double().train()
    weights = {
        re.sub(rf"heads\.{task}\.out", "qa_outputs" if task == "answers" else "classifier", key): w
        for key, w in model.state_dict().items()
    }
    one.load_state_dict({key: weights[key] for key in one.state_dict()})
    one.set_attn_implementation(attention)
    model.set_attn_implementation(attention)
    tags = make_tags(mask := tiny_batch["attention_mask"])
    batch = pack(tiny_batch) if layout == "packed" else tiny_batch
    labels = {"labels": tags[mask == 1].unsqueeze(0) if layout == "packed" else tags}
    same = labels
    if task == "answers":
        labels = {"labels": torch.stack([STARTS, ENDS], dim=1)}
        same = {"start_positions": STARTS[:, None], "end_positions": ENDS}  # as in transformers

    actual, expected = model(**batch, **labels, **more, task=task), one(**batch, **same, **more)
    actual.loss.backward()
    expected.loss.backward()

    for key, value in expected.items():
        real = mask == 1 if layout == "padded" and key != "loss" else ...
        assert_close(actual[key][real], value[real], **EXACT)
    named = dict(model.named_parameters())
    for key, weight in one.named_parameters():
        twin = named[re.sub("^(classifier|qa_outputs)", f"heads.{task}.out", key)]
        assert_close(twin.grad, weight.grad, **EXACT, msg=f"gradient of {key} differs")


def test_a_model_with_one_head_does_not_take_the_weights_of_tasks(build_multitask, tmp_path):
    build_multitask(TASKS).save_pretrained(tmp_path)

    for loader in (AutoModelForTokenClassification, MinBertForQuestionAnswering):
        with pytest.raises(ValueError, match=r"none of a MinBertFor.*: load it as MinBertForMulti"):
            loader.from_pretrained(tmp_path)
        assert loader.from_pretrained(tmp_path, tasks=None).config.tasks is None


@pytest.mark.parametrize(
    ("task", "more", "message"),
    [
        ("tags", {"labels": torch.zeros(5)}, r"labels of shape \(5,\), but task 'tags' takes one"),
        ("answers", {"labels": torch.zeros(5)}, r"'answers' takes \(batch, 2\): the first and"),
        ("tone", {"start_positions": torch.zeros(5)}, "tone' is a classification task: leave"),
        ("tags", {"next_sentence_label": torch.zeros(5)}, "leave next_sentence_label out"),
    ],
)
def test_labels_that_do_not_fit_are_refused(build_multitask, tiny_batch, task, more, message):
    with pytest.raises(ValueError, match=message):
        build_multitask(TASKS)(**tiny_batch, **more, task=task)


def test_what_is_not_defined_for_answers_is_refused(build_multitask):
    model = build_multitask(TASKS)
    logits = torch.zeros(2, 3)

    for task in ("answers", "tags"):
        with pytest.raises(ValueError, match="there is no divergence for a"):
            model.divergence(task, logits, logits)
    with pytest.raises(ValueError, match="use predict"):
        model.decode("answers", logits)
