"""Windows of long texts against transformers' BertModel, loops, torch and brute force."""

import datasets
import numpy as np
import pytest
import torch
from transformers import BertModel

from datasets_scripts import Encoding, encode_rows
from modeling_minbert import MinBertForMultiTask
from tests.small_run import make_tokenizer, vary_weights
from tests.trainers import tiny

WORDS = [f"w{number}" for number in range(12)]
SIZES = {"max_length": 8, "window_overlap": 2, "max_windows": 4}
TASK = {"problem_type": "classification", "labels": ["a", "b", "c"], "dropout": 0.0}
PAIR = {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"}
# words of the texts, in one to four windows, and in more
LENGTHS = (3, 6, 7, 14, 18, 40)


@pytest.fixture(scope="module")
def tokenizer():
    """Return a tokenizer of which every word is a token."""
    return make_tokenizer(WORDS)


@pytest.fixture
def make(tokenizer):
    """Return a function that makes a model with a task ``own``, no two weights alike."""

    def make(**keys):
        torch.manual_seed(0)
        task = {**TASK, "truncation": "windows", **SIZES, **keys}
        task = {name: value for name, value in task.items() if value is not None}
        model = MinBertForMultiTask(tiny.make_config({"own": task})).eval()
        vary_weights(model, 0.3)
        model.tokenizer = tokenizer
        return model

    return make


def make_texts(lengths=LENGTHS):
    generator = np.random.default_rng(0)
    return [" ".join(generator.choice(WORDS, length)) for length in lengths]


def encode(tokenizer, *texts, **keys):
    columns = {f"sentence{place}": column for place, column in enumerate(texts, 1)}
    count = len(texts[0])
    labels = [number % 3 for number in range(count)]
    rows = datasets.Dataset.from_dict({"id": list(map(str, range(count))), **columns})
    options = {"pair_encoding": "separate" if len(texts) > 1 else None, "truncation": "windows"}
    options |= SIZES | keys
    if options["truncation"] != "windows":
        options = {name: options[name] for name in ("pair_encoding", "truncation", "max_length")}
    return encode_rows(rows.add_column("label", labels), tokenizer, Encoding(**options))


def cut_by_hand(tokenizer, text):
    """Cut a text as one would do by hand: six tokens, the last two of which are repeated."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    windows = [ids[:6]]
    while len(ids) > 6:
        ids = ids[4:]
        windows.append(ids[:6])
    if len(windows) > 4:
        windows = [windows[place * (len(windows) - 1) // 3] for place in range(4)]
    return [[tokenizer.cls_token_id, *window, tokenizer.sep_token_id] for window in windows]


def pool_by_hand(vectors, tokens):
    """Average the vectors of the windows of one text, (N, D)."""
    weights = torch.tensor(tokens, dtype=vectors.dtype)
    return weights @ vectors / weights.sum()


# Data


def test_windows_are_those_cut_by_hand(tokenizer):
    texts = make_texts()

    rows = encode(tokenizer, texts)

    expected = [cut_by_hand(tokenizer, text) for text in texts]
    assert rows["input_ids"][:] == expected
    assert rows["num_windows"][:] == [[1], [1], [2], [3], [4], [4]]
    assert rows["length"][:] == [sum(map(len, windows)) for windows in expected]
    assert rows["labels"][:] == [0, 1, 2, 0, 1, 2]


# The model


def test_vectors_are_those_of_transformers_window_by_window(make, tokenizer, tmp_path):
    model, texts = make(pooling="mean").double(), make_texts()
    model.save_as_transformers(tmp_path)
    bert = BertModel.from_pretrained(tmp_path, dtype=torch.float64).eval()

    expected = []
    for text in texts:
        windows = cut_by_hand(tokenizer, text)
        with torch.no_grad():
            states = [bert(torch.tensor([ids])).last_hidden_state[0] for ids in windows]
            vectors = torch.stack([state.mean(dim=0) for state in states])
            expected.append(pool_by_hand(vectors, list(map(len, windows))))
    expected = torch.stack(expected)

    found = model.encode(texts, task="own", max_tokens_per_batch=11)
    torch.testing.assert_close(found.double(), expected, atol=1e-6, rtol=1e-6)
    logits = model.heads["own"].out(expected)
    batch = tiny.collate("own", encode(tokenizer, texts), packed=True)
    torch.testing.assert_close(model(**batch).logits, logits, atol=1e-9, rtol=1e-9)
    scores = [row["score"] for row in model.predict("own", texts)]
    assert scores == pytest.approx(logits.softmax(-1).max(-1).values.tolist(), abs=1e-6)


def test_texts_of_any_length_have_the_mean_of_all_windows_without_a_task(make, tokenizer, tmp_path):
    model, texts = make(truncation=None, window_overlap=None, max_windows=None), make_texts((3, 99))
    model.bert.tokenizer = tokenizer
    model.save_as_transformers(tmp_path)
    bert = BertModel.from_pretrained(tmp_path).eval()

    found = model.bert.encode(texts, pooling="cls", truncation="windows")

    ids = tokenizer(texts[1], add_special_tokens=False)["input_ids"]
    # 17 positions; a quarter of a window overlaps
    windows = [ids[start : start + 15] for start in range(0, len(ids) - 4, 11)]
    windows = [[tokenizer.cls_token_id, *part, tokenizer.sep_token_id] for part in windows]
    with torch.no_grad():
        vectors = [bert(torch.tensor([part])).last_hidden_state[0, 0] for part in windows]
    expected = pool_by_hand(torch.stack(vectors), list(map(len, windows)))
    torch.testing.assert_close(found[1], expected, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found[0], model.bert.encode(texts[:1], pooling="cls")[0])
    again = model.encode(iter(texts), pooling="cls", truncation="windows")
    assert torch.equal(again, found)


@pytest.mark.parametrize("head", ["cosine", "concat"])
def test_separate_pairs_pool_the_windows_of_each_text(make, tokenizer, head):
    model = make(head=head, labels=None, **PAIR)
    first, second = make_texts(), make_texts()[::-1]

    batch = tiny.collate("own", encode(tokenizer, first, second), packed=True)
    padded = tiny.collate("own", encode(tokenizer, first, second))

    vectors = model.encode([*first, *second], task="own").unflatten(0, (2, -1)).transpose(0, 1)
    own = model.heads["own"]
    torch.testing.assert_close(model(**batch).logits, own.to_logits(own.score(vectors)))
    torch.testing.assert_close(model(**padded).logits, model(**batch).logits)
    assert padded["input_ids"].shape == (int(padded["num_windows"].sum()), 8)
    scores = [row["score"] for row in model.predict("own", list(zip(first, second, strict=True)))]
    expected = model.decode("own", model(**batch).logits)
    assert scores == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_packed_and_padded_batches_and_all_orders_are_equal(make, tokenizer, implementation):
    model, rows = make(), encode(tokenizer, make_texts())
    model.set_attn_implementation(implementation)
    expected = model(**tiny.collate("own", rows, packed=True))
    expected.loss.backward()
    gradients = [value.grad.clone() for value in model.parameters()]
    model.zero_grad()
    outputs = model(**tiny.collate("own", rows))
    outputs.loss.backward()
    torch.testing.assert_close(outputs.logits, expected.logits)
    torch.testing.assert_close(outputs.loss, expected.loss)
    for value, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(value.grad, gradient, atol=1e-6, rtol=1e-4)
    order = [4, 0, 5, 3, 1, 2]
    other = model(**tiny.collate("own", rows, order, packed=True))
    torch.testing.assert_close(other.logits, expected.logits[order])
