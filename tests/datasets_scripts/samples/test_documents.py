"""The built-in text: the same every time, with strong themes and new stories held out."""

import re
from collections import Counter
from itertools import pairwise

import pytest

from datasets_scripts.samples import document_words as words
from datasets_scripts.samples.documents import SIZES, generate_documents

NOUNS = {
    place: {place, worker, *(step.split()[1] for step in steps)}
    for place, worker, *steps in words.THEMES
}

WORKERS = {place: worker for place, worker, *_ in words.THEMES}


@pytest.fixture(scope="module")
def documents():
    return generate_documents()


def words_of(text):
    return re.findall(r"\w+", text)


def theme_of(document):
    (place,) = NOUNS.keys() & words_of(document)
    return place


def people_of(text):
    return frozenset(words_of(text)) & set(words.NAMES)


def sentences_of(documents):
    return [sentence for document in documents for sentence in document.split("\n")]


def test_splits_have_their_sizes(documents):
    assert {split: len(texts) for split, texts in documents.items()} == SIZES


def test_a_seed_fixes_the_documents(documents):
    assert generate_documents() == documents
    assert generate_documents(seed=1) != documents


def test_a_document_is_ten_to_sixteen_sentences_one_a_line(documents):
    lengths = set()
    for document in documents["train"]:
        sentences = document.split("\n")
        lengths.add(len(sentences))
        for sentence in sentences:
            assert re.fullmatch(r"[A-Z][A-Za-z, ]+[a-z]\.", sentence), sentence

    assert lengths == set(range(10, 17))


def test_no_two_themes_share_a_noun():
    counts = Counter(noun for nouns in NOUNS.values() for noun in nouns)

    assert set(counts.values()) == {1}
    assert {len(nouns) for nouns in NOUNS.values()} == {8}


def test_every_sentence_shows_the_theme_and_no_other(documents):
    for document in documents["validation"]:
        theme = theme_of(document)
        others = set().union(*(NOUNS[place] for place in NOUNS if place != theme))
        for sentence in document.split("\n"):
            found = set(words_of(sentence))
            assert found & {theme, WORKERS[theme]}, sentence
            assert not found & others, sentence


def test_two_documents_seldom_share_a_theme(documents):
    for texts in documents.values():
        counts = Counter(map(theme_of, texts)).values()
        share = sum(n * (n - 1) for n in counts) / (len(texts) * (len(texts) - 1))
        assert share < 0.1


def test_a_document_has_two_people_and_every_sentence_names_one(documents):
    assert all(len(people_of(document)) == 2 for document in documents["train"])
    assert all(people_of(sentence) for sentence in sentences_of(documents["train"]))


def test_hours_and_steps_of_the_work_go_forward(documents):
    orders = {
        place: [f"{verb} the {thing}" for verb, thing in map(str.split, steps)]
        for place, _, *steps in words.THEMES
    }
    for document in documents["validation"]:
        hours = [words.HOURS.index(hour) for hour in re.findall(r"At (\w+)", document)]
        starts = [document.find(step) for step in orders[theme_of(document)]]
        told = [start for start in starts if start >= 0]
        assert 4 <= len(told) == len(hours) <= 6
        assert all(second == first + 1 for first, second in pairwise(hours))
        assert told == sorted(told)


def test_held_out_documents_tell_of_other_people(documents):
    train, held_out = (
        {(theme_of(text), people_of(text)) for text in documents[split]}
        for split in ("train", "validation")
    )

    assert len(train) == SIZES["train"]
    assert len(held_out) == SIZES["validation"]
    assert train.isdisjoint(held_out)


def test_most_held_out_sentences_are_new(documents):
    known = set(sentences_of(documents["train"]))
    held_out = sentences_of(documents["validation"])

    assert sum(sentence in known for sentence in held_out) < 0.25 * len(held_out)


def test_held_out_documents_use_known_words(documents):
    known, held_out = (set(words_of("\n".join(texts))) for texts in documents.values())

    assert held_out <= known
