"""A model with a task of every kind, what to ask it, and how answers are compared."""

import importlib.util

import numpy as np
import pytest

from tests.modeling_minbert.conftest import WORDS
from tests.small_run import make_model, vary_weights

HAS_ONNX = all(map(importlib.util.find_spec, ("onnx", "onnxscript", "onnxruntime")))
needs_onnx = pytest.mark.skipif(not HAS_ONNX, reason="needs pip install -e '.[onnx]'")

LONG = "the bird sang very well was the dog in the tree on the mat is the cat far " * 3
TEXTS = ["the cat sat on the mat", "a dog ran", "is the bird not far in the tree", "far", LONG]
PAIRS = list(zip(TEXTS, TEXTS[1:] + TEXTS[:1], strict=True))
AB, SEPARATE = ["a", "b"], {"pair_encoding": "separate"}
WINDOWS = {"truncation": "windows", "max_length": 8, "window_overlap": 2}
TASKS = {
    "tone": {"problem_type": "classification", "labels": ["low", "mid", "high"], "temperature": 2},
    "top": {"problem_type": "classification", "labels": AB, "pooling": "cls"},
    "best": {"problem_type": "classification", "labels": AB, "pooling": "max", "max_length": 9},
    "both": {"problem_type": "classification", "labels": AB, "pair_encoding": "joint"},
    "last": {"problem_type": "classification", "labels": AB, "truncation": "tail", "max_length": 9},
    "ends": {"problem_type": "classification", "labels": AB, "max_length": 9}
    | {"truncation": "head_tail"},
    "all": {"problem_type": "classification", "labels": AB, "pooling": "mean", **WINDOWS},
    "same": {"problem_type": "paraphrase", "thresholds": [0.61]},
    "deep": {"problem_type": "paraphrase", "head": "mlp", "pooling": "mean", "pooling_layer": 1},
    "close": {"problem_type": "paraphrase", "head": "cosine", "temperature": 1.5, **SEPARATE},
    "echo": {"problem_type": "paraphrase", "head": "concat", **SEPARATE},
    "near": {"problem_type": "similarity", "score_range": [1, 5], **SEPARATE},
    "likes": {"problem_type": "similarity", "score_range": [0, 1]},
    "pages": {"problem_type": "similarity", "score_range": [0, 1], **SEPARATE, **WINDOWS},
    "found": {"problem_type": "contrastive", "num_sentences": 3},
    "topics": {"problem_type": "multi_label_classification", "labels": ["a", "b", "c"]}
    | {"thresholds": [0.4, 0.5, 0.6]},
    "aspects": {"problem_type": "multi_output_classification", "outputs": ["x", "y"]}
    | {"classes": [["a", "b"], ["c", "d", "e"]]},
    "price": {"problem_type": "regression", "mean": [300], "std": [7]},
    "sizes": {"problem_type": "regression", "targets": ["x", "y"], "mean": [90, -7], "std": [9, 1]},
    "names": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
    "marks": {"problem_type": "token_classification", "labels": ["X", "Y"], "max_length": 9}
    | {"pooling_layer": 1},
    "parts": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]}
    | {"scheme": "plain"},
    "answer": {"problem_type": "question_answering", "max_length": 24, "doc_stride": 7}
    | {"null_score_diff_threshold": 0.0},
}
PROMPTS = {"query": "is the ", "document": ""}


def build(tasks=None, tokenizer=None, **settings):
    """Make a model whose weights are far from zero, with its tokenizer."""
    settings = {"num_attention_heads": 3, "max_position_embeddings": 40} | settings
    model = make_model(tasks or TASKS, tokenizer or WORDS, **settings)
    vary_weights(model)
    return model


def rows_of(model, task):
    """Return rows that a task takes."""
    return PAIRS if model.config.task(task).num_texts == 2 else TEXTS


def assert_near(found, expected):
    """Compare vectors, an array with a tensor."""
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5, rtol=1e-5)
