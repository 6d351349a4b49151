"""Escape names, paths and other given texts in Markdown and on the report page."""

import re
from collections.abc import Mapping
from typing import Any

# Control characters, lone surrogates and noncharacters are not allowed in HTML.
UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]"
)
PICTURES = {chr(code): chr(0x2400 + code) for code in range(0x20)} | {"\x7f": "\u2421"}
# What starts Markdown, HTML, a formula or a link within a line; underscores only at the edge of a
# word, and colons only in addresses.
SPECIAL = re.compile(r"[\\`*\[\]<>|~&#$!]|(?<![^\W_])_|_(?![^\W_])|:(?=//)|(?<=www)\.")
FENCE = "```"


def printable(content: Any) -> Any:
    """Replace control characters by symbols such as U+2400, other unprintable ones by U+FFFD."""
    if isinstance(content, str):
        return UNPRINTABLE.sub(lambda found: PICTURES.get(found[0], "\ufffd"), content)
    if isinstance(content, Mapping):
        return {printable(key): printable(value) for key, value in content.items()}
    if isinstance(content, list):
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
    ticks = _longer_run(lines, len(FENCE))
    return f"{ticks}{language}\n{lines}\n{ticks}"


def _longer_run(text: str, least: int) -> str:
    """Return more backticks than any run of them in a text has."""
    longest = max(map(len, re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
