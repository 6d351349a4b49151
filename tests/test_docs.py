"""Every snippet of the documentation runs as it stands there, page by page."""

import io
import re
import shlex
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pytest
import transformers
import yaml
from huggingface_hub.constants import HF_HUB_CACHE
from markdown_it import MarkdownIt
from transformers import TrainerCallback

from minbert_cli import main
from modeling_minbert import MinBertForMultiTask
from tests.small_hub import add_model

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_" not in path.relative_to(DOCS).parts[0])
# Pages show nothing else as code. `<!-- not tested: why -->` precedes a block that cannot run.
STEPS = 3  # of every training
LANGUAGES = {"bash", "python", "text", "yaml", "csv", "json"}


class Block(NamedTuple):
    """A block of code."""

    language: str
    caption: str | None  # name of the file that it is
    content: str
    line: int
    is_tested: bool


def read_blocks(path):
    """List the blocks of code of a page."""
    tokens = MarkdownIt().enable("table").parse(path.read_text(encoding="utf-8"))
    blocks = []
    for number, token in enumerate(tokens):
        directive = re.match(r"\{code-block\} (\w+)", token.info)
        if token.type != "fence" or (token.info.startswith("{") and not directive):
            continue
        options, content = "", token.content
        if directive:
            options, _, content = content.partition("\n\n")
        caption = re.search(r":caption: (\S+)", options)
        before = tokens[number - 1] if number else None
        is_tested = not (before and before.content.startswith("<!-- not tested"))
        language = directive.group(1) if directive else token.info.split()[0]
        name = caption and caption.group(1)
        blocks.append(Block(language, name, content, token.map[0] + 1, is_tested))
    return blocks


def run_shell(content):
    """Run the `minbert` commands of a block in this process."""
    for line in content.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        assert words[0] == "minbert", f"only `minbert` commands can be tested, not {line!r}"
        try:
            main(words[1:])
        except SystemExit as end:
            if end.code:
                pytest.fail(f"{line!r} ended with status {end.code}")


def run_page(path):
    """Run a page from its beginning; later blocks see the names and files of earlier ones."""
    names = {"__name__": "__main__"}
    for block in read_blocks(path):
        assert block.language in LANGUAGES, f"{path.name}:{block.line}: {block.language!r}"
        if not block.is_tested:
            continue
        if block.caption:
            Path(block.caption).parent.mkdir(parents=True, exist_ok=True)
            Path(block.caption).write_text(block.content)
        elif block.language == "python":
            code = "\n" * block.line + block.content
            exec(compile(code, str(path), "exec"), names)  # noqa: S102  our own page
        elif block.language == "bash":
            run_shell(block.content)
        elif block.language == "yaml":
            yaml.safe_load(block.content)


FILES = sorted(
    {*PAGES, *ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md")} - {ROOT / "model_card.md"}
)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_to_files_and_sections_resolve(path):
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        name, _, anchor = target.partition("#")
        if re.match(r"[a-z]+:", target) or target.startswith("<"):
            continue
        linked = (path.parent / name) if name else path
        assert linked.exists(), f"{path.name} links to {target}"
        if anchor:
            titles = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
            assert anchor in slugs, f"{path.name} links to {target}"


class Stop(TrainerCallback):
    """Ends a training after a few steps, since pages show commands and not their results."""

    def on_step_end(self, _, state, control, **__):
        if state.global_step >= STEPS:
            control.should_training_stop = True


# these take long, and train to the end
SLOW_PAGES = (
    *("start/quickstart.md", "guides/distillation.md", "guides/reproducing.md"),
    *("guides/tracking.md", "tutorials/several-tasks.md", "tutorials/pretraining.md"),
)
NAMES = [path.relative_to(DOCS).as_posix() for path in PAGES]


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x in SLOW_PAGES)) for x in NAMES]
)
def test_every_snippet_of_a_page_runs(name, tmp_path, monkeypatch):
    add_model(Path(HF_HUB_CACHE), "sentence-transformers/all-MiniLM-L6-v2")
    add_model(Path(HF_HUB_CACHE), "google-bert/bert-base-uncased")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["minbert"])
    if name not in SLOW_PAGES:
        callbacks = [*transformers.trainer.DEFAULT_CALLBACKS, Stop]
        monkeypatch.setattr(transformers.trainer, "DEFAULT_CALLBACKS", callbacks)
    with redirect_stdout(io.StringIO()):
        run_page(DOCS / name)


@pytest.mark.slow
def test_the_example_of_the_quickstart_is_answered_as_the_page_says(tmp_path):
    page = (ROOT / "docs/start/quickstart.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"minbert predict (minbert --task sst \".*\")", page)
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert command in (ROOT / "Makefile").read_text(encoding="utf-8")
    sentence = command.partition('"')[2].removesuffix('"')
    flags = ["--use_cpu", "--disable_tqdm=true"]
    with redirect_stdout(io.StringIO()):
        main(["finetune", "--output_dir", str(tmp_path / "minbert"), *flags])

    (found,) = MinBertForMultiTask.from_pretrained(tmp_path / "minbert").predict("sst", [sentence])

    assert f"answers `{found['label']}`" in page.replace("\n", " ")
