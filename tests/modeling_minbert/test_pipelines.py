"""Pipelines of transformers on our checkpoints equal stock BERT."""

import logging

import pytest
import torch
import transformers
from transformers import pipeline
from transformers.pipelines import AggregationStrategy

import modeling_minbert
from tests.same_predictions import assert_same

TEXTS = ["the cat sat on a mat", "far", "a bird sang very well in the tree"]
PAIRS = [{"text": "the cat ran", "text_pair": "a dog was not far"}, {"text": TEXTS[0]}]
MASKED = ["the [MASK] sat on a mat", "a bird [MASK] very well"]
# task of transformers, class, inputs, options
STOCK = {
    "fill-mask": ("ForMaskedLM", MASKED, {"top_k": 4}),
    "targets": ("ForMaskedLM", MASKED[:1], {"targets": ["cat", "dog"]}),
    "text-classification": ("ForSequenceClassification", TEXTS, {"top_k": None}),
    "pairs": ("ForSequenceClassification", PAIRS, {"top_k": None}),
    "token-classification": ("ForTokenClassification", TEXTS, {}),
    "feature-extraction": ("Model", TEXTS, {}),
} | {
    f"{strategy.value} entities": (
        "ForTokenClassification",
        TEXTS,
        {"aggregation_strategy": strategy.value},
    )
    for strategy in AggregationStrategy
}
TASKS_OF = {
    "ForMaskedLM": "fill-mask",
    "ForSequenceClassification": "text-classification",
    "ForTokenClassification": "token-classification",
    "Model": "feature-extraction",
}
LABELS = {0: "O", 1: "B-PER", 2: "I-PER", 3: "B-LOC"}


@pytest.fixture
def save_stock(tiny_sizes, tokenizer, tmp_path):
    """Return a function that saves a stock BERT, and ours with its weights, for a class."""

    def save(name):
        torch.manual_seed(0)
        more = {"id2label": LABELS, "label2id": {v: k for k, v in LABELS.items()}}
        bert = getattr(transformers, f"Bert{name}")
        config = transformers.BertConfig(**tiny_sizes, **more, initializer_range=0.5)
        bert(config).save_pretrained(tmp_path / f"stock-{name}")
        own = getattr(modeling_minbert, f"MinBert{name}")
        own.from_pretrained(tmp_path / f"stock-{name}").save_pretrained(tmp_path / f"own-{name}")
        for kind in ("stock", "own"):
            tokenizer.save_pretrained(tmp_path / f"{kind}-{name}")
        return str(tmp_path / f"stock-{name}"), str(tmp_path / f"own-{name}")

    return save


@pytest.mark.parametrize("batch_size", [1, 2])
@pytest.mark.parametrize("case", STOCK)
def test_pipelines_equal_stock_bert(save_stock, case, batch_size):
    name, inputs, options = STOCK[case]
    stock, own = save_stock(name)

    found, expected = (
        pipeline(TASKS_OF[name], model=folder, device="cpu")(
            inputs, batch_size=batch_size, **options
        )
        for folder in (own, stock)
    )

    if name == "Model":  # features of padding are arbitrary
        words = [len(text.split()) + 2 for text in inputs]
        found, expected = (
            [[row[0][:count]] for row, count in zip(rows, words, strict=True)]
            for rows in (found, expected)
        )
    assert_same(found, expected)


def test_no_pipeline_calls_our_models_unsupported(save_stock, model, tmp_path, caplog):
    model.save_pretrained(tmp_path / "tasks")
    model.tokenizer.save_pretrained(tmp_path / "tasks")
    logger = logging.getLogger("transformers")
    logger.addHandler(caplog.handler)
    try:
        for name, task in TASKS_OF.items():
            pipeline(task, model=save_stock(name)[1], device="cpu")
        pipeline("text-classification", model=str(tmp_path / "tasks"), device="cpu")
    finally:
        logger.removeHandler(caplog.handler)

    assert "not supported" not in caplog.text
