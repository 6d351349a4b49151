"""Schemes in which tags mark spans: recognised, checked, and written as IOB2.

In IOB1 a span begins with ``I-``, and with ``B-`` only right after another span; in IOB2 every span
begins with ``B-`` (Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra 1999). Read as conlleval
reads them, with a span that begins where the type changes or ``B-`` stands, both say the same.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

SCHEMES = ("iob1", "iob2", "iob", "plain")
OUTSIDE = "O"


class Sentence(NamedTuple):
    """A sentence with tags.

    Args:
        line: Line of its first word in the file, from 1; in Parquet and on the Hub its row.
        words: Its words.
        tags: A tag a word; None if nobody knows them.
        document: Number of its document in the file.
        is_row: Whether it stands on one line, and not a word on each.
    """

    line: int
    words: list[str]
    tags: list[str] | None
    document: int
    is_row: bool = False

    def where(self, word: int) -> int:
        """Tell the line of a word."""
        return self.line if self.is_row else self.line + word


def is_span_tag(tag: str) -> bool:
    """Tell whether a tag is ``O``, or marks a span."""
    return tag == OUTSIDE or (tag[:2] in ("B-", "I-") and len(tag) > 2)


def find_scheme(path: str, sentences: Iterable[Sentence], declared: str | None) -> str:
    """Recognise the scheme of a file, or check that it has the one that was declared.

    Args:
        path: The file, for messages.
        sentences: What stands in it.
        declared: ``iob1``, ``iob2``, ``iob`` for spans that begin as in either, ``plain`` for tags
            of single words; None to recognise it.

    Returns:
        The scheme; ``iob2`` if there are no spans at all, and ``plain`` if no tag but ``O`` looks
        like a part of one.

    Raises:
        ValueError: If schemes are mixed, or another one was declared; it names the line.
    """
    if declared == "plain":
        return "plain"
    first = _find_evidence(sentences)
    spans = [kind for kind in ("iob1", "iob2") if kind in first]
    if "plain" in first:
        if not spans and declared is None:
            return "plain"
        line, tag = first["plain"]
        raise ValueError(
            f"{path}:{line}: the tag {tag!r} is none of a span ('O', 'B-...' or 'I-...'), but "
            "others are; correct it, or declare scheme: plain if tags are of single words"
        )
    if declared == "iob" or not spans:
        return declared or "iob2"
    if len(spans) == 2 and declared is None:
        (line1, tag1), (line2, tag2) = first["iob1"], first["iob2"]
        raise ValueError(
            f"{path}:{max(line1, line2)}: mixed IOB schemes: a span begins with {tag1!r} in line "
            f"{line1}, as in IOB1, and with {tag2!r} in line {line2}, as in IOB2; correct the "
            "file, or declare scheme: iob to let spans begin either way"
        )
    if wrong := [kind for kind in spans if declared not in (None, kind)]:
        line, tag = first[wrong[0]]
        raise ValueError(
            f"{path}:{line}: scheme={declared!r}, but a span begins with {tag!r} here, as in "
            f"{wrong[0].upper()}; correct the file or the scheme"
        )
    return spans[0]


def _find_evidence(sentences: Iterable[Sentence]) -> dict[str, tuple[int, str]]:
    """Find the first line and tag that may stand in one scheme alone, by scheme."""
    first: dict[str, tuple[int, str]] = {}
    for sentence in sentences:
        previous = OUTSIDE
        for place, tag in enumerate(sentence.tags or ()):
            if (kind := _only_scheme(previous, tag)) is not None:
                first.setdefault(kind, (sentence.where(place), tag))
            previous = tag
    return first


def _only_scheme(previous: str, tag: str) -> str | None:
    """Tell in which scheme alone a tag may follow another one; None for both."""
    if tag == OUTSIDE:
        return None
    if not is_span_tag(tag):
        return "plain"
    if tag.startswith("B-"):
        return "iob2" if previous == OUTSIDE else None
    return None if previous[2:] == tag[2:] else "iob1"


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Write the tags of a sentence in IOB2, whatever they are in.

    Args:
        tags: Of spans, in IOB1 or IOB2.
    """
    written, previous = [], OUTSIDE
    for tag in tags:
        begins = tag.startswith("B-") or previous == OUTSIDE or previous[2:] != tag[2:]
        written.append(tag if tag == OUTSIDE else f"{'B' if begins else 'I'}-{tag[2:]}")
        previous = tag
    return written


def list_tags(tags: Iterable[str], scheme: str) -> tuple[str, ...]:
    """List the names of all tags: ``O`` first, and of every type of span both.

    Args:
        tags: All that occur.
        scheme: In which they are.
    """
    found = set(tags)
    if scheme == "plain":
        return tuple(sorted(found, key=lambda tag: (tag != OUTSIDE, tag)))
    types = sorted({tag[2:] for tag in found if tag != OUTSIDE})
    return (OUTSIDE, *(f"{letter}-{kind}" for kind in types for letter in "BI"))
