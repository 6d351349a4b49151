"""Tags of texts and words: in order, whatever their length, with the characters of entities."""

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import find_entities, split_words

TAGS = {"problem_type": "token_classification", "labels": ["O", "B-PER", "I-PER"]}
WORDS = ["the", "cat", "sat", "far", "in", "the", "tree"]


@pytest.fixture(params=["sdpa", "eager"])
def model(request, build_multitask, tokenizer):
    """Return a model of tags, that computes packed batches or padded ones."""
    return build_multitask({"tags": TAGS}, tokenizer, attn_implementation=request.param)


def test_words_and_texts_get_the_tags_of_their_first_tokens(model, tokenizer):
    ids = torch.tensor([[2, *tokenizer.convert_tokens_to_ids(WORDS), 3]])
    probabilities = model(ids, task="tags").logits[0, 1:-1].softmax(dim=-1)

    rows = [WORDS, ["cat"], " ".join(WORDS), "  ", np.array(WORDS, dtype=object)]
    words, single, text, blank, column = model.predict("tags", rows)

    assert words["words"] == text["words"] == WORDS
    assert column["words"] == WORDS  # as a column of a frame has them
    assert column["tags"] == words["tags"]
    assert words["tags"] == [TAGS["labels"][tag] for tag in probabilities.argmax(dim=-1)]
    assert_close(torch.tensor(words["scores"]), probabilities.amax(dim=-1))
    assert text["tags"] == words["tags"]
    assert len(single["tags"]) == 1
    assert blank == {"words": [], "tags": [], "scores": [], "entities": []}


def test_a_long_text_is_tagged_to_its_end(model):
    (found,) = model.predict("tags", [" ".join(WORDS * 500)])

    assert found["words"] == WORDS * 500
    assert len(found["tags"]) == 3500


def test_entities_name_their_characters():
    text = "Ann  Lee-Low left U.S. soil."
    row = split_words(text, 0, "tags")
    assert row.words == ["Ann", "Lee-Low", "left", "U.S.", "soil", "."]

    tags = ["I-PER", "I-PER", "O", "B-LOC", "B-LOC", "O"]
    scores = [0.5, 1.0, 1.0, 1.0, 0.25, 1.0]
    found = find_entities(row, tags, scores)

    assert [(one["label"], one["text"], one["score"]) for one in found] == [
        ("PER", "Ann  Lee-Low", 0.75),
        ("LOC", "U.S.", 1.0),
        ("LOC", "soil", 0.25),
    ]
    assert all(text[one["start"] : one["end"]] == one["text"] for one in found)


def test_tags_of_single_words_mark_no_entities(build_multitask, tokenizer):
    model = build_multitask({"tags": TAGS | {"scheme": "plain"}}, tokenizer)

    assert [*model.predict("tags", [WORDS])[0]] == ["words", "tags", "scores"]


def test_a_ranking_of_tags_is_refused(model):
    with pytest.raises(ValueError, match="one tag per word: leave top_k out"):
        model.predict("tags", ["the cat"], top_k=2)
