"""Which tokens of a sequence stay if it is too long: its head, its tail, or some of both.

Source: Sun et al. 2019, How to Fine-Tune BERT for Text Classification?, section 5.3.1.
"""

from collections.abc import Sequence
from itertools import groupby

# Share of the tokens that stay and are taken from the start: the paper's 128 of 510, the other 382
# from the end.
HEAD_SHARES = {"head": 1.0, "tail": 0.0, "head_tail": 128 / 510}


def choose_tokens(special: Sequence[int], max_length: int, head_share: float) -> list[int]:
    """Choose the tokens of a sequence that stay.

    All special tokens do. Of two texts the longer one loses tokens first, until both are as long,
    as with ``truncation="longest_first"`` of a tokenizer.

    Args:
        special: For each token 1 if the tokenizer added it, as [CLS] and [SEP], else 0, (T,).
        max_length: Tokens that stay at most, the special ones included.
        head_share: Share of what stays of a text that is taken from its start, in [0, 1].

    Returns:
        Their places, ascending.
    """
    places = range(len(special))
    if len(special) <= max_length:
        return list(places)
    texts = [list(run) for added, run in groupby(places, special.__getitem__) if not added]
    room = max_length - sum(special)
    longer = max(reversed(texts), key=len)  # the second one, if both are as long
    shorter_size = min(sum(map(len, texts)) - len(longer), room // 2)
    dropped: set[int] = set()
    for text in texts:
        size = room - shorter_size if text is longer else shorter_size
        head = round(head_share * size)
        dropped.update(text[head : len(text) - (size - head)])
    return [place for place in places if place not in dropped]
