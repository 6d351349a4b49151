"""Windows of long texts against transformers' BertModel, loops, torch and brute force."""

import datasets
import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy, pad
from transformers import BertModel, BertTokenizer

from datasets_scripts import Encoding, encode_rows
from datasets_scripts.encoding import count_cut
from modeling_minbert import MinBertForMultiTask, export_onnx
from tests.modeling_minbert.test_onnx import needs_onnx
from tests.trainers import tiny
from trainers import TaskBatchSampler, TaskCollator, TaskDataset
from trainers.data.rows import count_tokens

WORDS = [f"w{number}" for number in range(12)]
SIZES = {"max_length": 8, "window_overlap": 2, "max_windows": 4}
TASK = {"problem_type": "classification", "labels": ["a", "b", "c"], "dropout": 0.0}
PAIR = {"problem_type": "similarity", "score_range": [0, 5], "pair_encoding": "separate"}
# words of the texts, in one to four windows, and in more
LENGTHS = (3, 6, 7, 14, 18, 40)


@pytest.fixture(scope="module")
def tokenizer():
    """Return a tokenizer of which every word is a token."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    assert len(pieces) <= tiny.VOCABULARY
    return BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)})


@pytest.fixture
def make(tokenizer):
    """Return a function that makes a model with a task ``own``, no two weights alike."""

    def make(**keys):
        torch.manual_seed(0)
        task = {**TASK, "truncation": "windows", **SIZES, **keys}
        task = {name: value for name, value in task.items() if value is not None}
        model = MinBertForMultiTask(tiny.make_config({"own": task})).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
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


def collate(rows, order=None, **options):
    dataset = TaskDataset({"own": rows})
    return TaskCollator(0, **options)(dataset.__getitems__(order or list(range(len(rows)))))


def cut_by_hand(tokenizer, text, most=4):
    """Cut a text as one would do by hand: six tokens, the last two of which are repeated."""
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    windows = [ids[:6]]
    while len(ids) > 6:
        ids = ids[4:]
        windows.append(ids[:6])
    if len(windows) > most:
        windows = [windows[place * (len(windows) - 1) // (most - 1)] for place in range(most)]
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


def test_the_windows_of_both_texts_of_a_pair_are_one_list(tokenizer):
    first, second = make_texts(), make_texts()[::-1]

    rows = encode(tokenizer, first, second)

    for row, pair in zip(rows, zip(first, second, strict=True), strict=True):
        windows = [cut_by_hand(tokenizer, text) for text in pair]
        assert row["input_ids"] == [*windows[0], *windows[1]]
        assert row["num_windows"] == list(map(len, windows))


@pytest.mark.parametrize("most", [1, 2, 3, 7, None])
def test_of_many_windows_the_first_the_last_and_some_between_are_kept(most):
    encoding = Encoding(8, window_overlap=2, max_windows=most)

    for count in range(1, 30):
        kept = encoding.choose_windows(count)
        assert len(kept) == len(set(kept)) == min(count, most or count)
        assert kept[0] == 0
        assert kept[-1] == count - 1 or most == 1
        gaps = np.diff(kept)
        assert not len(gaps) or gaps.max() - gaps.min() <= 1


def test_the_cut_tokens_are_those_in_no_window():
    words = [f"v{number}" for number in range(60)]  # each only once in a text
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = BertTokenizer(vocab={piece: index for index, piece in enumerate(pieces)})
    encoding = Encoding(8, window_overlap=2, max_windows=4)

    for length in range(1, 60):
        (kept,) = encoding.split_documents(tokenizer, [" ".join(words[:length])])
        cut = length + 2 - len({token for window in kept for token in window.input_ids[0]})
        assert count_cut(encoding, [length + 2], 2) == cut
        assert bool(cut) == (length > 18)


# The model


@pytest.mark.parametrize("pooling", ["cls", "pooler", "mean", "max"])
def test_a_text_in_one_window_has_the_bits_of_an_ordinary_one(make, tokenizer, pooling):
    texts = make_texts((3, 6, 4, 1))
    model = make(pooling=pooling)
    ordinary = make(truncation=None, window_overlap=None, max_windows=None, pooling=pooling)
    ordinary.load_state_dict(model.state_dict())

    windows = collate(encode(tokenizer, texts), packed=True)
    plain = collate(encode(tokenizer, texts, truncation="head"), packed=True)

    assert torch.equal(windows["input_ids"], plain["input_ids"])
    found, expected = model(**windows), ordinary(**plain)
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.loss, expected.loss)
    assert model.predict("own", texts) == ordinary.predict("own", texts)
    assert torch.equal(model(**plain).logits, found.logits)  # texts without an axis of windows


def test_vectors_are_those_of_transformers_window_by_window(make, tokenizer, tmp_path):
    model, texts = make(pooling="mean").double(), make_texts()
    model.save_as_bert(tmp_path)
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
    batch = collate(encode(tokenizer, texts), packed=True)
    torch.testing.assert_close(model(**batch).logits, logits, atol=1e-9, rtol=1e-9)
    scores = [row["score"] for row in model.predict("own", texts)]
    assert scores == pytest.approx(logits.softmax(-1).max(-1).values.tolist(), abs=1e-6)


def test_texts_of_any_length_have_the_mean_of_all_windows_without_a_task(make, tokenizer, tmp_path):
    model, texts = make(truncation=None, window_overlap=None, max_windows=None), make_texts((3, 99))
    model.bert.tokenizer = tokenizer
    model.save_as_bert(tmp_path)
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

    batch = collate(encode(tokenizer, first, second), packed=True)
    padded = collate(encode(tokenizer, first, second))

    vectors = model.encode([*first, *second], task="own").unflatten(0, (2, -1)).transpose(0, 1)
    own = model.heads["own"]
    torch.testing.assert_close(model(**batch).logits, own.to_logits(own.score(vectors)))
    torch.testing.assert_close(model(**padded).logits, model(**batch).logits)
    assert padded["input_ids"].shape == (6, 2, 4, 8)
    scores = [row["score"] for row in model.predict("own", list(zip(first, second, strict=True)))]
    expected = model.decode("own", model(**batch).logits)
    assert scores == pytest.approx(expected.tolist(), abs=1e-5)


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
def test_packed_and_padded_batches_and_all_orders_are_equal(make, tokenizer, implementation):
    model, rows = make(), encode(tokenizer, make_texts())
    model.set_attn_implementation(implementation)
    expected = model(**collate(rows, packed=True))
    expected.loss.backward()
    gradients = [value.grad.clone() for value in model.parameters()]
    model.zero_grad()
    outputs = model(**collate(rows))
    outputs.loss.backward()
    torch.testing.assert_close(outputs.logits, expected.logits)
    torch.testing.assert_close(outputs.loss, expected.loss)
    for value, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(value.grad, gradient, atol=1e-6, rtol=1e-4)
    order = [4, 0, 5, 3, 1, 2]
    other = model(**collate(rows, order, packed=True))
    torch.testing.assert_close(other.logits, expected.logits[order])


def test_windows_of_padding_do_not_count(make, tokenizer):
    model, batch = make(), collate(encode(tokenizer, make_texts()))
    expected = model(**batch).logits

    more = pad(batch["input_ids"], (0, 0, 0, 3))
    mask = pad(batch["attention_mask"], (0, 0, 0, 3))
    torch.testing.assert_close(model(more, mask, task="own").logits, expected)


def test_ranking_losses_recognize_equal_long_texts(make, tokenizer):
    keys = {"problem_type": "paraphrase", "pair_encoding": "separate", "head": "cosine"}
    model = make(labels=None, loss="multiple_negatives_ranking", **keys)
    first, second = make_texts((9, 17, 12)), make_texts((17, 3, 8))
    rows = encode(tokenizer, first, [second[0], second[1], second[0]])
    batch = collate(rows, packed=True) | {"labels": torch.ones(3)}
    padded = collate(rows) | {"labels": torch.ones(3)}

    found = model(**batch).loss

    # the first and the third row have the same second text, which is no negative of the other
    anchors = model.encode(first, task="own")
    candidates = model.encode([second[0], second[1], second[0]], task="own")
    cosines = torch.cosine_similarity(anchors.unsqueeze(1), candidates.unsqueeze(0), dim=-1)
    cosines[0, 2] = cosines[2, 0] = -torch.inf
    scale = model.config.task("own").cosine_scale
    expected = cross_entropy(scale * cosines, torch.arange(3))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(model(**padded).loss, found)


def test_predictions_encode_at_most_so_many_tokens_at_a_time(make):
    model, texts = make(max_windows=50), make_texts((90, 3, 60))
    sizes = []
    hook = model.bert.embeddings.register_forward_hook(
        lambda module, given, output: sizes.append(output.shape[:-1].numel())  # noqa: ARG005
    )

    few = model.predict("own", texts, max_tokens_per_batch=20)
    hook.remove()

    assert max(sizes) <= 20
    assert sum(sizes) > 150
    for row, other in zip(few, model.predict("own", texts), strict=True):
        assert row["score"] == pytest.approx(other["score"], abs=1e-6)


@needs_onnx
def test_onnx_computes_the_same(make, tokenizer, tmp_path):
    import onnxruntime

    model = make()
    session = onnxruntime.InferenceSession(str(export_onnx(model, tmp_path, task="own")))

    for texts in (make_texts(), make_texts((2,)), make_texts((3, 99))):
        batch = collate(encode(tokenizer, texts))
        names = ("input_ids", "attention_mask", "token_type_ids")
        (found,) = session.run(None, {name: batch[name].numpy() for name in names})
        np.testing.assert_allclose(found, model(**batch).logits.detach(), atol=1e-5)


# Messages


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"truncation": "head"}, "window_overlap=2 is only for truncation 'windows'"),
        ({"window_overlap": 5}, "from 0 to half of max_length=8"),
        ({"window_overlap": -1}, "from 0 to half of max_length=8"),
        ({"max_windows": 0}, "max_windows=0 must be at least 1"),
        ({"pair_encoding": "joint"}, "does not fit pair_encoding 'joint'"),
        ({"problem_type": "contrastive", "labels": None}, "does not fit contrastive"),
    ],
)
def test_keys_that_do_not_fit_are_refused(make, keys, message):
    with pytest.raises(Exception, match=message):
        make(**keys)


def test_batches_that_do_not_fit_are_refused(make, tokenizer):
    model, batch = make(), collate(encode(tokenizer, make_texts()), packed=True)
    ordinary = make(truncation=None, window_overlap=None, max_windows=None)

    with pytest.raises(ValueError, match="does not split texts into windows"):
        ordinary(**batch)
    with pytest.raises(ValueError, match="adds up to 9 windows, but the batch has 15"):
        model(**batch | {"num_windows": torch.tensor([1, 1, 2, 1, 2, 2])})
    padded = collate(encode(tokenizer, make_texts()))
    with pytest.raises(ValueError, match="a padded one has an axis of windows"):
        model(batch["input_ids"], task="own", num_windows=torch.tensor([1]))
    with pytest.raises(ValueError, match=r"takes input of shape \(batch, length\)"):
        ordinary(**padded)


def test_encode_refuses_what_does_not_fit(make):
    model = make()

    with pytest.raises(ValueError, match="leave pooling and truncation out"):
        model.encode(["w1"], task="own", truncation="windows")
    with pytest.raises(ValueError, match="must be one of head, tail, head_tail, windows"):
        model.encode(["w1"], truncation="middle")


# Training


def test_a_token_budget_counts_all_windows(tokenizer):
    rows = encode(tokenizer, make_texts())
    tokens = [sum(map(len, windows)) for windows in rows["input_ids"]]
    sizes, counts = {"own": 6}, {"own": count_tokens(rows)}
    assert counts["own"].tolist() == tokens == rows["length"][:]

    sampler = TaskBatchSampler(sizes, {}, token_budgets={"own": 40}, tokens=counts)

    batches = list(sampler)
    assert sorted(row for batch in batches for row in batch) == list(range(6))
    assert all(sum(tokens[row] for row in batch) <= 40 for batch in batches)
    with pytest.raises(ValueError, match="own"):
        TaskBatchSampler(sizes, {}, token_budgets={"own": max(tokens) - 1}, tokens=counts)


def test_evaluations_count_a_long_row_as_several(tokenizer):
    rows = encode(tokenizer, make_texts((3, 2000)), max_windows=10_000)
    tokens = max(rows["length"])
    assert tokens > 2000

    assert TaskDataset({"own": rows}).fit_rows(64) == 64 * 512 // tokens
    assert TaskDataset({"own": rows}).fit_rows(1) == 1
    assert TaskDataset({"own": rows.select([0])}).fit_rows(64) == 64
