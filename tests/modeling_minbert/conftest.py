"""Fixtures of the models: a tokenizer, tasks of every kind, and a multi-task model."""

import pytest
import torch

from modeling_minbert import MinBertConfig, MinBertForMultiTask, cpu
from tests.small_run import make_tokenizer, vary_weights

WORDS = ["a", "bird", "cat", "dog", "far", "in", "is", "mat", "not", "on", "ran", "sang", "sat"]
WORDS += ["the", "tree", "very", "was", "well"]


@pytest.fixture(autouse=True)
def forget_warnings():
    """Let every test warn anew."""
    cpu.warn_once.cache_clear()


@pytest.fixture
def tokenizer():
    """Return a BERT tokenizer whose vocabulary fits ``tiny_sizes``."""
    return make_tokenizer(WORDS)


@pytest.fixture
def tasks():
    """Return a task of every problem type and pair encoding; the first one is not first by name."""
    return {
        "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
        "same": {"problem_type": "paraphrase"},
        "near": {"problem_type": "similarity", "score_range": [1, 5], "pair_encoding": "separate"},
        "echo": {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "concat"},
    }


@pytest.fixture
def build_multitask(tiny_sizes):
    """Return a function that makes a multi-task model in evaluation mode, no two weights alike."""

    def build(tasks, tokenizer=None, **settings):
        torch.manual_seed(0)
        config = MinBertConfig(**tiny_sizes, tasks=tasks, initializer_range=0.2, **settings)
        model = MinBertForMultiTask(config).eval()
        vary_weights(model)
        if tokenizer is not None:
            model.tokenizer = tokenizer
        return model

    return build


@pytest.fixture
def model(build_multitask, tasks, tokenizer):
    """Return a model of `tasks` with a tokenizer."""
    return build_multitask(tasks, tokenizer)
