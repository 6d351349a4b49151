"""Tagging schemes: detected, checked, and converted to IOB2.

In IOB1 a span begins with ``I-``, and with ``B-`` only directly after another span; in IOB2 every
span begins with ``B-`` (Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra 1999). Read as
conlleval does, where a span begins with ``B-`` or a change of type, both give the same spans.
"""

from collections.abc import Iterable, Sequence

from datasets_scripts.files.readers import Record

SCHEMES = ("iob1", "iob2", "iob", "plain")
OUTSIDE = "O"

# The tags of a sentence, with its record.
TaggedRecord = tuple[Record, Sequence[str]]


def find_scheme(path: str, sentences: Iterable[TaggedRecord], declared: str | None) -> str:
    """Detect the scheme of a file, or check the declared one: ``iob`` for both, or ``plain``."""
    first = _find_evidence(sentences)
    if declared == "plain":
        return "plain"
    spans = [kind for kind in ("iob1", "iob2") if kind in first]
    if "plain" in first:
        if not spans and declared is None:
            return "plain"
        line, tag = first["plain"]
        raise ValueError(
            f"{path}:{line}: the tag {tag!r} is not part of a span ('O', 'B-...' or 'I-...'), but "
            "others are; correct it, or declare scheme: plain if the tags are of single tokens"
        )
    if declared == "iob" or not spans:
        return declared or "iob2"
    _check_spans(path, {kind: first[kind] for kind in spans}, declared)
    return spans[0]


def _check_spans(path: str, first: dict[str, tuple[int, str]], declared: str | None) -> None:
    """Reject spans of both schemes, or of another one than declared."""
    if len(first) == 2 and declared is None:
        (line1, tag1), (line2, tag2) = first["iob1"], first["iob2"]
        raise ValueError(
            f"{path}:{max(line1, line2)}: mixed IOB schemes: a span begins with {tag1!r} in line "
            f"{line1}, as in IOB1, and with {tag2!r} in line {line2}, as in IOB2; correct the "
            "file, or declare scheme: iob to allow both"
        )
    if wrong := [kind for kind in first if declared not in (None, kind)]:
        line, tag = first[wrong[0]]
        raise ValueError(
            f"{path}:{line}: scheme={declared!r}, but a span begins with {tag!r} here, as in "
            f"{wrong[0].upper()}; correct the file or the scheme"
        )


def _find_evidence(sentences: Iterable[TaggedRecord]) -> dict[str, tuple[int, str]]:
    """Return by scheme the first line and tag that only this scheme allows."""
    first: dict[str, tuple[int, str]] = {}
    for record, tags in sentences:
        for place, (previous, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
            if (kind := _only_scheme(previous, tag)) is not None:
                first.setdefault(kind, (record.line_of(place), tag))
    return first


def _only_scheme(previous: str, tag: str) -> str | None:
    """Return the only scheme in which a tag may follow another one; None for both."""
    if tag == OUTSIDE:
        return None
    if tag[:2] not in ("B-", "I-") or len(tag) == 2:
        return "plain"
    if tag.startswith("B-"):
        return "iob2" if previous == OUTSIDE else None
    return None if previous[2:] == tag[2:] else "iob1"


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence from IOB1 or IOB2 to IOB2."""
    converted, previous = [], OUTSIDE
    for tag in tags:
        begins = tag.startswith("B-") or previous == OUTSIDE or previous[2:] != tag[2:]
        converted.append(tag if tag == OUTSIDE else f"{'B' if begins else 'I'}-{tag[2:]}")
        previous = tag
    return converted


def list_tags(tags: Iterable[str], scheme: str) -> tuple[str, ...]:
    """List the names of all tags: ``O`` first, and both for every type of span."""
    distinct = set(tags)
    if scheme == "plain":
        return tuple(sorted(distinct, key=lambda tag: (tag != OUTSIDE, tag)))
    types = sorted({tag[2:] for tag in distinct if tag != OUTSIDE})
    return (OUTSIDE, *(f"{letter}-{kind}" for kind in types for letter in "BI"))
