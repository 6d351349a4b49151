"""Any BERT checkpoint loads in one call, and saved models load again, here and as BERT."""

import copy
import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.testing import assert_close

import modeling_minbert
from modeling_minbert import MinBertConfig, MinBertForMaskedLM, MinBertForMultiTask, MinBertModel
from modeling_minbert.folders import find_leftovers
from tests.modeling_minbert.test_packed import PAIRS as CLASSES
from tests.small_run import vary_weights

# tiny checkpoints of every kind: name -> differences from ``tiny_sizes``
KINDS = {
    "cased": {"vocab_size": 29},
    "uncased": {},
    "multilingual": {"vocab_size": 119, "pad_token_id": 3},
    "chinese": {"vocab_size": 21, "type_vocab_size": 3},
    "large": {"hidden_size": 52, "num_hidden_layers": 3, "num_attention_heads": 4},
    "relu": {"hidden_act": "relu", "layer_norm_eps": 1e-5, "max_position_embeddings": 7},
}

every_class = pytest.mark.parametrize("name", CLASSES)


def build(name, sizes):
    """Make a model of a stock or own class, in evaluation mode, no two weights alike."""
    torch.manual_seed(0)
    model_class = getattr(modeling_minbert, name, None) or getattr(transformers, name)
    model = model_class(model_class.config_class(**sizes, initializer_range=0.2)).eval()
    vary_weights(model)
    return model


def load(model_class, folder, **settings):
    """Load a model and check that no key is missing, unexpected or of another size."""
    model, report = model_class.from_pretrained(folder, output_loading_info=True, **settings)
    assert not any(report.values()), report
    return model.eval()


def assert_same_outputs(first, second, batch):
    expected = second(**batch)
    real = batch["attention_mask"].bool()
    for key, actual in first(**batch).items():
        for_tokens = actual.shape[:2] == real.shape
        pair = [x[real] if for_tokens else x for x in (actual, expected[key])]
        # a sum in another order rounds otherwise
        rounding = {torch.float32: 1e-5, torch.float16: 2e-2, torch.bfloat16: 2e-1}[actual.dtype]
        assert_close(*pair, atol=rounding, rtol=rounding)


def rewrite(folder, rename):
    """Rename the keys of a saved checkpoint."""
    state = load_file(folder / "model.safetensors")
    renamed = {rename(key): value for key, value in state.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})


def old_names(key):
    """Return a key as the first BERT checkpoints have it."""
    for today, then in (("weight", "gamma"), ("bias", "beta")):
        key = key.replace(f"LayerNorm.{today}", f"LayerNorm.{then}")
    return key


@pytest.fixture
def folder(tiny_sizes, tmp_path):
    """Return a folder with a tiny BERT with the heads of pre-training."""
    build("BertForPreTraining", tiny_sizes).save_pretrained(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_bert_loads_in_one_call(tiny_sizes, tiny_batch, tmp_path, kind):
    bert = build("BertForPreTraining", tiny_sizes | KINDS[kind])
    bert.save_pretrained(tmp_path)
    batch = {**tiny_batch, "input_ids": tiny_batch["input_ids"] % 21}

    assert_same_outputs(load(modeling_minbert.MinBertForPreTraining, tmp_path), bert, batch)
    assert_same_outputs(load(MinBertModel, tmp_path), bert.bert, batch)


@pytest.mark.parametrize("model_class", [MinBertModel, MinBertForMaskedLM])
def test_the_first_checkpoints_load(folder, tiny_batch, model_class):
    expected = load(model_class, folder)
    rewrite(folder, old_names)
    state = load_file(folder / "model.safetensors")
    state["bert.embeddings.position_ids"] = torch.arange(17)[None]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    del config["model_type"]
    (folder / "config.json").write_text(json.dumps(config))

    assert any(key.endswith("LayerNorm.gamma") for key in state)
    assert_same_outputs(load(model_class, folder), expected, tiny_batch)


def test_a_checkpoint_without_pooler_loads(tiny_sizes, tiny_batch, tokenizer, tmp_path):
    bert = build("BertForMaskedLM", tiny_sizes)
    bert.save_pretrained(tmp_path)

    assert_same_outputs(load(MinBertForMaskedLM, tmp_path), bert, tiny_batch)
    model, report = MinBertModel.from_pretrained(tmp_path, output_loading_info=True)
    assert report["missing_keys"] == {"pooler.dense.weight", "pooler.dense.bias"}
    assert model.pooler.dense.weight.std() < 0.5  # new, not uninitialised memory
    assert model.pooler.dense.bias.abs().max() == 0
    model.tokenizer = tokenizer
    for each in (model, copy.deepcopy(model), copy.deepcopy(model).bfloat16()):
        with pytest.raises(ValueError, match="has no pooler, and a new one gives random vectors"):
            each.encode("a cat", pooling="pooler")
    # torch does not count the changes of this one
    torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True).step(
        lambda: model(**tiny_batch)[1].sum().backward()
    )
    assert model.encode("a cat", pooling="pooler").isfinite().all()


@pytest.mark.parametrize("name", ["MinBertModel", "MinBertForPreTraining", "MinBertForMultiTask"])
def test_a_saved_folder_has_today_s_names_and_every_key(folder, tasks, name):
    rewrite(folder, old_names)
    more = {"tasks": tasks} if name == "MinBertForMultiTask" else {}
    model = getattr(modeling_minbert, name).from_pretrained(folder, **more)

    model.save_pretrained(folder / "again")
    state = load_file(folder / "again" / "model.safetensors")

    # as the Trainer does on resume: read the file, rename nothing
    report = model.load_state_dict(state, strict=False)
    assert not any(key.endswith(("gamma", "beta")) for key in state)
    assert not report.unexpected_keys
    assert set(report.missing_keys) <= set(model.all_tied_weights_keys)


@every_class
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_save_as_transformers_gives_equal_outputs(tiny_sizes, tiny_batch, tmp_path, name, dtype):
    model = build(name, tiny_sizes).to(dtype)

    private = tmp_path / "other.safetensors"
    private.touch(0o600)
    model.save_as_transformers(tmp_path)
    model.save_pretrained(tmp_path / "minbert", variant="half")
    variant = (tmp_path / "minbert" / "model.half.safetensors").stat()
    # whoever may read the configuration may read the weights, which safetensors would not let
    modes = {path.stat().st_mode for path in tmp_path.iterdir() if path.is_file()}
    assert modes - {private.stat().st_mode} == {(tmp_path / "config.json").stat().st_mode}
    assert variant.st_mode in modes - {private.stat().st_mode}
    private.unlink()
    bert = load(getattr(transformers, CLASSES[name]), tmp_path)
    by_auto_class = load(getattr(transformers, model._auto_class), tmp_path)

    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "bert"
    assert "tasks" not in bert.config.to_dict()
    assert bert.dtype == dtype
    assert type(by_auto_class) is type(bert)
    assert_close(bert.state_dict(), model.state_dict(), rtol=0, atol=0)
    assert_same_outputs(model, bert, tiny_batch)


@pytest.mark.parametrize("number", [0, -1, 9])
def test_layers_that_are_not_there_are_not_saved(tiny_sizes, tmp_path, number):
    model = build("MinBertModel", tiny_sizes)
    with pytest.raises(ValueError, match=rf"num_layers={number} must be in \[1, \d\]"):
        model.save_as_transformers(tmp_path / "out", num_layers=number)
    with pytest.raises(
        ValueError, match=r"has a head above its last layer: save all \d layers, or"
    ):
        build("MinBertForMaskedLM", tiny_sizes).save_as_transformers(tmp_path / "out", num_layers=1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
def test_resized_embeddings_stay_tied(tiny_sizes, tiny_batch, tmp_path, name):
    model = build(name, tiny_sizes)
    model.resize_token_embeddings(37)

    model.save_as_transformers(tmp_path / "bert")
    model.save_pretrained(tmp_path / "own")

    bert = load(getattr(transformers, CLASSES[name]), tmp_path / "bert")
    own = load(type(model), tmp_path / "own")
    for loaded in (model, own, bert):
        head = loaded.cls.predictions
        assert head.decoder.weight is loaded.get_input_embeddings().weight
        assert head.decoder.bias is head.bias
        assert head.bias.shape == (37,)
        assert_same_outputs(loaded, model, tiny_batch)


def test_a_model_without_tasks_explains_how_to_add_them(folder):
    with pytest.raises(ValueError, match=r"config\.tasks is empty: describe at least one task"):
        MinBertForMultiTask.from_pretrained(folder)


def test_every_weight_and_buffer_that_a_checkpoint_lacks_is_initialised(tiny_sizes, tmp_path):
    config = MinBertConfig(**tiny_sizes)
    MinBertForMaskedLM(config).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    save_file({"nothing": torch.zeros(1)}, file, metadata={"format": "pt"})

    model, _ = MinBertForMaskedLM.from_pretrained(tmp_path, output_loading_info=True)

    assert model.bert.embeddings.position_ids.tolist() == [list(range(17))]
    assert all(weight.abs().max() < 1.01 for weight in model.parameters())
    assert model.cls.predictions.bias.abs().max() == 0


def test_weights_of_the_model_before_are_removed_also_where_they_are_shards(tiny_sizes, tmp_path):
    sizes = ("50GB", "4KB", "8KB", "50GB")
    for number, size in enumerate(sizes):
        torch.manual_seed(number)
        model = MinBertModel(MinBertConfig(**tiny_sizes))
        model.save_pretrained(tmp_path, max_shard_size=size)

        again = load(MinBertModel, tmp_path)

        assert_close(again.state_dict(), model.state_dict(), atol=0, rtol=0)
        assert len(list(tmp_path.glob("model.safetensors*"))) == 1  # or the index of the shards


def test_on_the_hub_only_what_a_load_would_take_is_a_leftover():
    stale = ["adapter_config.json", "minbert.json", "model-00001-of-00002.safetensors"]
    stale += ["model.safetensors.index.json"]
    kept = ["model.safetensors", "model.fp16.safetensors", "old/model.safetensors", "notes.txt"]
    assert find_leftovers([*kept, *stale], ["model.safetensors"]) == stale

    names = ["modules.json", "config.json", "model.safetensors", *stale]
    for adapter in (["adapter_config.json"], ["other"]):  # whose base may be there
        assert find_leftovers(names, adapter) == ["modules.json"]
