"""Token tasks equal transformers' BERT on the same weights, padded and packed."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
    BertConfig,
    BertForQuestionAnswering,
    BertForTokenClassification,
)

from modeling_minbert import (
    MinBertConfig,
    MinBertForQuestionAnswering,
    MinBertForTokenClassification,
)
from tests.modeling_minbert.test_packed import pack

TAGS = ["O", "B-PER", "I-PER", "B-LOC"]
TASKS = {
    "tags": {"problem_type": "token_classification", "labels": TAGS, "dropout": 0.0},
    "answers": {"problem_type": "question_answering"},
    "tone": {"problem_type": "classification", "labels": ["down", "level", "up"]},
}
EXACT = {"atol": 1e-10, "rtol": 1e-10}

every_attention = pytest.mark.parametrize("attention", ["sdpa", "eager"])
every_layout = pytest.mark.parametrize("layout", ["padded", "packed"])


@pytest.fixture
def build_pair(build_multitask, tiny_sizes):
    """Return a function that makes our model and a BERT with its encoder and one head."""

    def build(task, attention="sdpa"):
        settings = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        settings["attn_implementation"] = attention
        ours = build_multitask(TASKS, **settings).double().train()
        kinds = {
            "tags": (BertForTokenClassification, "classifier", len(TAGS)),
            "answers": (BertForQuestionAnswering, "qa_outputs", 2),
        }
        bert_class, head, count = kinds[task]
        bert = bert_class(BertConfig(**tiny_sizes, **settings, num_labels=count)).double().train()
        weights = ours.state_dict()
        known = {key: value for key, value in weights.items() if key in bert.state_dict()}
        known |= {f"{head}.{x}": weights[f"heads.{task}.out.{x}"] for x in ("weight", "bias")}
        bert.load_state_dict(known)
        return ours, bert

    return build


def make_tags(mask):
    """Return a tag for every second real token, -100 for the others."""
    rows, length = mask.shape
    tags = torch.arange(rows * length).view(rows, length) % len(TAGS)
    return torch.where((mask == 1) & (torch.arange(length) % 2 == 1), tags, -100)


def assert_equal_gradients(ours, bert, task, head, **tolerance):
    named = dict(ours.named_parameters())
    for key, weight in bert.named_parameters():
        own = named[key.replace(f"{head}.", f"heads.{task}.out.")]
        assert_close(own.grad, weight.grad, **tolerance, msg=f"gradient of {key} differs")


@every_attention
@every_layout
def test_tags_equal_bert(build_pair, tiny_batch, layout, attention):
    ours, bert = build_pair("tags", attention)
    mask = tiny_batch["attention_mask"]
    tags = make_tags(mask)
    packed = layout == "packed"
    batch = pack(tiny_batch) if packed else tiny_batch

    actual = ours(**batch, labels=tags[mask == 1].unsqueeze(0) if packed else tags, task="tags")
    expected = bert(**tiny_batch, labels=tags)
    actual.loss.backward()
    expected.loss.backward()

    logits = actual.logits[0] if packed else actual.logits[mask == 1]
    assert_close(logits, expected.logits[mask == 1], **EXACT)
    assert_close(actual.loss, expected.loss, **EXACT)
    assert_equal_gradients(ours, bert, "tags", "classifier", **EXACT)


@every_attention
def test_padded_answers_equal_bert(build_pair, tiny_batch, attention):
    ours, bert = build_pair("answers", attention)
    starts, ends = torch.tensor([1, 0, 5, 1, 90]), torch.tensor([6, 2, 5, -7, 90])

    actual = ours(**tiny_batch, start_positions=starts, end_positions=ends, task="answers")
    expected = bert(**tiny_batch, start_positions=starts, end_positions=ends)
    actual.loss.backward()
    expected.loss.backward()

    assert_close(actual.start_logits, expected.start_logits, **EXACT)
    assert_close(actual.end_logits, expected.end_logits, **EXACT)
    assert_close(actual.loss, expected.loss, **EXACT)
    assert_equal_gradients(ours, bert, "answers", "qa_outputs", **EXACT)


@every_attention
def test_packed_answers_equal_bert_row_by_row(build_pair, tiny_batch, attention):
    ours, bert = build_pair("answers", attention)
    mask = tiny_batch["attention_mask"]
    starts, ends = torch.tensor([1, 0, 5, 1, 2]), torch.tensor([6, 2, 5, 1, 90])  # 90 is ignored

    actual = ours(**pack(tiny_batch), labels=torch.stack([starts, ends], dim=1), task="answers")
    rows = [
        bert(**{key: value[row : row + 1, :count] for key, value in tiny_batch.items()})
        for row, count in enumerate(mask.sum(dim=1).tolist())
    ]
    first = [F.cross_entropy(row.start_logits, starts[i : i + 1]) for i, row in enumerate(rows)]
    last = [F.cross_entropy(row.end_logits, ends[i : i + 1]) for i, row in enumerate(rows[:4])]
    expected = (torch.stack(first).mean() + torch.stack(last).mean()) / 2
    actual.loss.backward()
    expected.backward()

    assert_close(actual.loss, expected, **EXACT)
    assert_close(
        actual.start_logits[mask == 1], torch.cat([row.start_logits[0] for row in rows]), **EXACT
    )
    assert actual.end_logits[mask == 0].max() < -1e30
    assert_equal_gradients(ours, bert, "answers", "qa_outputs", **EXACT)


@every_layout
def test_rows_that_fill_a_batch_up_have_no_answer(build_pair, tiny_batch, layout):
    ours, _ = build_pair("answers")
    labels = torch.tensor([[1, 6], [0, 2], [5, 5], [1, 1], [-100, -100]])

    def loss(count):
        batch = {key: value[:count] for key, value in tiny_batch.items()}
        batch = pack(batch) if layout == "packed" else batch
        return ours(**batch, labels=labels[:count], task="answers").loss

    assert_close(loss(5), loss(4), **EXACT)


def test_the_number_of_items_divides_the_loss_of_tags(build_pair, tiny_batch):
    ours, _ = build_pair("tags")
    tags = make_tags(tiny_batch["attention_mask"])
    count = int((tags != -100).sum())

    mean = ours(**tiny_batch, labels=tags, task="tags").loss
    other = ours(**tiny_batch, labels=tags, task="tags", num_items_in_batch=torch.tensor(3.0)).loss

    assert_close(other, mean * count / 3, **EXACT)


def test_only_labelled_tokens_count_in_a_divergence(build_multitask, tiny_batch):
    model = build_multitask({"tags": TASKS["tags"] | {"dropout": 0.5}}).train()
    mask = tiny_batch["attention_mask"]
    tags = make_tags(mask)
    first, second = (model(**tiny_batch, task="tags").logits for _ in range(2))

    found = model.divergence("tags", first, second, tags)
    p, q = (x[tags != -100].softmax(dim=-1) for x in (first, second))
    expected = ((p - q) * (p.log() - q.log())).sum(dim=-1).mean()

    assert expected > 0
    assert_close(found, expected)
    flat = [x[mask == 1].unsqueeze(0) for x in (first, second, tags)]
    assert_close(model.divergence("tags", *flat), expected)


def test_a_layer_below_may_be_read(build_multitask, tiny_batch):
    model = build_multitask({"tags": TASKS["tags"] | {"pooling_layer": 1}})
    outputs = model(**tiny_batch, task="tags")
    states = model.bert(**tiny_batch, output_hidden_states=True).hidden_states[1]

    real = tiny_batch["attention_mask"] == 1
    assert_close(outputs.logits[real], model.heads["tags"].out(states)[real])


def test_auto_classes_find_the_head_of_their_kind(build_multitask, tiny_batch, tmp_path):
    model = build_multitask(TASKS | {"more": TASKS["tags"] | {"labels": ["X", "Y"]}})
    model.save_pretrained(tmp_path)

    tagger = AutoModelForTokenClassification.from_pretrained(tmp_path)
    answerer = AutoModelForQuestionAnswering.from_pretrained(tmp_path, dtype=torch.float32)

    assert isinstance(tagger, MinBertForTokenClassification)
    assert isinstance(answerer, MinBertForQuestionAnswering)
    assert tagger.config.id2label == {0: "X", 1: "Y"}  # more, the first of its kind by name
    real = tiny_batch["attention_mask"] == 1
    for found, task in ((tagger, "more"), (answerer, "answers")):
        actual, expected = found.eval()(**tiny_batch), model(**tiny_batch, task=task)
        for key in expected:
            assert_close(actual[key][real], expected[key][real])


@pytest.mark.parametrize("loader", [AutoModelForTokenClassification, MinBertForTokenClassification])
def test_a_task_is_chosen_by_its_name_and_saved_alone(
    build_multitask, tiny_batch, tmp_path, loader
):
    tasks = {"tags": TASKS["tags"], "more": TASKS["tags"] | {"labels": ["X", "Y"]}}
    model = build_multitask(tasks)
    model.save_pretrained(tmp_path / "all")

    for name, task in tasks.items():
        tagger = loader.from_pretrained(tmp_path / "all", task=name).eval()
        tagger.save_pretrained(tmp_path / name)
        again = AutoModelForTokenClassification.from_pretrained(tmp_path / name).eval()

        assert list(again.config.id2label.values()) == task["labels"]
        expected = model(**tiny_batch, task=name).logits
        assert_close(tagger(**tiny_batch).logits, expected)
        assert_close(again(**tiny_batch).logits, expected)


def test_a_name_of_a_task_does_not_hide_how_a_configuration_finds_tasks(build_multitask, tmp_path):
    build_multitask(TASKS).save_pretrained(tmp_path)

    config = MinBertConfig.from_pretrained(tmp_path, task="tags")

    assert config.task("tags").labels == TAGS


@pytest.mark.parametrize("task", ["tags", "answers"])
def test_a_task_that_reads_a_layer_below_keeps_to_the_model_that_can(
    build_multitask, tmp_path, task
):
    build_multitask({task: {**TASKS[task], "pooling_layer": -2}}).save_pretrained(tmp_path)
    one = {"tags": MinBertForTokenClassification, "answers": MinBertForQuestionAnswering}[task]

    with pytest.raises(ValueError, match=r"uses layer -2 .*: load it as MinBertForMultiTask"):
        one.from_pretrained(tmp_path)


def test_labels_of_one_s_own_make_a_new_head(build_multitask, tmp_path):
    build_multitask(TASKS).save_pretrained(tmp_path)

    tagger = AutoModelForTokenClassification.from_pretrained(tmp_path, num_labels=7)

    assert tagger.classifier.weight.shape[0] == 7


def test_a_task_of_another_kind_is_refused_by_a_tagger(build_multitask, tmp_path):
    build_multitask(TASKS).save_pretrained(tmp_path)

    with pytest.raises(ValueError, match="'tone' is a classification task, but this model is a"):
        MinBertForTokenClassification.from_pretrained(tmp_path, task="tone")
    with pytest.raises(ValueError, match="unknown task 'other'; known: "):
        MinBertForTokenClassification.from_pretrained(tmp_path, task="other")


@pytest.mark.parametrize(
    ("task", "more", "message"),
    [
        ("tags", {"labels": torch.zeros(5)}, r"labels of shape \(5,\), but task 'tags' takes one"),
        ("answers", {"labels": torch.zeros(5)}, r"'answers' takes \(batch, 2\): the first and"),
        (
            "tone",
            {"start_positions": torch.zeros(5)},
            "tone' is a classification task: leave start_positions out",
        ),
        ("tags", {"next_sentence_label": torch.zeros(5)}, "leave next_sentence_label out"),
    ],
)
def test_labels_that_do_not_fit_are_refused(build_multitask, tiny_batch, task, more, message):
    with pytest.raises(ValueError, match=message):
        build_multitask(TASKS)(**tiny_batch, **more, task=task)


def test_what_is_not_defined_for_answers_is_refused(build_multitask):
    model = build_multitask(TASKS)
    logits = torch.zeros(2, 3)

    with pytest.raises(ValueError, match="there is no divergence for a"):
        model.divergence("answers", logits, logits)
    with pytest.raises(ValueError, match="use predict"):
        model.decode("answers", logits)
    with pytest.raises(ValueError, match="for the same tokens"):
        model.divergence("tags", torch.zeros(1, 2, 4), torch.zeros(1, 3, 4))


def test_a_default_task_of_tags_names_them(tiny_sizes):
    config = MinBertConfig(**tiny_sizes, tasks={"tags": TASKS["tags"]})
    config.describe_default_task()

    assert config.problem_type is None
    assert list(config.id2label.values()) == TAGS
