"""`answer`: the best spans of a text, however long it is, by plain loops over all of them."""

import random

import pytest
import torch
from transformers import BertTokenizer

from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertForQuestionAnswering
from modeling_minbert.texts import cut_windows, share_tokens

WORDS = [f"w{number}" for number in range(40)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
SHORT = " ".join(random.Random(0).choices(WORDS, k=12))
LONG = " ".join(random.Random(1).choices(WORDS, k=90))


def make_config(sizes, **options):
    return MinBertConfig(
        **sizes | {"vocab_size": len(VOCABULARY), "initializer_range": 1.0, **options}
    )


@pytest.fixture
def model(tiny_sizes):
    """A model whose scores differ from token to token."""
    torch.manual_seed(0)
    model = MinBertForQuestionAnswering(make_config(tiny_sizes | {"max_position_embeddings": 24}))
    model.tokenizer = BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)})
    return model.eval()


def score_all(model, question, text, room=None, step=4):
    """List every span of every window, (start logit + end logit, first and last word), and sums."""
    words, spans, nulls, sums = text.split(), [], [], []
    cuts = cut_windows(len(words), room or len(words), step)
    for (first, end), (own, own_end) in zip(cuts, share_tokens(cuts), strict=True):
        encoded = model.tokenizer(question, " ".join(words[first:end]), return_tensors="pt")
        with torch.no_grad():
            outputs = model(**encoded)
        places = [0, *range(len(question.split()) + 2, encoded["input_ids"].shape[1] - 1)]
        starts, ends = outputs.start_logits[0, places], outputs.end_logits[0, places]
        sums.append((starts.logsumexp(0), ends.logsumexp(0)))
        nulls.append(float(starts[0] + ends[0]))
        spans += [
            (float(starts[1 + i - first] + ends[1 + j - first]), i, j)
            for i in range(own, own_end)
            for j in range(i, end)
        ]
    total = sum(float(torch.stack(side).logsumexp(0)) for side in zip(*sums, strict=True))
    return sorted(spans, reverse=True), min(nulls), total


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_score_is_the_product_of_start_and_end_probabilities(model, attention):
    model.set_attn_implementation(attention)
    spans, _, total = score_all(model, "w1 w2", SHORT)
    expected = [span for span in spans if span[2] - span[1] < 3]

    found = model.answer("w1 w2", SHORT, top_k=3, max_answer_length=3)

    words = SHORT.split()
    texts = list(dict.fromkeys(" ".join(words[i : j + 1]) for _, i, j in expected))
    assert [answer["answer"] for answer in found] == texts[:3]
    assert found[0]["score"] == pytest.approx(
        torch.tensor(expected[0][0] - total).exp().item(), rel=1e-4
    )
    assert all(SHORT[answer["start"] : answer["end"]] == answer["answer"] for answer in found)
    assert model.answer("w1 w2", SHORT, max_answer_length=3) == found[0]


def test_a_long_text_is_read_in_windows(model):
    room = 24 - 3 - 2
    spans, null, total = score_all(model, "w1 w2", LONG, room)
    best, first, last = spans[0]

    found = model.answer("w1 w2", LONG, max_answer_length=room)
    both = model.answer(
        "w1 w2", LONG, top_k=2000, max_answer_length=room, handle_impossible_answer=True
    )

    words = LONG.split()
    assert found["answer"] == " ".join(words[first : last + 1])
    assert found["start"] == len(" ".join([*words[:first], ""]))
    assert found["score"] == pytest.approx(torch.tensor(best - total).exp().item(), rel=1e-4)
    (nothing,) = (answer for answer in both if not answer["answer"])
    assert nothing["score"] == pytest.approx(torch.tensor(null - total).exp().item(), rel=1e-4)
    assert (both[0]["answer"] == "") == (null > best)
    scores = [answer["score"] for answer in both]
    assert scores == sorted(scores, reverse=True)


def test_many_questions_are_answered_as_each_alone(model):
    questions, texts = ["w1", "w2 w3 w4 w5 w6", "w7"], [SHORT, LONG, LONG]

    found = model.answer(questions, texts, top_k=2, max_tokens_per_batch=60)

    for question, text, answers in zip(questions, texts, found, strict=True):
        alone = model.answer(question, text, top_k=2)
        assert [a["answer"] for a in answers] == [a["answer"] for a in alone]
        assert [a["score"] for a in answers] == pytest.approx([a["score"] for a in alone], rel=1e-4)
    _, second = model.answer(["w1", "w2"], SHORT)
    assert second["answer"] == model.answer("w2", SHORT)["answer"]


def test_a_text_without_a_token_has_no_answer(model):
    expected = {"score": 0.0, "start": 0, "end": 0, "answer": ""}

    assert model.answer("w1", "\x00") == expected


@pytest.mark.parametrize(
    ("question", "context", "options", "message"),
    [
        ("w1", ["w2", "w3"], {}, "1 questions but 2 contexts"),
        (["w1"], [3], {}, "answer: row 0 must be a pair of sentences"),
        ("w1", "w2", {"top_k": 0}, "top_k=0 must be at least 1"),
    ],
)
def test_what_cannot_be_answered_is_refused(model, question, context, options, message):
    with pytest.raises(ValueError, match=message):
        model.answer(question, context, **options)


def test_a_multi_task_model_answers_by_its_tasks(tiny_sizes, model):
    tasks = {
        "facts": {"problem_type": "question_answering", "max_length": 20},
        "gaps": {"problem_type": "question_answering", "null_score_diff_threshold": -1000},
    }
    sizes = tiny_sizes | {"max_position_embeddings": 24}
    several = MinBertForMultiTask(make_config(sizes, tasks=tasks)).eval()
    several.tokenizer = model.tokenizer

    assert several.predict("gaps", [("w1", LONG)])[0]["answer"] == ""
    (ranked,) = several.predict("facts", [("w1", LONG)], top_k=3)
    assert several.predict("facts", [("w1", LONG)]) == ranked[:1]
    with pytest.raises(ValueError, match="is a question_answering task, which has no vectors"):
        several.encode([LONG], task="facts")
