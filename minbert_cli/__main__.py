"""The command ``minbert``: one subcommand for each program."""

import difflib
import importlib
import sys
from collections.abc import Sequence

# Subcommand -> module and function that runs it, and a line of help. Imported when it is needed.
COMMANDS = {
    "finetune": ("minbert_cli.finetune:main", "fine-tune one encoder on one or several tasks"),
    "pretrain": ("minbert_cli.pretrain:main", "pre-train an encoder on text"),
    "predict": ("minbert_cli.predict:main", "predict, embed, search and cluster texts"),
    "embeddings": ("minbert_cli.embeddings:main", "evaluate sentence embeddings"),
    "export": ("minbert_cli.export:main", "export a checkpoint: BERT, ONNX, a Space, ..."),
    "experiments": ("minbert_cli.experiments.program:run", "run many recipes and tabulate them"),
}


def describe() -> str:
    """Return the help."""
    lines = [f"  {name:<12} {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(
        [
            "usage: minbert COMMAND ...",
            "",
            *lines,
            "",
            "`minbert COMMAND --help` describes a command.",
            "On several GPUs: accelerate launch -m minbert_cli.finetune ...",
        ]
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Run a subcommand; an unknown one is one line and exit status 2."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(describe())
        return
    if name not in COMMANDS:
        similar = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {similar[0]!r}?" if similar else f"known: {', '.join(COMMANDS)}"
        print(f"minbert: error: unknown command {name!r}; {hint}", file=sys.stderr)
        raise SystemExit(2)
    module, _, function = COMMANDS[name][0].partition(":")
    getattr(importlib.import_module(module), function)(rest)


if __name__ == "__main__":
    main()
