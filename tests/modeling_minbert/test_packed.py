"""A packed batch, and a padded one that is unpadded inside, equal BERT on padding.

The oracle is transformers' BERT with the same weights; for pooled vectors, which BERT has not, the
eager implementation on the padded batch.
"""

import pytest
import torch
import transformers
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertConfig, DataCollatorWithFlattening
from transformers.integrations.neftune import neftune_post_forward_hook

import modeling_minbert
from modeling_minbert import MinBertConfig, MinBertModel
from tests.small_run import vary_weights

LENGTHS = torch.tensor([7, 3, 6, 2, 5])  # of tiny_batch
PAIRS = {
    "MinBertModel": "BertModel",
    "MinBertForMaskedLM": "BertForMaskedLM",
    "MinBertForNSP": "BertForNextSentencePrediction",
    "MinBertForPreTraining": "BertForPreTraining",
    "MinBertForSequenceClassification": "BertForSequenceClassification",
    "MinBertForTokenClassification": "BertForTokenClassification",
    "MinBertForQuestionAnswering": "BertForQuestionAnswering",
}
TOKEN_LABELS = ["MinBertForMaskedLM", "MinBertForPreTraining", "MinBertForTokenClassification"]
EXACT = {"atol": 1e-10, "rtol": 1e-10}  # float64, two layers

every_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])


@pytest.fixture
def build_pair(tiny_sizes):
    """Return a function that makes our model and BERT's with the same weights in float64."""

    def build(name, attention="sdpa", **settings):
        torch.manual_seed(0)
        settings = {
            **tiny_sizes,
            "num_labels": 2 if name == "MinBertForQuestionAnswering" else 5,
            "attn_implementation": attention,
            "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0,
            "initializer_range": 0.2,
            **settings,
        }
        bert = getattr(transformers, PAIRS[name])(BertConfig(**settings))
        vary_weights(bert)
        ours = getattr(modeling_minbert, name)(MinBertConfig(**settings))
        ours.load_state_dict(bert.state_dict())
        return ours.double().eval(), bert.double().eval()

    return build


def pack(batch):
    """Pack a right-padded batch, (B, L) or (B, 2, L), by the contract."""
    flat = {key: value.flatten(0, -2) for key, value in batch.items()}
    real = flat.pop("attention_mask").bool()
    positions = torch.arange(real.shape[1]).expand(real.shape)
    packed = {key: value[real].unsqueeze(0) for key, value in flat.items()}
    return packed | {
        "position_ids": positions[real].unsqueeze(0),
        "cu_seq_lens_q": F.pad(real.sum(dim=1).cumsum(0), (1, 0)).int(),
        "max_length_q": int(real.sum(dim=1).max()),
    }


def make_labels(name, mask):
    """Return the labels of a head for the padded batch, and for the packed one."""
    rows, length = mask.shape
    each = {"labels": torch.arange(rows)}
    binary = torch.arange(rows) % 2
    tokens = torch.arange(rows * length).view(rows, length) % 5
    tokens = torch.where((mask == 1) & (torch.arange(length) % 2 == 1), tokens, -100)
    padded = {
        "MinBertModel": {},
        "MinBertForNSP": {"labels": binary},
        "MinBertForSequenceClassification": each,
        "MinBertForQuestionAnswering": {"start_positions": binary, "end_positions": 0 * binary + 1},
        "MinBertForPreTraining": {"labels": tokens, "next_sentence_label": binary},
    }.get(name, {"labels": tokens})
    if name not in TOKEN_LABELS:
        return padded, padded
    return padded, padded | {"labels": tokens[mask == 1].unsqueeze(0)}


def real_outputs(outputs, mask):
    """Take the real tokens of every output of BERT, in the order of the packed batch."""
    return {
        key: value[mask == 1].unsqueeze(0) if value.shape[:2] == mask.shape else value
        for key, value in outputs.items()
    }


def total(outputs):
    """Return a number that depends on every output; answers are scored over other columns."""
    if "start_logits" in outputs:
        return sum((outputs[key] * outputs[key].abs()).mean() for key in outputs if "_log" in key)
    if outputs.get("loss") is not None:
        return outputs["loss"]
    return outputs["last_hidden_state"].square().mean() + outputs["pooler_output"].sum()


def real_answers(outputs, mask):
    """Take the scores of real tokens; they come as rows of the longest sequence."""
    return {key: value[mask == 1] for key, value in outputs.items() if key != "loss"}


def assert_equal_gradients(ours, bert, **tolerance):
    """Compare all gradients; what BERT does not have may have none."""
    gradients = {key: weight.grad for key, weight in bert.named_parameters()}
    for key, weight in ours.named_parameters():
        expected = gradients.get(key)
        assert (weight.grad is None) == (expected is None), key
        if expected is not None:
            assert_close(weight.grad, expected, **tolerance, msg=f"gradient of {key} differs")


# Packed batches


@every_attention
def test_packed_answers_and_their_gradients_equal_bert(build_pair, tiny_batch, attention):
    """Other heads are in test_families.py; here every answer counts, in sequences of any length."""
    ours, bert = build_pair("MinBertForQuestionAnswering", attention)
    mask = tiny_batch["attention_mask"]
    outputs = ours(**pack(tiny_batch))
    assert outputs.start_logits[mask == 0].max() < -1e30  # no answer is there
    actual, expected = (real_answers(x, mask) for x in (outputs, bert(**tiny_batch)))
    assert_close(actual, expected, **EXACT)
    total(actual).backward()
    total(expected).backward()
    assert_equal_gradients(ours, bert, **EXACT)


@pytest.mark.parametrize(
    "name", ["MinBertModel", "MinBertForMaskedLM", "MinBertForTokenClassification"]
)
def test_the_collator_of_transformers_packs_for_us(build_pair, name):
    ours, bert = build_pair(name)
    generator = torch.Generator().manual_seed(1)
    rows = [torch.randint(1, 31, (n,), generator=generator).tolist() for n in (4, 1, 7)]
    features = [{"input_ids": row, "labels": [token % 5 for token in row]} for row in rows]
    batch = dict(DataCollatorWithFlattening(return_flash_attn_kwargs=True)(features))
    if name == "MinBertModel":
        del batch["labels"]
    assert {"cu_seq_lens_k", "max_length_k", "max_length_q"} <= batch.keys()

    actual = ours(**batch)

    states = [bert(torch.tensor([row]), output_hidden_states=True) for row in rows]
    if name == "MinBertModel":
        expected = torch.cat([each.last_hidden_state[0] for each in states])
        assert_close(actual.last_hidden_state[0], expected, **EXACT)
        assert_close(actual.pooler_output, torch.cat([x.pooler_output for x in states]), **EXACT)
        return
    # it labels for a causal model: no label for the first token of a sequence
    labels = torch.tensor([label for x in features for label in [-100, *x["labels"][1:]]])
    logits = torch.cat([each.logits[0] for each in states])
    assert_close(actual.loss.double(), F.cross_entropy(logits, labels), atol=1e-6, rtol=1e-6)


def test_a_packed_batch_without_offsets_is_refused(build_pair):
    ours, bert = build_pair("MinBertModel")
    rows = [{"input_ids": [2, 7, 8, 3]}, {"input_ids": [2, 9, 3]}]
    batch = dict(DataCollatorWithFlattening()(rows))
    del batch["labels"]
    with pytest.raises(ValueError, match=r"restart at token 4, .* pass cu_seq_lens_q"):
        ours(**batch)
    batch["position_ids"] = torch.tensor([[0, 0, 1, 2, 2, 1, 5]])  # of one sequence
    assert_close(ours(**batch).last_hidden_state, bert(**batch).last_hidden_state, **EXACT)


@every_attention
def test_a_packed_batch_may_be_one_sequence_or_single_tokens(build_pair, attention):
    ours, bert = build_pair("MinBertModel", attention)
    ids = torch.arange(1, 8).unsqueeze(0)
    one = {"cu_seq_lens_q": torch.tensor([0, 7]), "max_length_q": 7}
    seven = {"cu_seq_lens_q": torch.arange(8), "max_length_q": 1}

    assert_close(dict(ours(ids, **one)), dict(bert(ids)), **EXACT)
    alone = ours(ids, **seven)
    assert_close(alone.last_hidden_state[0], bert(ids.T).last_hidden_state[:, 0], **EXACT)
    assert_close(alone.pooler_output, bert(ids.T).pooler_output, **EXACT)


# Padded batches that are unpadded inside


def assert_real_tokens_equal(actual, expected, mask):
    real = mask == 1
    assert_close(actual.last_hidden_state[real], expected.last_hidden_state[real], **EXACT)
    assert_close(actual.pooler_output, expected.pooler_output, **EXACT)


def gaps(mask):
    mask[0, 3] = mask[2, 1] = mask[2, 4] = 0


def left(mask):
    mask[:] = mask.flip(1)


def mixed(mask):
    mask[1] = mask[1].flip(0)


def empty_rows(mask):
    mask[1] = mask[4] = 0


def nothing(mask):
    mask[:] = 0


@pytest.mark.parametrize("change", [None, gaps, left, mixed, empty_rows, nothing])
@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32])
def test_every_mask_equals_bert(build_pair, tiny_batch, change, kind):
    ours, bert = build_pair("MinBertModel")
    mask = tiny_batch["attention_mask"].clone()
    if change is not None:
        change(mask)
    batch = tiny_batch | {"attention_mask": mask.to(kind)}

    actual, expected = ours(**batch), bert(**batch)

    assert_real_tokens_equal(actual, expected, mask)
    total(real_outputs(actual, mask)).backward()
    total(real_outputs(expected, mask)).backward()
    if change is not nothing:  # the mean of no token
        assert_equal_gradients(ours, bert, **EXACT)


def test_a_mask_of_every_pair_of_tokens_equals_bert(build_pair, tiny_batch):
    ours, bert = build_pair("MinBertModel")
    generator = torch.Generator().manual_seed(2)
    mask = torch.rand(5, 1, 7, 7, generator=generator) < 0.5
    mask |= torch.eye(7, dtype=torch.bool)
    batch = {"input_ids": tiny_batch["input_ids"], "attention_mask": mask}

    assert_close(dict(ours(**batch)), dict(bert(**batch)), **EXACT)


@pytest.mark.parametrize("shared", [True, False])
def test_given_positions_equal_bert(build_pair, tiny_batch, shared):
    ours, bert = build_pair("MinBertModel")
    positions = torch.randperm(17, generator=torch.Generator().manual_seed(1))[:7].unsqueeze(0)
    if not shared:
        positions = (positions + torch.arange(5)[:, None]) % 17
    batch = tiny_batch | {"position_ids": positions}

    assert_real_tokens_equal(ours(**batch), bert(**batch), tiny_batch["attention_mask"])


def test_given_embeddings_get_the_gradient_that_bert_gives(build_pair, tiny_batch):
    ours, bert = build_pair("MinBertModel")
    mask = tiny_batch["attention_mask"]
    embeds = torch.randn(5, 7, 33, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    batch = {"attention_mask": mask, "token_type_ids": tiny_batch["token_type_ids"]}

    gradients = []
    for model in (ours, bert):
        given = embeds.clone().requires_grad_()
        total(real_outputs(model(inputs_embeds=given, **batch), mask)).backward()
        gradients.append(given.grad)

    assert_close(*gradients, **EXACT)
    assert not gradients[0][mask == 0].any()


@pytest.mark.parametrize("how", ["keyword", "config"])
@pytest.mark.parametrize("what", ["hidden_states", "attentions", "packed hidden_states"])
def test_what_is_recorded_equals_bert(build_pair, tiny_batch, how, what):
    ours, bert = build_pair("MinBertModel", "eager" if what == "attentions" else "sdpa")
    key = what.removeprefix("packed ")
    keywords = {f"output_{key}": True} if how == "keyword" else {}
    if how == "config":
        setattr(ours.config, f"output_{key}", True)
        setattr(bert.config, f"output_{key}", True)

    batch = pack(tiny_batch) if what.startswith("packed") else tiny_batch
    actual, expected = ours(**batch, **keywords)[key], bert(**tiny_batch, **keywords)[key]

    assert len(actual) == (3 if key == "hidden_states" else 2)
    if what.startswith("packed"):
        expected = [real_outputs({key: x}, tiny_batch["attention_mask"])[key] for x in expected]
    assert_close(list(actual), list(expected), **EXACT)


# What is read


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_unread_tokens_do_not_change_read_ones(build_pair, tiny_batch, attention, layout):
    ours, _ = build_pair("MinBertModel", attention)
    mask = tiny_batch["attention_mask"] == 1
    batch = tiny_batch if layout == "padded" else pack(tiny_batch)
    every = ours(**batch)
    wanted = mask & (torch.arange(35).view(5, 7) % 3 == 0)
    states = every.last_hidden_state[mask if layout == "padded" else slice(None)].view(-1, 33)
    read = wanted if layout == "padded" else wanted[mask].unsqueeze(0)

    chosen = ours(**batch, read=read)
    first = ours(**batch, read="first")

    assert_close(chosen.last_hidden_state, states[wanted[mask]], **EXACT)
    assert_close(chosen.pooler_output, every.pooler_output, **EXACT)
    starts = F.pad(LENGTHS.cumsum(0), (1, 0))[:-1]
    assert_close(first.last_hidden_state[:, 0], states[starts], **EXACT)
    assert_close(first.pooler_output, every.pooler_output, **EXACT)


# Sparse prediction


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_which_scores_are_computed_is_documented(build_pair, tiny_batch, name, layout, attention):
    ours, bert = build_pair(name, attention)
    padded_labels, packed_labels = make_labels(name, tiny_batch["attention_mask"])
    batch = (tiny_batch | padded_labels) if layout == "padded" else pack(tiny_batch) | packed_labels
    key = "logits" if name == "MinBertForMaskedLM" else "prediction_logits"
    expected = bert(**tiny_batch, **padded_labels)
    real, labelled = tiny_batch["attention_mask"] == 1, padded_labels["labels"] != -100

    in_training, in_evaluation = ours.train()(**batch), ours.eval()(**batch)
    ours.config.sparse_prediction = False
    full = [model(**batch) for model in (ours.train(), ours.eval())]

    assert in_training.get(key) is None
    if layout == "packed":
        assert_close(in_evaluation[key], expected[key][labelled], **EXACT)
    else:
        assert_close(in_evaluation[key][real], expected[key][real], **EXACT)
    for outputs in full:
        scores = outputs[key][real] if layout == "padded" else outputs[key][0]
        assert_close(scores, expected[key][real], **EXACT)
    for outputs in (in_training, in_evaluation, *full):
        assert_close(outputs.loss.double(), expected.loss.double(), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForTokenClassification"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("number", [3, torch.tensor(40)])
def test_the_number_of_items_divides_the_loss(build_pair, tiny_batch, name, layout, number):
    ours, _ = build_pair(name)
    padded_labels, packed_labels = make_labels(name, tiny_batch["attention_mask"])
    batch = (tiny_batch | padded_labels) if layout == "padded" else pack(tiny_batch) | packed_labels
    count = (packed_labels["labels"] != -100).sum()

    for model in (ours.train(), ours.eval()):
        mean, scaled = model(**batch).loss, model(**batch, num_items_in_batch=number).loss
        assert_close(scaled * number, mean * count)


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("training", [True, False])
def test_label_positions_equal_labels(build_pair, tiny_batch, name, attention, training):
    ours, twin = build_pair(name, attention)[0].train(training), build_pair(name, attention)[0]
    _, labels = make_labels(name, tiny_batch["attention_mask"])
    places = (labels["labels"][0] != -100).nonzero().squeeze(1)
    filled = torch.cat([places, torch.tensor([0, 0, 0])])
    assert labels["labels"][0, 0] == -100
    batch = pack(tiny_batch) | labels

    expected, actual = twin.train(training)(**batch), ours(**batch, label_positions=filled)
    expected.loss.backward()
    actual.loss.backward()

    assert_close(actual.loss, expected.loss, **EXACT)
    assert_equal_gradients(ours, twin, **EXACT)


@pytest.mark.parametrize("name", TOKEN_LABELS)
@pytest.mark.parametrize("training", [True, False])
def test_labels_at_paddings_count_as_in_bert(build_pair, tiny_batch, name, training):
    ours, bert = (model.train(training) for model in build_pair(name))
    labels, _ = make_labels(name, torch.ones_like(tiny_batch["attention_mask"]))

    actual, expected = ours(**tiny_batch, **labels).loss, bert(**tiny_batch, **labels).loss
    actual.backward()
    expected.backward()

    assert_close(actual.double(), expected.double(), atol=1e-6, rtol=1e-6)
    assert_equal_gradients(ours, bert, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["classes", "labels", "score"])
def test_the_first_labels_set_the_kind_of_a_classifier_as_in_bert(build_pair, tiny_batch, kind):
    name = "MinBertForSequenceClassification"
    ours, bert = build_pair(name, num_labels=1 if kind == "score" else 5)
    labels = {"classes": torch.arange(5), "labels": torch.eye(5), "score": torch.rand(5)}[kind]
    if kind != "classes":
        labels = labels.double()

    actual, expected = ours(**tiny_batch, labels=labels), bert(**tiny_batch, labels=labels)

    assert ours.config.problem_type == bert.config.problem_type is not None
    assert_close(actual.loss, expected.loss, **EXACT)


def test_the_noise_of_neftune_is_that_of_bert(build_pair, tiny_batch):
    losses = []
    for model in build_pair("MinBertForSequenceClassification"):
        embeddings = model.train().get_input_embeddings()
        embeddings.neftune_noise_alpha = 5.0  # as transformers' Trainer does
        embeddings.register_forward_hook(neftune_post_forward_hook)
        torch.manual_seed(0)
        losses.append(model(**tiny_batch, labels=torch.arange(5)).loss)

    assert_close(*losses, **EXACT)


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
@pytest.mark.parametrize("shape", [(5, 6), (1, 7), (35,)])
@pytest.mark.parametrize("training", [True, False])
def test_labels_of_another_shape_are_refused(build_pair, tiny_batch, name, shape, training):
    ours = build_pair(name)[0].train(training)

    with pytest.raises(ValueError, match="there must be one for each token"):
        ours(**tiny_batch, labels=torch.ones(shape, dtype=torch.int64))


# Bad packed batches


@pytest.mark.parametrize("name", ["MinBertModel", "MinBertForMaskedLM"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cu_seq_lens_q": [0, 5, 3, 23]}, r"must ascend from 0 to the 23 tokens.*\[0, 5, 3, 23\]"),
        ({"cu_seq_lens_q": [0, 5, 22]}, r"must ascend from 0 to the 23 tokens.*\[0, 5, 22\]"),
        ({"cu_seq_lens_q": [0, 5, 24]}, "must ascend from 0 to the 23 tokens"),
        ({"cu_seq_lens_q": [1, 5, 23]}, "must ascend from 0 to the 23 tokens"),
        ({"cu_seq_lens_q": [0, 5, 5, 23]}, "without an empty sequence"),
        ({"cu_seq_lens_q": [[0, 5, 23]]}, r"cu_seq_lens_q of \(N \+ 1,\), got .*\(1, 3\)"),
        ({"max_length_q": 6}, "max_length_q=6, but a sequence has 7 tokens"),
        ({"attention_mask": [[1] * 23]}, "no padding: leave attention_mask out"),
        ({"input_ids": [[3] * 23] * 2}, r"a packed batch is \(1, T\) tokens .* got \(2, 23\)"),
    ],
)
def test_a_packed_batch_that_is_none_is_refused(build_pair, tiny_batch, name, change, message):
    ours, _ = build_pair(name)
    change = {
        key: torch.tensor(value) if isinstance(value, list) else value
        for key, value in change.items()
    }

    with pytest.raises(ValueError, match=message):
        ours(**pack(tiny_batch) | change)


def test_a_packed_sequence_beyond_the_positions_is_refused(build_pair):
    ours, _ = build_pair("MinBertModel")
    offsets = {"cu_seq_lens_q": torch.tensor([0, 18, 20]), "max_length_q": 18}

    with pytest.raises(ValueError, match="a sequence of 18 tokens is longer than"):
        ours(torch.ones(1, 20, dtype=torch.long), **offsets)
    within = {"cu_seq_lens_q": torch.tensor([0, 17, 20]), "max_length_q": 17}
    assert ours(torch.ones(1, 20, dtype=torch.long), **within).pooler_output.shape == (2, 33)


# Precision, and other ways to run a model


@pytest.mark.parametrize("name", [name for name in PAIRS if "Question" not in name])
@pytest.mark.parametrize("how", ["autocast", "bfloat16", "float16"])
def test_half_precision_is_near(build_pair, tiny_batch, name, how):
    ours, bert = build_pair(name, initializer_range=0.02)
    mask = tiny_batch["attention_mask"]
    of_padded, of_packed = make_labels(name, mask)
    expected = real_outputs(bert.train()(**tiny_batch, **of_padded), mask)
    total(expected).backward()
    ours = ours.float() if how == "autocast" else ours.to(getattr(torch, how))

    with torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
        actual = ours.train()(**pack(tiny_batch), **of_packed)
    total(actual).backward()

    assert_close(total(actual).double(), total(expected).double(), atol=0.0, rtol=2e-2)
    gradients = dict(bert.named_parameters())
    for key, weight in ours.named_parameters():
        if "key.bias" in key:  # it is zero, and here nothing but rounding
            continue
        reference = gradients[key].grad
        assert (weight.grad.double() - reference).norm() < 0.05 * reference.norm() + 1e-6, key


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch's tracer
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("how", ["export", "trace"])
@pytest.mark.parametrize("name", ["MinBertModel", "MinBertForSequenceClassification"])
def test_an_exported_model_computes_the_same(build_pair, tiny_batch, name, how):
    ours, _ = build_pair(name)
    ids, mask = tiny_batch["input_ids"], tiny_batch["attention_mask"]
    if how == "export":
        exported = torch.export.export(ours, (ids, mask), strict=False).module()
    else:
        exported = torch.jit.trace(ours, (ids, mask), strict=False)
    other = (ids * 7) % 31

    actual, expected = (next(iter(model(other, mask).values())) for model in (exported, ours))

    real = mask == 1 if name == "MinBertModel" else slice(None)
    assert_close(actual[real], expected[real], **EXACT)


# What went wrong once


@pytest.mark.parametrize("name", ["MinBertForMaskedLM", "MinBertForPreTraining"])
@pytest.mark.parametrize("how", ["padded", "packed", "positions"])
def test_a_batch_without_any_label_breaks_no_weight(build_pair, tiny_batch, name, how):
    ours, bert = (x.train() for x in build_pair(name))
    mask = tiny_batch["attention_mask"]
    none = torch.full_like(mask, -100)
    more = {"next_sentence_label": torch.arange(5) % 2} if "Pre" in name else {}
    batch = tiny_batch | {"labels": none}
    if how != "padded":
        batch = pack(tiny_batch) | {"labels": none[mask == 1].unsqueeze(0)}
    if how == "positions":
        batch["label_positions"] = torch.tensor([0, 0])
    loss, expected = ours(**batch, **more).loss, bert(**tiny_batch, labels=none, **more).loss
    assert loss.isnan()
    assert expected.isnan()
    loss.backward()
    expected.backward()
    for (key, weight), other in zip(ours.named_parameters(), bert.parameters(), strict=True):
        assert weight.grad is not None or key.startswith("cls."), key
        grads = [x.grad if x.grad is not None else torch.zeros_like(x) for x in (weight, other)]
        assert_close(*grads, **EXACT)


def test_a_mask_of_another_shape_is_refused(build_pair, tiny_batch):
    ours, _ = build_pair("MinBertModel")
    with pytest.raises(ValueError, match="attention_mask"):
        ours(tiny_batch["input_ids"], attention_mask=tiny_batch["attention_mask"][:, :6])


@pytest.mark.parametrize("implementation", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["left", "right", "anywhere"])
def test_states_of_paddings_are_zero(tiny_sizes, implementation, kind):
    torch.manual_seed(0)
    model = MinBertModel(MinBertConfig(**tiny_sizes)).eval()
    model.set_attn_implementation(implementation)
    for _ in range(50):
        batch, length = torch.randint(1, 5, ()).item(), torch.randint(1, 15, ()).item()
        lengths = torch.randint(1, length + 1, (batch, 1))
        places = torch.arange(length)
        mask = {
            "left": (places >= length - lengths).long(),
            "right": (places < lengths).long(),
            "anywhere": torch.randint(0, 2, (batch, length)).index_fill(1, places[:1], 1),
        }[kind]

        states = model(torch.randint(5, 20, (batch, length)), mask).last_hidden_state

        assert (states[mask == 0] == 0).all()
        assert states[mask == 1].isfinite().all()
