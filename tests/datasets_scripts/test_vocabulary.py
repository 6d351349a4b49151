"""`train_wordpiece`: any language, either case, and texts that are never all in memory."""

import random

import pytest
from transformers import AutoTokenizer

from datasets_scripts import train_wordpiece

ENGLISH = ["The Café opens in Paris.", "A café in Oslo closes.", "Paris is old."] * 5


class Texts:
    """Texts that can be read again and again, but only one by one."""

    def __iter__(self):
        return iter(ENGLISH)


def test_texts_can_be_of_any_kind_that_is_read_again():
    assert train_wordpiece(Texts(), 90).get_vocab() == train_wordpiece(ENGLISH, 90).get_vocab()


@pytest.mark.parametrize(
    ("texts", "size", "message"),
    [
        (iter(ENGLISH), 90, "texts can be read only once, but are read twice"),
        (ENGLISH, 0, "vocab_size=0; expected a whole number from 1 to"),
        (ENGLISH, 10**12, "vocab_size=1000000000000; expected a whole number from 1 to"),
    ],
)
def test_what_cannot_be_learned_is_refused(texts, size, message):
    with pytest.raises(ValueError, match=message):
        train_wordpiece(texts, size)


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_case_is_kept_if_asked_for_also_after_saving(tmp_path, lowercase):
    tokenizer = train_wordpiece(ENGLISH, 150, lowercase=lowercase)
    tokenizer.save_pretrained(tmp_path)

    reloaded = AutoTokenizer.from_pretrained(tmp_path)

    expected = ["the", "cafe", "paris"] if lowercase else ["The", "Café", "Paris"]
    assert tokenizer.tokenize("The Café Paris") == expected
    assert reloaded.tokenize("The Café Paris") == expected
    assert dict(reloaded("The", "Paris")) == dict(tokenizer("The", "Paris"))
    assert 1 in reloaded("The", "Paris")["token_type_ids"]


def test_rare_characters_give_way_to_words():
    rng = random.Random(0)
    codes = [chr(0x1200 + number) for number in range(100)]  # one Ethiopic letter each
    words = [rng.choice(["harbour", "lantern", "winter"]) for _ in range(30_000)]
    texts = [" ".join(words[start : start + 300]) for start in range(0, len(words), 300)]
    texts = [f"{text} {code}" for text, code in zip(texts, codes, strict=True)]

    tokenizer = train_wordpiece(texts, 150)

    assert tokenizer.tokenize("harbour lantern winter") == ["harbour", "lantern", "winter"]
    assert sum(code in tokenizer.get_vocab() for code in codes) < 40
    assert tokenizer.tokenize(f"winter {codes[-1]}") == ["winter", "[UNK]"]
    # the same characters fit into a larger one
    assert set(codes) <= set(train_wordpiece(texts, 2000).get_vocab())


def test_a_word_that_the_tokenizer_would_not_split_is_not_learned():
    longest = "ab" * 50

    learned = train_wordpiece([*ENGLISH, longest], 90)
    skipped = train_wordpiece([*ENGLISH, longest + "a"], 90)

    assert learned.tokenize(longest) == [longest]
    assert skipped.tokenize(longest + "a") == ["[UNK]"]
    assert not [piece for piece in skipped.get_vocab() if "bab" in piece]
    without = train_wordpiece([*ENGLISH, "a b"], 90)
    assert skipped.tokenize("The Café Paris") == without.tokenize("The Café Paris")
