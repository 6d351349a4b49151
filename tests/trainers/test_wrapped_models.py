"""Models behind wrappers train and evaluate the heads of their tasks, like the model alone."""

import pytest
import torch
from transformers import BertForSequenceClassification

from modeling_minbert import MinBertForSequenceClassification
from tests.trainers.stock import as_stock
from tests.trainers.test_methods import wrapped
from tests.trainers.tiny import SIZES
from trainers import Task


class Wrapper(torch.nn.Module):
    """A wrapper of a user, which passes everything on."""

    def __init__(self, model):
        super().__init__()
        self.inner = model

    def forward(self, **kwargs):
        return self.inner(**kwargs)


def test_a_wrapped_model_trains_as_the_model_alone(make_trainer):
    plain = make_trainer(num_train_epochs=1)
    start = {name: value.clone() for name, value in plain.model.state_dict().items()}
    plain.train()
    scores = plain.evaluate()
    trained = {name: value.clone() for name, value in plain.model.state_dict().items()}
    plain.model.load_state_dict(start)

    wrapped = make_trainer(num_train_epochs=1, model=Wrapper(plain.model))
    wrapped.train()

    for name, value in plain.model.state_dict().items():
        torch.testing.assert_close(value, trained[name], atol=1e-5, rtol=1e-4)
    for task in SIZES:
        assert wrapped.evaluate()[f"eval_{task}_loss"] == pytest.approx(
            scores[f"eval_{task}_loss"], abs=1e-4
        )


# of peft
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing:FutureWarning")
def test_every_head_of_a_peft_model_moves(make_trainer):
    trainer = make_trainer(num_train_epochs=1)
    model = wrapped(trainer.model)
    before = {name: value.clone() for name, value in model.named_parameters()}

    make_trainer(num_train_epochs=1, model=model).train()

    heads = {
        name: bool((value != before[name]).any())
        for name, value in model.named_parameters()
        if "modules_to_save" in name
    }
    assert heads
    assert all(heads.values())


@pytest.mark.parametrize("kind", [BertForSequenceClassification, MinBertForSequenceClassification])
def test_numbers_that_are_missing_are_not_learned_by_a_model_with_one_head(make_trainer, kind):
    rows = [{"input_ids": [1, 2], "labels": label} for label in (0.5, -100.0)]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = kind.config_class(num_labels=1, problem_type="regression", **sizes)
    own = {"tasks": [Task("sizes", "regression", rows[:1], rows)]}
    message = "the evaluation set of task 'sizes' has labels that are -100"
    with pytest.raises(ValueError, match=message):
        make_trainer(model=kind(config), own=own)


def test_several_tasks_need_a_model_that_takes_task(make_trainer):
    stock = as_stock(make_trainer().model)
    message = "BertForSequenceClassification.forward has no argument task, so all of moods, pairs"
    with pytest.raises(ValueError, match=message):
        make_trainer(model=stock)
