"""The command ``minbert``: one subcommand for each program."""

import importlib
import os
import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from minbert_cli.command_line import quick_imports

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
add_program = partial(app.command, add_help_option=False, context_settings=FREE)


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


def run_program(context: typer.Context) -> None:
    """Run a command that reads its command line itself, in ``main`` of the module of its name."""
    name = str(context.command.name)
    if not {"-h", "--help"}.isdisjoint(context.args):
        importlib.import_module("minbert_cli.help").show_help(name, context.args)
        return
    with quick_imports():
        module = importlib.import_module(f"minbert_cli.{name}")
    module.main(context.args)


def load() -> None:
    """Stand for the function of the name of a command in its module, until ``main`` imports it."""


add_program("finetune", short_help="fine-tune one encoder on one or several tasks")(run_program)
add_program("pretrain", short_help="pre-train an encoder on text")(run_program)
app.command("predict", short_help="predict and embed texts")(load)
app.command("serve", short_help="serve all tasks and vectors over HTTP")(load)
app.command("export", short_help="export a checkpoint: BERT, ONNX, int8 weights, ...")(load)
add_program("experiments", short_help="run many recipes and tabulate them")(run_program)
app.command("new", short_help="write a recipe for your own labeled rows")(load)
app.command("recipes", short_help="list or print the packaged recipes")(load)


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
    with quick_imports():
        from minbert_cli.recipe import read_recipe
        from minbert_cli.recipes import choose_program, find_recipe
        from trainers import UsageError, readable_errors

    with readable_errors("minbert check"):
        if not context.args or context.args[0].startswith("-"):
            raise UsageError("give a recipe; see minbert check --help")
        path = find_recipe(context.args[0])
        program = choose_program(read_recipe(path), str(path))
        with quick_imports():
            module = importlib.import_module(f"minbert_cli.{program}")
        getattr(module, program)(context.args, is_dry=True)
    print("\nok")


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command; errors of its user are one line, with exit status 2."""
    words = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    for command in app.registered_commands:
        # a shell completes the flags of any command
        is_needed = command.name == words[0] or "_MINBERT_COMPLETE" in os.environ
        if is_needed and command.callback is load:
            module = importlib.import_module(f"minbert_cli.{command.name}")
            command.callback = getattr(module, str(command.name))
    try:
        app(words, prog_name="minbert", standalone_mode=False)
    except typer.Abort as abort:  # which typer makes of Ctrl-C, and of an EOFError in our code
        raise abort.__cause__ or abort from None
    except typer.TyperException as error:
        context: Any = getattr(error, "ctx", None)
        program = "minbert" if context is None else context.command_path
        message = (
            " ".join(str(error.format_message()).split())
            .replace("Value error, ", "")
            .removeprefix("Invalid value: ")
        )
        print(f"{program}: error: {message} (see {program} --help)", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
