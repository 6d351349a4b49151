"""The report in a real browser: it opens without a complaint, on every screen."""

import json

import pytest

from minbert_cli import finetune
from tests import browser, small_run
from trainers.reports.page import Section, write_page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed"),
]
NASTY = "<script>document.title='x'</script><img src=x onerror=\"document.title='y'\"> שלום\u202e"
# The contrast of what is written with what is behind it, by the formula of WCAG 2.2; a background
# that lets some of the page through is mixed with it.
CONTRAST = """(() => {
  const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((v, i) => v * top[3] + below[i] * (1 - top[3]));
  const light = (rgb) => rgb.map((v) => v / 255)
    .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    const below = node.parentElement ? behind(node.parentElement) : [255, 255, 255];
    return over(parse(getComputedStyle(node).backgroundColor), below);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.getClientRects().length) continue;
    const style = getComputedStyle(node);
    const ink = parse(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(ink.slice(0, 3)), light(behind(node))];
    found.push((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
  }
  return Math.min(...found);
})()"""
# Texts of plots that lie on each other, or leave their plot.
OVERLAPS = """[...document.querySelectorAll("svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
  const card = (svg.closest("figure, .card") || svg).getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top
    || b.bottom <= a.top;
  return texts.flatMap((a, i) => [
    ...texts.slice(i + 1).filter((b) => !apart(a, b)),
    ...(a.left < card.left || a.right > card.right ? [a] : []),
  ]);
}).length"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Train, and make the names and texts of the run nasty; gives its folder."""
    files = tmp_path_factory.mktemp("browser")
    small_run.write_files(files)
    finetune.main([small_run.write_recipe(files, small_run.make_recipe(files))])
    sections = json.loads((files / "out" / "report.json").read_text())
    for block in (block for section in sections for block in section["blocks"]):
        for row in block["rows"] if block["kind"] in ("table", "examples") else ():
            if block["kind"] == "examples":
                row["texts"] = [NASTY, "long " * 300 + NASTY]
            else:
                row[0] = NASTY + "x" * 300
    sections = [Section(**section) for section in sections]
    write_page(files / "out" / "report.html", "out: report of a run", "out", NASTY, sections)
    return files / "out"


@pytest.fixture(scope="module")
def page():
    """Open a browser."""
    with browser.browse() as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", browser.WIDTHS)
def test_it_opens_everywhere_and_can_be_read(page, folder, width, scheme):
    page.open(folder / "report.html", width, scheme)

    assert page.problems == []
    assert {url.partition(":")[0] for url in page.requests} <= {"file", "data"}
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(f"matchMedia('(prefers-color-scheme: {scheme})').matches") is True
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == (
        "rgb(255, 255, 255)" if scheme == "light" else "rgb(21, 23, 27)"
    )
    # the least that WCAG 2.2 asks of text
    assert page.evaluate(CONTRAST) >= 4.5
    assert page.evaluate(OVERLAPS) == 0


def test_data_is_shown_and_not_executed(page, folder):
    page.open(folder / "report.html")

    assert page.evaluate("document.title") == "out: report of a run"
    assert page.evaluate("document.scripts.length + document.images.length") == 0
    assert page.evaluate(f"document.body.textContent.includes({json.dumps(NASTY)})") is True


def test_the_plots_have_something_in_them(page, folder):
    page.open(folder / "report.html")

    sizes = page.evaluate(
        "[...document.querySelectorAll('figure > svg')].map((svg) => [svg.clientWidth, "
        "svg.querySelectorAll('path, use').length])"
    )

    assert len(sizes) >= 9
    assert all(width > 250 and marks for width, marks in sizes)
