"""A model as ONNX: ONNX Runtime and the model agree on any batch."""

import importlib.util

import pytest
import torch

import modeling_minbert
from modeling_minbert import MinBertConfig, export_onnx
from tests.modeling_minbert.test_in_and_out import make_stock

HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime")))
# an export takes some seconds, and importing its libraries more
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs pip install -e '.[onnx]'")
SHAPES = [(2, 6), (1, 1), (5, 17), (3, 2)]
CLASSES = [
    "MinBertModel",
    "MinBertForMaskedLM",
    "MinBertForNSP",
    "MinBertForPreTraining",
    "MinBertForSequenceClassification",
    "MinBertForTokenClassification",
    "MinBertForQuestionAnswering",
]
MORE = {
    "likes": {"problem_type": "similarity", "score_range": [0, 1]},
    "best": {"problem_type": "classification", "labels": ["a", "b"], "pooling": "max"},
    "top": {"problem_type": "classification", "labels": ["a", "b"], "pooling": "cls"},
    "deep": {"problem_type": "paraphrase", "head": "mlp", "pooling": "mean", "pooling_layer": 1},
    "close": {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "cosine"},
    "ends": {"problem_type": "multiple_choice", "num_choices": 3},
    "triples": {"problem_type": "contrastive", "num_sentences": 3},
    "tags": {"problem_type": "multi_label_classification", "labels": ["a", "b", "c"]},
    "sizes": {
        "problem_type": "regression",
        "targets": ["x", "y"],
        "mean": [1e4, -7],
        "std": [9, 1],
    },
    "text": {"problem_type": "pretraining"},
    "words": {"problem_type": "masked_lm"},
    "follows": {"problem_type": "next_sentence"},
}


def make_inputs(shape, sentences, vocabulary):
    """Make a batch in which rows differ in length."""
    generator = torch.Generator().manual_seed(sum(shape))
    batch, length = shape
    lengths = torch.randint(1, length + 1, (batch, sentences or 1, 1), generator=generator)
    mask = (torch.arange(length) < lengths).long()
    ids = torch.randint(1, vocabulary, mask.shape, generator=generator) * mask
    types = torch.randint(0, 2, mask.shape, generator=generator) * mask
    found = {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}
    return found if sentences else {name: x.squeeze(1) for name, x in found.items()}


def assert_equal_everywhere(path, compute, sentences=None, vocabulary=31):
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    taken = [x.name for x in session.get_inputs()]
    assert taken == list(make_inputs((1, 1), sentences, 2))[: len(taken)]
    names = [x.name for x in session.get_outputs()]
    for shape in SHAPES:
        inputs = make_inputs(shape, sentences, vocabulary)
        found = session.run(None, {name: inputs[name].numpy() for name in taken})
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
@pytest.mark.slow
@pytest.mark.parametrize("task", ["tone", "same", "near", "echo", *MORE])
def test_every_kind_of_head_computes_the_same_in_onnx_runtime(
    build_multitask, tasks, tmp_path, task
):
    model = build_multitask(tasks | MORE)

    path = export_onnx(model, tmp_path, task=task)

    assert path == tmp_path / f"{task}.onnx"
    sentences = model.config.task(task).num_sequences
    assert_equal_everywhere(path, lambda **inputs: model(**inputs, task=task), sentences)


@needs_onnx
@pytest.mark.slow
def test_a_multi_task_model_without_a_task_is_its_encoder(build_multitask, tasks, tmp_path):
    model = build_multitask(tasks)

    path = export_onnx(model, tmp_path / "new")

    assert_equal_everywhere(path, model.bert)


@needs_onnx
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["roberta", "mpnet", "distilbert", "modernbert"])
def test_encoders_of_other_types_compute_the_same_in_onnx_runtime(tmp_path, kind):
    # a row of 17 is longer than the window of a local layer to both sides
    changes = {"local_attention": 16} if kind == "modernbert" else {}
    changes |= {} if kind == "mpnet" else {"pad_token_id": 0}
    make_stock(kind, **changes).save_pretrained(tmp_path)
    model = modeling_minbert.MinBertModel.from_pretrained(tmp_path).eval()

    taken = assert_equal_everywhere(export_onnx(model, tmp_path), model)

    assert taken == ["input_ids", "attention_mask"]  # what their tokenizers give


@needs_onnx
def test_what_cannot_be_exported_is_named(build_multitask, tasks, tiny_sizes, tmp_path):
    model = build_multitask(tasks)
    encoder = modeling_minbert.MinBertModel(MinBertConfig(**tiny_sizes))

    with pytest.raises(ValueError, match="unknown task 'moods'; known: "):
        export_onnx(model, tmp_path / "out", task="moods")
    with pytest.raises(ValueError, match="a MinBertModel has no named tasks, leave it out"):
        export_onnx(encoder, tmp_path / "out", task="tone")
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(HAS_ONNX, reason="onnx is installed")
def test_without_onnx_the_error_names_the_packages(build_multitask, tasks, tmp_path):
    with pytest.raises(ImportError, match=r"not installed; .*: pip install onnx onnxscript"):
        export_onnx(build_multitask(tasks), tmp_path)
