"""A model as ONNX: ONNX Runtime and the model agree on any batch."""

import pytest
import torch

import minbert
import modeling_minbert
from modeling_minbert import MinBertConfig, export_onnx
from modeling_minbert.packing import pool
from tests.minbert_onnx.examples import HAS_ONNX, needs_onnx
from tests.modeling_minbert.test_in_and_out import make_stock
from tests.modeling_minbert.test_packed import PAIRS

SHAPES = [(2, 6), (1, 1), (5, 17), (3, 2)]
CLASSES = [name for name in PAIRS if name != "MinBertModel"]


def make_inputs(shape, vocabulary):
    """Make a batch in which rows differ in length."""
    generator = torch.Generator().manual_seed(sum(shape))
    batch, length = shape
    mask = (
        torch.arange(length) < torch.randint(1, length + 1, (batch, 1), generator=generator)
    ).long()
    ids = torch.randint(1, vocabulary, mask.shape, generator=generator) * mask
    types = torch.randint(0, 2, mask.shape, generator=generator) * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


def assert_equal_everywhere(path, compute, vocabulary=31):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    taken = [x.name for x in session.get_inputs()]
    names = [x.name for x in session.get_outputs()]
    for shape in SHAPES:
        inputs = make_inputs(shape, vocabulary)
        given = inputs | {"mix": torch.eye(shape[0])}
        found = session.run(None, {name: given[name].numpy() for name in taken})
        with torch.no_grad():
            expected = compute(**inputs)
        assert names == [name for name in expected if name != "loss"]
        for name, values in zip(names, found, strict=True):
            actual, wanted = torch.from_numpy(values), expected[name]
            if actual.shape[:2] == inputs["input_ids"].shape:  # ours has zeros at paddings
                real = inputs["attention_mask"].bool()
                actual, wanted = actual[real], wanted[real]
            torch.testing.assert_close(actual, wanted, atol=1e-4, rtol=0)
    return taken


def compute_vectors(model):
    """Return a function that computes the outputs of the file of an encoder."""

    layers = model.config.num_hidden_layers

    def compute(**inputs):
        outputs = model(**inputs)
        hidden, mask = outputs.last_hidden_state, inputs["attention_mask"]
        found = {
            f"vectors.{name}.{layers}": pool(hidden, mask, name) for name in ("cls", "mean", "max")
        }
        # a new one gives random vectors
        pooler = outputs.pooler_output if model.new_pooler is None else None
        return found | ({} if pooler is None else {f"vectors.pooler.{layers}": pooler})

    return compute


@needs_onnx
@pytest.mark.slow
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_computes_the_same_in_onnx_runtime(tiny_sizes, tmp_path, name):
    torch.manual_seed(0)
    config = MinBertConfig(**tiny_sizes, initializer_range=0.2)
    model = getattr(modeling_minbert, name)(config).train()

    path = export_onnx(model, tmp_path)

    assert model.training
    assert model.config._attn_implementation == "sdpa"
    assert [file.name for file in tmp_path.iterdir()] == ["model.onnx"]
    model.eval()
    assert_equal_everywhere(path, model)


@needs_onnx
@pytest.mark.parametrize(
    "kind",
    [
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("bert", "roberta", "mpnet")),
        *("distilbert", "modernbert"),
    ],
)
def test_vectors_of_encoders_of_all_types_are_the_same(tmp_path, kind, tokenizer):
    # a row of 17 is longer than the window of a local layer to both sides
    changes = {"local_attention": 16} if kind == "modernbert" else {}
    changes |= {} if kind == "mpnet" else {"pad_token_id": 0}
    make_stock(kind, **changes).save_pretrained(tmp_path)
    model = modeling_minbert.MinBertModel.from_pretrained(tmp_path, dtype=torch.bfloat16).eval()
    model.tokenizer = tokenizer
    if kind == "mpnet":
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(model.config.pad_token_id)

    path = export_onnx(model, tmp_path / "onnx")

    assert model.dtype == torch.bfloat16  # the file is in float32
    taken = assert_equal_everywhere(path, compute_vectors(model.float()))
    types = ["token_type_ids"] if kind == "bert" else []
    assert taken == ["input_ids", "attention_mask", *types, "mix"]
    names = {"model.onnx", "minbert.json", "tokenizer.json"}
    assert names <= {file.name for file in path.parent.iterdir()}


@needs_onnx
@pytest.mark.slow
def test_heads_in_half_precision_beside_int8_are_exported(
    build_multitask, tasks, tokenizer, tmp_path
):
    model = build_multitask(tasks, tokenizer).bfloat16()
    model.quantize()

    export_onnx(model, tmp_path)

    (found,) = minbert.load(tmp_path).predict("tone", ["a cat sat"], top_k=1)
    (expected,) = model.predict("tone", ["a cat sat"], top_k=1)
    assert found[0]["score"] == pytest.approx(expected[0]["score"], abs=0.02)


@needs_onnx
def test_what_cannot_be_exported_is_named(build_multitask, tasks, tiny_sizes, tmp_path, tokenizer):
    model = build_multitask(tasks | {"text": {"problem_type": "pretraining"}}, tokenizer)
    encoder = modeling_minbert.MinBertModel(MinBertConfig(**tiny_sizes))

    with pytest.raises(ValueError, match="unknown task 'moods'; known: "):
        export_onnx(model, tmp_path / "out", task="moods")
    with pytest.raises(ValueError, match="a MinBertModel has no named tasks, leave it out"):
        export_onnx(encoder, tmp_path / "out", task="tone")
    with pytest.raises(ValueError, match="which predicts nothing about whole texts"):
        export_onnx(model, tmp_path / "out", task="text")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(HAS_ONNX, reason="onnx is installed")
def test_without_onnx_the_error_names_the_packages(build_multitask, tasks, tmp_path):
    with pytest.raises(ImportError, match=r"not installed; .*: pip install onnx onnxscript"):
        export_onnx(build_multitask(tasks), tmp_path)
