"""Multiple choice against transformers' BertForMultipleChoice and torch, in float64."""

import pytest
import torch
from torch.distributions import Categorical, kl_divergence
from torch.nn import functional as F
from torch.testing import assert_close
from transformers import BertConfig, BertForMultipleChoice

from modeling_minbert import MinBertConfig, MinBertForMultiTask, align_outputs
from tests.modeling_minbert.test_packed import pack
from tests.small_run import vary_weights

TASK = {"problem_type": "multiple_choice", "num_choices": 3, "dropout": 0.0, "pooling": "pooler"}
EXACT = {"atol": 1e-10, "rtol": 1e-10}
packed_or_not = pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
ROWS = [
    ("a cat sat", ["on the mat", "the dog ran far", "a bird sang"]),
    ("the dog ran", ["in a tree", "not far"]),
]


@pytest.fixture
def batch(tiny_sizes):
    """Return four rows of three choices whose sequences differ in length."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 8, (4, 3, 1), generator=generator)
    mask = (torch.arange(7) < lengths).long()
    ids = torch.randint(1, tiny_sizes["vocab_size"], mask.shape, generator=generator) * mask
    types = (torch.arange(7) >= lengths // 2).long() * mask
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": types}


LABELS = torch.tensor([2, 0, 1, 1])


def rename(key):
    """Return the name that a weight of BERT has in the model."""
    return key.replace("classifier", "heads.swag.out")


@pytest.fixture
def build(tiny_sizes):
    """Return a function that makes a model, and BERT's with the same weights, without dropout."""

    def build(attention="sdpa", **task):
        torch.manual_seed(0)
        settings = {**tiny_sizes, "attn_implementation": attention, "initializer_range": 0.2}
        settings |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        bert = BertForMultipleChoice(BertConfig(**settings)).double().eval()
        vary_weights(bert)
        config = MinBertConfig(**settings, tasks={"swag": TASK | task})
        ours = MinBertForMultiTask(config).double().eval()
        state = {rename(key): value for key, value in bert.state_dict().items()}
        ours.load_state_dict(state)
        return ours, bert

    return build


def shorten(batch, row):
    """Replace the last choice of a row by a token of padding, as the loaders do."""
    short = {key: value.clone() for key, value in batch.items()}
    for key in short:
        short[key][row, 2] = 0
    short["attention_mask"][row, 2, 0] = 1
    return short


@packed_or_not
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_logits_losses_and_gradients_equal_bert(build, batch, attention, packed):
    ours, bert = build(attention)
    given = pack(batch) if packed else batch

    actual = ours.train()(**given, labels=LABELS)
    expected = bert.train()(**batch, labels=LABELS)

    assert_close(actual.logits, expected.logits, **EXACT)
    assert_close(actual.loss, expected.loss.to(actual.loss.dtype), atol=1e-6, rtol=1e-6)
    actual.loss.backward()
    expected.loss.backward()
    gradients = {name: value.grad for name, value in ours.named_parameters()}
    for name, value in bert.named_parameters():
        assert_close(gradients[rename(name)], value.grad, atol=1e-8, rtol=1e-5)


@packed_or_not
def test_a_row_with_fewer_choices_is_scored_alone(build, batch, packed):
    ours, bert = build()
    short = shorten(batch, row=1)

    actual = ours(**(pack(short) if packed else short), labels=LABELS)

    rows = [bert(**{key: x[[row]] for key, x in batch.items()}).logits[0] for row in range(4)]
    rows[1] = rows[1][:2]
    losses = [F.cross_entropy(x, label) for x, label in zip(rows, LABELS, strict=True)]
    assert_close(actual.loss.double(), torch.stack(losses).mean(), atol=1e-6, rtol=1e-6)
    assert actual.logits.softmax(dim=-1)[1, 2] == 0
    assert_close(actual.logits[1, :2], rows[1], **EXACT)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_students_learn_the_choices_that_there_are(build, batch, temperature):
    ours, _ = build()
    short = shorten(batch, row=1)
    student = ours(**short).logits.detach().requires_grad_()
    teachers = [
        ours(**{**short, "token_type_ids": each}).logits.detach()
        for each in (torch.zeros_like(short["token_type_ids"]), 1 - short["token_type_ids"])
    ]

    found = ours.distillation("swag", student, torch.stack(teachers, dim=1), temperature)

    expected = []
    for row in range(4):
        count = 2 if row == 1 else 3
        parts = [(each[row, :count] / temperature).softmax(0) for each in teachers]
        own = Categorical(logits=student[row, :count] / temperature)
        expected.append(kl_divergence(Categorical(probs=sum(parts) / 2), own))
    assert_close(found.double(), temperature**2 * torch.stack(expected).mean(), **ROUGH)
    found.backward()
    assert student.grad.isfinite().all()
    assert student.grad[1, 2] == 0


ROUGH = {"atol": 1e-6, "rtol": 1e-5}


def test_a_teacher_scores_the_choices_of_every_row(build, tokenizer):
    ours, _ = build(num_choices=4)
    ours.float().tokenizer = tokenizer
    taught = ours.teach("swag", ROWS)

    assert taught.shape == (2, 4)
    for logits, found in zip(taught, ours.predict("swag", ROWS, top_k=4), strict=True):
        scores = torch.tensor([each["score"] for each in sorted(found, key=lambda x: x["index"])])
        assert_close(logits.softmax(0)[: len(scores)], scores, **ROUGH)
        assert not logits.softmax(0)[len(scores) :].any()
    student, teacher = (
        MinBertConfig(tasks={"swag": TASK | {"num_choices": count}}).task("swag")
        for count in (3, 4)
    )
    assert_close(align_outputs(student, teacher)(taught), taught[:, :3])
    assert_close(align_outputs(teacher, student)(taught[:, :3]), taught)
    other = MinBertConfig(tasks={"swag": TASK | {"has_question": True}}).task("swag")
    with pytest.raises(ValueError, match="has contexts with a question, but the task to learn"):
        align_outputs(student, other)


def test_a_task_with_questions_needs_them(build, tokenizer):
    ours, _ = build(has_question=True)
    ours.tokenizer = tokenizer

    ours.predict("swag", [("a cat", "is", ["sat", "ran"])])
    with pytest.raises(ValueError, match="row 0 must be a context, a question, and a list"):
        ours.predict("swag", ROWS)


@pytest.mark.parametrize("question", [(), ("is it",)])
def test_predictions_equal_bert(build, tokenizer, question):
    ours, bert = build()
    ours.tokenizer = tokenizer
    rows = [(context, *question, choices) for context, choices in ROWS]

    for (context, choices), found in zip(
        ROWS, ours.predict("swag", rows, top_k=9, precision="float32"), strict=True
    ):
        texts = [" ".join([*question, choice]) for choice in choices]
        encoded = tokenizer([context] * len(texts), texts, padding=True, return_tensors="pt")
        inputs = {key: value.unsqueeze(0) for key, value in encoded.items()}
        expected = bert(**inputs).logits[0].softmax(dim=-1)
        assert [one["choice"] for one in found] == [choices[one["index"]] for one in found]
        assert [one["index"] for one in found] == expected.argsort(descending=True).tolist()
        scores = torch.tensor([one["score"] for one in found], dtype=torch.float64)
        assert_close(scores, expected.sort(descending=True).values, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    "row",
    ["a cat", ("a cat",), ("a cat", "sat"), ("a cat", ["sat"]), (["sat", "ran"],), ("a", [1, 2])],
)
def test_a_row_that_is_none_is_named(build, tokenizer, row):
    ours, _ = build()
    ours.tokenizer = tokenizer

    with pytest.raises(ValueError, match="swag: row 2 must be a context, optionally a question"):
        ours.predict("swag", [*ROWS, row])
    with pytest.raises(ValueError, match="top_k=0"):
        ours.predict("swag", ROWS, top_k=0)
    with pytest.raises(TypeError, match="not one string"):
        ours.predict("swag", "a cat")


def test_shapes_are_checked(build, batch):
    task, _ = build()
    flat = {key: value.flatten(0, 1) for key, value in batch.items()}

    with pytest.raises(ValueError, match=r"\(batch, 3, length\)"):
        task(**flat)
    with pytest.raises(ValueError, match=r"labels of shape \(12,\), expected \(4,\)"):
        task(**batch, labels=torch.zeros(12, dtype=torch.long))
