"""Answers: the best spans of a text, however long it is, by plain loops over all of them."""

import random

import pytest
import torch

from modeling_minbert import TASKS as KINDS, cut_windows, share_tokens
from tests.small_run import make_model

WORDS = [f"w{number}" for number in range(40)]
SHORT = " ".join(random.Random(0).choices(WORDS, k=12))
LONG = " ".join(random.Random(1).choices(WORDS, k=90))
ROOM = 24 - 3 - 2  # of windows with a question of two words
CUT = {"problem_type": "question_answering", "max_question_length": 4, "doc_stride": 6}
TASKS = {
    "any": CUT | {"max_answer_length": ROOM},
    "brief": CUT | {"max_answer_length": 3},
    "gaps": CUT | {"max_answer_length": ROOM, "null_score_diff_threshold": 0},
}


@pytest.fixture
def model(tiny_sizes):
    """A model with one head for all tasks, whose scores differ from token to token."""
    sizes = tiny_sizes | {"max_position_embeddings": 24, "initializer_range": 1.0}
    del sizes["vocab_size"]
    model = make_model(TASKS, WORDS, **sizes)
    for name in ("brief", "gaps"):
        model.heads[name].load_state_dict(model.heads["any"].state_dict())
    return model


def score_all(model, question, text, room=None):
    """List every span of every window, (start logit + end logit, first and last word), and sums."""
    words, spans, nulls, sums = text.split(), [], [], []
    cuts = cut_windows(len(words), room or len(words), 6)
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

    (answers,) = model.predict("brief", [("w1 w2", SHORT)], top_k=3)

    words = SHORT.split()
    texts = list(dict.fromkeys(" ".join(words[i : j + 1]) for _, i, j in expected))
    assert [answer["answer"] for answer in answers] == texts[:3]
    best = torch.tensor(expected[0][0] - total).exp().item()
    assert answers[0]["score"] == pytest.approx(best, rel=1e-4)
    assert all(SHORT[answer["start"] : answer["end"]] == answer["answer"] for answer in answers)
    assert model.predict("brief", [("w1 w2", SHORT)]) == answers[:1]


def test_a_long_text_is_read_in_windows(model):
    spans, null, total = score_all(model, "w1 w2", LONG, ROOM)
    best, first, last = spans[0]

    (answer,) = model.predict("any", [("w1 w2", LONG)])
    (both,) = model.predict("gaps", [("w1 w2", LONG)], top_k=2000)

    words = LONG.split()
    assert answer["answer"] == " ".join(words[first : last + 1])
    assert answer["start"] == len(" ".join([*words[:first], ""]))
    assert answer["score"] == pytest.approx(torch.tensor(best - total).exp().item(), rel=1e-4)
    (nothing,) = (answer for answer in both if not answer["answer"])
    assert nothing["score"] == pytest.approx(torch.tensor(null - total).exp().item(), rel=1e-4)
    assert (both[0]["answer"] == "") == (null > best)
    scores = [answer["score"] for answer in both]
    assert scores == sorted(scores, reverse=True)


def test_windows_are_not_longer_than_the_model(model):
    wide, narrow = (KINDS["question_answering"](max_length=size) for size in (99, 24))

    assert wide.reading(model.config) == narrow.reading(model.config)


def test_many_questions_are_answered_as_each_alone(model):
    rows = [("w1", SHORT), ("w2 w3 w4 w5 w6", LONG), ("w7", LONG), ("w1", "\x00")]

    predicted = model.predict("any", rows, top_k=2, max_tokens_per_batch=60)

    for row, answers in zip(rows, predicted, strict=True):
        (alone,) = model.predict("any", [row], top_k=2)
        assert [a["answer"] for a in answers] == [a["answer"] for a in alone]
        assert [a["score"] for a in answers] == pytest.approx([a["score"] for a in alone], rel=1e-4)
    assert predicted[-1] == [{"score": 0.0, "start": 0, "end": 0, "answer": ""}]


def test_what_cannot_be_answered_is_refused(model):
    with pytest.raises(ValueError, match="row 0 must be a pair of sentences"):
        model.predict("any", [("w1", 3)])
    with pytest.raises(ValueError, match="question_answering task, which has no vectors"):
        model.encode([LONG], task="any")
