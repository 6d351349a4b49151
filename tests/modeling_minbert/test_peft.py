"""LoRA and the other methods of peft, without naming layers, and with heads that train in full."""

import pytest
import torch
from torch.testing import assert_close
from transformers import AutoModelForMaskedLM, BertConfig, BertModel

from modeling_minbert import (
    MinBertConfig,
    MinBertForMaskedLM,
    MinBertForMultiTask,
    MinBertForSequenceClassification,
    MinBertModel,
)
from tests.modeling_minbert.test_in_and_out import make_stock
from trainers import merge_lora

peft = pytest.importorskip("peft")
# peft uses an old name of transformers
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated")


def adapted(model):
    return sorted(name for name, _ in model.named_parameters() if "lora" in name or "ia3" in name)


@pytest.mark.parametrize("method", ["LoraConfig", "IA3Config", "AdaLoraConfig", "VeraConfig"])
def test_peft_adapts_the_layers_that_it_adapts_of_a_bert(tiny_sizes, method):
    options = {"total_step": 10} if method == "AdaLoraConfig" else {}
    config = getattr(peft, method)
    theirs = peft.get_peft_model(BertModel(BertConfig(**tiny_sizes)), config(**options))
    ours = peft.get_peft_model(MinBertModel(MinBertConfig(**tiny_sizes)), config(**options))

    assert adapted(ours) == adapted(theirs)


@pytest.mark.parametrize("method", ["LoraConfig", "IA3Config"])
def test_peft_adapts_modernbert_beside_a_bert(tmp_path, tiny_sizes, method):
    make_stock("modernbert").save_pretrained(tmp_path)
    model = MinBertModel.from_pretrained(tmp_path)
    for other in (model, MinBertModel(MinBertConfig(**tiny_sizes))):  # the last one does not count
        adapted_model = peft.get_peft_model(other, getattr(peft, method)())
        names = {name.rpartition(".")[0].split("layer.0.")[-1] for name in adapted(adapted_model)}
        assert any("attn.Wqkv" in name for name in names) == (other is model)


def step(model, batch):
    """Train all adapted weights for one step, with a loss on the first task."""
    trained = [value for value in model.parameters() if value.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=0.5)
    labels = torch.arange(len(batch["input_ids"])) % 3
    for _ in range(2):  # the first step moves only one of the two matrices of LoRA
        optimizer.zero_grad()
        model(**batch, labels=labels, task="tone").loss.backward()
        optimizer.step()


@pytest.mark.parametrize("saved", [["heads"], ["heads.tone"]])
def test_heads_train_in_full_beside_adapters(build_multitask, tiny_batch, tasks, tmp_path, saved):
    base = build_multitask(tasks)
    base.save_pretrained(tmp_path / "base")
    config = peft.LoraConfig(r=4, modules_to_save=saved)
    model = peft.get_peft_model(base, config)
    assert base.choose_tasks([]) == sorted(tasks)
    before = model(**tiny_batch, task="tone").logits
    step(model, tiny_batch)
    model.eval()
    with torch.no_grad():
        after = model(**tiny_batch, task="tone").logits
    model.save_pretrained(tmp_path / "adapter")

    again = MinBertForMultiTask.from_pretrained(tmp_path / "base")
    names = list(again.state_dict())
    loaded = peft.PeftModel.from_pretrained(again, tmp_path / "adapter").eval()
    assert_close(loaded(**tiny_batch, task="tone").logits, after)
    assert not torch.allclose(before, after, atol=1e-3)
    with loaded.disable_adapter():
        assert_close(loaded(**tiny_batch, task="tone").logits, before)
    merged = loaded.merge_and_unload()
    assert_close(merged(**tiny_batch, task="tone").logits, after, rtol=1e-4, atol=1e-5)
    assert list(merged.state_dict()) == names


def test_wrapped_layers_are_not_quantized_and_predict_in_any_precision(
    tiny_sizes, tokenizer, caplog
):
    torch.manual_seed(0)
    model = MinBertModel(MinBertConfig(**tiny_sizes, initializer_range=0.2)).eval()
    model.tokenizer = tokenizer
    before = model.encode(["a cat sat"], precision="bfloat16")
    config = peft.LoraConfig(r=4, init_lora_weights=False, target_modules=["query", "value"])
    wrapped = peft.get_peft_model(model, config).eval()

    with pytest.raises(ValueError, match="an adapter wraps layers of the encoder; merge"):
        model.quantize()
    assert not getattr(model, "is_quantized", False)
    with_adapter = model.encode(["a cat sat"], precision="bfloat16")
    assert_close(with_adapter, model.encode(["a cat sat"]), atol=0.05, rtol=0.05)
    assert not torch.allclose(with_adapter, before, atol=0.05)
    model.encode(["a cat sat"], precision="int8")
    assert "int8 is not computed, but the precision of the weights" in caplog.text
    merged = wrapped.merge_and_unload()  # changes weights in place
    again = merged.encode(["a cat sat"], precision="bfloat16")
    assert_close(again, with_adapter, atol=0.05, rtol=0.05)


def test_a_folder_with_an_adapter_has_its_own_pooling_and_tokens(tiny_sizes, tokenizer, tmp_path):
    model = MinBertModel(MinBertConfig(**tiny_sizes, initializer_range=0.2)).eval()
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "base")
    model = MinBertModel.from_pretrained(tmp_path / "base")
    model.config.sentence_embedding = {"pooling": "cls", "normalize": True}
    model.add_adapter(peft.LoraConfig(r=2, init_lora_weights=False, target_modules=["query"]))
    model.eval().save_pretrained(tmp_path / "adapter")
    (tmp_path / "base" / "tokenizer.json").unlink()

    again = MinBertModel.from_pretrained(tmp_path / "adapter")

    assert_close(again.encode(["a cat sat"]), model.encode(["a cat sat"]))
    assert again._found_at == str(tmp_path / "adapter")
    model.config.sentence_embedding = {"pooling": "pooler"}  # of which a list of modules knows none
    model.save_pretrained(tmp_path / "adapter")
    with pytest.raises(ValueError, match="its vectors need a task, which only the merged model"):
        MinBertModel.from_pretrained(tmp_path / "adapter").encode(["a cat sat"])


def test_a_model_is_not_saved_beside_an_adapter_nor_an_adapter_beside_a_model(tiny_sizes, tmp_path):
    for name in ("base", "other"):
        MinBertModel(MinBertConfig(**tiny_sizes)).save_pretrained(tmp_path / name)
    model = MinBertModel.from_pretrained(tmp_path / "base")
    model.add_adapter(peft.LoraConfig(r=2, init_lora_weights=False, target_modules=["query"]))
    model.save_pretrained(tmp_path / "adapter")
    model.save_pretrained(tmp_path / "adapter")  # again

    with pytest.raises(ValueError, match=r"config\.json of another model, which would be loaded"):
        model.save_pretrained(tmp_path / "other")
    model.save_pretrained(tmp_path / "base")  # of which it is an adapter
    (tmp_path / "base" / "adapter_config.json").unlink()
    merge_lora(model)
    for save in (model.save_pretrained, model.save_as_transformers):
        with pytest.raises(ValueError, match=r"adapter_config\.json of another model, which would"):
            save(tmp_path / "adapter")
        save(tmp_path / save.__name__)
    (tmp_path / "checkpoint-2").mkdir()  # of an earlier training
    (tmp_path / "checkpoint-2" / "adapter_config.json").touch()
    model.save_pretrained(tmp_path / "checkpoint-2")
    assert not (tmp_path / "checkpoint-2" / "adapter_config.json").exists()
    again = MinBertModel.from_pretrained(tmp_path / "save_pretrained")
    assert_close(again.state_dict(), model.state_dict())
    (tmp_path / "base" / "minbert.json").touch()  # an export, which `minbert.load` would take
    with pytest.raises(ValueError, match=r"minbert\.json of another model, which would be loaded"):
        model.save_pretrained(tmp_path / "base")


def test_an_adapter_is_saved_without_a_temperature(build_multitask, tasks, caplog):
    model = peft.get_peft_model(build_multitask(tasks), peft.LoraConfig(r=2))
    model.fit_temperature("tone", 3 * torch.eye(3)[[0, 1, 2, 0]], torch.tensor([0, 1, 2, 1]))

    assert "task 'tone': an adapter that is saved alone lacks what was fitted" in caplog.text


@pytest.mark.parametrize("with_mask", [False, True])
def test_prefix_tuning_is_refused(tiny_sizes, with_mask):
    config = peft.PrefixTuningConfig(task_type="FEATURE_EXTRACTION", num_virtual_tokens=3)
    model = peft.get_peft_model(MinBertModel(MinBertConfig(**tiny_sizes)), config)
    ids = torch.arange(5, 10).unsqueeze(0)
    mask = {"attention_mask": torch.ones_like(ids)} if with_mask else {}
    with pytest.raises(ValueError, match=r"past_key_values: .* use another method of peft"):
        model(input_ids=ids, **mask)


@pytest.mark.parametrize(
    "options", [{"trainable_token_indices": [5]}, {"target_modules": ["word_embeddings"]}], ids=str
)
def test_adapters_of_word_embeddings_count_positions_from_the_padding(tmp_path, options):
    make_stock("roberta", "AutoModelForMaskedLM").save_pretrained(tmp_path)
    config = peft.LoraConfig(r=2, **{"target_modules": ["query"], **options})
    ids = torch.tensor([[5, 6, 7], [5, 6, 1]])
    batch = {"input_ids": ids, "attention_mask": ids.ne(1).long()}
    theirs, ours = (
        peft.get_peft_model(kind.from_pretrained(tmp_path), config).eval()
        for kind in (AutoModelForMaskedLM, MinBertForMaskedLM)
    )
    assert_close(ours(**batch).logits[ids != 1], theirs(**batch).logits[ids != 1])
    ours.train()(**batch, labels=ids).loss.backward()


TONE = {"problem_type": "classification", "labels": ["a", "b", "c"]}


@pytest.mark.parametrize(
    ("tasks", "given", "lost"),
    [
        (None, ["pooler"], []),
        (None, None, ["pooler"]),
        ({"tone": TONE}, None, ["heads", "pooler"]),
        ({"tone": TONE | {"pooling": "mean"}}, None, ["heads"]),
        ({"tone": TONE | {"pooling": "mean"}}, ["heads"], []),
        ({"tone": TONE}, ["heads", "pooler"], []),
    ],
    ids=str,
)
def test_new_parts_that_an_adapter_leaves_random_are_named(
    tmp_path, tiny_sizes, caplog, tasks, given, lost
):
    MinBertModel(MinBertConfig(**tiny_sizes), add_pooling_layer=False).save_pretrained(tmp_path)
    kind = MinBertForSequenceClassification if tasks is None else MinBertForMultiTask
    options = {"num_labels": 3} if tasks is None else {"tasks": tasks}
    model = kind.from_pretrained(tmp_path, **options)
    model.train()
    assert "modules_to_save" not in caplog.text
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, modules_to_save=given)
    adapted_model = peft.get_peft_model(model, config)
    for _ in range(2):
        adapted_model.train()
    assert caplog.text.count("modules_to_save") == bool(lost)
    assert f"modules_to_save={lost} to its" in caplog.text or not lost


def test_a_checkpoint_with_all_parts_takes_an_adapter_in_silence(
    build_multitask, tasks, tmp_path, caplog
):
    build_multitask(tasks).save_pretrained(tmp_path)
    model = MinBertForMultiTask.from_pretrained(tmp_path)
    peft.get_peft_model(model, peft.LoraConfig(r=2)).train()
    peft.get_peft_model(
        MinBertModel.from_pretrained(tmp_path), peft.LoraConfig(task_type="FEATURE_EXTRACTION")
    ).train()
    assert "modules_to_save" not in caplog.text
