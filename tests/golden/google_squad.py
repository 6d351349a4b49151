"""How google-research/bert makes windows of SQuAD's passages and answers of logits: the oracle.

The source of the facts is ``run_squad.py`` of github.com/google-research/bert (Apache-2.0). The
code is our own plain loops and knows none of the packages that it tests.
"""

from typing import NamedTuple


class Window(NamedTuple):
    """A window of a passage, in tokens of the passage."""

    start: int
    length: int


def make_windows(tokens: int, room: int, stride: int) -> list[Window]:
    """Advance by the stride until a window reaches the end of the passage."""
    windows = []
    start = 0
    while start < tokens:
        length = tokens - start
        if length > room:
            length = room
        windows.append(Window(start, length))
        if start + length == tokens:
            break
        start += min(length, stride)
    return windows


def has_max_context(windows: list[Window], current: int, token: int) -> bool:
    """Tell whether a token of the passage has most context in the current window."""
    best_score, best_window = None, None
    for number, (start, length) in enumerate(windows):
        end = start + length - 1
        if token < start or token > end:
            continue
        score = min(token - start, end - token) + 0.01 * length
        if best_score is None or score > best_score:
            best_score, best_window = score, number
    return best_window == current


def label(windows: list[Window], number: int, answer: tuple[int, int], shift: int):
    """Place an answer in a row whose passage begins at ``shift``; at 0 if it is not whole there."""
    start, length = windows[number]
    if not (answer[0] >= start and answer[1] <= start + length - 1):
        return [0, 0]
    return [answer[0] - start + shift, answer[1] - start + shift]


def best_places(logits: list[float], size: int) -> list[int]:
    """List the places of the highest logits, the first of equal ones first."""
    places = sorted(range(len(logits)), key=lambda place: logits[place], reverse=True)
    return places[:size]


class Feature(NamedTuple):
    """A row of one question: its tokens and their logits."""

    # place in the row -> word of the passage, and whether an answer may begin there
    words: dict[int, int]
    is_max_context: dict[int, bool]
    start_logits: list[float]
    end_logits: list[float]


def find_n_best(
    features: list[Feature],
    words: list[str],
    size: int = 20,
    longest: int = 30,
    threshold: float | None = None,
):
    """Find the best answers to one question.

    Returns:
        The answer, (text, start_logit, end_logit) of the best ones, and the odds of no answer.
    """
    spans = []
    null = None
    for feature in features:
        score = feature.start_logits[0] + feature.end_logits[0]
        if threshold is not None and (null is None or score < null[1] + null[2]):
            null = ("", feature.start_logits[0], feature.end_logits[0])
        for start in best_places(feature.start_logits, size):
            for end in best_places(feature.end_logits, size):
                if start not in feature.words or end not in feature.words:
                    continue
                if not feature.is_max_context[start]:
                    continue
                if end < start or end - start + 1 > longest:
                    continue
                text = " ".join(words[feature.words[start] : feature.words[end] + 1])
                spans.append((text, feature.start_logits[start], feature.end_logits[end]))
    if null is not None:
        spans.append(null)
    spans.sort(key=lambda span: span[1] + span[2], reverse=True)
    n_best, seen = [], set()
    for span in spans:
        if len(n_best) >= size:
            break
        if span[0] not in seen:
            seen.add(span[0])
            n_best.append(span)
    if null is not None and "" not in seen:
        n_best.append(null)
    if not any(text for text, _, _ in n_best):
        n_best.append(("empty", 0.0, 0.0))
    best = next(span for span in n_best if span[0])
    if threshold is None or null is None:
        return best[0], n_best, None
    odds = null[1] + null[2] - best[1] - best[2]
    return ("" if odds > threshold else best[0]), n_best, odds
