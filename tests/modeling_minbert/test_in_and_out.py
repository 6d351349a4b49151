"""Checkpoints of other model types: loaded, saved as minBERT, saved as transformers' own."""

import json
from ast import literal_eval

import pytest
import torch
import transformers
from torch.testing import assert_close
from transformers import CONFIG_MAPPING

import modeling_minbert
from modeling_minbert import (
    MinBertConfig,
    MinBertForMaskedLM,
    MinBertForMultiTask,
    MinBertForPreTraining,
    MinBertForTokenClassification,
    MinBertModel,
)
from tests.modeling_minbert.test_families import (
    CLASSES,
    CONFIGS as TYPES,
    REFUSED as HEADS_REFUSED,
    SIZES,
)
from tests.modeling_minbert.test_remote_code import run_without_this_project
from tests.small_run import vary_weights
from trainers import FreezeLayers

REFUSED = {(kind, f"AutoModel{head}") for kind, head in HEADS_REFUSED}
every_type = pytest.mark.parametrize("kind", TYPES)
TASKS = {"mood": {"problem_type": "classification", "labels": ["bad", "good"]}}


def make_stock(kind, name="AutoModel", **changes):
    """Make a model of transformers with random weights."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**{**TYPES[kind], **changes})
    stock = getattr(transformers, name).from_config(config).eval()
    vary_weights(stock)
    return stock


def assert_same_model(found, expected):
    """Check that two models of transformers have the same weights and configurations."""
    assert type(found) is type(expected)
    assert_close(found.state_dict(), expected.state_dict(), rtol=0, atol=0)
    first, second = (model.config.to_dict() for model in (found, expected))
    free = {"_name_or_path", "dtype", "id2label", "label2id", "problem_type"}
    assert {key for key in {*first, *second} if first.get(key) != second.get(key)} <= free


@pytest.mark.parametrize("name", CLASSES)
@every_type
def test_in_out_and_in_changes_nothing(tmp_path, kind, name):
    if (kind, name) in REFUSED:
        pytest.skip("refused")
    stock, kept = make_stock(kind, name), getattr(modeling_minbert, CLASSES[name])
    stock.save_pretrained(tmp_path / "in")
    ours = kept.from_pretrained(tmp_path / "in")
    ours.save_pretrained(tmp_path / "minbert")
    ours = kept.from_pretrained(tmp_path / "minbert").eval()
    ours.save_as_transformers(tmp_path / "out")
    ids = torch.randint(3, 60, (2, 9))

    assert ours.config.encoder_type == kind
    assert_close(ours(ids)[0], stock(ids)[0], atol=2e-6, rtol=1e-4)
    found = getattr(transformers, name).from_pretrained(tmp_path / "out")
    assert_same_model(found, stock)


@pytest.mark.parametrize("activation", ["relu", "gelu_new"])
@every_type
def test_the_head_of_masked_words_has_the_activation_of_its_type(tmp_path, kind, activation):
    names = {"distilbert": ["activation"], "modernbert": ["hidden_activation"]}
    names["modernbert"].append("classifier_activation")
    changes = dict.fromkeys(names.get(kind, ["hidden_act"]), activation)
    stock = make_stock(kind, "AutoModelForMaskedLM", **changes)
    stock.save_pretrained(tmp_path / "in")
    ours = MinBertForMaskedLM.from_pretrained(tmp_path / "in").eval()
    ours.save_as_transformers(tmp_path / "out")
    found = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(3, 60, (2, 9))

    assert_close(ours(ids).logits, stock(ids).logits, atol=2e-6, rtol=1e-4)
    assert_close(ours(ids).logits, found(ids).logits, atol=2e-6, rtol=1e-4)


@every_type
def test_a_multi_task_model_gives_the_encoder_of_its_type(tmp_path, kind):
    stock = make_stock(kind)
    stock.save_pretrained(tmp_path / "in")
    model = MinBertForMultiTask.from_pretrained(tmp_path / "in", tasks=TASKS)
    model.half().save_as_transformers(tmp_path / "out")

    assert_same_model(transformers.AutoModel.from_pretrained(tmp_path / "out"), stock.half())


@pytest.mark.parametrize(("kind", "name"), sorted(REFUSED))
def test_a_head_with_another_layer_is_refused(tmp_path, kind, name):
    make_stock(kind, name).save_pretrained(tmp_path / "in")
    if name == "AutoModelForQuestionAnswering":  # of an encoder alone, the head is new
        make_stock(kind).save_pretrained(tmp_path / "encoder")
        model = getattr(modeling_minbert, CLASSES[name]).from_pretrained(tmp_path / "encoder")
        with pytest.raises(ValueError, match="has other parts than a MinBertForQuest"):
            model.save_as_transformers(tmp_path / "out")
        assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="behind a layer that is not BERT's pooler"):
        getattr(modeling_minbert, CLASSES[name]).from_pretrained(tmp_path / "in")
    MinBertModel.from_pretrained(tmp_path / "in")


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("bert", {"position_offset": 2}, "position_offset=2: as a 'bert' .* 0"),
        ("roberta", {"pad_token_id": 3}, "position_offset=2: as a 'roberta' .* 4"),
        ("distilbert", {"layer_norm_eps": 1e-6}, "layer_norm_eps=1e-06"),
        ("mpnet", {"relative_attention_num_buckets": 0}, "MPNet.* such as .*relative_attention"),
    ],
)
def test_an_encoder_that_the_type_does_not_have_is_not_saved(tmp_path, kind, changes, message):
    make_stock(kind).save_pretrained(tmp_path / "in")
    values = MinBertConfig.from_pretrained(tmp_path / "in").to_dict()
    model = MinBertModel(MinBertConfig(**{**values, **changes}))

    with pytest.raises(ValueError, match=message):
        model.save_as_transformers(tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_heads_that_a_type_does_not_have_are_not_saved(tmp_path):
    config = MinBertConfig(**SIZES, encoder_type="roberta", position_offset=1, layer_norm_eps=1e-5)
    with pytest.raises(ValueError, match=r"RobertaForMaskedLM has other parts.*such as bert"):
        MinBertForPreTraining(config).save_as_transformers(tmp_path)
    MinBertForMaskedLM(config).save_as_transformers(tmp_path)


def test_the_lower_layers_of_modernbert_are_not_saved(tmp_path):
    make_stock("modernbert").save_pretrained(tmp_path / "in")
    model = MinBertModel.from_pretrained(tmp_path / "in")
    with pytest.raises(ValueError, match="a norm above its last layer: save all 4 layers"):
        model.save_as_transformers(tmp_path / "out", num_layers=2)
    model.save_as_transformers(tmp_path / "out", num_layers=4)


@pytest.mark.parametrize("kind", ["deberta-v2", "electra", "albert", "t5", "gpt2"])
def test_a_type_that_is_not_supported_is_refused(tmp_path, kind):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    message = f"'{kind}' checkpoint, which minBERT does not support; minBERT loads .* minbert, bert"
    with pytest.raises(ValueError, match=message + ".* such as FacebookAI/roberta-base"):
        MinBertForTokenClassification.from_pretrained(tmp_path)


def test_a_configuration_without_a_type_is_that_of_bert_or_refused(tmp_path):
    config = {"architectures": ["RobertaForMaskedLM"], "vocab_size": 60}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="RobertaForMaskedLM'] and no model_type, which must be"):
        MinBertConfig.from_pretrained(tmp_path)


# Of a stock class, its changes to the configuration, and the task that its head can be.
HEADS = {
    "AutoModelForSequenceClassification": ({}, "classification"),
    "several labels": (
        {"problem_type": "multi_label_classification"}, "multi_label_classification",
    ),
    "AutoModelForTokenClassification": ({}, "token_classification"),
    "AutoModelForQuestionAnswering": ({}, "question_answering"),
}  # fmt: skip


@pytest.mark.parametrize("case", HEADS)
@every_type
def test_the_head_of_a_stock_model_becomes_that_of_a_task(tmp_path, caplog, kind, case):
    name = case if case.startswith("Auto") else "AutoModelForSequenceClassification"
    changes, problem = HEADS[case]
    has_labels = problem != "question_answering"
    if has_labels:
        changes = {**changes, "id2label": {0: "down", 1: "level", 2: "up"}}
    stock = make_stock(kind, name, **changes)
    stock.save_pretrained(tmp_path)
    fields = {"problem_type": problem}
    fields |= {"labels": ["down", "level", "up"]} if has_labels else {}
    other = {"problem_type": "classification", "labels": ["up", "down", "level"]}
    ids = torch.randint(3, 60, (2, 9))
    caplog.set_level("WARNING")

    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks={"other": other, "mine": fields})

    if (kind, name) in REFUSED:
        assert f"the head of a {type(stock).__name__} is not loaded; it is behind" in caplog.text
        return
    assert "not loaded" not in caplog.text
    found, expected = model.eval()(ids, task="mine"), stock(ids)
    for key in ("logits", "start_logits", "end_logits"):
        assert (key in found) == (key in expected)
        assert key not in found or torch.allclose(found[key], expected[key], atol=1e-5)
    MinBertForMultiTask.from_pretrained(tmp_path, tasks={"other": other})
    assert f"a task with the fields {{'problem_type': '{problem}'" in caplog.text


def make_classifier(folder, kind="bert", **changes):
    """Save a classifier of texts of transformers; return it with the fields of its task."""
    stock = make_stock(kind, "AutoModelForSequenceClassification", **changes)
    stock.save_pretrained(folder)
    labels = list(stock.config.id2label.values())
    return stock, {"problem_type": "classification", "labels": labels}


def assert_same_head(model, stock, task="mine"):
    """Check that the head of a task is that of a model of transformers."""
    ids = torch.randint(3, 60, (2, 9))
    assert_close(model.eval()(ids, task=task).logits, stock(ids).logits, atol=2e-6, rtol=1e-4)


def test_labels_without_names_are_those_of_transformers(tmp_path):
    stock, fields = make_classifier(tmp_path)
    assert "id2label" not in json.loads((tmp_path / "config.json").read_text())
    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks={"mine": fields})
    assert_same_head(model, stock)


@pytest.mark.parametrize("names", [["LABEL_0"], ["a", "b"]])
def test_a_stock_regression_is_one(tmp_path, caplog, names):
    changes = {"problem_type": "regression"} if len(names) > 1 else {}
    stock, fields = make_classifier(tmp_path, id2label=dict(enumerate(names)), **changes)
    other = {**fields, "labels": ["a", "b"]}
    own = {"problem_type": "regression", "targets": names}
    caplog.set_level("WARNING")

    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks={"other": other, "mine": own})

    assert "not loaded" not in caplog.text
    assert_same_head(model, stock)
    for wrong in (other, {**own, "mean": [1.0] * len(names)}):
        caplog.clear()
        MinBertForMultiTask.from_pretrained(tmp_path, tasks={"other": wrong})
        assert "not loaded; it would be that of a task with the fields" in caplog.text
    advice = literal_eval(caplog.text[caplog.text.index("{") : caplog.text.index("}") + 1])
    assert_same_head(MinBertForMultiTask.from_pretrained(tmp_path, tasks={"mine": advice}), stock)


def test_a_head_is_found_however_tasks_are_given(tmp_path):
    stock, fields = make_classifier(tmp_path)
    config = MinBertConfig.from_pretrained(tmp_path, tasks={"mine": fields})
    assert_same_head(MinBertForMultiTask.from_pretrained(tmp_path, config=config), stock)


def test_the_head_of_a_model_of_minbert_is_found(tmp_path):
    stock, fields = make_classifier(tmp_path / "in")
    ours = modeling_minbert.MinBertForSequenceClassification.from_pretrained(tmp_path / "in")
    ours.save_pretrained(tmp_path / "minbert")
    model = MinBertForMultiTask.from_pretrained(tmp_path / "minbert", tasks={"mine": fields})
    assert_same_head(model, stock)


def test_of_two_tasks_that_a_head_fits_one_is_named(tmp_path, caplog):
    stock, fields = make_classifier(tmp_path)
    caplog.set_level("WARNING")
    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks={"mine": fields, "more": fields})
    assert "becomes that of task 'mine'; more, which fit, too, get new ones" in caplog.text
    assert_same_head(model, stock)


@pytest.mark.parametrize("kind", ["bert", "distilbert"])
def test_a_mapping_of_the_caller_is_added_to_those_of_the_type(tmp_path, kind):
    stock, fields = make_classifier(tmp_path, kind)
    model = MinBertForMultiTask.from_pretrained(
        tmp_path, tasks={"mine": fields}, key_mapping={"^other": "bert"}
    )
    assert_same_head(model, stock)


def test_a_head_on_the_last_layer_is_not_that_of_another_layer(tmp_path, caplog):
    _, fields = make_classifier(tmp_path, id2label={0: "a", 1: "b"})
    caplog.set_level("WARNING")
    MinBertForMultiTask.from_pretrained(tmp_path, tasks={"mine": {**fields, "pooling_layer": 1}})
    assert "not loaded; it would be that of a task with the fields" in caplog.text


@pytest.mark.parametrize("kind", ["mpnet", "modernbert"])
def test_what_layers_share_counts_as_below_them(tmp_path, kind):
    make_stock(kind).save_pretrained(tmp_path)
    model = MinBertForMultiTask.from_pretrained(tmp_path, tasks=TASKS)
    FreezeLayers(1).prepare(model, None)
    frozen = {name for name, value in model.bert.named_parameters() if not value.requires_grad}

    assert {name.split(".")[0] for name in frozen} == {"embeddings", "encoder"}
    assert ("encoder.relative_attention_bias.weight" in frozen) == (kind == "mpnet")


def test_one_fresh_process_loads_several_types_as_remote_code(tmp_path):
    models = {}
    for kind in ("roberta", "mpnet", "modernbert"):
        make_stock(kind).save_pretrained(tmp_path / "stock")
        models[kind] = MinBertModel.from_pretrained(tmp_path / "stock").eval()
        models[kind].save_pretrained(tmp_path / kind)
    script = """
import torch
from transformers import AutoModel

models = [AutoModel.from_pretrained(path, trust_remote_code=True).eval() for path in sys.argv[2:]]
assert all(type(model).__module__.startswith("transformers_modules.") for model in models)
ids = torch.arange(3, 21).view(2, 9)
torch.save([model(ids).last_hidden_state.detach() for model in models], sys.argv[1])
"""
    paths = [tmp_path / name for name in ("results.pt", *models)]
    run_without_this_project(script, *paths, folder=tmp_path)

    results = torch.load(tmp_path / "results.pt")
    ids = torch.arange(3, 21).view(2, 9)
    for model, found in zip(models.values(), results, strict=True):
        assert_close(found, model(ids).last_hidden_state)
