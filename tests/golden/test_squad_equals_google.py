"""Windows, labels and answers of SQuAD equal google's loops on the same passages."""

import random

import datasets
import numpy as np
import pytest
import torch
from transformers import BertTokenizer

from datasets_scripts import Encoding, encode_questions
from modeling_minbert import cut_windows, share_tokens
from modeling_minbert.questions import QuestionAnsweringTask, keep_scores
from tests.golden.google_squad import Feature, find_n_best, has_max_context, label, make_windows
from trainers import find_answers

WORDS = [f"w{number}" for number in range(60)]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
CUTS = [(100, 20, 7), (100, 20, 20), (100, 20, 128), (20, 20, 7), (21, 20, 7), (1, 5, 1)]
RANDOM_CUTS = [
    (random.Random(n).randint(1, 300), random.Random(n + 1).randint(1, 70), n % 90 + 1)
    for n in range(20)
]


@pytest.fixture(scope="module")
def tokenizer():
    """A word is a token."""
    return BertTokenizer(vocab={token: index for index, token in enumerate(VOCABULARY)})


def rows_of(questions, passages, answers, starts):
    return datasets.Dataset.from_dict(
        {
            "id": [str(number) for number in range(len(questions))],
            "sentence1": questions,
            "sentence2": passages,
            "label": [int(bool(answer)) for answer in answers],
            "answers": answers,
            "answer_starts": starts,
        }
    )


def draw_words(rng, count):
    return [rng.choice(WORDS) for _ in range(count)]


@pytest.mark.parametrize(("tokens", "room", "stride"), [*CUTS, *RANDOM_CUTS])
def test_windows_equal_google(tokens, room, stride):
    expected = make_windows(tokens, room, stride)

    found = cut_windows(tokens, room, stride)

    assert found == [(start, start + length) for start, length in expected]


@pytest.mark.parametrize(("tokens", "room", "stride"), [*CUTS, *RANDOM_CUTS])
def test_a_token_belongs_to_the_window_with_most_context(tokens, room, stride):
    windows = make_windows(tokens, room, stride)

    owned = share_tokens([(start, start + length) for start, length in windows])

    for number, (first, end) in enumerate(owned):
        expected = [token for token in range(tokens) if has_max_context(windows, number, token)]
        assert list(range(first, end)) == expected


def test_an_answer_is_labelled_where_it_is_whole_and_elsewhere_at_cls(tokenizer):
    rng = random.Random(1)
    answers = [(0, 0), (5, 9), (18, 21), (19, 20), (13, 27), (99, 99), (0, 40), (80, 99)]
    words = draw_words(rng, 100)
    passage = " ".join(words)
    places = [len(" ".join(words[:first])) + (first > 0) for first, _ in answers]
    texts = [" ".join(words[first : last + 1]) for first, last in answers]
    rows = rows_of(
        ["w1"] * len(answers),
        [passage] * len(answers),
        [[text] for text in texts],
        [[place] for place in places],
    )

    encoded = encode_questions(
        rows, tokenizer, Encoding(20 + 1 + 3, max_question_length=1, doc_stride=7)
    )

    windows = make_windows(100, 20, 7)
    expected = [
        label(windows, number, answer, shift=3) for answer in answers for number in range(13)
    ]
    assert encoded["labels"][:] == expected
    assert any(start for start, _ in expected)


@pytest.mark.parametrize("threshold", [None, 0.0, -3.0])
@pytest.mark.parametrize("seed", range(6))
def test_answers_equal_google(tokenizer, seed, threshold):
    rng, generator = random.Random(seed), np.random.default_rng(seed)
    passages = [draw_words(rng, rng.choice([1, 3, 30, 100])) for _ in range(8)]
    questions = [draw_words(rng, rng.randint(1, 6)) for _ in passages]
    rows = rows_of(
        [" ".join(words) for words in questions],
        [" ".join(words) for words in passages],
        [[] for _ in passages],
        [[] for _ in passages],
    )
    encoded = encode_questions(rows, tokenizer, Encoding(32, max_question_length=4, doc_stride=7))
    # few different logits, so that many are equal
    drawn = [np.round(generator.normal(0, 2, (2, row["length"])), seed % 3) for row in encoded]
    logits = torch.zeros(2, len(encoded), 40)
    for number, values in enumerate(drawn):
        logits[:, number, : values.shape[1]] = torch.from_numpy(values)
    types = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in encoded["token_type_ids"][:]], batch_first=True
    )
    lengths = torch.tensor(encoded["length"][:])
    mask = (torch.arange(types.shape[1]) < lengths[:, None]).int()
    batch = {"token_type_ids": types, "attention_mask": mask}
    logits = logits[..., : types.shape[1]]
    task = QuestionAnsweringTask(null_score_diff_threshold=threshold, max_answer_length=9)

    found = find_answers(encoded[:], keep_scores(batch, *logits).numpy(), task)

    for number, words in enumerate(passages):
        own = [place for place, row in enumerate(encoded) if row["id"] == str(number)]
        size = min(4, len(questions[number]))
        windows = make_windows(len(words), 32 - size - 3, 7)
        features = []
        for window, place in enumerate(own):
            start, length = windows[window]
            features.append(
                Feature(
                    {size + 2 + token: start + token for token in range(length)},
                    {
                        size + 2 + token: has_max_context(windows, window, start + token)
                        for token in range(length)
                    },
                    *logits[:, place, : encoded[place]["length"]].tolist(),
                )
            )
        text, n_best, odds = find_n_best(features, words, longest=9, threshold=threshold)
        assert found[number].text == ("" if text == "empty" else text)
        best = next((answer for answer, *_ in n_best if answer not in ("", "empty")), "")
        assert found[number].best_text == best
        if odds is not None:
            assert found[number].null_odds == pytest.approx(odds)
