"""Padded and packed batches give the same training and evaluation."""

import pytest
import torch
from transformers import DataCollatorWithFlattening, TrainingArguments

from tests.trainers.tiny import make_model
from trainers import TaskCollator


@pytest.mark.parametrize("own", [{}, {"max_tokens_per_batch": 90}], ids=["rows", "tokens"])
def test_training_equals_padded_batches(make_trainer, own):
    own = own | {"steps_per_epoch": 9}
    options = {"num_train_epochs": 1, "learning_rate": 1e-3}
    padded, other = (
        make_trainer(own=own | {"data_collator": collator}, **options)
        for collator in (TaskCollator(0), TaskCollator(0, packed=True))
    )

    for trainer in (padded, other):
        trainer.train()

    losses, expected = (
        [entry.get("loss") for entry in t.state.log_history] for t in (other, padded)
    )
    assert losses[:9] == pytest.approx(expected[:9], rel=1e-4)
    assert len(set(losses[:9])) == 9
    torch.testing.assert_close(
        dict(other.model.state_dict()), dict(padded.model.state_dict()), rtol=1e-3, atol=1e-5
    )


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
