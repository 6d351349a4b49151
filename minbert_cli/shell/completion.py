"""Complete commands, recipes, flags and their values in bash and zsh.

minbert completion bash    for ~/.bashrc: eval "$(minbert completion bash)"
minbert completion zsh     for ~/.zshrc:  eval "$(minbert completion zsh)", after compinit
"""

# Not argcomplete or shtab: they read argparse parsers, which the programs with recipes build only
# after the import of torch.

import argparse
import importlib
import re
import sys
from collections.abc import Mapping, Sequence

from minbert_cli.command_line import Parser
from minbert_cli.resources import list_recipes
from minbert_cli.shell.commands import COMMANDS
from minbert_cli.shell.flags import ARGUMENTS, Option, read_flags

PROGRAM = "minbert completion"
WORDS = "words"  # asks for what may follow, given the words up to the cursor
SHELLS = {
    "bash": """\
_minbert() {
    local current="${COMP_WORDS[COMP_CWORD]}"
    local words="$(minbert completion words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)"
    COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _minbert minbert""",
    "zsh": """\
_minbert() {
    local -a found
    found=(${(f)"$(minbert completion words "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    compadd -a found || _files
}
compdef _minbert minbert""",
}
WITH_RECIPES = (*ARGUMENTS, "check", "label-issues", "recipes")
# Commands with a parser of argparse.
PARSERS = ("predict", "embeddings", "export", "new", "label-issues", "recipes")


def list_words(words: Sequence[str]) -> list[str]:
    """List what the last word may become.

    Args:
        words: The words after ``minbert`` up to the cursor; the last one may be empty.
    """
    if len(words) < 2:
        return [*COMMANDS, "--help", "--version"]
    command, before, current = words[0], words[-2], words[-1]
    if command == PROGRAM.split()[1]:
        return list(SHELLS)
    flags = list_flags(command)
    if current.startswith("-"):
        return [*flags, "--help"]
    if before in flags:
        return flags[before]
    return list_recipes() if len(words) == 2 and command in WITH_RECIPES else []


def list_flags(command: str) -> dict[str, list[str]]:
    """Return the flags of a command, with their values where these are few."""
    if command in PARSERS:
        parser: Parser = importlib.import_module(COMMANDS[command][0]).make_parser()
        return {
            flag: [str(choice) for choice in action.choices or ()]
            for action in parser._actions
            for flag in action.option_strings
            if flag.startswith("--")
        }
    programs = ("finetune", "pretrain") if command == "check" else (command,)
    declared: Mapping[str, Option] = {}
    for program in programs:
        declared = {**declared, **(read_flags(program) if program in ARGUMENTS else {})}
    return {f"--{name}": _list_values(option.kind) for name, option in declared.items()}


def _list_values(kind: str) -> list[str]:
    if choices := re.search(r"Literal\[('.*)\]", kind):
        return re.findall(r"'(.+?)'", choices[1])
    return ["true", "false"] if kind in ("bool", "bool | None") else []


def main(argv: Sequence[str] | None = None) -> None:
    """Print the functions of a shell, or what may follow some words."""
    argv = list(sys.argv[1:] if argv is None else argv)
    if argv[:1] == [WORDS]:
        print(*list_words(argv[1:]), sep="\n")
        return
    parser = Parser(
        PROGRAM, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("shell", choices=tuple(SHELLS), help="the shell")
    print(SHELLS[parser.parse_args(argv).shell])
