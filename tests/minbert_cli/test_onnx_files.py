"""Int8 ONNX files: their weights, and a comparison that notices damage."""

import numpy as np
import pytest

from minbert_cli import exporting as onnx_files
from modeling_minbert import export_onnx
from tests.minbert_onnx.examples import needs_onnx
from tests.small_run import make_model

TASKS = {
    "tone": {"problem_type": "classification", "labels": ["down", "up"]},
    "names": {"problem_type": "token_classification", "labels": ["O", "B-X"]},
}


@pytest.fixture
def model():
    """Return a model with two heads whose weights are far from zero."""
    words = ["the", "garden", "is", "warm", "."]
    return make_model(TASKS, words, hidden_size=33, num_attention_heads=3)


@pytest.fixture
def path(model, tmp_path):
    """Return the int8 file of the model."""
    path = export_onnx(model, tmp_path)
    onnx_files.quantize(path)
    return path


def read_graph(path):
    """Return the nodes and the constants of an ONNX file."""
    import onnx

    graph = onnx.load(path).graph
    constants = {x.name: onnx.numpy_helper.to_array(x) for x in graph.initializer}
    return list(graph.node), constants


@needs_onnx
@pytest.mark.slow
def test_the_encoder_is_int8_with_a_scale_for_each_output_and_heads_are_float32(path, model):
    nodes, constants = read_graph(path)

    products = [node for node in nodes if node.op_type == "MatMulInteger"]
    # six of each layer, and the pooler
    assert len(products) == 6 * model.config.num_hidden_layers + 1
    for node in products:
        weights = constants[node.input[1]]
        scale = constants[node.input[1].removesuffix("_quantized") + "_scale"]
        assert weights.dtype == np.int8
        # two products with an activation of 8 bits fit into 16 bits, as on processors without VNNI
        assert 2 * 255 * np.abs(weights.astype(int)).max() < 2**15
        assert scale.shape == weights.shape[1:]
    shapes = [x.shape for x in constants.values() if x.dtype == np.float32 and x.ndim == 2]
    assert len([shape for shape in shapes if sorted(shape) == [2, model.config.hidden_size]]) == 2
    tables = [constants.get(node.input[0]) for node in nodes if node.op_type == "Gather"]
    assert [x.itemsize for x in tables if x is not None and x.ndim == 2] == [1, 1, 1]


@needs_onnx
@pytest.mark.slow
def test_an_int8_file_is_near_its_model_but_not_equal(path, model):
    rows = onnx_files.make_rows(model.tokenizer, model.config.vocab_size, (20, 12))
    outputs = onnx_files.compute_both(path, model, None, rows)

    assert {"vectors.mean.2", "vectors.pooler.2", "tone.probabilities", "names.scores"} <= {
        *outputs
    }
    for name in ("vectors.mean.2", "vectors.pooler.2"):
        found, expected = outputs[name]
        cosine = (found * expected).sum(-1)
        cosine /= np.linalg.norm(found, axis=-1) * np.linalg.norm(expected, axis=-1)
        assert 0.98 < cosine.min() < 0.99999
    assert "differs from the model by" in onnx_files.compare(path, model, None, is_int8=True)
    with pytest.raises(ValueError, match=r"model\.onnx differs from the model by .*: nothing is"):
        onnx_files.compare(path, model, None)


@needs_onnx
def test_answers_that_are_not_those_of_the_model_are_noticed(model, tmp_path):
    export_onnx(model, tmp_path)
    onnx_files.compare_answers(tmp_path, model)
    settings = tmp_path / "minbert.json"
    for old, new in (('"down"', '"else"'), ('"B-X"', '"I-X"')):
        written = settings.read_text(encoding="utf-8")
        settings.write_text(written.replace(old, new), encoding="utf-8")

        with pytest.raises(ValueError, match=r"but the model .*: nothing is written"):
            onnx_files.compare_answers(tmp_path, model)
        settings.write_text(written, encoding="utf-8")


@needs_onnx
@pytest.mark.slow
def test_a_damaged_matrix_is_noticed(path, model):
    import onnx

    nodes, constants = read_graph(path)
    products = [node.input[1] for node in nodes if node.op_type == "MatMulInteger"]
    name = products[-2].removesuffix("_quantized") + "_scale"  # of the last layer
    whole = onnx.load(path)
    (scale,) = (x for x in whole.graph.initializer if x.name == name)
    for factor in (-1, 0, float("nan")):
        values = constants[name] * np.float32(factor)
        scale.CopyFrom(onnx.numpy_helper.from_array(values, name))
        onnx.save(whole, path)

        with pytest.raises(ValueError, match=r"int8 differs from the model by .*nothing is writt"):
            onnx_files.compare(path, model, None, is_int8=True)
