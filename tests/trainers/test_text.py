"""Learning from text without labels: masks of every pass, words, batches and scores."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from transformers import BertTokenizer

from modeling_minbert import MinBertForPreTraining, find_space
from tests.small_tokenizers import make_bpe, make_unigram
from tests.trainers import tiny
from tests.trainers.texts import CLS, FIRST, MASK, SEP, VOCABULARY, Pairs
from trainers import PROBLEMS, Masking, Task, TaskCollator, TaskDataset
from trainers.data.masking import find_continuations
from trainers.training.multitask import find_texts

SPECIAL = (0, CLS, SEP, MASK)


@pytest.fixture
def masking():
    """Return the masking of the words of ``Pairs``."""
    return Masking(MASK, SPECIAL, (), range(FIRST, VOCABULARY), seed=7)


def make_batch(masking, rows=(0, 1, 2, 3), number=0, **options):
    """Collate some rows of a pass."""
    source = Pairs(10)
    texts = find_texts({"text": Task("text", "pretraining", masking=masking)})
    dataset = TaskDataset({"text": source})
    indices = [row + number * len(source) for row in rows]
    return TaskCollator(0, texts=texts, **options)(dataset.__getitems__(indices))


def test_masks_change_from_pass_to_pass_and_not_with_the_batch(masking):
    first = make_batch(masking, packed=True)
    again = make_batch(masking, rows=(2, 3), packed=True)
    later = make_batch(masking, number=1, packed=True)

    ends = first["cu_seq_lens_q"]
    assert torch.equal(first["labels"][:, ends[2] : ends[4]], again["labels"])
    assert torch.equal(first["input_ids"][:, ends[2] : ends[4]], again["input_ids"])
    assert first["labels"].shape != later["labels"].shape or not torch.equal(
        first["labels"], later["labels"]
    )


@pytest.mark.parametrize("packed", [False, True])
def test_scores_match_the_logits(masking, packed):
    torch.manual_seed(0)
    model = MinBertForPreTraining(tiny.make_config(None)).eval()
    batch = make_batch(masking, packed=packed)
    del batch["task"]
    padded = make_batch(masking)
    del padded["task"]
    logits = model(**{**padded, "labels": None}).prediction_logits

    scores = PROBLEMS["pretraining"]("text").gather(batch, model(**batch))[0]

    labels = padded["labels"]
    nll = F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=1)
    torch.testing.assert_close(scores[:, 0], nll)
    correct = (logits.argmax(dim=-1) == labels).sum(dim=1)
    assert scores[:, 1].tolist() == correct.tolist()
    assert scores[:, 2].tolist() == (labels != -100).sum(dim=1).tolist()
    relation = model(**{**padded, "labels": None}).seq_relationship_logits
    follows = relation.argmax(dim=-1) == padded["next_sentence_label"]
    assert scores[:, 4].tolist() == follows.tolist()


def test_the_tokenizer_determines_maskable_and_replacement_tokens():
    # the unknown token is the last one, and [unused0] is in no text
    words = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "the", "##s", "[UNK]"]
    tokenizer = BertTokenizer(vocab={word: index for index, word in enumerate(words)})
    masking = Masking.from_tokenizer(tokenizer, mlm_probability=1.0, whole_word_mask=True)
    ids = np.asarray(tokenizer("the zebra thes")["input_ids"] * 300)
    lengths = np.full(300, len(ids) // 300)

    draws = masking.draw(0, 0, np.arange(300), lengths)
    hidden, labels = masking.apply(ids, lengths, draws)

    assert set(labels[labels != -100].tolist()) == {5, 6, 7}
    replaced = (labels != -100) & (hidden != labels) & (hidden != tokenizer.mask_token_id)
    assert set(hidden[replaced].tolist()) == {5, 6}


def words_of(tokenizer, text):
    """Return the number of the word of each token of a text, as spaces separate them."""
    whole = tokenizer(text, add_special_tokens=False)["input_ids"]
    words, space = text.split(" "), find_space(tokenizer)
    numbers = []
    for number, word in enumerate(words):
        ids = tokenizer(space * bool(number) + word, add_special_tokens=False)["input_ids"]
        numbers += [number] * len(ids)
    assert len(numbers) == len(whole)
    return numbers


@pytest.mark.parametrize("make", [make_bpe, make_unigram])
@pytest.mark.parametrize(
    "text",
    [
        "the garden, isn't (good)? zygote, 10,000 rivers.",
        "caf\u00e9 cafe\u0301 \U0001f600 x \u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd.",
    ],
)
def test_whole_words_are_those_of_the_tokenizer(make, text):
    tokenizer = make()
    masking = Masking.from_tokenizer(tokenizer, mlm_probability=0.5, whole_word_mask=True)
    encoded = tokenizer(text)
    ids = np.asarray(encoded["input_ids"])
    words = [-1, *words_of(tokenizer, text), -1]
    lengths = np.full(400, len(ids))

    draws = masking.draw(0, 0, np.arange(400), lengths)
    hidden, labels = masking.apply(np.tile(ids, 400), lengths, draws)

    chosen = (labels != -100).reshape(400, -1)
    numbers = np.array(words)
    assert not chosen[:, numbers == -1].any()
    assert chosen.any(axis=0).sum() == (numbers > -1).sum()
    parts = [chosen[:, numbers == word] for word in range(numbers.max() + 1)]
    assert all((part.any(axis=1) == part.all(axis=1)).all() for part in parts)
    assert all((one[:, 0] != two[:, 0]).any() for one, two in pairwise(parts))
    replaced = (labels != -100) & (hidden != labels) & (hidden != tokenizer.mask_token_id)
    assert not set(hidden[replaced].tolist()) & set(tokenizer.all_special_ids)


def test_words_of_scripts_without_spaces_are_their_tokens():
    tokenizer = make_bpe()
    masking = Masking.from_tokenizer(tokenizer, mlm_probability=0.1, whole_word_mask=True)
    han = "\u6211\u559c\u6b22\u4f60"
    ids = np.asarray(tokenizer(han, add_special_tokens=False)["input_ids"])
    draws = masking.draw(0, 0, np.zeros(1, int), np.array([12]))
    _, labels = masking.apply(ids, np.array([12]), draws)
    assert (labels != -100).sum() == 3  # the bytes of a character

    thai = "\u0e20\u0e32\u0e29\u0e32\u0e44\u0e17\u0e22" * 40  # a text without spaces
    ids = np.asarray(tokenizer(thai, add_special_tokens=False)["input_ids"])
    lengths = np.full(20, len(ids))
    _, labels = masking.apply(np.tile(ids, 20), lengths, masking.draw(0, 0, np.arange(20), lengths))
    assert 0.08 < (labels != -100).mean() < 0.12

    words = {"<unk>": 0, "\u2581the": 1, "se": 2, han[:2]: 3, "\u2581" + han: 4}
    assert find_continuations(words) == [0, 2]


def test_a_tokenizer_that_marks_no_words_masks_tokens_alone():
    words = {"<s>": 0, "</s>": 1, "<mask>": 2, "the</w>": 3, "th": 4}
    with pytest.raises(ValueError, match=r"by ##, .* leave it out"):
        find_continuations(words)
