"""Tasks without labels, in-batch losses, layers and weights, in the multi-task model."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import multiple_negatives_ranking
from tests.modeling_minbert import test_packed

PAIR = {"pair_encoding": "separate", "head": "cosine"}
TASKS = {
    "alone": {"problem_type": "contrastive", "num_sentences": 1, "pooling": "cls"},
    "two": {"problem_type": "contrastive", "pooling": "max"},
    "three": {"problem_type": "contrastive", "num_sentences": 3},
    "same": PAIR | {"problem_type": "paraphrase", "loss": "multiple_negatives_ranking"},
    "order": PAIR | {"problem_type": "similarity", "score_range": [0, 5], "loss": "cosent"},
    "below": {"problem_type": "classification", "labels": ["a", "b"], "pooling_layer": 1},
}
for pooling in ("cls", "pooler", "mean", "max"):
    for pairs in ("joint", "separate"):
        settings = {"pair_encoding": pairs, "pooling": pooling}
        TASKS[f"{pairs}_{pooling}"] = {"problem_type": "paraphrase"} | settings
SENTENCES = {"alone": 1, "two": 2, "three": 3, "same": 2, "order": 2}
SENTENCES |= {name: 2 for name in TASKS if name.startswith("separate")}
CONTRASTIVE = ["alone", "two", "three"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
every_task = pytest.mark.parametrize("name", TASKS)


def make_batch(name, rows=6, seed=0):
    """Return a padded batch and its labels; the last row repeats sentences of the first ones."""
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, SENTENCES[name], 7) if name in SENTENCES else (rows, 7)
    lengths = torch.randint(2, 8, shape[:-1], generator=generator)
    ids = torch.randint(5, 31, shape, generator=generator)
    if name in SENTENCES:
        ids[-1, 0], lengths[-1, 0] = ids[0, 0], lengths[0, 0]
        second = min(1, shape[1] - 1)
        ids[-1, second], lengths[-1, second] = ids[1, second], lengths[1, second]
    mask = (torch.arange(7) < lengths[..., None]).long()
    labels = {
        "paraphrase": torch.tensor([1.0, 0, 1, 1, 0, 1]),
        "similarity": torch.tensor([1.0, 0, 5, 2.5, 2.5, 4]),
        "classification": torch.tensor([0, 1, 1, 0, 1, 1]),
    }
    kind = TASKS[name]["problem_type"]
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    return batch | ({"labels": labels[kind][:rows]} if kind in labels else {})


def pack(batch):
    """Put the real tokens of a padded batch one after the other."""
    inputs = {key: batch[key] for key in ("input_ids", "attention_mask")}
    return batch | {"attention_mask": None} | test_packed.pack(inputs)


@pytest.fixture
def model(build_multitask):
    return build_multitask({name: task | {"dropout": 0} for name, task in TASKS.items()})


@every_task
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_packed_and_padded_batches_equal_padded_eager_ones(
    build_multitask, name, training, attention
):
    tasks = {name: TASKS[name] | {"dropout": 0}}
    bert, ours = (
        build_multitask(tasks, **NO_DROPOUT, attn_implementation=how).double().train(training)
        for how in ("eager", attention)
    )
    batch = make_batch(name)
    expected = bert(**batch)
    expected.loss.backward()

    for inputs in (batch, pack(batch)):
        ours.zero_grad()
        actual = ours(**inputs)
        actual.loss.backward()

        assert_close(actual.logits, expected.logits, **test_packed.EXACT)
        # some losses are computed in float32
        assert_close(actual.loss, expected.loss, check_dtype=False)
        test_packed.assert_equal_gradients(ours, bert, atol=1e-7, rtol=1e-6)


def test_the_loss_masks_equal_texts_and_uses_further_negatives(model):
    batch = make_batch("three")

    outputs = model(**batch, task="three")

    first, second, third = outputs.logits.unbind(dim=1)
    texts = torch.arange(18).view(6, 3)
    texts[5, 0], texts[5, 1] = texts[0, 0], texts[1, 1]
    keys = texts[:, 0], texts[:, 1:].T.flatten()
    candidates = torch.cat([second, third])
    expected = multiple_negatives_ranking(first, candidates, scale=20, keys=keys)
    assert_close(outputs.loss, expected)
    assert not torch.allclose(
        expected, multiple_negatives_ranking(first, candidates, scale=20), atol=1e-4
    )


def test_both_views_of_a_sentence_have_other_dropout(build_multitask):
    model = build_multitask({"alone": TASKS["alone"]}).train()
    batch = make_batch("alone")

    for inputs in (batch, pack(batch)):
        views = model(**inputs).logits

        assert views.shape == (6, 2, 33)
        assert ((views[:, 0] - views[:, 1]).abs().amax(dim=-1) > 1e-3).all()
        # both views are of one sentence: without dropout they are equal
        model.bert.eval()
        assert_close(*model(**inputs).logits.unbind(dim=1))
        model.bert.train()


def test_a_projection_is_there_in_training_alone(build_multitask):
    task = {"problem_type": "contrastive", "projection": "training"}
    model = build_multitask({"mine": task}, **NO_DROPOUT)
    batch = make_batch("two")
    head = model.heads["mine"]
    captured = []
    head.dropout.register_forward_hook(lambda _, inputs, __: captured.append(inputs[0]))

    evaluated = model(**batch).logits
    trained = model.train()(**batch).logits

    pooled = captured[0]
    projected = F.normalize(torch.tanh(head.projection(pooled)), dim=-1)
    assert_close(trained, projected)
    assert_close(evaluated, F.normalize(pooled, dim=-1))


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_labels_and_other_numbers_of_sentences_are_refused(model, name):
    count = SENTENCES[name]
    batch = make_batch(name)
    with pytest.raises(ValueError, match=f"task '{name}' is contrastive and learns without labels"):
        model(**batch, labels=torch.ones(6), task=name)
    with pytest.raises(ValueError, match=rf"shape \(batch, {count}, length\), got \(4, 5, 7\)"):
        model(torch.ones(4, 5, 7, dtype=torch.long), task=name)
    if count > 1:
        packed = {"input_ids": torch.ones(1, 7, dtype=torch.long), "max_length_q": 1}
        with pytest.raises(ValueError, match=f"takes {count} sequences per row, got 7 in all"):
            model(**packed, cu_seq_lens_q=torch.arange(8), task=name)
