"""The page of ``minbert predict --explain --output page.html``: texts with their words colored."""

import html
from collections.abc import Iterable, Iterator
from typing import Any

from trainers.reports.texts import LEGEND, color_words

START = f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Why these predictions</title>
<style>
body {{font: 16px/1.7 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em}}
section {{border-top: 1px solid #ccc; padding: .6em 0}}
p {{margin: .3em 0}}
span {{border-radius: .2em; padding: .1em 0}}
.quiet {{color: #555}}
</style>
<h1>Why these predictions</h1>
<p class="quiet">{LEGEND} The shares of all words, which appear under the
pointer, add up to the difference from the decision about the same text with every word masked.</p>
"""


def write_page(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the page of explained rows, part by part."""
    yield START
    for row in rows:
        what = row.get("explained", "the score")
        decision = f"decision {row['decision']:.2f}, without words {row['baseline']:.2f}"
        yield f"<section><p><b>{html.escape(describe(row))}</b> "
        yield f'<span class="quiet">for {html.escape(str(what))}: {decision}</span></p>\n'
        texts = [row[name] for name in ("text", "text1", "text2") if name in row]
        for number, text in enumerate(texts, start=1):
            yield f"<p>{color_words(text, row['words'], number)}</p>\n"
        yield "</section>\n"


def describe(row: dict[str, Any]) -> str:
    """Return what was predicted: a label, several ones, or numbers."""
    if "scores" in row:
        found = [f"{name} {score:.3f}" for name, score in row["scores"].items()]
    else:
        each = row.get("labels", [row])
        found = [f"{one.get('label', '')} {one['score']:.3f}".strip() for one in each]
    return ", ".join(found) or "no label"
