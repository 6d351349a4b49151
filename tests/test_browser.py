"""The report in a real browser: it opens without a complaint, on every screen."""

import html
import json
import re
import shutil
import subprocess

import pytest

from minbert_cli import finetune
from tests import small_run
from trainers import Section, write_page

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]
WIDTHS = (375, 768, 1280)
NASTY = "<script>document.title='x'</script><img src=x onerror=\"document.title='y'\"> \u05e9\u202e"
# Opens a page in a frame of each width, and puts what is measured there into the title.
#
# The contrast of what is written with what is behind it is that of WCAG 2.2; a background that lets
# some of the page through is mixed with it. Overlaps are texts of plots that lie on each other, or
# leave their plot.
PROBE = """<!doctype html><title></title><body><script>
const getContrast = (document, getComputedStyle) => {
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
};
const countOverlaps = (document) => [...document.querySelectorAll("svg")].flatMap((svg) => {
  const texts = [...svg.querySelectorAll("text")].map((text) => text.getBoundingClientRect());
  const card = (svg.closest("figure, .card") || svg).getBoundingClientRect();
  const apart = (a, b) => a.right <= b.left || b.right <= a.left || a.bottom <= b.top
    || b.bottom <= a.top;
  return texts.flatMap((a, i) => [
    ...texts.slice(i + 1).filter((b) => !apart(a, b)),
    ...(a.left < card.left || a.right > card.right ? [a] : []),
  ]);
}).length;
const found = {};
for (const width of WIDTHS) {
  const frame = document.createElement("iframe");
  Object.assign(frame, {width, height: 900, srcdoc: PAGE});
  frame.style.border = 0;
  frame.onload = () => {
    const page = frame.contentDocument, view = frame.contentWindow;
    found[width] = {
      requests: view.performance.getEntriesByType("resource").map((entry) => entry.name),
      width: page.documentElement.scrollWidth,
      background: view.getComputedStyle(page.body).backgroundColor,
      contrast: getContrast(page, view.getComputedStyle.bind(view)),
      overlaps: countOverlaps(page),
      title: page.title,
      active: page.scripts.length + page.images.length,
      text: page.body.textContent,
      plots: [...page.querySelectorAll("figure > svg")].map((svg) => [
        svg.clientWidth, svg.querySelectorAll("path, use").length]),
    };
    document.title = JSON.stringify(found);
  };
  document.body.append(frame);
}
</script>"""


def look(folder, page, scheme="light"):
    """Return what is measured of a page by width, and what the console says."""
    content = json.dumps(page).replace("<", "\\u003c")
    probe = PROBE.replace("WIDTHS", str(list(WIDTHS))).replace("PAGE", content)
    (folder / "probe.html").write_text(probe, encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    options += ["--hide-scrollbars", "--enable-logging=stderr", f"--user-data-dir={folder / 'own'}"]
    options += ["--force-dark-mode"] * (scheme == "dark")
    done = subprocess.run(
        [CHROMIUM, *options, "--dump-dom", (folder / "probe.html").as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    title = re.search("<title>(.*?)</title>", done.stdout, re.DOTALL)[1]
    return json.loads(html.unescape(title)), re.findall("CONSOLE.*", done.stderr)


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Train, and make the names and texts of the run nasty; return the page."""
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
    return (files / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_opens_everywhere_can_be_read_and_runs_no_data(report, tmp_path, scheme):
    found, problems = look(tmp_path, report, scheme)

    assert problems == []
    assert [*map(int, found)] == list(WIDTHS)
    for width in WIDTHS:
        seen = found[str(width)]
        assert {url.partition(":")[0] for url in seen["requests"]} <= {"data"}
        assert seen["width"] <= width
        light = "rgb(255, 255, 255)"
        assert seen["background"] == (light if scheme == "light" else "rgb(21, 23, 27)")
        assert seen["contrast"] >= 4.5  # the least that WCAG 2.2 asks of text
        assert seen["overlaps"] == 0
        assert (seen["title"], seen["active"]) == ("out: report of a run", 0)
        assert NASTY in seen["text"]
        assert len(seen["plots"]) >= 9
        assert all(size > 250 and marks for size, marks in seen["plots"])


def test_a_page_that_complains_is_found_out(tmp_path):
    page = "<p style='color: #999'>a<script>console.error('no'); nothing.here</script><svg/>"

    found, problems = look(tmp_path, page)

    assert len(problems) == 2 * len(WIDTHS)
    assert found["375"]["contrast"] < 4.5
