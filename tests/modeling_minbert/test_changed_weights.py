"""Weights that change between two calls: what is computed is what the model has now.

The oracle is a copy of the changed model, which has not computed anything before.
"""

import copy
import gc
import weakref
from functools import partial

import pytest
import torch
from torch import nn

from modeling_minbert import MinBertConfig, MinBertModel
from tests.small_run import vary_weights

TEXTS = ["a cat sat on the mat", "the bird sang", "not a dog", "the very far tree was in a mat"]


def double(values):
    values.data.mul_(2)


def swap_rows(values):
    values.data[[3, 7]] = values.data[[7, 3]]


def swap_columns(values):
    values.data[:, [3, 7]] = values.data[:, [7, 3]]


def flip_signs(values):
    values.data[:2, 1::2].neg_()


def write_to_array(values):
    values.detach().numpy()[1] = 5


def double_as_another_tensor(values):
    values.data = values.data * 2


CHANGES = {
    "norm": ("encoder.layer.0.output.LayerNorm.weight", double),
    "bias of a norm": ("encoder.layer.1.attention.output.LayerNorm.bias", double),
    "bias": ("encoder.layer.1.attention.self.value.bias", double),
    "matrix": ("encoder.layer.0.intermediate.dense.weight", double),
    "rows": ("encoder.layer.0.attention.self.query.weight", swap_rows),
    "columns": ("encoder.layer.1.output.dense.weight", swap_columns),
    "signs": ("encoder.layer.0.attention.output.dense.weight", flip_signs),
    "array": ("encoder.layer.0.attention.self.key.weight", write_to_array),
    "another tensor": ("encoder.layer.0.attention.self.value.weight", double_as_another_tensor),
    "words": ("embeddings.word_embeddings.weight", swap_rows),
    "norm of words": ("embeddings.LayerNorm.bias", double),
}


@pytest.fixture
def model(tiny_sizes, tokenizer):
    """Return an encoder in evaluation mode, no two weights alike."""
    torch.manual_seed(0)
    own = MinBertModel(MinBertConfig(**tiny_sizes, initializer_range=0.2)).eval()
    vary_weights(own)
    own.tokenizer = tokenizer
    return own


def check(model, before, precision):
    """Check that vectors have changed, and are those of a model without a past."""
    expected = copy.deepcopy(model).encode(TEXTS, precision=precision)
    assert torch.equal(model.encode(TEXTS, precision=precision), expected)
    assert not torch.equal(expected, before)


@pytest.mark.parametrize("precision", ["bfloat16", "int8", "auto", "float32"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_torch_does_not_count_is_seen(model, change, precision):
    name, apply = CHANGES[change]
    before = model.encode(TEXTS, precision=precision)
    apply(model.get_parameter(name))
    check(model, before, precision)


def change_epsilon(model):
    model.encoder.layer[1].output.LayerNorm.eps = 0.5


def replace_activation(model):
    model.encoder.layer[0].intermediate.activation = nn.ReLU()


def double_output(self, *args, **kwargs):
    return 2 * super(type(self), self).forward(*args, **kwargs)


def take_another_class(model):
    kind = type(model.encoder)
    model.encoder.__class__ = type("Doubled", (kind,), {"forward": double_output})


def take_another_layer_class(model):
    layer = model.encoder.layer[1].output.dense
    layer.__class__ = type("Doubled", (type(layer),), {"forward": double_output})


def drop_layer(model):
    model.encoder.layer = model.encoder.layer[:1]


def swap_layers(model):
    first, second = model.encoder.layer
    model.encoder.layer = nn.ModuleList([second, first])


class Added(nn.Module):
    """Adds a vector without a parameter."""

    def __init__(self, size):
        super().__init__()
        self.register_buffer("vector", torch.linspace(-1, 1, size))

    def forward(self, hidden):
        return hidden + self.vector


def add_a_vector(model):
    model.encoder.layer[1].output.dropout = Added(model.config.hidden_size)


def take_another_norm(model):
    norm = nn.RMSNorm(model.config.hidden_size, elementwise_affine=False)
    model.encoder.layer[1].output.LayerNorm = norm


def leave_a_norm_out(model):
    model.encoder.layer[1].output.LayerNorm = nn.Identity()


def take_another_class_of_the_name(model):
    layer = model.encoder.layer[1]
    layer.__class__ = type("MinBertDoubled", (type(layer),), {"forward": double_output})


OTHERS = [
    *(add_a_vector, take_another_norm, leave_a_norm_out, take_another_class_of_the_name),
    *(change_epsilon, replace_activation, drop_layer, swap_layers),
    *(take_another_class, take_another_layer_class),
]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("change", OTHERS)
def test_changes_beside_the_weights_are_seen(model, change, precision):
    before = model.encode(TEXTS, precision=precision)
    change(model)
    check(model, before, precision)


def count_change(model):
    with torch.no_grad():
        model.encoder.layer[0].attention.self.key.weight[1, 2] += 5


def load_weights(model):
    state = model.state_dict()
    state["encoder.layer.1.output.dense.bias"] = torch.full((model.config.hidden_size,), 0.5)
    model.load_state_dict(state)


def take_a_step(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model.encoder.layer[0].output.dense.weight.square().sum().backward()
    optimizer.step()


def replace_weight(model):
    dense = model.encoder.layer[0].intermediate.dense
    dense.weight = nn.Parameter(2 * dense.weight.detach())


COUNTED = [
    *(count_change, load_weights, take_a_step, replace_weight),
    *OTHERS,
]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.parametrize("change", COUNTED)
def test_of_fixed_weights_a_change_that_torch_counts_is_seen(model, change, precision):
    model.set_precision(precision, fixed_weights=True)
    before = model.encode(TEXTS)
    change(model)
    check(model, before, precision)


@pytest.mark.parametrize("change", ["norm", "bias", "matrix", "another tensor"])
def test_of_fixed_weights_a_change_of_a_whole_weight_is_seen(model, change):
    model.set_precision("int8", fixed_weights=True)
    before = model.encode(TEXTS)
    name, apply = CHANGES[change]
    apply(model.get_parameter(name))
    check(model, before, "int8")


@pytest.mark.parametrize("fixed", [False, True])
def test_weights_are_read_again_where_the_precision_is_set(model, fixed):
    model.set_precision("int8", fixed_weights=True)
    model.encode(TEXTS)
    write_to_array(model.encoder.layer[0].attention.self.key.weight)
    model.set_precision("int8", fixed_weights=fixed)
    assert torch.equal(model.encode(TEXTS), copy.deepcopy(model).encode(TEXTS))


@pytest.mark.parametrize("precision", [None, "bfloat16"])
@pytest.mark.parametrize("name", ["weight", "weight_scale", "bias"])
def test_changes_of_weights_stored_in_int8_are_seen(model, name, precision):
    model.quantize()
    before = model.encode(TEXTS, precision=precision)
    values = getattr(model.encoder.layer[0].intermediate.dense, name).data
    values.copy_(values.flip(0))
    check(model, before, precision)


def leave(_):
    """Tie nothing to itself."""


def own_method(model):
    model.forward = model.forward


def own_method_of_the_encoder(model):
    model.encoder.forward = model.encoder.forward


def hook_with_the_model(model):
    model.register_forward_hook(partial(print_nothing, model))


def print_nothing(*_):
    """Do nothing after a call."""


@pytest.mark.parametrize("tie", [leave, own_method, own_method_of_the_encoder, hook_with_the_model])
def test_a_model_that_has_computed_is_freed(model, tie):
    model = copy.deepcopy(model)
    tie(model)
    model.encode(TEXTS, precision="bfloat16")
    layer = weakref.ref(model.encoder.layer[0])

    del model
    gc.collect()

    assert layer() is None
