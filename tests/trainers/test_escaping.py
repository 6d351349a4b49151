"""Names, paths, commands and texts in a model card are text, whatever characters they have.

The judges are a parser of Markdown, the card of huggingface_hub, and Python's own parser.
"""

import ast
from pathlib import Path

import pytest
from huggingface_hub import ModelCard
from hypothesis import given, settings, strategies as st
from markdown_it import MarkdownIt

from tests.trainers import tiny
from trainers import FinishedRun, RunFacts, write_card
from trainers.reports.texts import code_block, code_span, plain, printable

TEMPLATE = Path(__file__).parents[2] / "model_card.md"
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])
HOSTILE = (
    "a`b```|c <script>alert(1)</script> <!-- \n---\nlicense: evil\n```\n# [x](http://e.example) "
    "![y](z) *b* _c_ ~~d~~ &amp; $x$ \\ \" ' {{ 7 * 7 }} {% if %} - 1. > \x1b \x85 \u2028 end`"
)
TEXTS = st.text(
    st.characters() | st.sampled_from("`*_[]<>|~&#$!\\:-+=.()\"'{}\n\r\t 1ab/"), max_size=30
)


def squeeze(text):
    return " ".join(printable(text).split())


def show(tokens):
    """Return the types of all tokens of Markdown, and of the parts of their lines."""
    for token in tokens:
        yield token.type
        yield from show(token.children or [])


def show_text(line):
    """Return the text of a line of Markdown that has nothing but text."""
    (_, inline, _) = MARKDOWN.parse(f"x{line}x")
    assert {child.type for child in inline.children} == {"text"}
    return "".join(child.content for child in inline.children)[1:-1]


@pytest.fixture
def write(evaluated, encoded, tmp_path):
    """Write a card in which every text of others is this one; returns its file."""
    trainer, results, outputs = evaluated

    def write(text, **card):
        trainer.args.output_dir = str(tmp_path / f"run {text.replace('/', ' ')}"[:200])
        counted = {"validation": {"rows": 4, "training_rows": 3}}
        facts = RunFacts(
            command=f"run {text}",
            recipe=f"# {text}\nseed: 1\n",
            model_name_or_path=text,
            data=dict.fromkeys(tiny.SIZES, text),
            bad_rows={task: [text] for task in tiny.SIZES},
            splits=dict.fromkeys(tiny.SIZES, counted),
            card=card,
        )
        write_card(TEMPLATE, FinishedRun(trainer, encoded, results, outputs, facts))
        return Path(trainer.args.output_dir) / "README.md"

    return write


def test_hostile_names_do_not_change_the_structure_of_a_card(write):
    plain_card, hostile = (
        MARKDOWN.parse(ModelCard(write(text).read_text()).text) for text in ("harmless", HOSTILE)
    )

    assert list(show(hostile)) == list(show(plain_card))
    assert not {"html_inline", "html_block", "link_open", "image"} & set(show(hostile))


def test_hostile_names_are_shown_as_they_are(write):
    path = write(HOSTILE)
    tokens = MARKDOWN.parse(ModelCard(path.read_text()).text)
    blocks = {token.info: token.content for token in tokens if token.type == "fence"}
    lines = [token for token in tokens if token.type == "inline"]
    shown = ["".join(child.content for child in line.children) for line in lines]
    python = ast.parse(blocks["python"]).body

    assert shown[0] == squeeze(path.parent.name)
    assert shown.count(squeeze(HOSTILE)) == len(tiny.SIZES)
    assert blocks["bash"].splitlines() == f"run {printable(HOSTILE)}".splitlines()
    assert blocks["yaml"].splitlines() == [*f"# {printable(HOSTILE)}".splitlines(), "seed: 1"]
    assert ast.literal_eval(python[1].value) == printable(str(path.parent))


def test_the_metadata_of_a_card_has_hostile_names(write):
    data = ModelCard.load(write(HOSTILE, tags=[HOSTILE], license="mit")).data

    assert (data.license, data.base_model) == ("mit", printable(HOSTILE))
    assert data.tags == ["minbert", "multi-task", printable(HOSTILE)]
    names = {result.dataset_name for result in data.eval_results}
    assert names == {f"{printable(HOSTILE)} ({task})" for task in tiny.SIZES}


@pytest.mark.parametrize("count", [200, pytest.param(5000, marks=pytest.mark.slow)])
def test_any_text_is_shown_as_it_is(count):
    @settings(max_examples=count, deadline=None, derandomize=True, database=None)
    @given(TEXTS)
    def check(text):
        assert show_text(plain(text)) == squeeze(text)
        (_, cell, _) = MARKDOWN.parse(f"x{code_span(text)}x")
        assert [child.type for child in cell.children] == ["text", "code_inline", "text"]
        (block,) = MARKDOWN.parse(code_block(text, "yaml"))
        assert (block.type, block.info) == ("fence", "yaml")
        assert block.content.splitlines() == (printable(text).splitlines() or [""])

    check()
