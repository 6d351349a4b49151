"""Encoders of every model type have the outputs and the gradients of transformers' models."""

import copy
import json
import re

import pytest
import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import distributed
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import CONFIG_MAPPING, PreTrainedTokenizerFast, TrainingArguments

import modeling_minbert
from minbert_cli.checkpoints import fit_together
from modeling_minbert import Encoding, MinBertConfig, MinBertModel, split_documents
from modeling_minbert.families import list_renames
from modeling_minbert.modeling_minbert import find_distance_buckets
from tests.modeling_minbert.test_precision import SimulatedLinear, needs_int8
from tests.small_run import vary_weights
from trainers.training.multitask import make_collator

SIZES = {
    "vocab_size": 60,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "max_position_embeddings": 20,
}
PLAIN = SIZES | dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.0)
DISTILBERT = {"dim": 24, "n_layers": 2, "n_heads": 3, "hidden_dim": 32}
ZERO = ("dropout", "attention_dropout", "qa_dropout", "seq_classif_dropout")
DISTILBERT |= dict.fromkeys(ZERO, 0.0)
MODERN = {"num_hidden_layers": 4, "local_attention": 4}  # two to each side
MODERN |= {
    f"{name}_token_id": i for i, n in enumerate(("pad", "cls bos", "sep eos")) for name in n.split()
}
CONFIGS = {
    "bert": PLAIN,
    "roberta": PLAIN | {"type_vocab_size": 1, "layer_norm_eps": 1e-5},
    "xlm-roberta": PLAIN | {"type_vocab_size": 1},
    "camembert": PLAIN | {"type_vocab_size": 1},
    "mpnet": PLAIN,
    "distilbert": {"vocab_size": 60, "max_position_embeddings": 20, **DISTILBERT},
    "modernbert": SIZES | MODERN,
}
HEADS = ("", *(f"For{x}" for x in ("MaskedLM", "SequenceClassification", "TokenClassification")))
HEADS += ("ForQuestionAnswering",)
CLASSES = {f"AutoModel{head}": f"MinBert{head or 'Model'}" for head in HEADS}
# Their heads have a layer that is not BERT's.
REFUSED = {
    ("modernbert", f"For{head}")
    for head in ("SequenceClassification", "TokenClassification", "QuestionAnswering")
}
CASES = [(kind, head) for kind in CONFIGS for head in HEADS if (kind, head) not in REFUSED]
CASES += [("bert", "ForNextSentencePrediction"), ("bert", "ForPreTraining")]
NAMES = {"": "Model", "ForNextSentencePrediction": "ForNSP"}
LENGTHS = (12, 7, 12, 4)
LABELS = ("labels", "start_positions", "end_positions", "next_sentence_label")
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.cuda, NO_GPU])]
every_device = pytest.mark.parametrize("device", DEVICES)
every_type = pytest.mark.parametrize("kind", CONFIGS)
every_case = pytest.mark.parametrize(("kind", "head"), CASES)
every_attention = pytest.mark.parametrize("attention", ["eager", "sdpa"])


def load_both(folder, kind, head="", attention="sdpa", **settings):
    """Save a model of transformers with random weights; return it, and what minBERT loads."""
    torch.manual_seed(0)
    config = CONFIG_MAPPING[kind](**CONFIGS[kind] | settings)
    # in transformers MPNet has eager alone, and that of ModernBERT is NaN in float64
    theirs = {"mpnet": "eager", "modernbert": "sdpa"}.get(kind, attention)
    stock = getattr(transformers, f"AutoModel{head}").from_config(
        config, attn_implementation=theirs
    )
    vary_weights(stock)
    stock.save_pretrained(folder)
    own = getattr(modeling_minbert, f"MinBert{NAMES.get(head, head)}")
    return stock.eval(), own.from_pretrained(folder, attn_implementation=attention).eval()


def make_batch(padding, side="right", lengths=LENGTHS):
    """Make sequences of some lengths, padded on a side."""
    torch.manual_seed(1)
    ids = torch.randint(6, 60, (len(lengths), max(lengths)))
    is_real = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    is_real = is_real.flip(1) if side == "left" else is_real
    return {"input_ids": ids.where(is_real, padding), "attention_mask": is_real.long()}


def pack(batch):
    """Remove the padding of a batch."""
    is_real = batch["attention_mask"].bool()
    packed = {
        key: values[is_real][None] if values.shape == is_real.shape else values
        for key, values in batch.items()
        if key != "attention_mask"
    }
    lengths = is_real.sum(dim=1)
    packed["position_ids"] = torch.cat([torch.arange(x) for x in lengths.tolist()])[None]
    return packed | {"cu_seq_lens_q": F.pad(lengths.cumsum(0), (1, 0)).int()}


def make_forms(padding, head):
    """Return padded batches with the labels of a head, and how minBERT gets them."""
    forms = []
    for form in ("right", "left", "packed"):
        # the loss of answers is over real tokens in a pack, over all columns in a padded batch
        is_full = form == "packed" and head == "ForQuestionAnswering"
        batch = make_batch(padding, form, (9, 9) if is_full else LENGTHS)
        rows, mask = torch.arange(len(batch["input_ids"])) % 2, batch["attention_mask"]
        if head == "ForQuestionAnswering":
            batch |= dict.fromkeys(LABELS[1:3], mask.argmax(dim=1) + rows)
            batch["end_positions"] = batch["end_positions"] + 90 * rows  # beyond: to be ignored
        elif head in ("ForSequenceClassification", "ForNextSentencePrediction"):
            batch["labels"] = rows
        elif head:
            batch["labels"] = (batch["input_ids"] % 2).where(mask == 1, -100)
            batch["labels"][:, ::3] = -100
        if head == "ForPreTraining":
            batch["next_sentence_label"] = rows
        forms.append((batch, pack(batch) if form == "packed" else batch))
    return forms


def list_errors(kind):
    """List the allowed errors; of the rotary positions transformers has float32 in float64, too."""
    return [(torch.float64, 1e-6 if kind == "modernbert" else 1e-10), (torch.float32, 1e-5)]


def real(values, batch):
    """Take the real tokens of a padded batch where values are of all tokens."""
    mask = batch.get("attention_mask")
    return values if mask is None or values.shape[:2] != mask.shape else values[mask.bool()]


def total(outputs, batch, names):
    """Return the loss, or without labels a number that depends on all that is named."""
    if outputs.get("loss") is not None:
        return outputs.loss
    values = [real(outputs[name], batch).flatten() for name in names]
    return sum((x * torch.linspace(-1, 1, len(x), dtype=x.dtype)).sum() for x in values)


def rename(name):
    """Return the name of a weight of transformers in minBERT."""
    for pattern, ours in list_renames().items():
        name = re.sub(pattern, ours, name)
    return name.replace("predictions.decoder.bias", "predictions.bias")


def compare_weights(stock, ours, size, read):
    """Compare all weights of transformers' model, or what is read of them, by name."""
    found = dict(ours.named_parameters(remove_duplicate=False))
    for name, parameter in stock.named_parameters():
        expected, actual = read(parameter), read(found[rename(name)])
        assert (expected is None) == (actual is None), name
        if expected is not None:
            assert_close(actual, expected, atol=size, rtol=size, msg=lambda m, x=name: f"{x}: {m}")


@every_device
@every_case
@every_attention
def test_outputs_losses_and_gradients_are_those_of_transformers(
    tmp_path, kind, head, attention, device
):
    stock, ours = (model.to(device) for model in load_both(tmp_path, kind, head, attention))
    for dtype, size in list_errors(kind):
        for forms in make_forms(stock.config.pad_token_id, head):
            batches = [{key: x.to(device) for key, x in batch.items()} for batch in forms]
            outputs, losses = [], []
            for model, batch in zip((stock.to(dtype), ours.to(dtype)), batches, strict=True):
                plain = {key: x for key, x in batch.items() if key not in LABELS}
                with torch.no_grad():
                    outputs.append(model.eval()(**plain))
                model.train().zero_grad()
                losses.append(total(model(**batch), batch, list(outputs[0])))
                losses[-1].backward()
            for key in outputs[0]:
                expected, actual = map(real, (x[key] for x in outputs), batches)
                assert_close(actual.reshape(expected.shape), expected, atol=size, rtol=size)
            assert_close(losses[1], losses[0], atol=size, rtol=size, check_dtype=False)
            compare_weights(stock, ours, size, lambda parameter: parameter.grad)


@every_type
@every_attention
def test_hidden_states_are_those_of_transformers(tmp_path, kind, attention):
    both = load_both(tmp_path, kind, attention=attention)
    batch = make_batch(both[0].config.pad_token_id)
    states = [model(**batch, output_hidden_states=True).hidden_states for model in both]
    for expected, actual in zip(*states, strict=True):
        assert_close(real(actual, batch), real(expected, batch), atol=1e-5, rtol=1e-5)


@every_type
def test_bfloat16_is_as_exact_as_in_transformers(tmp_path, kind):
    head = "ForMaskedLM" if kind == "modernbert" else "ForTokenClassification"
    stock, ours = load_both(tmp_path, kind, head)
    batch, packed = make_forms(stock.config.pad_token_id, head)[2]
    losses, gradients = [], []
    for model, inputs, half in ((stock, batch, False), (stock, batch, True), (ours, packed, True)):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            losses.append(model(**inputs).loss)
        losses[-1].backward()
        gradients.append({rename(name): x.grad for name, x in model.named_parameters()})
    exact, theirs, found = gradients
    assert_close(losses[2], losses[1], atol=0.01, rtol=0)
    errors = [
        sum((x[name] - exact[name]).square().sum() for name in exact) for x in (found, theirs)
    ]
    assert errors[0] <= 1.5**2 * errors[1]
    ours.set_precision("bfloat16")
    batch.pop("labels")
    with torch.no_grad():
        logits, expected = ours(**pack(batch))["logits"], real(stock(**batch).logits, batch)
    assert_close(logits.view_as(expected), expected, atol=0.03, rtol=0.03)


@needs_int8
@every_type
def test_int8_is_that_of_simulated_layers_in_transformers(tmp_path, kind):
    stock, ours = load_both(tmp_path, kind)
    batch = make_batch(stock.config.pad_token_id)
    exact = real(stock.double()(**batch).last_hidden_state, batch)
    layers = getattr(
        stock, {"distilbert": "transformer", "modernbert": "layers"}.get(kind, "encoder")
    )
    for name, layer in list(layers.named_modules()):
        if isinstance(layer, torch.nn.Linear):
            layers.set_submodule(name, SimulatedLinear(layer))
    with torch.no_grad():
        expected = real(stock(**batch).last_hidden_state, batch)
        ours.set_precision("int8")
        predicted = ours(**pack(batch)).last_hidden_state[0].double()
        ours.set_precision(None)
        ours.quantize()
        stored = ours(**pack(batch)).last_hidden_state[0].double()
    loss = (exact - expected).norm()
    assert (predicted - expected).norm() < min(0.3 * loss, 5e-3 * expected.norm())
    # the word embeddings, too, are in int8
    assert (stored - exact).norm() < (3 if kind == "modernbert" else 2) * loss


LOSSES = [(kind, n) for kind in (None, "regression", "multi_label_classification") for n in (1, 5)]


@pytest.mark.parametrize(
    ("problem_type", "num_labels"), [*LOSSES, ("single_label_classification", 5)]
)
def test_losses_of_sequences_are_those_of_bert(tmp_path, problem_type, num_labels):
    settings = {"num_labels": num_labels, "problem_type": problem_type}
    stock, ours = load_both(tmp_path, "bert", "ForSequenceClassification", **settings)
    is_one = problem_type == "single_label_classification" or (not problem_type and num_labels > 1)
    labels = torch.arange(4) if is_one else torch.rand(4, num_labels)
    expected = stock(**make_batch(0), labels=labels).loss
    assert ours.config.problem_type == problem_type
    assert_close(ours(**make_batch(0), labels=labels).loss, expected)


# Traps

WORDS = ("a", "cat", "sat", "on", "mat", "the", "far", "tree")
TEXTS = ("a cat", "the far cat sat on a mat", "a", "the cat <pad> sat", "a cat sat on the tree")


def make_tokenizer(padding=1):
    """Make a tokenizer with the special tokens of RoBERTa, and the padding id given."""
    words = ["<s>", *WORDS, "</s>", "<unk>"]
    words.insert(padding, "<pad>")
    tokenizer = Tokenizer(models.WordLevel({x: n for n, x in enumerate(words)}, "<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = [(word, words.index(word)) for word in ("<s>", "</s>")]
    tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A </s>", "<s> $A </s> </s> $B </s>", special
    )
    names = {"cls": "<s>", "sep": "</s>", "pad": "<pad>", "unk": "<unk>"}
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **{f"{name}_token": word for name, word in names.items()}
    )


@pytest.mark.parametrize(
    ("kind", "padding"), [*((kind, 1) for kind in CONFIGS), ("roberta", 5), ("distilbert", 5)]
)
def test_encode_of_texts_of_several_lengths_has_their_positions(tmp_path, kind, padding):
    stock, ours = load_both(tmp_path, kind, pad_token_id=padding)
    tokenizer = ours.tokenizer = make_tokenizer(padding)
    ids = [tokenizer(text, return_tensors="pt")["input_ids"] for text in TEXTS]
    expected = torch.stack([stock(x).last_hidden_state[0].mean(dim=0) for x in ids])
    for attention in ("sdpa", "eager"):  # packed and padded
        ours.set_attn_implementation(attention)
        assert_close(ours.encode(TEXTS, pooling="mean"), expected, atol=2e-6, rtol=1e-4)


def test_a_tokenizer_with_another_padding_id_is_refused(tmp_path):
    _, ours = load_both(tmp_path, "roberta")
    other = ours.tokenizer = make_tokenizer(5)
    checks = (
        lambda: ours.encode(TEXTS),
        lambda: fit_together(ours, other, None),
        lambda: make_collator(ours, TrainingArguments(use_cpu=True), other, {}),
    )
    for use in checks:
        with pytest.raises(ValueError, match=r"padding.*5.*pad_token_id=1"):
            use()


@pytest.mark.parametrize("kind", ["flex_attention", "flash_attention_2"])
def test_an_attention_without_a_bias_by_distance_is_refused(tmp_path, kind):
    load_both(tmp_path, "mpnet")
    with pytest.raises(ValueError, match="MinBertModel does not support"):
        MinBertModel.from_pretrained(tmp_path, attn_implementation=kind)
    model = MinBertModel.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match="MinBertModel does not support"):
        model.set_attn_implementation(kind)
    for kind in ("eager", "sdpa"):
        model.set_attn_implementation(kind)


def test_an_mpnet_whose_padding_id_transformers_does_not_read_is_refused(tmp_path):
    with pytest.raises(ValueError, match="pad_token_id=5"):
        load_both(tmp_path, "mpnet", pad_token_id=5)


@pytest.mark.parametrize("kind", ["roberta", "xlm-roberta", "camembert"])
def test_positions_are_not_counted_from_no_padding_id(tmp_path, kind):
    load_both(tmp_path, kind)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"pad_token_id": None}))

    with pytest.raises(StrictDataclassError, match="pad_token_id=null: positions are counted"):
        MinBertModel.from_pretrained(tmp_path)


@every_type
def test_embeddings_without_ids_have_the_positions_of_transformers(tmp_path, kind):
    stock, ours = load_both(tmp_path, kind)
    for side in ("right", "left"):
        batch = make_batch(stock.config.pad_token_id, side)
        vectors = stock.get_input_embeddings()(batch.pop("input_ids"))
        outputs = [model(inputs_embeds=vectors, **batch) for model in (stock, ours)]
        expected, actual = (real(x.last_hidden_state, batch) for x in outputs)
        assert_close(actual, expected, atol=2e-6, rtol=1e-4)


def test_distances_have_the_buckets_of_transformers_at_all_lengths(tmp_path):
    distances = torch.arange(-1100, 1100)
    encoder = transformers.models.mpnet.modeling_mpnet.MPNetEncoder
    expected = encoder.relative_position_bucket(distances, num_buckets=32)
    assert torch.equal(find_distance_buckets(distances), expected)
    stock, ours = load_both(tmp_path, "mpnet", max_position_embeddings=300)
    batch = make_batch(1, lengths=(290, 150, 3))
    expected = real(stock(**batch).last_hidden_state, batch)
    assert_close(ours(**pack(batch)).last_hidden_state[0], expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "bert"])
def test_segments_are_ignored_where_there_is_one_or_none(tmp_path, kind):
    stock, ours = load_both(tmp_path, kind)
    batch = pack(make_batch(stock.config.pad_token_id))
    segments = torch.arange(batch["input_ids"].numel())[None] % 2
    expected = ours(**batch).last_hidden_state
    assert torch.equal(ours(**batch, token_type_ids=segments).last_hidden_state, expected)


@every_type
def test_windows_of_a_long_text_begin_at_the_first_position(tmp_path, kind):
    stock, ours = load_both(tmp_path, kind)
    ours.tokenizer = make_tokenizer(stock.config.pad_token_id)
    texts = [" ".join(WORDS * 3), "a cat"]
    length = ours.config.longest_sequence
    encoding = Encoding(length, None, "windows", length // 4)
    (windows, _) = split_documents(encoding, ours.tokenizer, texts)
    assert len(windows) == 2
    states = [stock(torch.tensor(x.input_ids)).last_hidden_state[0] for x in windows]
    found = ours.encode(texts, pooling="mean", truncation="windows")[0]
    assert_close(found, torch.cat(states).mean(dim=0), atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("is_grouped", [False, True])
@every_type
def test_tied_output_layers_train_under_fsdp(tmp_path, kind, is_grouped):
    _, ours = load_both(tmp_path, kind, "ForMaskedLM")
    _, batch = make_forms(ours.config.pad_token_id, "ForMaskedLM")[2]
    sharded, weights = copy.deepcopy(ours), []
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        for layer in sharded.bert.encoder.layer:
            fully_shard(layer)
        if is_grouped:  # as accelerate does
            fully_shard([sharded.bert.embeddings.word_embeddings, sharded.cls.predictions])
        fully_shard(sharded)
        for model in (ours, sharded):
            optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3)
            for _ in range(3):
                optimizer.zero_grad()
                model(**batch).loss.backward()
                optimizer.step()
            weights.append(model.bert.embeddings.word_embeddings.weight)
            assert model.cls.predictions.decoder.weight is weights[-1]
        assert_close(weights[1].full_tensor(), weights[0])
    finally:
        distributed.destroy_process_group()


def test_a_sequence_longer_than_the_positions_after_the_padding_id_is_refused():
    config = MinBertConfig(**SIZES, pad_token_id=5, position_offset=6)
    with pytest.raises(ValueError, match=r"a sequence of 15 tokens is longer than .*14"):
        MinBertModel(config)(torch.full((1, 15), 9))
