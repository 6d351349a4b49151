"""Completion in a real bash."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from minbert_cli import predict as predict_command
from minbert_cli import resources
from minbert_cli.shell import completion
from minbert_cli.shell.commands import COMMANDS

ROOT = Path(__file__).parents[2]
BASH, ZSH = (str(shutil.which(name) or "") for name in ("bash", "zsh"))


@pytest.mark.skipif(not BASH, reason="needs bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["fine"], ["finetune"]),
        (["finetune", "glue/co"], ["glue/cola"]),
        (["finetune", "sst", "--learning_r"], ["--learning_rate"]),
        (["finetune", "--weight_averaging", ""], ["ema", "swa"]),
        (["check", "pretrain_q"], ["pretrain_quickstart"]),
        (["export", "folder", "--format", "on"], ["onnx"]),
        (["export", "folder", "--precision", "i"], ["int8"]),
        (["predict", "--clus"], ["--clusters"]),
        (["completion", ""], ["bash", "zsh"]),
    ],
)
def test_bash_completes_the_word_at_the_cursor(words, expected):
    script = f"""
minbert() {{ {sys.executable} -m minbert_cli "$@"; }}
source <(minbert completion bash)
COMP_WORDS=(minbert "$@"); COMP_CWORD=$#
_minbert
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(
        [BASH, "-c", script, "bash", *words], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == expected


def test_nothing_slow_is_imported():
    code = (
        "import sys; from minbert_cli.shell.completion import main; main(['words', *sys.argv[1:]])"
    )
    code += "; assert 'torch' not in sys.modules"
    for words in (["finetune", "--"], ["predict", "--"], ["new", "--"], ["check", "x", "--"]):
        subprocess.run([sys.executable, "-c", code, *words], cwd=ROOT, check=True)


def test_every_command_has_its_flags():
    for command in COMMANDS.keys() - {"completion"}:
        assert "--help" in completion.list_words([command, "-"]), command
        assert len(completion.list_words([command, "--"])) > 1, command


def test_values_and_names_come_only_where_they_fit():
    assert completion.list_words(["finetune", ""]) == resources.list_recipes()
    assert completion.list_words(["finetune", "sst", ""]) == []
    assert completion.list_words(["predict", "--clusters", ""]) == list(predict_command.CLUSTERINGS)
    assert completion.list_words(["finetune", "--bf16", ""]) == ["true", "false"]


@pytest.mark.skipif(not ZSH, reason="needs zsh")
def test_the_functions_of_zsh_can_be_read():
    subprocess.run([ZSH, "-n", "-c", completion.SHELLS["zsh"]], check=True)
