"""Train a WordPiece vocabulary."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LONG_TRAINING = 20_000_000  # characters; fewer are read before a progress bar could be
# Characters that a vocabulary has at least, if there are as many: all but one of 2,000 of the text.
# Source of the share: the default character_coverage of SentencePiece.
COVERAGE = 0.9995
# The usual limit of BERT's trainers; with two tokens for each, half of a vocabulary at most.
MAX_CHARACTERS = 1000
BLOCK = 1_000_000  # characters that are counted at once
CODES = 0x110000  # of Unicode


def train_wordpiece(
    texts: Iterable[str], vocab_size: int, *, lowercase: bool = True
) -> BertTokenizer:
    """Train a WordPiece vocabulary; the same texts give the same vocabulary.

    Words with a character that is too rare for the vocabulary become [UNK].

    Args:
        texts: Sentences, paragraphs or documents; they are read twice, and never all at once.
        vocab_size: Tokens of the vocabulary, the five special ones included.
        lowercase: Whether upper case and accents are ignored.

    Raises:
        ValueError: If the texts can be read only once, or the vocabulary cannot even hold the
            characters of the texts.
    """
    if isinstance(texts, Iterator):
        raise ValueError(  # noqa: TRY004  (one kind of error for what a user gives)
            "texts can be read only once, but are needed twice; give a list"
        )
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # noqa: S106  (no password)
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    counts = _count_codes(texts)
    characters = _choose_characters(tokenizer.normalizer, counts, vocab_size)
    # The trainer numbers "##x" pieces in the order of a hash map that differs from run to run,
    # and breaks ties by number. Declared first, they have fixed numbers.
    pieces = [f"##{character}" for character in characters if _can_continue(tokenizer, character)]
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
        show_progress=int(counts.sum()) > LONG_TRAINING,
    )
    tokenizer.train_from_iterator(iter(texts), trainer)
    return BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=lowercase)


def _count_codes(texts: Iterable[str]) -> NDArray[np.int64]:
    """Count how often each code of Unicode stands in the texts, (CODES,)."""
    counts = np.zeros(CODES, np.int64)
    for block in _join(texts):
        codes = np.frombuffer(block.encode("utf-32-le"), np.uint32)
        counts += np.bincount(codes, minlength=CODES)
    return counts


def _join(texts: Iterable[str]) -> Iterator[str]:
    """Join short texts, since counting costs as much for a short one as for a long one."""
    parts: list[str] = []
    size = 0
    for text in texts:
        parts.append(text)
        size += len(text)
        if size >= BLOCK:
            yield "".join(parts)
            parts, size = [], 0
    yield "".join(parts)


def _choose_characters(
    normalizer: normalizers.Normalizer, counts: NDArray[np.int64], vocab_size: int
) -> list[str]:
    """Choose the characters of the vocabulary, the frequent ones first; returned in their order."""
    normal: Counter[str] = Counter()
    for code in np.flatnonzero(counts).tolist():
        for character in normalizer.normalize_str(chr(code)):
            if not character.isspace():
                normal[character] += int(counts[code])
    ranked = sorted(normal, key=lambda character: (-normal[character], character))
    covered = np.cumsum([normal[character] for character in ranked])
    needed = int(np.searchsorted(covered, COVERAGE * normal.total())) + 1
    return sorted(ranked[: max(needed, min(MAX_CHARACTERS, vocab_size // 4))])


def _can_continue(tokenizer: Tokenizer, character: str) -> bool:
    """Tell whether a character can stand inside a word; a Chinese one is a word by itself."""
    return tokenizer.normalizer.normalize_str(f"a{character}a") == f"a{character}a"
