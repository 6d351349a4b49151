"""In bfloat16 a batch is rounded up to a round number of tokens, which changes no result."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertConfig, BertForSequenceClassification

from modeling_minbert import MinBertConfig, MinBertForSequenceClassification, MinBertModel

LENGTHS = torch.tensor([9, 30, 4, 17, 11])  # 71 tokens, rounded up to 96


@pytest.fixture
def sizes(tiny_sizes):
    rates = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return {**tiny_sizes, **rates, "max_position_embeddings": 32}


@pytest.fixture
def batch(sizes):
    torch.manual_seed(0)
    mask = (torch.arange(30) < LENGTHS[:, None]).long()
    ids = torch.randint(1, sizes["vocab_size"], mask.shape) * mask
    return {"input_ids": ids, "attention_mask": mask}


def compute_gradients(model, batch):
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(**batch, labels=torch.arange(5)).loss
    loss.backward()
    return loss.detach(), {name: each.grad for name, each in model.named_parameters()}


def make_pair(sizes):
    torch.manual_seed(1)
    bert = BertForSequenceClassification(BertConfig(**sizes, num_labels=5))
    ours = MinBertForSequenceClassification(MinBertConfig(**sizes, num_labels=5))
    ours.load_state_dict(bert.state_dict())
    return ours, bert


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_are_those_of_bert_in_the_same_precision(sizes, batch, checkpointing):
    ours, bert = make_pair(sizes)
    exact, _ = make_pair(sizes)
    if checkpointing:
        enable = getattr(ours, "activation_checkpointing_enable", None)
        (enable or ours.gradient_checkpointing_enable)()

    loss, gradients = compute_gradients(ours.train(), batch)
    expected_loss, expected = compute_gradients(bert.train(), batch)
    exact(**batch, labels=torch.arange(5)).loss.backward()

    assert_close(loss, expected_loss, atol=0.01, rtol=0)
    for name, weight in exact.named_parameters():
        theirs = (expected[name] - weight.grad).norm()
        assert (gradients[name] - weight.grad).norm() <= 1.5 * theirs + 1e-6, name


def encode(model, ids, **options):
    offsets = F.pad(LENGTHS.cumsum(0), (1, 0)).int()
    with torch.autocast("cpu", torch.bfloat16):
        return model(ids, cu_seq_lens_q=offsets, max_length_q=30, **options)


@pytest.mark.parametrize("read", [None, "tokens", "first", torch.tensor([3, 70])])
def test_only_states_of_real_tokens_are_returned(sizes, read):
    model = MinBertModel(MinBertConfig(**sizes)).eval()
    ids = torch.randint(1, sizes["vocab_size"], (1, 71))

    rounded = encode(model, ids, read=read).last_hidden_state
    with torch.no_grad():
        plain = encode(model, ids, read=read).last_hidden_state

    assert rounded.requires_grad
    assert_close(rounded.detach(), plain, atol=0.03, rtol=0.03)


def test_no_sequence_sees_another_or_the_added_tokens(sizes):
    model = MinBertModel(MinBertConfig(**sizes)).train()
    ids = torch.randint(1, sizes["vocab_size"], (1, 71))
    other = ids.clone()
    other[0, 60:] = other[0, 60:] % (sizes["vocab_size"] - 1) + 1  # the last sequence

    before = encode(model, ids, read="tokens").last_hidden_state
    after = encode(model, other, read="tokens").last_hidden_state

    assert torch.equal(before[:60], after[:60])
    assert not torch.equal(before[60:], after[60:])
