"""Names, paths and other texts in Markdown and on pages: escaped, counted, in tables."""

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

# Control characters, lone surrogates and noncharacters are not allowed in HTML.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
# What starts Markdown, HTML, a formula or a link within a line; underscores only at the edge of a
# word, and colons only in addresses.
SPECIAL = re.compile(r"[\\`*\[\]<>|~&#$!]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
# The names of torch for the precisions of accelerate.
PRECISIONS = {"no": "float32", "bf16": "bfloat16", "fp16": "float16"}
# Of words by their shares, at most so strong that they can be read on a light and a dark page.
FOR, AGAINST, STRONGEST = "230, 120, 0", "30, 110, 220", 0.6
LEGEND = "Orange words speak for the decision, blue ones against it, the stronger the more."


def printable(content: Any) -> Any:
    """Replace control characters by symbols such as U+2400, other unprintable ones by U+FFFD."""
    if isinstance(content, str):
        return UNPRINTABLE.sub(lambda found: PICTURES.get(found[0], "\ufffd"), content)
    if isinstance(content, Mapping):
        return {printable(key): printable(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [printable(value) for value in content]
    return content


def plain(text: str) -> str:
    """Escape a text in a line or a cell of Markdown."""
    return SPECIAL.sub(r"\\\g<0>", " ".join(printable(text).split()))


def code_span(text: str) -> str:
    """Write a text as code in a line of Markdown."""
    line = " ".join(printable(text).splitlines())
    ticks = _longer_run(line, 1)
    pad = " " if line[:1] in ("`", " ", "") or line[-1:] in ("`", " ") else ""
    return f"{ticks}{pad}{line}{pad}{ticks}"


def code_block(text: str, language: str) -> str:
    """Write a text as a block of code in Markdown."""
    lines = "\n".join(printable(text).splitlines())
    ticks = _longer_run(lines, 3)
    return f"{ticks}{language}\n{lines}\n{ticks}"


def _longer_run(text: str, least: int) -> str:
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)


def color_words(text: str, words: Sequence[Mapping[str, Any]], number: int) -> str:
    """Write a text, or its beginning, as HTML with its words colored by their shares.

    ``words`` are those of its row, from ``model.explain``; it is the text ``number`` of that.
    """
    most = max((abs(word["share"]) for word in words), default=0) or 1
    colored, end = "", 0
    for word in words:
        if word.get("text", 1) == number and word["start"] < len(text):
            share, before, end = word["share"], text[end : word["start"]], word["end"]
            tone = f"{FOR if share > 0 else AGAINST}, {STRONGEST * abs(share) / most:.2f}"
            colored += f'{html.escape(before)}<span style="background: rgba({tone})" '
            colored += f'title="{share:+.3f}">{html.escape(text[word["start"] : end])}</span>'
    rest = html.escape(text[end:])  # what was truncated
    return colored + (f'<span class="quiet">{rest}</span>' if words and rest else rest)


def count(number: float, noun: str) -> str:
    """Write a number with its noun, as in "1 epoch" and "2.5 epochs"."""
    shown = f"{number:,}" if isinstance(number, int) else f"{number:.4g}"
    return f"{shown} {noun}" + "s" * (number != 1)


def format_time(seconds: float) -> str:
    """Format a time, as in ``14 s``, ``3 min 05 s`` and ``1 h 25 min``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600:,} h {whole % 3600 // 60:02} min"


def markdown_table(lines: Sequence[Sequence[str]], text_columns: int = 2) -> str:
    """Align a table of texts, which are escaped.

    The first line is the header; columns after ``text_columns`` are numbers.
    """
    columns = []
    for number, cells in enumerate(zip(*(map(plain, line) for line in lines), strict=True)):
        width, is_text = max(map(len, cells)), number < text_columns
        rule = "-" * width if is_text else "-" * (width - 1) + ":"
        head, *others = [cell.ljust(width) if is_text else cell.rjust(width) for cell in cells]
        columns.append([head, rule, *others])
    return "\n".join(f"| {' | '.join(line)} |" for line in zip(*columns, strict=True))
