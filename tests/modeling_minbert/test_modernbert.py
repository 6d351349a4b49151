"""ModernBERT has the outputs and gradients of transformers' model, for any mask and padding."""

import json
from functools import partial

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassClassValidationError
from torch.testing import assert_close

from modeling_minbert import MinBertConfig, MinBertModel
from tests.modeling_minbert import test_families
from tests.modeling_minbert.test_families import MODERN, SIZES, compare_weights, pack

CHANGES = {"num_hidden_layers": 5, "max_position_embeddings": 512, "local_attention": 5}
BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")
# longer than the window and than what is one block, and not multiples of a block
LENGTHS = (23, 7, 23, 2, 9, 16)
make_batch = partial(test_families.make_batch, 0, lengths=LENGTHS)


def load_both(folder, head="", **changes):
    """Save a model of transformers with random weights; return it, and what minBERT loads."""
    return test_families.load_both(folder, "modernbert", head, **CHANGES | changes)


@pytest.mark.parametrize("kind", ["sdpa", "eager", "packed"])
@pytest.mark.parametrize("bias", [False, True])
def test_states_and_gradients_are_those_of_transformers(tmp_path, kind, bias):
    stock, ours = load_both(tmp_path, **dict.fromkeys(BIASES, bias))
    batch = make_batch()
    real = batch["attention_mask"].bool()
    given = pack(batch) if kind == "packed" else batch
    ours.set_attn_implementation("eager" if kind == "eager" else "sdpa")

    expected = stock(**batch).last_hidden_state[real]
    with torch.no_grad():
        plain = ours(**given).last_hidden_state
    found = ours(**given).last_hidden_state
    found, plain = (x[0] if kind == "packed" else x[real] for x in (found, plain))
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert_close(plain, expected, atol=1e-5, rtol=1e-5)
    ((expected + found) * torch.randn_like(expected)).sum().backward()
    compare_weights(stock, ours, 1e-4, lambda parameter: parameter.grad)


def test_blocks_of_the_default_window(tmp_path):
    stock, ours = load_both(tmp_path, local_attention=128)
    batch = make_batch(lengths=(400, 257, 200, 60))
    real = batch["attention_mask"].bool()
    expected, found = (model(**batch).last_hidden_state[real] for model in (stock, ours))
    assert_close(found, expected, atol=1e-5, rtol=1e-5)
    with torch.no_grad():
        assert_close(ours(**batch).last_hidden_state[real], expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("bias", [False, True])
def test_recorded_states_and_attentions_are_those_of_transformers(tmp_path, bias):
    stock, ours = load_both(tmp_path, **dict.fromkeys(BIASES, bias))
    batch = make_batch("left")
    real = batch["attention_mask"].bool()
    for model in (stock, ours):
        model.set_attn_implementation("eager")
    options = {"output_hidden_states": True, "output_attentions": True}
    expected, found = stock(**batch, **options), ours(**batch, **options)
    assert len(found.hidden_states) == len(expected.hidden_states) == 6
    assert len(found.attentions) == len(expected.attentions) == 5
    for number, (first, second) in enumerate(
        zip(found.hidden_states, expected.hidden_states, strict=True)
    ):
        assert_close(first[real], second[real], atol=1e-5, rtol=1e-5)
        ours.set_attn_implementation("sdpa")
        lower = ours(**batch, num_layers=number).last_hidden_state
        ours.set_attn_implementation("eager")
        assert_close(lower[real], second[real], atol=1e-5, rtol=1e-5)
    for first, second in zip(found.attentions, expected.attentions, strict=True):
        rows = real[:, None, :, None].expand_as(first)
        assert_close(first[rows], second[rows], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("decoder_bias", [True, False])
@pytest.mark.parametrize("bias", [False, True])
def test_a_masked_language_model_is_that_of_transformers(tmp_path, bias, decoder_bias):
    changes = dict.fromkeys(BIASES, bias) | {"decoder_bias": decoder_bias}
    stock, ours = load_both(tmp_path, "ForMaskedLM", **changes)
    assert ours.cls.predictions.decoder.weight is ours.bert.embeddings.word_embeddings.weight
    batch = make_batch()
    real = batch["attention_mask"].bool()
    labels = batch["input_ids"].where(real & (torch.rand(real.shape) < 0.4), -100)
    assert_close(ours(**batch).logits[real], stock(**batch).logits[real], atol=2e-5, rtol=1e-5)

    sparse = load_both(tmp_path / "sparse", "ForMaskedLM", sparse_prediction=True)
    assert sparse[1].config.sparse_prediction
    expected = stock(**batch, labels=labels).loss
    found = ours(**batch, labels=labels).loss
    assert_close(found, expected)
    ours.train()  # without dropout, only the labeled tokens are scored
    trained = ours(**batch, labels=labels)
    assert trained.logits is None
    assert_close(trained.loss, expected)
    packed = pack(batch)
    at = (labels[real] != -100).nonzero().squeeze(1)
    assert_close(ours(**packed, labels=labels[real][None], label_positions=at).loss, expected)
    (expected + trained.loss).backward()
    if not decoder_bias:  # ours has one, which starts at zero
        assert not ours.cls.predictions.bias.any()
    compare_weights(stock, ours, 1e-4, lambda parameter: parameter.grad)


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
@pytest.mark.parametrize("mask", ["zeros", "left", "right", "row"])
def test_no_mask_gives_nan(tmp_path, mask, kind):
    """Rows that are all padding, and paddings that have no token within the window."""
    ours = load_both(tmp_path)[1]
    ours.set_attn_implementation(kind)
    real = torch.ones(3, 30, dtype=torch.long)
    real[:, {"left": slice(0, 25), "right": slice(5, None)}.get(mask, slice(0, 0))] = 0
    real[{"zeros": slice(None), "row": slice(1, 2)}.get(mask, slice(0, 0))] = 0
    ids = torch.randint(3, 60, real.shape)
    for read in (None, "padded", "first"):
        with torch.no_grad():
            assert ours(ids, real, read=read).last_hidden_state.isfinite().all()
        ours.zero_grad()
        states = ours(ids, real, read=read).last_hidden_state
        states.square().sum().backward()
        assert states.isfinite().all()
        gradients = [p.grad for p in ours.parameters() if p.grad is not None]
        assert gradients
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_paddings_far_from_all_tokens_see_themselves(tmp_path):
    """Kernels of other devices give NaN to a query without a key."""
    ours = load_both(tmp_path)[1]
    real = torch.arange(30) < 2
    hidden = torch.zeros(1, 30, ours.config.hidden_size)

    mask = ours.encoder.narrow(real[None, None, None].expand(1, 1, 30, 30), hidden)

    assert mask.any(dim=-1).all()
    assert not mask[..., :2, 2:].any()


def test_a_window_is_counted_inside_the_sequence_and_in_columns(tmp_path):
    stock, ours = load_both(tmp_path)
    batch = make_batch()
    batch["attention_mask"][:, 3:6] = 0  # holes
    batch["attention_mask"][3, :2] = 1
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = stock(**batch).last_hidden_state[real]
        assert_close(ours(**batch).last_hidden_state[real], expected, atol=1e-5, rtol=1e-5)
        for select in (None, torch.tensor([0, 23, 25, 40, 60])):
            for kind in ("sdpa", "eager"):  # by blocks, and with a mask of the whole pack
                ours.set_attn_implementation(kind)
                whole = make_batch()
                packed = pack(whole)
                alone = stock(**whole).last_hidden_state[whole["attention_mask"].bool()]
                for layers in (None, 2):  # of which the last is local
                    if layers:
                        alone = ours(**packed, num_layers=2).last_hidden_state[0]
                    found = ours(**packed, read=select, num_layers=layers).last_hidden_state
                    found = found[0] if select is None else found
                    wanted = alone if select is None else alone[select]
                    assert_close(found, wanted, atol=1e-5, rtol=1e-5)


def test_positions_of_the_caller(tmp_path):
    stock, ours = load_both(tmp_path)
    batch = make_batch()
    real = batch["attention_mask"].bool()
    positions = torch.randint(0, 500, (1, 23)).sort().values
    with torch.no_grad():
        expected = stock(**batch, position_ids=positions).last_hidden_state[real]
        for kind in ("sdpa", "eager"):
            ours.set_attn_implementation(kind)
            found = ours(**batch, position_ids=positions).last_hidden_state[real]
            assert_close(found, expected, atol=1e-5, rtol=1e-5)
            packed = pack(batch) | {"position_ids": positions.expand(6, -1)[real][None]}
            assert_close(ours(**packed).last_hidden_state[0], expected, atol=1e-5, rtol=1e-5)
        alone = {"input_ids": batch["input_ids"][:1]}  # without a mask
        expected = stock(**alone).last_hidden_state
        embeds = stock.embeddings.tok_embeddings(alone["input_ids"])
        for kind in ("sdpa", "eager"):
            ours.set_attn_implementation(kind)
            for given in (alone, {"inputs_embeds": embeds}):
                assert_close(ours(**given).last_hidden_state, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_attention_without_a_window_is_refused(tmp_path):
    ours = load_both(tmp_path)[1]
    ours.set_attn_implementation("flex_attention")
    with pytest.raises(ValueError, match="'flex_attention' has no local attention here: use sdpa"):
        ours(**make_batch())


BAD = {
    "unknown encoder_type 'electra'": {"encoder_type": "electra"},
    "local_attention=1 must be at least 2": {"local_attention": 1},
    "global_attention_every=-1": {"global_attention_every": -1},
    "rope_theta=-1": {"rope_theta": -1},
    "must be even": {"num_attention_heads": 8},
    "rotary positions only": {"position_offset": 2},
    "local_attention=8: an encoder of type 'bert' cannot": {
        "encoder_type": "bert",
        "local_attention": 8,
    },
    "norm_bias=False: an encoder of type 'mpnet'": {"encoder_type": "mpnet", "norm_bias": False},
}


@pytest.mark.parametrize("message", BAD)
def test_fields_that_do_not_fit_are_refused(message):
    with pytest.raises(StrictDataclassClassValidationError, match=message):
        MinBertConfig(**{"encoder_type": "modernbert", "hidden_size": 24} | BAD[message])


def test_a_configuration_from_scratch_has_the_defaults_of_transformers():
    config = MinBertConfig(encoder_type="modernbert", hidden_size=24, num_attention_heads=3)
    stock = transformers.ModernBertConfig()
    assert config.local_attention == stock.local_attention
    assert config.global_attention_every == 3
    assert config.rope_theta == stock.rope_parameters["full_attention"]["rope_theta"]
    assert config.local_rope_theta == stock.rope_parameters["sliding_attention"]["rope_theta"]
    assert (config.norm_bias, config.layer_bias, config.type_vocab_size) == (False, False, 0)
    for config.num_hidden_layers in (1, 2, 12):
        made = config.to_transformers()
        assert made.layer_types == stock.layer_types[: config.num_hidden_layers]
        assert made.classifier_dropout == config.hidden_dropout_prob
    bert = MinBertConfig()
    assert (bert.norm_bias, bert.layer_bias, bert.local_attention) == (True, True, 0)


def test_configurations_of_all_ages_are_read(tmp_path):
    old = {"global_rope_theta": 5000.0, "local_rope_theta": 300.0, "local_attention": 6}
    old |= {"global_attn_every_n_layers": 2, "model_type": "modernbert", "num_hidden_layers": 4}
    unread = {"reference_compile": False, "layer_norm_eps": 0.1, "norm_eps": 1e-6}
    unread["position_embedding_type"] = "sans_pos"  # as mmBERT has it
    (tmp_path / "config.json").write_text(json.dumps(old | unread))
    config = MinBertConfig.from_pretrained(tmp_path)
    assert config.layer_norm_eps == 1e-6
    assert (config.rope_theta, config.local_rope_theta) == (5000, 300)
    assert (config.global_attention_every, config.local_attention) == (2, 6)

    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 5.0}
    kinds = ["full_attention", "sliding_attention", "sliding_attention"]
    refused = {
        "layer 0 and every so many": {"layer_types": [*kinds[1:], kinds[0]]},
        "default rotary positions": {"rope_parameters": {kind: dict(linear) for kind in kinds}},
        "mlp_dropout must be 0": {"mlp_dropout": 0.1},
        "must be equal": {"classifier_bias": True},
    }
    for message, changes in refused.items():
        new = {**SIZES, **MODERN, "num_hidden_layers": 3, **changes}
        transformers.ModernBertConfig(**new).save_pretrained(tmp_path)
        with pytest.raises(ValueError, match=message):
            MinBertConfig.from_pretrained(tmp_path)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_prepared_layers(tmp_path, precision, bias):
    ours = load_both(tmp_path, hidden_size=48, **dict.fromkeys(BIASES, bias))[1]
    batch = pack(make_batch())
    for select in (None, torch.tensor([0, 23, 25, 40, 60])):
        for layers in (None, 2, 0):
            states = []
            for chosen in (None, precision):
                ours.set_precision(chosen)
                with torch.no_grad():
                    states.append(ours(**batch, read=select, num_layers=layers).last_hidden_state)
            exact, found = states
            limit = {"float32": 1e-6, "bfloat16": 0.03, "int8": 0.08}[precision]
            assert (found - exact).norm() < limit * exact.norm()
            assert layers == 0 or precision == "float32" or not torch.equal(found, exact)


@pytest.mark.parametrize("bias", [False, True])
def test_weights_in_int8(tmp_path, bias):
    ours = load_both(tmp_path / "stock", **dict.fromkeys(BIASES, bias))[1]
    batch = make_batch()
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        exact = ours(**batch).last_hidden_state[real]
        ours.quantize()
        found = ours(**batch).last_hidden_state[real]
    dense = ours.encoder.layer[0].attn.Wqkv
    assert dense.weight.dtype == torch.int8
    assert (dense.bias is not None) == bias
    assert 0 < (found - exact).norm() < 0.08 * exact.norm()
    ours.save_pretrained(tmp_path / "int8")
    again = MinBertModel.from_pretrained(tmp_path / "int8")
    with torch.no_grad():
        assert torch.equal(again.eval()(**batch).last_hidden_state[real], found)
        plain = again.dequantize()(**batch).last_hidden_state[real]
    assert (plain - exact).norm() < 0.08 * exact.norm()
