"""Strict loading: warnings of ``from_pretrained`` are errors."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from minbert_cli.checkpoints import load_pretrained
from modeling_minbert import MinBertConfig, MinBertForMaskedLM, MinBertForMultiTask, MinBertModel
from tests.trainers import tiny

NEW = {"again": {"problem_type": "paraphrase"}}


@pytest.fixture
def checkpoint(tmp_path):
    """Save a model; returns its folder."""
    folder = tmp_path / "checkpoint"
    tiny.make_model().save_pretrained(folder)
    return folder


def test_what_may_not_be_new_is_named(checkpoint):
    with pytest.raises(ValueError, match=r"no weights for 2 tensors, such as heads.again.out.bias"):
        load_pretrained(MinBertForMultiTask, str(checkpoint), tasks=NEW)


def test_weights_of_another_shape_are_named(checkpoint):
    path = checkpoint / "model.safetensors"
    weights = load_file(path)
    weights["bert.pooler.dense.bias"] = torch.zeros(5)
    save_file(weights, path, metadata={"format": "pt"})

    with pytest.raises(ValueError, match=r"bert.pooler.dense.bias of shape \(5,\).*needs \(12,\)"):
        load_pretrained(MinBertForMultiTask, str(checkpoint))


@pytest.mark.parametrize("loader", [MinBertConfig, MinBertForMultiTask])
def test_a_checkpoint_that_is_not_there_is_named(tmp_path, loader):
    path = str(tmp_path / "gone")

    with pytest.raises(
        ValueError, match=r"'.*gone' cannot be loaded: there is no such folder; give"
    ):
        load_pretrained(loader, path)


@pytest.mark.parametrize("saved", [MinBertModel, MinBertForMaskedLM])
def test_a_new_head_for_masked_tokens_is_said_to_be_new(tmp_path, caplog, saved):
    sizes = {"vocab_size": 11, "hidden_size": 12, "num_attention_heads": 2}
    config = MinBertConfig(num_hidden_layers=1, intermediate_size=16, **sizes)
    saved(config).save_pretrained(tmp_path)

    load_pretrained(MinBertForMaskedLM, str(tmp_path), replaceable=("cls.", "bert.pooler."))

    found = [record.getMessage() for record in caplog.records if "are new" in record.getMessage()]
    assert len(found) == (saved is MinBertModel)
    assert all("has no pre-training head: cls.predictions." in message for message in found)
