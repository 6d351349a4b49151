"""What evaluators of sentence-transformers call: options of `encode`, comparisons, metrics."""

import json

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from modeling_minbert import MinBertModel

SENTENCES = ["the cat sat", "a dog", "the bird sang in the tree", "a cat is not a dog"]


@pytest.fixture
def model(build_multitask, tasks, tokenizer):
    """Return a model of all tasks with a tokenizer."""
    model = build_multitask(tasks)
    model.tokenizer = tokenizer
    return model


def test_one_sentence_gives_one_vector(model):
    vectors = model.encode(SENTENCES)

    for sentence, vector in zip(SENTENCES, vectors, strict=True):
        assert_close(model.encode(sentence), vector)
    assert model.encode(SENTENCES[0], convert_to_numpy=True).shape == (33,)
    assert model.encode([SENTENCES[0]]).shape == (1, 33)


def test_vectors_are_cut_and_then_normalized(model):
    vectors = model.encode(SENTENCES)

    cut = model.encode(SENTENCES, truncate_dim=7, normalize_embeddings=True)
    assert_close(cut, F.normalize(vectors[:, :7], dim=1))
    assert_close(model.encode(SENTENCES, truncate_dim=7), vectors[:, :7])
    # false is no wish for other lengths than the checkpoint's
    assert_close(model.encode(SENTENCES, normalize_embeddings=False), vectors)


def test_a_prompt_stands_before_every_sentence(model):
    prompted = model.encode(SENTENCES, prompt="the tree ")

    assert_close(prompted, model.encode([f"the tree {each}" for each in SENTENCES]))
    assert_close(model.encode_query(SENTENCES), model.encode(SENTENCES))
    assert_close(model.encode_document(SENTENCES, batch_size=1), model.encode(SENTENCES))


def test_a_batch_has_at_most_the_tokens_of_its_longest_sentences(model):
    sizes = []
    model.bert.embeddings.register_forward_hook(lambda *args: sizes.append(args[2].shape[1]))

    model.encode(["cat " * 40] * 4, batch_size=2)
    model.encode(["cat " * 40] * 4, batch_size=2, max_tokens_per_batch=17)
    assert sizes == [34, 34, 17, 17, 17, 17]  # 17 positions


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batchsize": 3}, TypeError, "no argument 'batchsize'; its options are .*batch_size"),
        ({"batch_size": 0}, ValueError, "batch_size=0 must be 1 or more"),
        ({"truncate_dim": 0}, ValueError, "truncate_dim=0 must be 1 or more"),
        ({"output_value": "token_embeddings"}, ValueError, "is not supported"),
        ({"output_value": None}, ValueError, "output_value=None is not supported"),
        ({"prompt_name": "question"}, ValueError, "unknown prompt_name 'question'; known: query"),
        ({"device": "cuda:0"}, ValueError, "device='cuda:0', but the model is on cpu"),
    ],
)
def test_other_options_are_refused(model, options, error, message):
    with pytest.raises(error, match=message):
        model.encode(SENTENCES, **options)


@pytest.mark.parametrize("name", ["cosine", "dot", "euclidean", "manhattan"])
def test_vectors_are_compared_as_the_checkpoint_says(model, tmp_path, name):
    model.save_as_sentence_transformers(tmp_path)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"similarity_fn_name": name}))
    loaded = MinBertModel.from_pretrained(tmp_path)
    loaded.save_pretrained(tmp_path / "again")
    loaded = MinBertModel.from_pretrained(tmp_path / "again")
    first, second = torch.randn(3, 5), torch.randn(4, 5)

    compare = {
        "cosine": lambda u, v: u @ v / (u.norm() * v.norm()),
        "dot": lambda u, v: u @ v,
        "euclidean": lambda u, v: -(u - v).square().sum().sqrt(),
        "manhattan": lambda u, v: -(u - v).abs().sum(),
    }[name]
    expected = torch.stack([torch.stack([compare(u, v) for v in second]) for u in first])
    assert loaded.similarity_fn_name == name
    assert_close(loaded.similarity(first.numpy(), list(second)), expected)
    assert_close(loaded.similarity_pairwise(first, second[:3]), expected[:, :3].diagonal())


def test_an_unknown_similarity_is_a_step_that_is_missing(model, tmp_path):
    model.save_as_sentence_transformers(tmp_path)
    path = tmp_path / "config_sentence_transformers.json"
    path.write_text(json.dumps({"similarity_fn_name": "maxsim"}))

    with pytest.raises(ValueError, match="the similarity 'maxsim', which minBERT does not have"):
        MinBertModel.from_pretrained(tmp_path).encode(SENTENCES)


def test_an_evaluator_runs(model):
    """Searches as an evaluator does."""
    model.eval()
    queries = model.encode_query(
        SENTENCES[:2], batch_size=16, show_progress_bar=False, convert_to_tensor=True,
        prompt=None, prompt_name=None, truncate_dim=None,
    )  # fmt: skip
    scores = model.similarity(queries, model.encode_document(SENTENCES, convert_to_tensor=True))
    accuracy = (scores.argmax(dim=1) == torch.arange(2)).float().mean().item()
    model.model_card_data.set_evaluation_metrics(object(), {"accuracy": accuracy}, epoch=1, step=2)

    assert accuracy == 1
