"""LoRA on a plain BERT, and in training."""

import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from modeling_minbert import MinBertForMultiTask
from tests.trainers import tiny
from trainers import add_lora, merge_lora

pytest.importorskip("peft")


@pytest.fixture
def model():
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 16}
    return BertForSequenceClassification(BertConfig(num_hidden_layers=2, **sizes)).eval()


def test_a_new_adapter_changes_nothing_and_learns_alone(model):
    ids = torch.randint(0, 20, (2, 5))
    before = model(ids).logits
    add_lora(model, {"r": 2}, trained=("classifier.",))

    torch.testing.assert_close(model(ids).logits, before)
    learns = {name for name, value in model.named_parameters() if value.requires_grad}
    # two layers, query and value, two matrices each
    assert sum("lora_" in name for name in learns) == 8
    assert {name for name in learns if "lora_" not in name} == {
        "classifier.weight",
        "classifier.bias",
    }


def test_a_merged_model_computes_the_same_under_its_old_names(model):
    ids = torch.randint(0, 20, (2, 5))
    names, before = list(model.state_dict()), model(ids).logits
    add_lora(model, {"r": 2, "lora_alpha": 16}, trained=("classifier.",))
    for name, value in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(value)
    with_lora = model(ids).logits
    merge_lora(model)

    assert not torch.allclose(with_lora, before, atol=1e-4)
    torch.testing.assert_close(model(ids).logits, with_lora)
    assert list(model.state_dict()) == names
    assert all(value.requires_grad for value in model.parameters())
    merge_lora(model)  # there is nothing left to merge


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"rank": 4}, "lora: .*rank"),
        ({"modules_to_save": ["pooler"]}, "lora: modules_to_save=.*pooler train anyway"),
        ({"layer_replication": [[0, 1]]}, "lora: layer_replication=.* trains nothing that can"),
        ({"r": 0}, "lora: .*r"),
        ({"target_modules": ["nothing"]}, "lora: .*nothing"),
    ],
)
def test_an_error_of_peft_is_reported(model, keys, message):
    with pytest.raises(ValueError, match=message):
        add_lora(model, keys, trained=())


def test_an_adapter_of_one_of_two_tied_layers_is_refused():
    def adapt(targets):
        model = MinBertForMultiTask(tiny.make_config({"words": {"problem_type": "masked_lm"}}))
        add_lora(model, {"r": 2, "target_modules": targets}, trained=())

    adapt("all-linear")  # which leaves them out
    for layer in ("word_embeddings", "decoder"):
        with pytest.raises(ValueError, match=r"word_embeddings and .*decoder share one weight"):
            adapt(["query", layer])


def make_trainer(folder, **arguments):
    model = tiny.make_model(dropout=0.1)
    add_lora(model, {"r": 2, "lora_dropout": 0.1}, trained=("heads.",))
    steps = {"max_steps": 4, "eval_strategy": "steps", "eval_steps": 2, "save_steps": 2}
    best = {"save_strategy": "steps", "load_best_model_at_end": True}
    best["metric_for_best_model"] = "scores_loss"
    return tiny.make_trainer(folder, model=model, **(steps | best | arguments))


def test_the_trainer_keeps_the_best_adapters_and_merges_them(tmp_path):
    trainer = make_trainer(tmp_path / "run")
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}

    trainer.train()

    rows = tiny.make_rows("pairs", 11, seed=1)
    logits, metrics = trainer.predict_task("pairs", rows), trainer.evaluate()
    assert metrics["eval_scores_loss"] == pytest.approx(trainer.state.best_metric)
    after = trainer.model.state_dict()
    moved = {name for name, value in after.items() if not torch.equal(value, before[name])}
    assert moved
    assert all("lora_" in name or name.startswith("heads.") for name in moved)
    merge_lora(trainer.model)
    trainer.model.save_pretrained(tmp_path / "merged")
    loaded = MinBertForMultiTask.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(trainer.predict_task("pairs", rows), logits)
    torch.testing.assert_close(loaded.state_dict(), trainer.model.state_dict(), rtol=0, atol=0)


def test_a_stopped_run_goes_on_as_if_it_had_not_been(tmp_path):
    def build():
        return make_trainer(tmp_path / "run", load_best_model_at_end=False)

    tiny.assert_resumes(build, tmp_path / "run" / "checkpoint-2")
