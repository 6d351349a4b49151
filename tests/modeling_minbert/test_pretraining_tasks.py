"""MLM and NSP as tasks of a multi-task model equal BERT's pre-training."""

import pytest
import torch
import transformers
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertConfig, BertForPreTraining

from modeling_minbert import (
    MinBertForMaskedLM,
    MinBertForMultiTask,
    MinBertForNSP,
    MinBertForPreTraining,
)
from tests.modeling_minbert import test_packed

TONE = {"problem_type": "classification", "labels": ["down", "level", "up"]}
KINDS = {name: {"problem_type": name} for name in ("masked_lm", "next_sentence", "pretraining")}
EXACT = {"atol": 1e-10, "rtol": 1e-10}  # float64, two layers
NEXT = torch.tensor([0, 1, 1, 0, 1])  # of the rows of tiny_batch
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}

every_kind = pytest.mark.parametrize("kind", KINDS)
every_layout = pytest.mark.parametrize("layout", ["padded", "packed"])
every_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])
every_mode = pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])


@pytest.fixture
def build(build_multitask):
    """Return a function that makes a model without dropout in float64; its tasks have our names."""

    def build(*kinds, **settings):
        tasks = {"tone": TONE} | {kind: KINDS[kind] for kind in kinds}
        return build_multitask(tasks, **NO_DROPOUT, **settings).double()

    return build


@pytest.fixture
def words(tiny_batch):
    """Return labels of words for ``tiny_batch``: every third real token, (B, L)."""
    mask = tiny_batch["attention_mask"]
    chosen = (torch.arange(mask.numel()).view(mask.shape) % 3 == 1) & (mask == 1)
    return torch.where(chosen, (tiny_batch["input_ids"] * 7) % 31, -100)


def pack(batch):
    """Pack a padded batch with its word labels."""
    rows = {key: value for key, value in batch.items() if value.dim() > 1}
    return batch | {"attention_mask": None} | test_packed.pack(rows)


def make_batch(kind, batch, words, layout="padded"):
    """Return the inputs and labels of a task."""
    labels = {
        "masked_lm": {"labels": words},
        "next_sentence": {"labels": NEXT},
        "pretraining": {"labels": words, "next_sentence_label": NEXT},
    }[kind]
    return batch | labels if layout == "padded" else pack(batch | labels)


def make_bert(model, sizes):
    """Return BERT with the weights of a model that has both heads."""
    bert = BertForPreTraining(BertConfig(**sizes, **NO_DROPOUT)).double()
    state = model.state_dict()
    bert.load_state_dict({key: state[key] for key in bert.state_dict()})
    return bert


def bert_losses(outputs, words):
    """Return the loss of BERT for every kind of task."""
    mlm = F.cross_entropy(outputs.prediction_logits.flatten(0, 1), words.flatten())
    nsp = F.cross_entropy(outputs.seq_relationship_logits, NEXT)
    return {"masked_lm": mlm, "next_sentence": nsp, "pretraining": mlm + nsp}


# Losses and scores


@every_kind
@every_layout
@every_attention
@every_mode
def test_losses_and_gradients_equal_bert(
    build, tiny_sizes, tiny_batch, words, kind, layout, attention, training
):
    model = build(*KINDS, attn_implementation=attention).train(training)
    bert = make_bert(model, tiny_sizes)

    actual = model(**make_batch(kind, tiny_batch, words, layout), task=kind).loss
    expected = bert_losses(bert(**tiny_batch), words)[kind]
    actual.backward()
    expected.backward()

    assert_close(actual, expected, **EXACT)
    test_packed.assert_equal_gradients(model, bert, **EXACT)


@pytest.mark.parametrize("name", ["MinBertForMultiTask", "MinBertForPreTraining"])
@every_layout
@every_mode
def test_the_number_of_items_divides_the_loss_of_words_alone(
    build, tiny_batch, words, name, layout, training
):
    model = build("pretraining")
    more = {"task": "pretraining"}
    if name == "MinBertForPreTraining":
        twin = MinBertForPreTraining(model.config).double()
        twin.load_state_dict({key: model.state_dict()[key] for key in twin.state_dict()})
        model, more = twin, {}
    batch = make_batch("pretraining", tiny_batch, words, layout)
    count = int((words != -100).sum())

    mean = model.train(training)(**batch, **more)
    scaled = model(**batch, **more, num_items_in_batch=torch.tensor(40))

    assert_close(scaled.mlm_loss * 40, mean.mlm_loss * count, **EXACT)
    assert_close(scaled.nsp_loss, mean.nsp_loss, **EXACT)
    for outputs in (mean, scaled):
        assert_close(outputs.loss, outputs.mlm_loss + outputs.nsp_loss, **EXACT)


# Weights and folders


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("kinds", [(), ("next_sentence",), ("masked_lm",), ("pretraining",)])
def test_the_decoder_is_the_word_embedding_also_when_resized(
    build, tiny_batch, tmp_path, kinds, tied
):
    model = build(*kinds, tie_word_embeddings=tied)
    model.resize_token_embeddings(37, mean_resizing=False)
    model.save_pretrained(tmp_path)
    loaded, report = MinBertForMultiTask.from_pretrained(tmp_path, output_loading_info=True)

    assert not any(report.values()), report
    assert_close(loaded.state_dict(), model.state_dict(), rtol=0, atol=0)
    for each in (model, loaded):
        decoder, embedding = each.get_output_embeddings(), each.get_input_embeddings()
        assert len(embedding.weight) == 37
        if kinds in ((), ("next_sentence",)):
            assert decoder is None
        else:
            assert decoder is each.cls.predictions.decoder
            assert decoder.weight.shape == (37, 33)
            assert (decoder.weight is embedding.weight) == tied
            assert (decoder.bias is each.cls.predictions.bias) == tied
    assert_close(loaded(**tiny_batch).logits, model(**tiny_batch).logits)


@every_kind
def test_the_auto_class_of_a_kind_finds_its_heads_in_the_folder(build, tiny_batch, tmp_path, kind):
    model = build(kind)
    model.save_pretrained(tmp_path)
    model_class = {
        "masked_lm": MinBertForMaskedLM,
        "next_sentence": MinBertForNSP,
        "pretraining": MinBertForPreTraining,
    }[kind]

    auto = getattr(transformers, model_class._auto_class)
    loaded, report = auto.from_pretrained(tmp_path, output_loading_info=True)

    assert type(loaded) is model_class
    assert not any(report.values()), report
    outputs = model(**tiny_batch, task=kind).to_tuple()
    assert_close(loaded.eval()(**tiny_batch).to_tuple(), outputs, **EXACT)


@pytest.mark.parametrize("source", ["bert", "minbert", "multitask"])
def test_a_checkpoint_of_pre_training_keeps_its_heads(
    build, tiny_sizes, tiny_batch, tmp_path, source
):
    multitask = build(*KINDS)
    bert = make_bert(multitask, tiny_sizes).eval()
    if source == "minbert":
        model = MinBertForPreTraining(multitask.config).double()
        model.load_state_dict(bert.state_dict())
    else:
        model = bert if source == "bert" else multitask
    model.save_pretrained(tmp_path)

    tasks = {"mlm": KINDS["masked_lm"], "nsp": KINDS["next_sentence"]}
    loaded = MinBertForMultiTask.from_pretrained(tmp_path, tasks=tasks).eval()

    expected = bert(**tiny_batch)
    for task, key in (("mlm", "prediction_logits"), ("nsp", "seq_relationship_logits")):
        real = tiny_batch["attention_mask"] == 1 if task == "mlm" else slice(None)
        assert_close(loaded(**tiny_batch, task=task)[key][real], expected[key][real], **EXACT)
    assert loaded.cls.predictions.decoder.weight is loaded.get_input_embeddings().weight
    assert loaded.config.default_task == "mlm"
    assert list(loaded.heads) == []


# What is refused


@every_kind
@pytest.mark.parametrize("call", ["decode", "predict", "predict_stream"])
def test_predictions_of_sentences_are_refused_with_the_class_that_has_them(build, kind, call):
    model = build(*KINDS)
    auto_class = {
        "masked_lm": "AutoModelForMaskedLM",
        "next_sentence": "AutoModelForNextSentencePrediction",
        "pretraining": "AutoModelForPreTraining",
    }[kind]

    with pytest.raises(ValueError, match=f"task '{kind}' is a {kind}.* with {auto_class}$"):
        getattr(model, call)(kind, torch.zeros(1, 2) if call == "decode" else ["a"])


@pytest.mark.parametrize("kind", ["masked_lm", "pretraining"])
@every_layout
def test_labels_that_are_not_one_a_token_are_refused(build, tiny_batch, words, kind, layout):
    model = build(kind)
    batch = make_batch(kind, tiny_batch, words, layout) | {"labels": NEXT}
    shape = r"\(5, 7\)" if layout == "padded" else r"\(1, 23\)"

    with pytest.raises(ValueError, match=rf"labels of shape \(5,\).*one per token, {shape}"):
        model(**batch, task=kind)
