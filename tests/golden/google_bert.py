"""How google-research/bert makes pre-training examples, as plain loops: the oracle of these tests.

The source of the facts (which number is drawn when, and what follows from it) is
``create_pretraining_data.py`` of github.com/google-research/bert (Apache-2.0). The code is our own
and knows neither ``datasets_scripts`` nor ``trainers``. It works on lists of token ids.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple


class Instance(NamedTuple):
    """One example before masking, without special tokens."""

    tokens_a: list[int]
    tokens_b: list[int]
    is_random_next: bool


def create_instances(
    documents: list[list[list[int]]],
    document_index: int,
    max_seq_length: int,
    short_seq_prob: float,
    rng: random.Random,
) -> list[Instance]:
    """Make the segment pairs of one document in one pass.

    Args:
        documents: For each document its sentences, for each sentence its tokens. Nothing is empty.
        document_index: The document to make pairs of.
        max_seq_length: Tokens of a row at most, ``[CLS] A [SEP] B [SEP]`` with its special tokens.
        short_seq_prob: Probability that this pass over the document aims at shorter pairs.
        rng: Gives every draw, in google's order.

    Returns:
        The pairs, in the order of the document.
    """
    document = documents[document_index]
    max_tokens = max_seq_length - 3
    target = max_tokens
    if rng.random() < short_seq_prob:
        target = rng.randint(2, max_tokens)

    instances = []
    first = 0
    while first < len(document):
        last = end_of_chunk(document, first, target)
        alone = last - first == 1
        middle = last if alone else first + rng.randint(1, last - first - 1)
        tokens_a = join(document[first:middle])
        is_random_next = alone or rng.random() < 0.5
        if is_random_next:
            tokens_b = random_segment(documents, document_index, target - len(tokens_a), rng)
            first = middle  # the sentences that B did not take start the next pair
        else:
            tokens_b = join(document[middle:last])
            first = last
        truncate(tokens_a, tokens_b, max_tokens, rng)
        instances.append(Instance(tokens_a, tokens_b, is_random_next))
    return instances


def end_of_chunk(document: list[list[int]], first: int, target: int) -> int:
    """Return the end of the fewest sentences from ``first`` on that have ``target`` tokens."""
    length = 0
    for number in range(first, len(document)):
        length += len(document[number])
        if length >= target:
            return number + 1
    return len(document)


def random_segment(
    documents: list[list[list[int]]], document_index: int, target: int, rng: random.Random
) -> list[int]:
    """Return tokens of a random place in another document: whole sentences, one at least."""
    for _ in range(10):
        other = rng.randint(0, len(documents) - 1)
        if other != document_index:
            break
    first = rng.randint(0, len(documents[other]) - 1)
    return join(documents[other][first : end_of_chunk(documents[other], first, target)])


def truncate(tokens_a: list[int], tokens_b: list[int], max_tokens: int, rng: random.Random) -> None:
    """Shorten the longer list, B if both are equal, token by token at a random end; in place."""
    while len(tokens_a) + len(tokens_b) > max_tokens:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        longer.pop(0 if rng.random() < 0.5 else -1)


def join(sentences: list[list[int]]) -> list[int]:
    """Return the tokens of all sentences in one new list."""
    return [token for sentence in sentences for token in sentence]


def mask_tokens(
    ids: list[int],
    draws: tuple[Sequence[float], Sequence[float], Sequence[float]],
    *,
    mask_token_id: int,
    special_ids: set[int],
    continuation_ids: set[int],
    random_ids: list[int],
    shares: tuple[float, float, float] = (0.15, 0.8, 0.1),
    whole_words: bool = False,
) -> tuple[list[int], list[int]]:
    """Choose the targets of one row and hide them.

    Google's loop, with five differences on purpose: the order and the two decisions come from
    draws made before; a word ends at a special token (google lets a ``##`` that begins B join the
    last word of A); no more than the share limits the number of targets (google: 20); a row whose
    words are all too long gets one all the same; random tokens come from ``random_ids`` (google:
    the whole vocabulary).

    Args:
        ids: The row, special tokens included, (L,).
        draws: Three numbers in [0, 1) for each token: its place in the order, what happens to it,
            and which random token it gets, each (L,).
        mask_token_id: Id of ``[MASK]``.
        special_ids: Tokens that are never a target and end a word.
        continuation_ids: Pieces that belong to the word before them (``##``).
        random_ids: Tokens that may take the place of a target.
        shares: Of the row's tokens, those that are targets; of targets, those that become
            ``[MASK]`` and those that become a random token.
        whole_words: Whether the pieces of a word are targets together.

    Returns:
        The ids with the targets hidden, and the labels: the target, or -100; each (L,).
    """
    order, action, replacement = draws
    budget = max(1, round(len(ids) * shares[0]))
    words = find_words(ids, special_ids, continuation_ids if whole_words else set())
    words.sort(key=lambda word: order[word[0]])
    targets: list[int] = []
    for word in words:
        if len(targets) + len(word) <= budget:
            targets += word
    if words and not targets:
        targets = words[0]

    hidden, labels = list(ids), [-100] * len(ids)
    for position in targets:
        labels[position] = ids[position]
        if action[position] < shares[1]:
            hidden[position] = mask_token_id
        elif action[position] < shares[1] + shares[2]:
            hidden[position] = random_ids[int(replacement[position] * len(random_ids))]
    return hidden, labels


def find_words(
    ids: list[int], special_ids: set[int], continuation_ids: set[int]
) -> list[list[int]]:
    """Return the positions of each word; a continuation piece joins the word just before it."""
    words: list[list[int]] = []
    for position, token in enumerate(ids):
        if token in special_ids:
            continue
        if token in continuation_ids and position > 0 and ids[position - 1] not in special_ids:
            words[-1].append(position)
        else:
            words.append([position])
    return words
