"""Tagging schemes: detected, checked, and converted to IOB2.

In IOB1 a span begins with ``I-``, and with ``B-`` only directly after another span; in IOB2 every
span begins with ``B-`` (Ramshaw and Marcus 1995; Tjong Kim Sang and Veenstra 1999). Read as
conlleval does, where a span begins with ``B-`` or a change of type, both give the same spans. The
schemes called BIOES, BILOU or BMES also name the last word of a span (E or L) and a span of one
word (S, U or W), and some call the words between M.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from datasets_scripts.files.readers import Record

logger = logging.getLogger(__name__)

SCHEMES = ("iob1", "iob2", "iob", "bioes", "plain")
OUTSIDE = "O"
SPAN_TAG = re.compile(r"[BIELSUMW][-_].")
LAST, SINGLE = "ELSUW", "SUW"
# Share of the spans of a file that may begin as in the other IOB scheme: errors of annotators.
MOST_MIXED = 0.01

# The tags of a sentence, with its record.
TaggedRecord = tuple[Record, Sequence[str]]


class Evidence(NamedTuple):
    """Where only one scheme allows a tag."""

    line: int  # the first one
    tag: str
    number: int


def find_scheme(path: str, sentences: Iterable[TaggedRecord], declared: str | None) -> str:
    """Detect the scheme of a file, or check the declared one.

    It is one of ``iob1``, ``iob2``, ``iob`` for both, ``bioes`` for all that name the ends of
    spans, or ``plain``.
    """
    found = _find_evidence(sentences)
    if declared == "plain":
        return "plain"
    spans: dict[str, Evidence] = {kind: found[kind] for kind in ("iob1", "iob2") if kind in found}
    if "plain" in found:
        if not spans and declared is None:
            return "plain"
        line, tag, _ = found["plain"]
        raise ValueError(
            f"{path}:{line}: the tag {tag!r} is not part of a span ('O', 'B-...', 'I-...', or one "
            "of E, S, L, U, M, W), but others are; correct it, or declare scheme: plain if the "
            "tags are of single tokens"
        )
    if declared in ("iob", "bioes"):
        return declared
    if "bioes" in found and declared is not None:
        _refuse_declared(path, declared, "bioes", found["bioes"])
    _check_spans(path, spans, declared)
    if "bioes" in found:
        return "bioes"
    return declared or max(spans, key=lambda kind: spans[kind].number, default="iob2")


def _check_spans(path: str, spans: dict[str, Evidence], declared: str | None) -> None:
    """Reject spans of both schemes, or of another one than declared."""
    if wrong := [kind for kind in spans if declared not in (None, kind)]:
        _refuse_declared(path, declared, wrong[0], spans[wrong[0]])
    if len(spans) < 2:
        return
    (line1, tag1, count1), (line2, tag2, count2) = spans["iob1"], spans["iob2"]
    if min(count1, count2) > MOST_MIXED * (count1 + count2):
        raise ValueError(
            f"{path}:{max(line1, line2)}: mixed IOB schemes: a span begins with {tag1!r} in line "
            f"{line1}, as in IOB1, and with {tag2!r} in line {line2}, as in IOB2; correct the "
            "file, or declare scheme: iob to allow both"
        )
    line, tag, count = min(spans.values(), key=lambda each: each.number)
    logger.warning(
        "%s:%d: a span begins with %r, unlike %s others, and is read as conlleval does",
        path,
        line,
        tag,
        f"{count1 + count2 - count:,}",
    )


def _refuse_declared(path: str, declared: str | None, kind: str, found: Evidence) -> None:
    raise ValueError(
        f"{path}:{found.line}: scheme={declared!r}, but a span begins with {found.tag!r} here, as "
        f"in {kind.upper()}; correct the file or the scheme"
    )


def _find_evidence(sentences: Iterable[TaggedRecord]) -> dict[str, Evidence]:
    """Return by scheme the first line and tag that only this scheme allows, and how many are."""
    found: dict[str, Evidence] = {}
    for record, tags in sentences:
        for place, (previous, tag) in enumerate(zip([OUTSIDE, *tags], tags, strict=False)):
            if (kind := _only_scheme(previous, tag)) is not None:
                first = found.get(kind) or Evidence(record.line_of(place), tag, 0)
                found[kind] = first._replace(number=first.number + 1)
    return found


def _only_scheme(previous: str, tag: str) -> str | None:
    """Return the only scheme in which a tag may follow another one; None for several."""
    if tag == OUTSIDE:
        return None
    if not SPAN_TAG.match(tag):
        return "plain"
    if tag[0] not in "BI" or tag[1] == "_":
        return "bioes"
    if tag.startswith("B-"):
        return "iob2" if previous == OUTSIDE else None
    return None if previous[2:] == tag[2:] else "iob1"


def to_iob2(tags: Sequence[str]) -> list[str]:
    """Convert the tags of a sentence from any scheme of spans to IOB2."""
    converted, previous = [], OUTSIDE
    for tag in tags:
        begins = tag[:1] in f"B{SINGLE}" or previous[:1] in f"{OUTSIDE}{LAST}"
        begins = begins or previous[2:] != tag[2:]
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
