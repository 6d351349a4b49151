"""Train a WordPiece vocabulary."""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONG_TRAINING = 20_000_000  # characters; less needs no progress bar
# Share of the text that the characters of a vocabulary cover at least.
# Source: the default character_coverage of SentencePiece.
COVERAGE = 0.9995
# The usual limit of BERT's trainers; with two tokens for each, half of a vocabulary at most.
MAX_CHARACTERS = 1000
# A longer word is [UNK] whatever the vocabulary is, and the time of the training grows with the
# square of its length. Source: max_input_chars_per_word of google-research/bert and of tokenizers.
TOO_LONG = Regex(r"(?m).{101,}")
# Shares of the letters: marks of scripts such as Devanagari or kana are no accents, a few are of
# quotations; accents are on 3 % of the letters of French, and on more than 20 % in Vietnamese.
MOST_OTHER_MARKS, MOST_ACCENTS = 0.001, 0.1
ACCENTS = re.compile("[\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]")
SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]")  # of the style of emoji
MAX_SIZE = 10_000_000  # the library of tokenizers reserves memory for all tokens at once


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, *, lowercase: bool = True
) -> BertTokenizer:
    """Train a WordPiece vocabulary; the same texts give the same vocabulary.

    Words with a character that is too rare for the vocabulary, or with more than 100 characters,
    become [UNK].

    Args:
        texts: Sentences, paragraphs or documents; they are read twice, one at a time.
        vocab_size: Size of the vocabulary, including the five special tokens.
        lowercase: Whether to ignore case and accents. Accents and vowel signs are kept where
            words differ in them: if marks of other scripts than Latin, Greek and Cyrillic occur, or
            many letters have one, as in Vietnamese.

    Raises:
        ValueError: If the texts can be read only once, or the vocabulary is too small for the
            characters of the texts.
    """
    if not 1 <= vocab_size <= MAX_SIZE:
        raise ValueError(f"vocab_size={vocab_size}; expected a whole number from 1 to {MAX_SIZE:,}")
    if isinstance(texts, Iterator):
        raise ValueError(  # noqa: TRY004  (a user's value)
            "texts can be read only once, but are read twice; pass a list"
        )
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    strips = lowercase and not _marks_tell_words_apart(counts)
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106  (no password)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strips)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Split(TOO_LONG, "removed")]
    )
    normalize = tokenizer.normalizer.normalize_str
    normal: Counter[str] = Counter()
    for character, count in counts.items():
        for part in normalize(character):
            if not part.isspace():
                normal[part] += count
    ranked = sorted(normal, key=lambda character: (-normal[character], character))
    covered = list(accumulate(normal[character] for character in ranked))
    needed = bisect_left(covered, COVERAGE * normal.total()) + 1
    characters = sorted(ranked[: max(needed, min(MAX_CHARACTERS, vocab_size // 4))])
    # The trainer numbers "##x" pieces in the order of a hash map, which differs between runs, and
    # breaks ties by number. Declared first, they have fixed numbers. A Chinese character is a word
    # by itself, and continues none.
    pieces = [f"##{part}" for part in characters if normalize(f"a{part}a") == f"a{part}a"]
    smallest = len(SPECIAL_TOKENS) + len(pieces) + len(characters)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size={vocab_size} is too small for the {len(characters)} characters of the "
            f"texts; at least {smallest} tokens are needed"
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size,
        special_tokens=[*SPECIAL_TOKENS, *pieces],
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=counts.total() > LONG_TRAINING,
    )
    tokenizer.train_from_iterator(iter(texts), trainer)
    # as BERT's own files, if accents go with the case
    accents: dict[str, Any] = {} if strips == lowercase else {"strip_accents": strips}
    return BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=lowercase, **accents)


def _marks_tell_words_apart(counts: Counter[str]) -> bool:
    """Return whether texts have marks that words differ in, of the counts of their characters."""
    letters = accents = others = 0
    for character, count in counts.items():
        for part in unicodedata.normalize("NFD", character):
            kind = unicodedata.category(part)
            letters += count * (kind[0] == "L")
            if ACCENTS.match(part):
                accents += count
            elif kind == "Mn" and not SELECTORS.match(part):  # BERT strips it, too
                others += count
    return others > MOST_OTHER_MARKS * letters or accents > MOST_ACCENTS * letters
