"""Shares of words in a decision, beside the definition of integrated gradients on a stock BERT."""

import pytest
import torch
from torch.testing import assert_close
from transformers import BertConfig, BertForSequenceClassification

from modeling_minbert import MinBertForMultiTask
from tests.small_tokenizers import save_start

ROWS = {
    "tone": ["a cat sat on the mat", "not a very far tree", ""],
    "same": [("the bird sang well", "a bird was in the tree")],
    "near": [("a dog", "the cat ran far in the mat"), ("the bird sang", "")],
    "echo": [("a dog is in", "the cat ran")],
    "size": ["the very far tree"],
    "marks": ["the very far tree was in a mat"],
}


@pytest.fixture
def model(build_multitask, tasks, tokenizer):
    more = {
        "size": {"problem_type": "regression", "mean": [10.0], "std": [3.0]},
        "marks": {"problem_type": "multi_label_classification", "labels": ["far", "near"]},
        "names": {"problem_type": "token_classification", "labels": ["O", "B-X"]},
        "long": {
            "problem_type": "classification",
            "labels": ["a", "b"],
            "truncation": "windows",
            "max_length": 12,
        },
        "parts": {
            "problem_type": "multi_output_classification",
            "outputs": ["x", "y"],
            "classes": [["low", "high"], ["no", "yes"]],
        },
    }
    return build_multitask({**tasks, **more}, tokenizer)


@pytest.mark.parametrize("task", ROWS)
def test_shares_add_up_to_the_difference_from_no_words(model, task):
    explained = model.explain(task, ROWS[task])

    for row, predicted, texts in zip(
        explained, model.predict(task, ROWS[task]), ROWS[task], strict=True
    ):
        known = predicted if isinstance(predicted, dict) else {"labels": predicted}
        assert {name: row[name] for name in known} == known
        total = sum((word["share"] for word in row["words"]), 0.0)
        difference = row["decision"] - row["baseline"]
        assert_close(total, difference, rtol=0.01, atol=0.01)
        for word in row["words"]:
            text = texts if isinstance(texts, str) else texts[word["text"] - 1]
            assert text[word["start"] : word["end"]] == word["word"] != ""
        words = [text.split() for text in ([texts] if isinstance(texts, str) else texts)]
        assert [word["word"] for word in row["words"]] == [each for part in words for each in part]


def test_padded_rows_of_another_attention_have_the_same_shares(model):
    packed = {task: model.explain(task, rows) for task, rows in ROWS.items()}
    model.set_attn_implementation("eager")

    for task, rows in ROWS.items():
        for row, expected in zip(model.explain(task, rows), packed[task], strict=True):
            shares = [word["share"] for word in row["words"]]
            assert_close(
                shares, [word["share"] for word in expected["words"]], rtol=1e-4, atol=1e-5
            )


def integrate(model, ids, mask_id, label, steps=2000):
    """Add gradients along the way, as the definition says, (T,)."""
    embeddings = model.get_input_embeddings()
    words = embeddings(ids).detach()
    none = words.clone()
    none[:, 1:-1] = embeddings(torch.tensor(mask_id)).detach()
    total = torch.zeros_like(words)
    for points in ((torch.arange(steps) + 0.5) / steps).split(200):
        mixed = (none + points[:, None, None] * (words - none)).requires_grad_()
        logits = model(inputs_embeds=mixed).logits
        others = [place for place in range(logits.shape[1]) if place != label]
        margin = logits[:, label] - logits[:, others].mean(dim=1)
        total += torch.autograd.grad(margin.sum(), mixed)[0].sum(dim=0)
    return ((words - none) * total / steps).sum(dim=-1)[0]


@pytest.mark.parametrize("label", [0, 2])
def test_shares_are_those_of_the_definition(tiny_sizes, tokenizer, tmp_path, label):
    torch.manual_seed(0)
    config = BertConfig(**tiny_sizes, num_labels=3, initializer_range=0.3)
    theirs = BertForSequenceClassification(config).eval()
    theirs.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    names = ["down", "level", "up"]
    ours = MinBertForMultiTask.from_pretrained(
        tmp_path,
        tasks={"tone": {"problem_type": "classification", "labels": names, "pooling": "pooler"}},
    )
    head, classifier = ours.heads["tone"].out, theirs.classifier
    with torch.no_grad():
        head.weight.copy_(classifier.weight)
        head.bias.copy_(classifier.bias)
    text = "the very far tree was not in a mat"

    (row,) = ours.explain("tone", [text], label=names[label])

    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    expected = integrate(theirs, ids, tokenizer.mask_token_id, label)
    shares = [word["share"] for word in row["words"]]
    assert row["explained"] == names[label]
    assert_close(shares, expected[1:-1].tolist(), rtol=1e-3, atol=1e-4)
    assert max(map(abs, shares)) > 0.01


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta"])
def test_words_of_other_tokenizers_are_those_of_the_text(kind, tmp_path):
    save_start(tmp_path, kind)
    tasks = {"tone": {"problem_type": "classification", "labels": ["bad", "good"]}}
    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks=tasks).eval()
    text = "so  good, caf\u00e9 \U0001f600 \u4e2d\u6587 bad"

    (row,) = model.explain("tone", [text])

    for word in row["words"]:
        assert text[word["start"] : word["end"]] == word["word"] == word["word"].strip()
    assert "".join(word["word"] for word in row["words"]) == text.replace(" ", "")
    total = sum((word["share"] for word in row["words"]), 0.0)
    assert_close(total, row["decision"] - row["baseline"], rtol=0.01, atol=0.01)


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_shares_add_up_whatever_the_precision_of_predictions(model, precision):
    (expected,) = model.explain("tone", ROWS["tone"][:1])
    model.set_precision(precision)

    (row,) = model.explain("tone", ROWS["tone"][:1], label=expected["explained"])

    # also the score, which belongs to the decision
    assert row == expected


def test_the_score_of_int8_weights_is_that_of_the_decision(model):
    model.quantize()

    (row,) = model.explain("tone", ROWS["tone"][:1])

    found = model.predict("tone", ROWS["tone"][:1], precision="float32")
    assert row["score"] == found[0]["score"]


def test_nothing_is_left_behind(model):
    model.train()

    model.explain("tone", ROWS["tone"][:1])

    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("task", "label", "message"),
    [
        ("names", None, "explain takes tasks that score texts"),
        ("long", None, "reads its texts by truncation='windows'"),
        ("tone", "upp", "unknown label 'upp'; did you mean 'up'"),
        ("size", "up", "unknown label"),
        ("tones", None, "tones"),
        ("parts", None, "tasks with one decision"),
    ],
)
def test_what_cannot_be_explained_is_refused(model, task, label, message):
    with pytest.raises(ValueError, match=message):
        model.explain(task, ["a cat"], label=label)
