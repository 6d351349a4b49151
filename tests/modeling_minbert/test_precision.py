"""Predictions in bfloat16 and int8, and models whose weights are stored in int8.

The oracle of int8 is transformers' BERT whose dense layers compute the same scheme in float64,
written here from its definition.
"""

import pytest
import torch
from torch import nn
from torch.nn.modules import module as hooks_of_all
from torch.testing import assert_close
from transformers import AutoModel

from modeling_minbert import MinBertConfig, MinBertForMaskedLM, MinBertInt8Config, MinBertModel, cpu
from modeling_minbert.cpu import choose_precision, int8_is_exact
from modeling_minbert.prepared import Int8Product, Weights

CPU = torch.device("cpu")
# A sum in another order can round a byte of int8, or a value of bfloat16, the other way.
ROUNDING = {"atol": 2e-3, "rtol": 0.0}
REDUCED = ["bfloat16", "int8"]
TEXTS = ["a cat sat on the mat", "the bird sang", "not a dog", "the very far tree was in a mat"]


def is_reduced(precision):
    """Return whether this processor computes a precision, and not float32 instead."""
    return choose_precision(precision, CPU) == precision


every_reduced = pytest.mark.parametrize("precision", REDUCED)
needs_int8 = pytest.mark.skipif(not int8_is_exact(), reason="needs a CPU with VNNI or AMX")


@pytest.fixture
def model(tiny_sizes, tokenizer):
    """Return an encoder with a tokenizer, in evaluation mode."""
    torch.manual_seed(0)
    own = MinBertModel(MinBertConfig(**tiny_sizes, initializer_range=0.2)).eval()
    own.tokenizer = tokenizer
    return own


def simulate_rows(rows):
    """Round each row to 256 values from its least to its greatest one, in float64."""
    least, most = rows.aminmax(dim=-1, keepdim=True)
    scale = ((most - least) / 255).clamp(min=1e-30)  # paddings can be zeros
    return least + scale * torch.round((rows - least) / scale)


def simulate_weight(weight):
    """Round each output's weights to multiples of a 127th of the largest, in float64."""
    scale = weight.abs().amax(dim=1, keepdim=True) / 127
    return scale * torch.round(weight / scale)


class SimulatedLinear(nn.Module):
    """A dense layer in int8, computed in float64."""

    def __init__(self, linear):
        super().__init__()
        self.weight = simulate_weight(linear.weight.detach())
        self.bias = 0 if linear.bias is None else linear.bias.detach()

    def forward(self, hidden):
        return simulate_rows(hidden) @ self.weight.T + self.bias


@needs_int8
@pytest.mark.parametrize(("inputs", "outputs"), [(33, 29), (32, 48), (384, 7)])
def test_a_product_in_int8_equals_its_simulation(inputs, outputs):
    torch.manual_seed(1)
    linear = nn.Linear(inputs, outputs)
    hidden = torch.randn(50, inputs) * torch.rand(50, 1) * 10
    residual = torch.randn(50, outputs)
    product = Int8Product(Weights(linear.weight.detach(), None, linear.bias.detach()), None)

    expected = SimulatedLinear(linear.double())(hidden.double()).float()
    # bytes at the middle between two may be rounded either way
    near = {"atol": 1e-3 * float(expected.abs().max()), "rtol": 0.0}
    assert_close(product(hidden), expected, **near)
    assert_close(product.add(hidden, residual), expected + residual, **near)
    assert not torch.allclose(product(hidden), linear(hidden.double()).float(), **near)


@every_reduced
@pytest.mark.parametrize("kind", ["forward", "forward_pre"])
def test_hooks_of_all_modules_run(model, precision, kind):
    calls = []
    register = getattr(hooks_of_all, f"register_module_{kind}_hook")
    dense = model.encoder.layer[1].output.dense
    hook = register(lambda module, *_: calls.append(1) if module is dense else None)

    try:
        model.encode(TEXTS, precision=precision)
    finally:
        hook.remove()

    assert calls


@every_reduced
def test_training_and_gradients_stay_in_float32(model, precision):
    batch = model.tokenizer(TEXTS, padding=True, return_tensors="pt")
    plain = model(**batch).last_hidden_state
    model.set_precision(precision)

    assert torch.equal(model(**batch).last_hidden_state, plain)
    with torch.no_grad():
        reduced = model(**batch).last_hidden_state
    assert not torch.equal(reduced, plain) or not is_reduced(precision)
    model.set_precision(None)
    with torch.no_grad():
        assert_close(model(**batch).last_hidden_state, plain)


@pytest.mark.parametrize("precision", ["float16", "int4", "INT8"])
def test_unknown_precisions_are_refused(model, precision):
    for use in (model.set_precision, lambda name: model.encode(TEXTS, precision=name)):
        with pytest.raises(ValueError, match=f"unknown precision '{precision}'.*float32"):
            use(precision)


@needs_int8
@pytest.mark.parametrize(
    "name",
    [
        *("embeddings.word_embeddings.weight", "encoder.layer.1.output.dense.weight"),
        *("encoder.layer.0.attention.self.query.bias", "encoder.layer.1.intermediate.dense.bias"),
    ],
)
def test_int8_does_not_hide_weights_that_are_not_finite(model, name):
    with torch.no_grad():
        model.get_parameter(name)[..., 0] = torch.nan

    with pytest.raises(ValueError, match=r"hide that .* not finite"):
        model.encode(TEXTS, pooling="cls", precision="int8")
    with pytest.raises(ValueError, match=f"{name} has values that are not finite"):
        model.quantize()
    assert not model.is_int8


def test_what_the_cpu_cannot_do_is_float32_with_a_warning(model, monkeypatch, caplog):
    plain = model.encode(TEXTS)
    monkeypatch.setattr(cpu, "int8_is_exact", lambda: False)

    assert torch.equal(model.encode(TEXTS, precision="int8"), plain)
    assert "int8 needs a CPU with VNNI or AMX: computed in float32 instead" in caplog.text


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_precision_that_padding_prevents_is_said(model, caplog, attention):
    model.bfloat16().set_attn_implementation(attention)
    model.set_precision("float32")
    padded = torch.tensor([[2, 6, 7, 3], [0, 2, 8, 3]])
    with torch.no_grad():
        model(padded[:1], padded[:1].sign())
        assert ("float32 is not computed" in caplog.text) == (attention == "eager")
        model(padded, padded.sign())
    assert caplog.text.count("float32 is not computed, but the precision of the weights") == 1


def test_auto_is_bfloat16_where_it_is_fast(monkeypatch):
    monkeypatch.setattr(cpu, "bfloat16_is_fast", lambda _: True)
    assert choose_precision("auto", CPU) == "bfloat16"
    monkeypatch.setattr(cpu, "bfloat16_is_fast", lambda _: False)
    assert choose_precision("auto", CPU) == "float32"


@needs_int8
def test_a_folder_in_int8_gives_the_same_vectors_and_is_small(tiny_sizes, tokenizer, tmp_path):
    sizes = {**tiny_sizes, "hidden_size": 66, "intermediate_size": 264}
    torch.manual_seed(0)
    model = MinBertModel(MinBertConfig(**sizes)).eval()
    model.tokenizer = tokenizer
    plain = model.encode(TEXTS)
    model.save_pretrained(tmp_path / "plain")
    tokenizer.save_pretrained(tmp_path / "int8")
    model.quantize()
    vectors = model.encode(TEXTS)
    model.save_pretrained(tmp_path / "int8")

    for loaded in (
        AutoModel.from_pretrained(tmp_path / "int8"),
        MinBertModel.from_pretrained(tmp_path / "int8"),
    ):
        assert_close(loaded.eval().encode(TEXTS), vectors, **ROUNDING)
        assert loaded.is_quantized
        assert loaded.is_int8
    fresh = MinBertModel.from_pretrained(
        tmp_path / "plain", quantization_config=MinBertInt8Config()
    ).eval()
    fresh.tokenizer = tokenizer
    assert_close(fresh.encode(TEXTS), vectors, **ROUNDING)
    assert not torch.equal(vectors, plain)
    assert_close(vectors, plain, atol=0.05, rtol=0.05)
    small, large = (
        (tmp_path / name / "model.safetensors").stat().st_size for name in ("int8", "plain")
    )
    assert small < 0.4 * large  # pooler, norms and biases stay in float32


def test_loaded_int8_weights_do_not_train(model, tmp_path):
    model.quantize()
    model.save_pretrained(tmp_path)
    loaded = MinBertModel.from_pretrained(tmp_path)
    for each in (model, loaded):
        trained = [name for name, value in each.named_parameters() if value.requires_grad]
        assert trained
        assert not [name for name in trained if ".query." in name or "word_embeddings" in name]
    assert trained == [name for name, value in model.named_parameters() if value.requires_grad]


@needs_int8
def test_a_look_at_the_states_of_layers_leaves_the_precision(model):
    before = model.encode(TEXTS, precision="int8")
    model(**model.tokenizer(TEXTS[:1], return_tensors="pt"), output_hidden_states=True)

    assert_close(model.encode(TEXTS, precision="int8"), before, atol=0, rtol=0)


@needs_int8
def test_int8_becomes_float32_again(model, tmp_path):
    plain, names = model.encode(TEXTS), set(model.state_dict())
    model.quantize()
    stored = model.encode(TEXTS, precision="float32")
    model.save_pretrained(tmp_path)
    model.dequantize()

    assert set(model.state_dict()) == names
    assert not model.is_int8
    assert_close(model.encode(TEXTS), stored, atol=1e-5, rtol=1e-4)
    assert_close(model.encode(TEXTS), plain, atol=0.05, rtol=0.05)


def test_int8_weights_on_a_cpu_without_int8_are_computed_in_float32(model, monkeypatch, caplog):
    model.quantize()
    monkeypatch.setattr(cpu, "int8_is_exact", lambda: False)
    vectors = model.encode(TEXTS)

    assert "computed in float32" in caplog.text
    model.dequantize()
    assert_close(vectors, model.encode(TEXTS), atol=1e-5, rtol=1e-4)


def test_word_embeddings_tied_to_an_output_stay_in_float32(tiny_sizes, tmp_path):
    torch.manual_seed(0)
    model = MinBertForMaskedLM(MinBertConfig(**tiny_sizes)).eval()
    model.quantize()
    model.save_pretrained(tmp_path)
    loaded = MinBertForMaskedLM.from_pretrained(tmp_path).eval()
    ids = torch.tensor([[2, 7, 8, 3]])

    assert loaded.bert.embeddings.word_embeddings.weight.dtype == torch.float32
    model.dequantize()
    model.save_pretrained(tmp_path / "float")
    config = MinBertInt8Config()  # decides for each model that is loaded by it
    for kind, dtype in ((MinBertForMaskedLM, torch.float32), (MinBertModel, torch.int8)):
        quantized = kind.from_pretrained(tmp_path / "float", quantization_config=config)
        assert quantized.get_input_embeddings().weight.dtype == dtype
    model.quantize()
    assert loaded.cls.predictions.decoder.weight is loaded.bert.embeddings.word_embeddings.weight
    with torch.no_grad():
        assert_close(loaded(ids).logits, model(ids).logits, **ROUNDING)


def test_weights_in_bfloat16_are_in_bfloat16_again(model):
    half = model.to(torch.bfloat16)
    half.quantize()

    half.dequantize()

    assert {weight.dtype for weight in half.parameters()} == {torch.bfloat16}
    assert half.encode(TEXTS).isfinite().all()


def test_float_weights_are_not_cast_to_int8(model):
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model.quantize()

    with pytest.raises(ValueError, match="float32, but this model is in int8: dequantize"):
        model.load_state_dict(weights, strict=False)
