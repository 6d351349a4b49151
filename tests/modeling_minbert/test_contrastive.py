"""Tasks without labels, in-batch losses, layers and weights, in the multi-task model."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask
from modeling_minbert.ranking import multiple_negatives_ranking
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


def test_rows_that_fill_a_packed_batch_up_are_no_negatives(model):
    batch = make_batch("two")
    packed = pack(batch)
    expected = model(**packed, task="two")

    filled = packed | {
        "input_ids": F.pad(packed["input_ids"], (0, 5), value=model.config.pad_token_id),
        "position_ids": torch.cat([packed["position_ids"], torch.tensor([[0, 1, 0, 1, 2]])], 1),
        "cu_seq_lens_q": torch.cat(
            [packed["cu_seq_lens_q"], packed["cu_seq_lens_q"][-1:] + torch.tensor([2, 5])]
        ).int(),
    }
    actual = model(**filled, task="two")

    assert_close(actual.loss, expected.loss)
    assert_close(actual.logits[:6], expected.logits)


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


@pytest.mark.parametrize("name", CONTRASTIVE)
def test_a_prediction_is_the_cosine_of_a_pair(model, tokenizer, name):
    model.tokenizer = tokenizer
    pairs = [("the cat sat", "a dog"), ("a bird sang", "a bird sang"), ("the mat", "very far")]

    found = [row["score"] for row in model.predict(name, pairs, max_tokens_per_batch=9)]

    pooling = model.config.task(name).pooling
    u, v = (model.encode(list(side), pooling=pooling) for side in zip(*pairs, strict=True))
    assert found == pytest.approx(F.cosine_similarity(u, v).tolist(), abs=1e-5)
    assert found[1] == pytest.approx(1)
    with pytest.raises(ValueError, match="row 0 must be a pair of sentences"):
        model.predict(name, ["alone"])


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean", "max"])
@pytest.mark.parametrize("layer", [0, 1, -2, -3])
def test_a_task_may_pool_a_lower_layer_and_computes_no_more(build_multitask, pooling, layer):
    task = {"problem_type": "classification", "labels": ["a", "b"]}
    model = build_multitask({"mine": task | {"pooling": pooling, "pooling_layer": layer}})
    batch = make_batch("below")
    calls = []
    for each in model.bert.encoder.layer:
        each.register_forward_hook(lambda *_: calls.append(1))

    logits = model(**batch).logits
    packed = model(**pack(batch)).logits

    assert len(calls) == 2 * (layer % 3)
    mask = batch["attention_mask"]
    inputs = {"input_ids": batch["input_ids"], "attention_mask": mask}
    states = model.bert(**inputs, output_hidden_states=True).hidden_states[layer]
    real = mask[..., None].bool()
    pooled = {
        "cls": states[:, 0],
        "pooler": torch.tanh(model.bert.pooler.dense(states[:, 0])),
        "mean": (states * real).sum(dim=1) / real.sum(dim=1),
        "max": states.masked_fill(~real, -torch.inf).amax(dim=1),
    }[pooling]
    assert_close(logits, model.heads["mine"].out(pooled), **NEAR)
    assert_close(packed, logits, **NEAR)


@pytest.mark.parametrize("name", [*TASKS, "bce", "scores"])
def test_divergence_is_zero_for_equal_predictions_and_has_a_gradient(build_multitask, name):
    more = {
        "bce": {"problem_type": "paraphrase"},
        "scores": {"problem_type": "similarity", "score_range": [0, 5], "loss": "mse"},
    }
    model = build_multitask(TASKS | more)
    shape = {"below": (6, 2)}.get(name, (6, 1))
    shape = (6, SENTENCES[name], 33) if name in CONTRASTIVE else shape
    generator = torch.Generator().manual_seed(0)
    logits, other = (torch.randn(shape, generator=generator).requires_grad_() for _ in "ab")

    actual = model.divergence(name, logits, other)

    p, q = (logits.sigmoid(), other.sigmoid()) if name == "bce" else (logits, other)
    if name == "below":
        p, q = (F.log_softmax(each, dim=-1) for each in (logits, other))
        expected = F.kl_div(p, q, log_target=True, reduction="batchmean")
        expected += F.kl_div(q, p, log_target=True, reduction="batchmean")
    elif name == "bce":
        expected = F.binary_cross_entropy(p, q) - F.binary_cross_entropy(q, q)
        expected += F.binary_cross_entropy(q, p) - F.binary_cross_entropy(p, p)
    else:
        scale = 20 if name == "same" else 1  # the logit of a paraphrase is a scaled cosine
        expected = (((p - q) / scale) ** 2).sum(dim=-1).mean()
    assert_close(actual, expected)
    assert actual > 0
    assert model.divergence(name, logits, logits).item() == 0
    assert all(gradient.any() for gradient in torch.autograd.grad(actual, (logits, other)))


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


def test_padding_on_the_left_fills_no_row_up(model):
    batch = make_batch("two")
    turned = {
        "input_ids": batch["input_ids"].flip(-1),
        "attention_mask": batch["attention_mask"].flip(-1),
    }
    positions = (turned["attention_mask"].cumsum(-1) - 1).clamp(min=0)
    right = {"input_ids": turned["input_ids"], "attention_mask": turned["attention_mask"]}

    left = model.eval()(**right, position_ids=positions, task="two").loss

    order = batch["attention_mask"].sum(-1, keepdim=True) - 1 - torch.arange(7)
    again = batch["input_ids"].gather(-1, order.clamp(min=0)) * batch["attention_mask"]
    assert left > 0
    assert_close(
        left, model(input_ids=again, attention_mask=batch["attention_mask"], task="two").loss
    )
