"""Every head equals transformers' BERT on the same weights."""

from functools import partial

import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers import BertConfig

import modeling_minbert

PAIRS = {
    "MinBertModel": "BertModel",
    "MinBertForMaskedLM": "BertForMaskedLM",
    "MinBertForNSP": "BertForNextSentencePrediction",
    "MinBertForPreTraining": "BertForPreTraining",
    "MinBertForSequenceClassification": "BertForSequenceClassification",
    "MinBertForTokenClassification": "BertForTokenClassification",
    "MinBertForQuestionAnswering": "BertForQuestionAnswering",
}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.cuda,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
        ],
    ),
]
OWN = {"mlm_loss", "nsp_loss"}  # outputs that BERT has not
TOLERANCE = {"atol": 1e-5, "rtol": 1e-5}  # float32, two layers

every_head = pytest.mark.parametrize("name", PAIRS)
every_attention = pytest.mark.parametrize("attention", ["eager", "sdpa"])
every_device = pytest.mark.parametrize("device", DEVICES)
with_and_without_padding = pytest.mark.parametrize("padded", [True, False], ids=["padded", "full"])


@pytest.fixture
def build_pair(tiny_sizes):
    """Return a function that makes our model and BERT's with the same weights."""

    def build(name, attention="sdpa", device="cpu", dropout=0.0):
        torch.manual_seed(0)
        settings = {
            **tiny_sizes,
            "num_labels": 2 if name == "MinBertForQuestionAnswering" else 5,
            "attn_implementation": attention,
            "hidden_dropout_prob": dropout,
            "attention_probs_dropout_prob": dropout,
            "initializer_range": 0.2,  # so that attention is far from uniform
        }
        bert = getattr(transformers, PAIRS[name])(BertConfig(**settings))
        with torch.no_grad():  # new biases are zero, which would hide a swap of them
            for parameter in bert.parameters():
                parameter.add_(0.1 * torch.randn_like(parameter))
        ours = getattr(modeling_minbert, name)(modeling_minbert.MinBertConfig(**settings))
        ours.load_state_dict(bert.state_dict())  # strict: the key names are the contract
        return ours.to(device), bert.to(device)

    return build


@pytest.fixture
def make_batch(tiny_batch):
    """Return a function that makes a batch with the labels of a head."""

    def make(name, padded=True, device="cpu"):
        batch = dict(tiny_batch) if padded else {**tiny_batch, "attention_mask": None}
        rows, length = batch["input_ids"].shape
        row_labels = torch.arange(rows) % 2
        token_labels = torch.arange(rows * length).view(rows, length) % 5
        token_labels[:, ::2] = -100
        batch |= {
            "MinBertModel": {},
            "MinBertForMaskedLM": {"labels": token_labels},
            "MinBertForNSP": {"labels": row_labels},
            "MinBertForPreTraining": {"labels": token_labels, "next_sentence_label": row_labels},
            "MinBertForSequenceClassification": {"labels": torch.arange(rows)},
            "MinBertForTokenClassification": {"labels": token_labels},
            "MinBertForQuestionAnswering": {
                "start_positions": row_labels,
                "end_positions": 1 + 9 * row_labels,  # beyond the sequence: to be ignored
            },
        }[name]
        return {key: None if value is None else value.to(device) for key, value in batch.items()}

    return make


def total(outputs, batch):
    """Return one number that depends on every output: the loss, or the states of real tokens."""
    if outputs.get("loss") is not None:
        return outputs.loss
    return real(outputs.last_hidden_state, batch).square().mean() + outputs.pooler_output.sum()


def real(values, batch):
    """Take the real tokens where values are of all tokens; at paddings nothing is promised."""
    mask = batch["attention_mask"]
    if mask is None or values.shape[:2] != mask.shape:
        return values
    return values[mask.bool()]


@every_device
@every_head
@every_attention
@with_and_without_padding
def test_outputs_equal_bert(build_pair, make_batch, name, attention, padded, device):
    ours, bert = build_pair(name, attention, device)
    batch = make_batch(name, padded, device)

    actual, expected = ours.eval()(**batch), bert.eval()(**batch)

    assert [key for key in actual if key not in OWN] == list(expected)
    for key in expected:
        assert_close(real(actual[key], batch), real(expected[key], batch), **TOLERANCE)


@every_device
@every_head
@every_attention
def test_gradients_equal_bert(build_pair, make_batch, name, attention, device):
    ours, bert = build_pair(name, attention, device)
    batch = make_batch(name, device=device)

    total(ours.train()(**batch), batch).backward()
    total(bert.train()(**batch), batch).backward()

    expected = dict(bert.named_parameters())
    assert expected.keys() == dict(ours.named_parameters()).keys()
    for key, parameter in ours.named_parameters():
        assert_close(
            parameter.grad, expected[key].grad, **TOLERANCE, msg=lambda m, k=key: f"{k}: {m}"
        )


@every_device
@every_head
def test_twenty_optimizer_steps_equal_bert(build_pair, make_batch, name, device):
    ours, bert = build_pair(name, device=device)
    batch = make_batch(name, device=device)

    # Adam divides by the size of a gradient, and the gradient of a key's bias is only rounding.
    for model in (ours.double().train(), bert.double().train()):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.1)
        for _ in range(20):
            optimizer.zero_grad()
            total(model(**batch), batch).backward()
            optimizer.step()

    expected = bert.state_dict()
    for key, value in ours.state_dict().items():
        assert_close(value, expected[key], atol=1e-7, rtol=1e-7, msg=partial("{}: {}".format, key))


def test_hidden_states_and_attentions_equal_bert(build_pair, make_batch):
    ours, bert = build_pair("MinBertModel", "eager")
    batch = make_batch("MinBertModel") | {"output_hidden_states": True, "output_attentions": True}

    actual, expected = ours.eval()(**batch), bert.eval()(**batch)

    assert len(actual.hidden_states) == 3
    assert len(actual.attentions) == 2
    assert_close(actual.hidden_states, expected.hidden_states, **TOLERANCE)
    assert_close(actual.attentions, expected.attentions, **TOLERANCE)


@pytest.mark.parametrize("num_labels", [1, 5])
@pytest.mark.parametrize(
    "problem_type",
    [None, "regression", "single_label_classification", "multi_label_classification"],
)
def test_sequence_losses_equal_bert(tiny_sizes, tiny_batch, num_labels, problem_type):
    if problem_type == "single_label_classification" and num_labels == 1:
        pytest.skip("transformers refuses it")
    settings = {**tiny_sizes, "num_labels": num_labels, "problem_type": problem_type}
    ours = modeling_minbert.MinBertForSequenceClassification(
        modeling_minbert.MinBertConfig(**settings)
    ).eval()
    bert = transformers.BertForSequenceClassification(BertConfig(**settings)).eval()
    bert.load_state_dict(ours.state_dict())
    integers = problem_type == "single_label_classification" or (
        problem_type is None and num_labels > 1
    )
    labels = torch.arange(5) if integers else torch.rand(5, num_labels)

    actual = ours(**tiny_batch, labels=labels).loss

    assert_close(actual, bert(**tiny_batch, labels=labels).loss)
    assert ours.config.problem_type == problem_type


def test_every_state_dict_key_is_bert_s(build_pair):
    ours, bert = build_pair("MinBertForPreTraining")

    assert ours.state_dict().keys() == bert.state_dict().keys()
