"""Encoders of other model types have the outputs and the gradients of transformers' models."""

import pytest
import torch
import transformers
from transformers import CONFIG_MAPPING

import modeling_minbert
from modeling_minbert import MinBertConfig, MinBertModel

SIZES = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 20,
}
DISTILBERT = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 32}
CONFIGS = {
    "roberta": SIZES | {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "xlm-roberta": SIZES | {"type_vocab_size": 1},
    "camembert": SIZES | {"type_vocab_size": 1},
    "mpnet": SIZES,
    "distilbert": {"vocab_size": 60, "max_position_embeddings": 20, **DISTILBERT},
}
CLASSES = {
    "AutoModel": "MinBertModel",
    "AutoModelForMaskedLM": "MinBertForMaskedLM",
    "AutoModelForSequenceClassification": "MinBertForSequenceClassification",
    "AutoModelForTokenClassification": "MinBertForTokenClassification",
    "AutoModelForQuestionAnswering": "MinBertForQuestionAnswering",
}
CASES = [
    (kind, name)
    for kind in CONFIGS
    for name in CLASSES
    if (kind, name) != ("distilbert", "AutoModelForSequenceClassification")
]
LENGTHS = (12, 7, 12, 4)


def load_both(folder, kind, name="AutoModel"):
    """Save a model of transformers with random weights; return it, and what minBERT loads."""
    torch.manual_seed(0)
    stock = getattr(transformers, name).from_config(CONFIG_MAPPING[kind](**CONFIGS[kind]))
    with torch.no_grad():
        for parameter in stock.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    stock.save_pretrained(folder)
    ours = getattr(modeling_minbert, CLASSES[name]).from_pretrained(folder)
    return stock.eval(), ours.eval()


def make_batch(padding, side="right"):
    """Make sequences of some lengths, padded on a side."""
    ids = torch.randint(3, 60, (len(LENGTHS), max(LENGTHS)))
    places = torch.arange(max(LENGTHS))
    real = places < torch.tensor(LENGTHS)[:, None]
    real = real.flip(1) if side == "left" else real
    return {"input_ids": ids.where(real, padding), "attention_mask": real.long()}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(("kind", "name"), CASES)
def test_outputs_and_gradients_are_those_of_transformers(tmp_path, kind, name, side):
    stock, ours = load_both(tmp_path, kind, name)
    batch = make_batch(stock.config.pad_token_id, side)
    expected, found = stock(**batch)[0], ours(**batch)[0]
    weights = torch.randn_like(expected)
    if expected.shape[:2] == batch["input_ids"].shape:  # paddings have no meaning
        weights = weights * batch["attention_mask"].view(
            *expected.shape[:2], *[1] * (expected.dim() - 2)
        )

    torch.testing.assert_close(found * weights, expected * weights, atol=2e-6, rtol=1e-4)
    norms = []
    for model, values in ((stock, expected), (ours, found)):
        (values * weights).sum().backward()
        gradients = [p.grad.norm() for p in model.parameters() if p.grad is not None]
        norms.append(torch.stack([norm for norm in gradients if norm > 1e-5]).sort().values)
    torch.testing.assert_close(norms[1], norms[0], atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_packed_batch_has_positions_and_distances_within_its_sequences(tmp_path, kind):
    stock, ours = load_both(tmp_path, kind)
    batch = make_batch(stock.config.pad_token_id)
    real = batch["attention_mask"].bool()
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    packed = {
        "input_ids": batch["input_ids"][real][None],
        "position_ids": torch.cat([torch.arange(length) for length in LENGTHS])[None],
        "cu_seq_lens_q": offsets,
    }

    expected = stock(**batch).last_hidden_state[real]
    for select in (None, offsets[:-1].long()):  # the last layer at some tokens
        found = ours(**packed, read=select).last_hidden_state
        found = found[0] if select is None else found
        wanted = expected if select is None else expected[select]
        torch.testing.assert_close(found, wanted, atol=2e-6, rtol=1e-4)
        with torch.no_grad():
            plain = ours(**packed, read=select).last_hidden_state
        torch.testing.assert_close(
            plain[0] if select is None else plain, wanted, atol=2e-6, rtol=1e-4
        )


def test_positions_start_after_the_padding_id_of_the_configuration():
    config = MinBertConfig(**SIZES, pad_token_id=5, position_offset=6)
    model = MinBertModel(config).eval()
    assert config.longest_sequence == 14
    ids = torch.tensor([[9, 8, 5, 5]])
    assert model.embeddings.count_positions(ids).tolist() == [[0, 1, -1, -1]]
    with pytest.raises(ValueError, match=r"a sequence of 15 tokens is longer than .*14"):
        model(torch.full((1, 15), 9))
