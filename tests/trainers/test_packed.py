"""Which batches are packed, and that those of others are refused."""

import pytest
from transformers import DataCollatorWithFlattening, TrainingArguments

from tests.trainers.tiny import make_model


@pytest.mark.parametrize("collator", [list, DataCollatorWithFlattening()])
def test_batches_of_others_are_refused(make_trainer, collator):
    with pytest.raises(TypeError, match="batches are made by a TaskCollator"):
        make_trainer(own={"data_collator": collator})


@pytest.mark.parametrize(
    ("attention", "devices", "packed"),
    [("sdpa", 1, True), ("eager", 1, False), ("sdpa", 2, False)],
)
def test_batches_are_packed_where_that_needs_no_mask_of_all_tokens(
    make_trainer, monkeypatch, attention, devices, packed
):
    model = make_model()
    model.set_attn_implementation(attention)
    monkeypatch.setattr(TrainingArguments, "n_gpu", devices)

    assert make_trainer(model=model).data_collator.packed is packed
