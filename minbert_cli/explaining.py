"""The page of ``minbert predict --explain --output page.html``: texts with their words colored."""

import html
from collections.abc import Iterable, Iterator
from typing import Any

START = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Why these predictions</title>
<style>
body {font: 16px/1.7 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em}
section {border-top: 1px solid #ccc; padding: .6em 0}
p {margin: .3em 0}
span {border-radius: .2em; padding: .1em 0}
.of {color: #555}
</style>
<h1>Why these predictions</h1>
<p class="of">Orange words speak for the decision, blue ones against it, the darker the more. The
shares of all words, which appear under the pointer, add up to the difference from the decision
about the same text with every word masked.</p>
"""
FOR, AGAINST = "230, 120, 0", "30, 110, 220"


def write_page(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the page of explained rows, part by part."""
    yield START
    for row in rows:
        what = row.get("explained", "the score")
        decision = f"decision {row['decision']:.2f}, without words {row['baseline']:.2f}"
        yield f"<section><p><b>{html.escape(describe(row))}</b> "
        yield f'<span class="of">for {html.escape(str(what))}: {decision}</span></p>\n'
        most = max((abs(word["share"]) for word in row["words"]), default=0) or 1
        for number in (1, 2):
            name = "text" if "text" in row else f"text{number}"
            words = [word for word in row["words"] if word.get("text", 1) == number]
            if name in row and (number == 1 or "text2" in row):
                yield f"<p>{''.join(color(row[name], words, most))}</p>\n"
        yield "</section>\n"


def describe(row: dict[str, Any]) -> str:
    """Return what was predicted: a label, several ones, or numbers."""
    if "scores" in row:
        found = [f"{name} {score:.3f}" for name, score in row["scores"].items()]
    else:
        each = row.get("labels", [row])
        found = [f"{one.get('label', '')} {one['score']:.3f}".strip() for one in each]
    return ", ".join(found) or "no label"


def color(text: str, words: Iterable[dict[str, Any]], most: float) -> Iterator[str]:
    """Yield a text with its words colored by their shares, of which the largest is ``most``."""
    end = 0
    for word in words:
        yield html.escape(text[end : word["start"]])
        end = word["end"]
        tone = FOR if word["share"] > 0 else AGAINST
        style = f"background: rgba({tone}, {0.8 * abs(word['share']) / most:.2f})"
        part = html.escape(text[word["start"] : end])
        yield f'<span style="{style}" title="{word["share"]:+.3f}">{part}</span>'
    # what was truncated
    yield f'<span class="of">{html.escape(text[end:])}</span>'
