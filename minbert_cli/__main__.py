"""The command ``minbert``: one subcommand for each program."""

import importlib
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from minbert_cli.help import PAGES, show_help

# Nothing that this module imports imports torch: `--help` and the completion do not wait for it.
app = typer.Typer(
    name="minbert",
    epilog="On several GPUs: accelerate launch -m minbert_cli.finetune ...",
    # plain text: docstrings have examples and brackets, and are read on plain consoles, too
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# Flags that typer does not know go to the program: keys of recipes.
FREE: dict[str, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback(invoke_without_command=True)
def show_version(
    is_asked: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Fine-tune and pre-train BERT models, predict with them, and export them."""
    if is_asked:
        source = Path(__file__).resolve().parents[1] / "modeling_minbert" / "__init__.py"
        version = re.findall(r'^__version__ = "(.+)"$', source.read_text("utf-8"), re.MULTILINE)[0]
        print(f"minbert {version}")
        raise typer.Exit


def add_program(name: str, module: str, summary: str) -> None:
    """Add a command that reads its command line itself, in ``main`` of a module."""

    def run(context: typer.Context) -> None:
        if name in PAGES and show_help(name, context.args):
            return
        importlib.import_module(module).main(context.args)

    app.command(name, short_help=summary, add_help_option=False, context_settings=FREE)(run)


add_program("finetune", "minbert_cli.finetune", "fine-tune one encoder on one or several tasks")
add_program("pretrain", "minbert_cli.pretrain", "pre-train an encoder on text")
add_program("predict", "minbert_cli.predict", "predict, embed, search and group texts")
add_program("embeddings", "minbert_cli.embeddings", "evaluate sentence embeddings")
add_program("export", "minbert_cli.export", "export a checkpoint: BERT, ONNX, a Space, ...")
add_program("experiments", "minbert_cli.experiments.program", "run many recipes and tabulate them")
add_program("new", "minbert_cli.new", "write a recipe for your own labeled rows")
add_program("recipes", "minbert_cli.recipes", "list, print or copy the packaged recipes")


@app.command(
    "check",
    short_help="check recipe, data and model without training",
    options_metavar="RECIPE [--flag value ...]",
    context_settings=FREE,
)
def check(context: typer.Context) -> None:
    """Check a recipe with its data and its model, without training.

    RECIPE and flags are those of `minbert finetune` or `pretrain`; the keys of the recipe (tasks or
    corpus) say which. It reads the rows, loads the checkpoint and its tokenizer, prints what the
    run would do, and ends with `ok`. It writes nothing.
    """
    from minbert_cli.check import main

    main(context.args)


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; errors of its user are one line, with exit status 2."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        app(words, prog_name="minbert", standalone_mode=False)
    except typer.Abort as abort:  # which typer makes of Ctrl-C, and of an EOFError in our code
        raise abort.__cause__ or abort from None
    except typer.TyperException as error:
        context: Any = getattr(error, "ctx", None)
        program = "minbert" if context is None else context.command_path
        message = str(error.format_message()).replace("Value error, ", "")
        print(f"{program}: error: {message} (see {program} --help)", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
