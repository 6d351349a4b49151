"""The loss and the gradients of the vocabulary are torch's own, at less cost."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import modeling_minbert
from modeling_minbert import MinBertConfig, MinBertForMaskedLM
from modeling_minbert.cpu import look_up, reuse_gradient, vocabulary_loss

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
@pytest.mark.parametrize("reused", [True, False], ids=["reused", "fresh"])
def test_loss_and_gradients_equal_cross_entropy(dtype, every, reused):
    hidden, decoder, labels = make_decoder()
    hidden, decoder = hidden.detach().to(dtype).requires_grad_(), decoder.to(dtype)
    if every:
        hidden, labels = hidden[:3].detach().requires_grad_(), labels[:3]
    expected = F.cross_entropy(decoder(hidden), labels, reduction="sum")
    gradients = torch.autograd.grad(3 * expected, (hidden, *decoder.parameters()))
    if reused:
        reuse_gradient(decoder.weight)

    actual = vocabulary_loss(hidden, decoder, labels)
    (3 * actual).backward()

    tolerance = EXACT if dtype == torch.float64 else {"atol": 1e-4, "rtol": 1e-5}
    assert actual.dtype == dtype
    assert_close(actual, expected, **tolerance)
    assert_close((hidden.grad, decoder.weight.grad, decoder.bias.grad), gradients, **tolerance)


@pytest.mark.parametrize("frozen", ["weight", "bias"])
def test_what_is_frozen_gets_no_gradient(frozen):
    hidden, decoder, labels = make_decoder()
    getattr(decoder, frozen).requires_grad_(requires_grad=False)
    F.cross_entropy(decoder(hidden), labels, reduction="sum").backward()
    expected = [hidden.grad, *(parameter.grad for parameter in decoder.parameters())]
    hidden.grad = None
    decoder.zero_grad()

    vocabulary_loss(hidden, decoder, labels).backward()

    assert getattr(decoder, frozen).grad is None
    for actual, other in zip((hidden, *decoder.parameters()), expected, strict=True):
        assert (actual.grad is None) == (other is None)
        if other is not None:
            assert_close(actual.grad, other, **EXACT)


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


def test_without_any_label_the_sum_is_zero():
    hidden, decoder, labels = make_decoder()

    loss = vocabulary_loss(hidden, decoder, torch.full_like(labels, -100))
    loss.backward()

    assert loss == 0
    assert not hidden.grad.any()
    assert not decoder.weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_dtypes_have_a_loss_in_float32(dtype):
    hidden, decoder, labels = make_decoder()
    expected = F.cross_entropy(decoder(hidden), labels, reduction="sum")

    actual = vocabulary_loss(hidden.to(dtype), decoder.to(dtype), labels)

    assert actual.dtype == torch.float32
    assert_close(actual.double(), expected, atol=0.0, rtol=2e-2)


# The gradient that is reused


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


def reused(model):
    """Return a copy of a model that reuses the gradient of its word embedding."""
    twin = copy.deepcopy(model)
    reuse_gradient(twin.get_input_embeddings().weight)
    return twin


def assert_equal_gradients(actual, expected):
    others = dict(expected.named_parameters())
    for key, weight in actual.named_parameters():
        assert (weight.grad is None) == (others[key].grad is None), key
        if weight.grad is not None:
            assert_close(weight.grad, others[key].grad, atol=1e-6, rtol=1e-5, msg=f"{key} differs")


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining", "MinBertForNSP"])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("to_none", [True, False])
def test_ten_steps_equal_those_with_fresh_gradients(build, name, tied, to_none):
    plain = build(name, tie_word_embeddings=tied)
    saving = reused(plain)
    optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-3, eps=1e-3) for m in (plain, saving)]

    for step in range(10):
        batch = make_batch(step)
        if name == "MinBertForNSP":
            batch["labels"] = torch.arange(5) % 2
        for model, optimizer in zip((plain, saving), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=to_none)
            model(**batch).loss.backward()
        assert_equal_gradients(saving, plain)
        for optimizer in optimizers:
            optimizer.step()

    assert_close(saving.state_dict(), plain.state_dict(), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("order", ["one by one", "forward first"])
def test_gradients_of_three_passes_add_up(build, order):
    plain = build()
    saving = reused(plain)

    for model in (plain, saving):
        for _ in range(2):  # the second time with buffers of the first
            model.zero_grad()
            losses = []
            for seed, length in ((2, 5), (1, 7), (0, 15)):  # the largest buffer is left last
                losses.append(model(**make_batch(seed, (5, length))).loss)
                if order == "one by one":
                    losses.pop().backward()
            for loss in losses:
                loss.backward()

    assert_equal_gradients(saving, plain)


def test_the_order_of_backward_passes_is_free(build):
    plain = build()
    saving = reused(plain)

    for model in (plain, saving):
        first, second = model(**make_batch(0)).loss, model(**make_batch(1)).loss
        second.backward()
        third = model(**make_batch(2)).loss
        first.backward()
        third.backward()

    assert_equal_gradients(saving, plain)


def test_the_padding_gets_no_gradient_from_where_it_is_read(build):
    plain = build("MinBertForNSP")
    saving = reused(plain)
    ids = torch.tensor([[2, 0, 3, 0, 4]])

    for model in (plain, saving):
        model(ids, labels=torch.tensor([1])).loss.backward()

    gradient = saving.get_input_embeddings().weight.grad
    assert not gradient[0].any()
    assert gradient[2:5].any(dim=1).all()
    assert_equal_gradients(saving, plain)


def test_a_frozen_embedding_stays(build):
    plain = build()
    plain.get_input_embeddings().weight.requires_grad_(requires_grad=False)
    saving = reused(plain)

    for model in (plain, saving):
        model(**make_batch(0)).loss.backward()

    assert saving.get_input_embeddings().weight.grad is None
    assert_equal_gradients(saving, plain)


def resized(model):
    model.resize_token_embeddings(40, mean_resizing=False)
    return model


@pytest.mark.filterwarnings("ignore:Converting a tensor")
@pytest.mark.parametrize("change", [resized, nn.Module.double, nn.Module.bfloat16])
def test_a_changed_embedding_has_a_gradient_that_fits(build, change):
    plain = build()
    torch.manual_seed(0)
    saving = change(reused(plain))
    torch.manual_seed(0)
    plain = change(plain)
    saving.load_state_dict(plain.state_dict())

    for model in (plain, saving):
        for _ in range(2):
            model.zero_grad()
            model(**make_batch(0)).loss.backward()

    weight = saving.get_input_embeddings().weight
    assert weight.grad.shape == weight.shape
    assert weight.grad.dtype == weight.dtype
    assert_equal_gradients(saving, plain)


def test_a_gradient_from_elsewhere_is_added_to(build):
    plain = build()
    saving = reused(plain)

    for model in (plain, saving):
        weight = model.get_input_embeddings().weight
        model(**make_batch(0)).loss.backward()
        weight.square().sum().backward()
        model.zero_grad()
        weight.square().sum().backward()
        model(**make_batch(1)).loss.backward()

    assert_equal_gradients(saving, plain)


def test_the_lookup_equals_the_embedding():
    embedding = nn.Embedding(7, 3, padding_idx=2)
    ids = torch.tensor([[2, 6, 6], [0, 2, 5]])
    embedding(ids).square().sum().backward()
    expected, embedding.weight.grad = embedding.weight.grad, None
    reuse_gradient(embedding.weight)

    found = look_up(ids, embedding)
    found.square().sum().backward()

    assert_close(found, embedding(ids), rtol=0, atol=0)
    assert_close(embedding.weight.grad, expected)


# What is not computed


class Recorder(TorchDispatchMode):
    """Records the shapes of all results, and of results with new memory."""

    def __init__(self):
        super().__init__()
        self.shapes, self.new = set(), []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.shapes.add(tuple(result.shape))
            if func in NEW:
                self.new.append(tuple(result.shape))
        return result


OPERATORS = torch.ops.aten
NEW = {
    OPERATORS.embedding_dense_backward.default,
    OPERATORS.mm.default,
    OPERATORS.addmm.default,
    OPERATORS.zeros_like.default,
    OPERATORS.empty_like.default,
    OPERATORS.new_zeros.default,
    OPERATORS.new_empty.default,
    OPERATORS.zeros.default,
    OPERATORS.empty.memory_format,
    OPERATORS.add.Tensor,
    OPERATORS.clone.default,
    OPERATORS.mul.Tensor,
}


def packed(batch):
    """Pack a batch of `make_batch`."""
    real = batch["attention_mask"] == 1
    return {
        "input_ids": batch["input_ids"][real].unsqueeze(0),
        "labels": batch["labels"][real].unsqueeze(0),
        "cu_seq_lens_q": F.pad(real.sum(dim=1).cumsum(0), (1, 0)).int(),
        "max_length_q": int(real.sum(dim=1).max()),
    }


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
@pytest.mark.parametrize("layout", [packed, dict])
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


@pytest.mark.parametrize("layout", [packed, dict])
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
    assert rows_of_last_layer(build().eval(), **packed(batch)) == [labels]


def test_the_second_step_makes_no_second_gradient(build):
    model = reused(build())
    plain = build()
    shape = (VOCABULARY, 33)

    for reuses, each in ((True, model), (False, plain)):
        each(**make_batch(0)).loss.backward()
        each.zero_grad()
        loss = each(**make_batch(1)).loss
        address = each.get_input_embeddings().weight.grad
        assert address is None
        with Recorder() as seen:
            loss.backward()
        assert (shape not in seen.new) == reuses


def test_the_gradient_stays_where_it_is(build):
    model = reused(build())
    weight = model.get_input_embeddings().weight
    places = set()

    for step in range(3):
        model.zero_grad()
        model(**make_batch(step)).loss.backward()
        places.add(weight.grad.data_ptr())

    assert len(places) == 1


def test_a_model_that_reuses_its_gradient_can_be_saved(build, tmp_path):
    model = reused(build())
    model(**make_batch(0)).loss.backward()

    model.save_pretrained(tmp_path)
    loaded = MinBertForMaskedLM.from_pretrained(tmp_path)

    assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)


# What went wrong once


@pytest.mark.parametrize("how", ["save_on_cpu", "checkpoint"])
def test_saved_tensor_hooks_lose_no_gradient(build, how):
    plain = build()
    saving = reused(plain)
    for model in (plain, saving):
        if how == "save_on_cpu":
            with torch.autograd.graph.save_on_cpu():
                loss = model(**make_batch(0)).loss
        else:
            loss = checkpoint(lambda m=model: m(**make_batch(0)).loss, use_reentrant=False)
        loss.backward()
    assert_equal_gradients(saving, plain)


def test_a_loss_can_be_differentiated_twice_with_retain_graph(build):
    plain = build(sparse_prediction=False)
    model = copy.deepcopy(plain)
    model.config.sparse_prediction = True
    for each in (plain, model):
        loss = each(**make_batch(0)).loss
        loss.backward(retain_graph=True)
        loss.backward()
    assert_equal_gradients(model, plain)


@pytest.mark.parametrize("kind", ["forward", "gradient", "accumulated"])
def test_hooks_run_though_gradients_are_reused(build, kind):
    model = reused(build())
    embedding = model.get_input_embeddings()
    seen = []
    if kind == "forward":
        embedding.register_forward_hook(lambda *_: seen.append(kind))
    elif kind == "gradient":
        embedding.weight.register_hook(lambda gradient: seen.append(kind) or 2 * gradient)
    else:
        embedding.weight.register_post_accumulate_grad_hook(lambda _: seen.append(kind))

    model(**make_batch(0)).loss.backward()

    assert kind in seen


@pytest.mark.parametrize("part", ["embedding", "decoder"])
def test_a_replaced_forward_runs_though_gradients_are_reused(build, part):
    model = reused(build())
    own = model.get_input_embeddings() if part == "embedding" else model.get_output_embeddings()
    original, seen = own.forward, []
    own.forward = lambda values: seen.append(part) or original(values)  # as accelerate does

    model(**make_batch(0)).loss.backward()

    assert seen == [part]


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


def test_a_wrapped_decoder_is_called(build):
    model = build()
    model.cls.predictions.decoder = Adapter(model.cls.predictions.decoder)
    batch = make_batch(0)

    loss = model(**batch).loss
    loss.backward()

    model.config.sparse_prediction = False
    assert_close(loss, model(**batch).loss)
    assert model.cls.predictions.decoder.beside.weight.grad.abs().sum() > 0


def test_a_pickled_model_holds_no_buffers(build):
    plain, saving = build(), reused(build())
    sizes = []
    for model in (plain, saving):
        saving(**make_batch(0)).loss.backward()
        model.zero_grad()
        file = io.BytesIO()
        torch.save(model.get_input_embeddings(), file)
        sizes.append(file.tell())
    file.seek(0)
    loaded = torch.load(file, weights_only=False)

    assert sizes[1] < sizes[0] + 31 * 33 * 4
    loaded(torch.tensor([1, 2])).sum().backward()
    assert loaded.weight.grad[1:3].eq(1).all()


def test_without_a_label_every_weight_of_the_encoder_has_a_gradient_of_zero(build):
    model = build()
    batch = make_batch(0)
    batch["labels"] = torch.full_like(batch["labels"], -100)

    model(**batch).loss.backward()

    for key, weight in model.bert.named_parameters():
        assert weight.grad is not None, key
        assert weight.grad.eq(0).all(), key
