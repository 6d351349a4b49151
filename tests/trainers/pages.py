"""Read a page as a browser would: elements, texts, and whether every tag is closed."""

import json
from html.parser import HTMLParser

VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
LINKS = ("src", "href", "srcset", "action", "data", "poster", "xlink:href")


class PageReader(HTMLParser):
    """What is in a page.

    `elements` has (tag, attributes); `texts` the text of every element, by tag; `faults` what is
    not well-formed.
    """

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.faults, self._open = [], [], []
        self.texts = {}
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]

    def handle_starttag(self, tag, attrs):
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.faults.append(f"<{tag}> has an attribute twice")
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)
            self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        if not self._open or self._open[-1] != tag:
            self.faults.append(f"</{tag}> within {self._open[-1:]}")
        else:
            self._open.pop()

    def handle_data(self, data):
        for tag in set(self._open):
            self.texts[tag][-1] += data

    def find(self, tag, **attributes):
        """List the attributes of the elements with this tag and these attributes."""
        return [
            found
            for name, found in self.elements
            if name == tag and attributes.items() <= found.items()
        ]

    @property
    def links(self):
        return [
            value for _, found in self.elements for name, value in found.items() if name in LINKS
        ]


def read_sections(folder):
    """Return the sections of ``report.json``, by title."""
    sections = json.loads((folder / "report.json").read_text())
    return {section["title"]: section for section in sections}


def read_blocks(folder, title):
    """Return the blocks of a section of ``report.json``, by title."""
    return {block["title"]: block for block in read_sections(folder)[title]["blocks"]}
