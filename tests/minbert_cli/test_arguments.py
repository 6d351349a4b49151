"""The precision that the programs choose."""

import pytest
import torch

from minbert_cli.arguments import KINDS
from minbert_cli.recipe import parse_recipe
from minbert_cli.run_folder import check_output_dir, describe_settings, read_settings, start_run
from modeling_minbert.int8 import bfloat16_is_fast

pytestmark = pytest.mark.usefixtures("default_precision")


def parse(tmp_path, *flags, program="finetune", recipe="use_cpu: true"):
    path = tmp_path / "recipe.yaml"
    path.write_text(f"output_dir: {tmp_path / 'run'}\n{recipe}\n", encoding="utf-8")
    (args,) = parse_recipe(KINDS[program][1:], [str(path), *flags])
    return args


@pytest.mark.parametrize("program", KINDS)
def test_bfloat16_is_on_where_it_is_fast(tmp_path, program):
    fast = bfloat16_is_fast(torch.device("cpu"))

    assert parse(tmp_path, program=program).bf16 is fast
    assert parse(tmp_path, "--bf16", "true", program=program).bf16 is True
    assert parse(tmp_path, "--bf16", "false", program=program).bf16 is False


@pytest.mark.skipif(torch.accelerator.is_available(), reason="chooses the accelerator")
def test_without_an_accelerator_bfloat16_needs_no_other_flag(tmp_path):
    args = parse(tmp_path, "--bf16", "true", recipe="seed: 1")

    assert args.bf16 is True
    assert args.device == torch.device("cpu")


def test_a_resumed_run_keeps_its_precision(tmp_path):
    fast, slow = (
        describe_settings(parse(tmp_path, "--bf16", value), {}) for value in ("true", "false")
    )
    start_run(tmp_path / "run", fast, {}, resume=False)

    assert read_settings(tmp_path / "run")["bf16"] is True
    with pytest.raises(ValueError, match="resumes with another bf16"):
        check_output_dir(tmp_path / "run", slow, resume=True, overwrite=False)
    check_output_dir(tmp_path / "run", fast, resume=True, overwrite=False)
