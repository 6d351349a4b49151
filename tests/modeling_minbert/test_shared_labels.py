"""Labels of several tasks for the rows of one batch."""

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny

TASKS = {
    "mood": {"problem_type": "classification", "labels": ["bad", "so-so", "good"]},
    "grade": {"problem_type": "ordinal", "labels": ["low", "middle", "high"], "pooling": "mean"},
    "tags": {"problem_type": "multi_label_classification", "labels": ["a", "b"]},
    "size": {"problem_type": "regression", "mean": [0.0], "std": [1.0]},
}
LABELS = {
    "mood": torch.tensor([0, 2, 1, 1, 0]),
    "grade": torch.tensor([2, 0, 1, 0, 2]),
    "tags": torch.tensor([[1.0, 0], [0, 0], [1, 1], [0, 1], [1, 0]]),
    "size": torch.tensor([0.5, -1.0, 2.0, 0.0, 1.5]),
}
SOME = torch.tensor([0, 3, 4])


def make_model(tasks=TASKS, **fields):
    torch.manual_seed(0)
    filled = {name: {**task, "dropout": 0.0, **fields} for name, task in tasks.items()}
    return MinBertForMultiTask(tiny.make_config(filled))


def make_inputs(*shape, packed=False):
    ids = torch.randint(1, tiny.VOCABULARY, shape, generator=torch.Generator().manual_seed(1))
    if not packed:
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    length = shape[-1]
    offsets = torch.arange(0, ids.numel() + 1, length, dtype=torch.int32)
    return {
        "input_ids": ids.reshape(1, -1),
        "position_ids": torch.arange(length).repeat(ids.numel() // length)[None],
        "cu_seq_lens_q": offsets,
        "max_length_q": length,
    }


@pytest.mark.parametrize("packed", [False, True])
def test_one_pass_has_the_losses_and_the_gradient_of_a_pass_for_each_task(packed):
    model, inputs = make_model(), make_inputs(5, 6, packed=packed)
    passes = []
    apart = sum(model(**inputs, task=name, labels=own).loss for name, own in LABELS.items())
    apart.backward()
    wanted = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    model.bert.register_forward_pre_hook(lambda *_: passes.append(1))

    found = model(**inputs, task=list(LABELS), labels=LABELS)
    together = sum(found[name].loss for name in LABELS)
    together.backward()

    assert len(passes) == 1
    assert_close(together, apart)
    assert_close({name: value.grad for name, value in model.named_parameters()}, wanted)


@pytest.mark.parametrize("packed", [False, True])
def test_rows_without_a_label_of_a_task_have_no_part_in_its_loss(packed):
    model = make_model().eval()
    part = {**make_inputs(5, 6)}
    part = {name: value[SOME] for name, value in part.items()}
    labels = {"mood": LABELS["mood"], "tags": LABELS["tags"][SOME], "size": LABELS["size"][SOME]}
    rows = {"tags": SOME, "size": SOME}

    found = model(
        **make_inputs(5, 6, packed=packed), task=list(labels), labels=labels, labelled_rows=rows
    )

    for name in rows:
        alone = model(**part, task=name, labels=labels[name])
        assert_close(found[name].loss, alone.loss)
        assert_close(found[name].logits, alone.logits)


def test_losses_that_compare_pairs_use_the_labelled_pairs_alone():
    tasks = {
        "close": {"problem_type": "similarity", "score_range": [0, 5]},
        "same": {"problem_type": "paraphrase", "loss": "multiple_negatives_ranking"},
    }
    model = make_model(tasks, pair_encoding="separate", head="cosine").eval()
    inputs = make_inputs(5, 2, 6)
    labels = {"close": torch.tensor([0.0, 1, 2, 3, 5]), "same": torch.tensor([1, 1, 0])}

    found = model(**inputs, task=list(tasks), labels=labels, labelled_rows={"same": SOME})

    part = {name: value[SOME] for name, value in inputs.items()}
    assert_close(found["same"].loss, model(**part, task="same", labels=labels["same"]).loss)
    assert_close(found["close"].loss, model(**inputs, task="close", labels=labels["close"]).loss)


def test_a_task_without_labels_is_only_predicted():
    model, inputs = make_model().eval(), make_inputs(5, 6)

    found = model(**inputs, task=["mood", "size"], labels={"mood": LABELS["mood"]})

    assert found["size"].loss is None
    assert_close(found["size"].logits, model(**inputs, task="size").logits)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"task": ["mood", "size"], "labels": LABELS["mood"]},
            "a dictionary by task, not a Tensor",
        ),
        ({"task": "mood", "labels": LABELS}, "'mood' names one; give a list"),
        ({"task": ["mood"], "labels": LABELS}, "task 'grade'; expected some of mood"),
        (
            {"task": ["mood", "size"], "labels": {}, "labelled_rows": {"size": SOME}},
            "labelled_rows of task 'size'; expected some of none",
        ),
        ({"task": ["mood"], "labels": {}, "labelled_rows": SOME}, "by task, not a Tensor"),
        ({"task": ["mood", "moods"]}, "unknown task 'moods'"),
        ({"task": []}, "an empty list"),
    ],
)
def test_labels_that_do_not_fit_the_tasks_are_refused(given, message):
    with pytest.raises(ValueError, match=message):
        make_model()(**make_inputs(5, 6), **given)
