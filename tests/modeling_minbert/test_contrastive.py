"""Tasks without labels, in-batch losses, layers and weights, in the multi-task model."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask, multiple_negatives_ranking
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
SENTENCES = {"alone": 1, "two": 2, "three": 3, "same": 2, "order": 2}
CONTRASTIVE = ["alone", "two", "three"]
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
NEAR = {"atol": 2e-5, "rtol": 1e-4}
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
        "same": torch.tensor([1.0, 0, 1, 1, 0, 1]),
        "order": torch.tensor([1.0, 0, 5, 2.5, 2.5, 4]),
        "below": torch.tensor([0, 1, 1, 0, 1, 1]),
    }
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    return batch | ({"labels": labels[name][:rows]} if name in labels else {})


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
def test_packed_and_padded_batches_are_equivalent(build_multitask, name, training, attention):
    tasks = {each: task | {"dropout": 0} for each, task in TASKS.items()}
    model = build_multitask(tasks, **NO_DROPOUT).train(training)
    model.set_attn_implementation(attention)
    batch = make_batch(name)

    found = []
    for inputs in (batch, pack(batch)):
        model.zero_grad()
        outputs = model(**inputs, task=name)
        outputs.loss.backward()
        gradients = {key: weight.grad for key, weight in model.named_parameters()}
        found.append((outputs.loss, outputs.logits, gradients))

    assert_close(*(loss for loss, _, _ in found), **NEAR)
    assert_close(*(logits for _, logits, _ in found), **NEAR)
    for key, gradient in found[0][2].items():
        assert (gradient is None) == (found[1][2][key] is None), key
        if gradient is not None:
            assert_close(found[1][2][key], gradient, **NEAR)


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


def test_the_concat_head_is_the_softmax_classifier_of_sbert(build_multitask, tmp_path):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    labels = {"labels": ["no", "maybe", "yes"], "pair_encoding": "separate"}
    model = build_multitask({"nli": {"problem_type": "classification", **labels}})
    batch = make_batch("same") | {"labels": torch.tensor([0, 1, 2, 2, 1, 0])}
    features = []
    model.heads["nli"].dropout.register_forward_hook(lambda *args: features.append(args[2]))

    class Given(torch.nn.Module):
        """A model that has encoded its columns already."""

        device = torch.device("cpu")

        def forward(self, features):
            return features

    reference = losses.SoftmaxLoss(Given(), embedding_dimension=33, num_labels=3)
    reference.classifier.load_state_dict(model.heads["nli"].out.state_dict())
    outputs = model(**batch)
    u, v, _ = features[0].chunk(3, dim=-1)

    columns = [{"sentence_embedding": each} for each in (u, v)]
    assert_close(outputs.loss, reference(columns, batch["labels"]))
    model.save_pretrained(tmp_path)
    saved = MinBertForMultiTask.from_pretrained(tmp_path).heads["nli"].out
    assert_close(saved.weight, reference.classifier.weight)


def test_the_cosine_head_has_the_loss_of_sentence_transformers(build_multitask):
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    task = PAIR | {"problem_type": "similarity", "score_range": [0, 5], "loss": "mse"}
    model = build_multitask({"mine": task})
    batch = make_batch("order")
    vectors = []
    model.heads["mine"].dropout.register_forward_hook(lambda *args: vectors.append(args[2]))

    actual = model(**batch).loss

    reference = losses.CosineSimilarityLoss(None).compute_loss_from_embeddings
    assert_close(actual, reference(list(vectors[0].unbind(dim=1)), batch["labels"] / 5))
