"""R-Drop on a small model."""

import pytest
import torch

from tests.trainers import tiny
from trainers import RDrop


@pytest.mark.parametrize("task", tiny.SIZES)
def test_rdrop_is_the_mean_loss_and_half_of_the_divergence(make_trainer, task):
    model = tiny.make_model(dropout=0.1).train()
    with torch.no_grad():
        for value in model.parameters():
            if value.dim() == 2:
                value.mul_(10)  # predictions that are not all alike
    inputs = tiny.collate(task, tiny.make_rows(task, 4))
    inputs = {name: value for name, value in inputs.items() if name != "num_rows"}
    trainer = make_trainer(model=model, own={"methods": [RDrop(alpha=0.7)]})

    torch.manual_seed(5)
    loss = trainer.compute_loss(model, dict(inputs))
    trainer.log({"loss": 0.0})
    logs = trainer.state.log_history[-1]

    torch.manual_seed(5)
    first, second = model(**inputs), model(**inputs)
    assert not torch.equal(first.logits, second.logits)  # the masks are other ones
    divergence = model.divergence(task, first.logits, second.logits)
    torch.testing.assert_close(loss, (first.loss + second.loss) / 2 + 0.35 * divergence)
    assert logs[f"rdrop_divergence_{task}"] == pytest.approx(divergence.item())
    assert logs[f"loss_{task}"] == pytest.approx(first.loss.item())
