"""The loss and the gradients of the vocabulary are torch's own, at less cost."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

import modeling_minbert
from modeling_minbert import MinBertConfig
from modeling_minbert.pretraining import vocabulary_loss
from tests.modeling_minbert.test_packed import assert_equal_gradients, pack

EXACT = {"atol": 1e-12, "rtol": 1e-12}  # float64
VOCABULARY = 31  # of tiny_sizes


def make_decoder(scale=1.0):
    """Return states of twelve tokens, a decoder and labels; two tokens have none."""
    generator = torch.Generator().manual_seed(0)
    decoder = nn.Linear(9, VOCABULARY).double()
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    hidden = scale * torch.randn(12, 9, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, VOCABULARY, (12,), generator=generator)
    labels[3] = labels[11] = -100
    return hidden.requires_grad_(), decoder, labels


# The loss


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("every", [True, False], ids=["all", "some"])
def test_loss_and_gradients_equal_cross_entropy(dtype, every):
    hidden, decoder, labels = make_decoder()
    hidden, decoder = hidden.detach().to(dtype).requires_grad_(), decoder.to(dtype)
    if every:
        hidden, labels = hidden[:3].detach().requires_grad_(), labels[:3]
    expected = F.cross_entropy(decoder(hidden), labels, reduction="sum")
    gradients = torch.autograd.grad(3 * expected, (hidden, *decoder.parameters()))

    actual = vocabulary_loss(hidden, decoder, labels)
    (3 * actual).backward()

    tolerance = EXACT if dtype == torch.float64 else {"atol": 1e-4, "rtol": 1e-5}
    assert actual.dtype == dtype
    assert_close(actual, expected, **tolerance)
    assert_close((hidden.grad, decoder.weight.grad, decoder.bias.grad), gradients, **tolerance)


@pytest.mark.parametrize("scale", [1e-3, 1e2, 1e4])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_large_scores_overflow_nowhere(scale, dtype):
    hidden, decoder, labels = make_decoder(scale)
    single = hidden.detach().to(dtype).requires_grad_()

    actual = vocabulary_loss(single, decoder.to(dtype), labels)
    actual.backward()

    expected = F.cross_entropy(decoder.double()(hidden), labels, reduction="sum")
    assert_close(actual.double(), expected, atol=1e-3, rtol=1e-5)
    assert single.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_have_a_loss_in_float32(dtype):
    hidden, decoder, labels = make_decoder()
    expected = F.cross_entropy(decoder(hidden), labels, reduction="sum")

    actual = vocabulary_loss(hidden.to(dtype), decoder.to(dtype), labels)

    assert actual.dtype == torch.float32
    assert_close(actual.double(), expected, atol=0.0, rtol=2e-2)


# Models


@pytest.fixture
def build(tiny_sizes):
    """Return a function that makes a masked language model without dropout."""

    def build(name="MinBertForMaskedLM", **settings):
        torch.manual_seed(0)
        rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        config = MinBertConfig(**{**tiny_sizes, **rates, "initializer_range": 0.2, **settings})
        return getattr(modeling_minbert, name)(config).train()

    return build


def make_batch(seed, shape=(5, 7)):
    """Return a padded batch; about every third token has a label."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, shape, generator=generator)  # 0 is the padding
    mask = torch.ones_like(ids)
    mask[1, 4:] = 0
    labels = torch.where(torch.rand(shape, generator=generator) < 0.3, ids, -100)
    labels[0, 0] = 5
    return {"input_ids": ids, "attention_mask": mask, "labels": labels.where(mask == 1, -100)}


# What is not computed


class Recorder(TorchDispatchMode):
    """Records the shapes of all results."""

    def __init__(self):
        super().__init__()
        self.shapes = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.shapes.add(tuple(result.shape))
        return result


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
@pytest.mark.parametrize("layout", [pack, dict])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_training_scores_the_vocabulary_at_labels_only(build, name, layout, attention):
    model, batch = build(name, attn_implementation=attention), make_batch(0)
    tokens, labels = int(batch["attention_mask"].sum()), int((batch["labels"] != -100).sum())
    assert labels not in (tokens, 35, 33, 29)

    with Recorder() as seen:
        model(**layout(batch)).loss.backward()

    scored = {shape[0] for shape in seen.shapes if len(shape) == 2 and shape[1] == VOCABULARY}
    assert scored <= {labels, 33, 1, VOCABULARY}  # the decoder's weight is (V, D), and (D, V)
    assert labels in scored
    assert not {shape for shape in seen.shapes if len(shape) == 3 and shape[-1] == VOCABULARY}


@pytest.mark.parametrize("layout", [pack, dict])
def test_no_linear_layer_of_the_encoder_sees_padding(build, layout):
    model, batch = build(), make_batch(0)
    tokens = int(batch["attention_mask"].sum())
    rows = []
    for layer in model.bert.encoder.modules():
        if isinstance(layer, nn.Linear):
            layer.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[:-1]))
    labels = int((batch["labels"] != -100).sum())

    model(**layout(batch))

    assert tokens == 32
    assert len(rows) == 12
    assert set(rows) == {(tokens,), (labels,)}
    assert rows.count((labels,)) == 4  # query, two of the feed-forward layer, and that after values


def rows_of_last_layer(model, **batch):
    rows = []
    last = model.bert.encoder.layer[-1].intermediate
    hook = last.register_forward_hook(lambda _, given, __: rows.append(given[0].shape[0]))
    model(**batch)
    hook.remove()
    return rows


@pytest.mark.parametrize("name", ["MinBertForNSP", "MinBertForSequenceClassification"])
def test_the_last_layer_computes_first_tokens_only(build, name):
    batch = make_batch(0)
    del batch["labels"]

    assert rows_of_last_layer(build(name), **batch) == [5]


@pytest.mark.parametrize(
    ("pooling", "rows"), [("cls", 10), ("pooler", 10), ("mean", 64), ("max", 64)]
)
def test_separate_pairs_go_through_the_encoder_once(build_multitask, pooling, rows):
    task = {"problem_type": "paraphrase", "pair_encoding": "separate", "pooling": pooling}
    model, batch = build_multitask({"mine": task}), make_batch(0)
    del batch["labels"]

    seen = rows_of_last_layer(model, **{k: torch.stack([v, v], dim=1) for k, v in batch.items()})

    assert seen == [rows]


def test_pre_training_computes_labelled_and_first_tokens(build):
    batch = make_batch(0)
    labels = int((batch["labels"] != -100).sum())

    assert rows_of_last_layer(build(), **batch) == [labels]
    assert rows_of_last_layer(build("MinBertForPreTraining"), **batch) == [labels + 5]
    assert rows_of_last_layer(build().eval(), **pack(batch)) == [labels]


class Adapter(nn.Module):
    """A decoder with something beside it, as adapters wrap linear layers."""

    def __init__(self, base):
        super().__init__()
        self.base, self.beside = base, nn.Linear(base.in_features, base.out_features)

    @property
    def weight(self):
        return self.base.weight

    @property
    def bias(self):
        return self.base.bias

    def forward(self, hidden):
        return self.base(hidden) + self.beside(hidden)


@pytest.mark.parametrize("tied", [True, False])
def test_gradients_equal_those_of_the_scores_of_all_tokens_a_second_time_too(build, tied):
    model = build(tie_word_embeddings=tied)
    plain = copy.deepcopy(model)
    plain.config.sparse_prediction = False

    for other in (plain, model):
        loss = other(**make_batch(0)).loss
        loss.backward(retain_graph=True)
        loss.backward()

    assert_equal_gradients(model, plain, atol=1e-6, rtol=1e-5)


def test_a_wrapped_decoder_is_called(build):
    model = build()
    model.cls.predictions.decoder = Adapter(model.cls.predictions.decoder)
    batch = make_batch(0)

    loss = model(**batch).loss
    loss.backward()

    model.config.sparse_prediction = False
    assert_close(loss, model(**batch).loss)
    assert model.cls.predictions.decoder.beside.weight.grad.abs().sum() > 0
