"""The command ``minbert``: one subcommand for each program."""

import importlib
import re
import sys
from collections.abc import Sequence

from minbert_cli.help import ARGUMENTS, COMMANDS, ROOT, show_help

NOTES = """
`minbert COMMAND --help` describes a command, `minbert --version` prints the version.
On several GPUs: accelerate launch -m minbert_cli.finetune ..."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run a subcommand; for an unknown one, print one line and exit with status 2."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name == "--version":
        print(f"minbert {read_version()}")
        return
    if name in ("-h", "--help"):
        lines = [f"  {known:<12} {summary}" for known, (_, summary) in COMMANDS.items()]
        print("usage: minbert COMMAND ...", "", *lines, NOTES, sep="\n")
        return
    if name not in COMMANDS:
        from modeling_minbert import unknown  # here, since it imports torch

        print(f"minbert: error: {unknown('command', name, COMMANDS)}", file=sys.stderr)
        raise SystemExit(2)
    if name in ARGUMENTS and show_help(name, rest):  # before an import that takes seconds
        return
    importlib.import_module(COMMANDS[name][0]).main(rest)


def read_version() -> str:
    """Read the version of the package, without importing torch."""
    source = (ROOT / "modeling_minbert" / "__init__.py").read_text(encoding="utf-8")
    return re.findall(r'^__version__ = "(.+)"$', source, re.MULTILINE)[0]


if __name__ == "__main__":
    main()
