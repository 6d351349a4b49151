"""A recipe that is given to the wrong program."""

import pytest

from minbert_cli import finetune, pretrain
from minbert_cli.experiments.program import main as experiments


@pytest.mark.parametrize(
    ("main", "recipe", "given", "right"),
    [
        (finetune.main, "mlm", "finetune", "pretrain"),
        (finetune.main, "experiments/quickstart", "finetune", "experiments"),
        (pretrain.main, "quickstart", "pretrain", "finetune"),
        (experiments, "mlm", "experiments", "pretrain"),
    ],
)
def test_the_right_program_is_named(capsys, main, recipe, given, right):
    with pytest.raises(SystemExit) as stopped:
        main([recipe])

    message = capsys.readouterr().err
    assert stopped.value.code == 1
    assert message.startswith(f"minbert {given}: error: ")
    assert f"{recipe}.yaml is not a recipe for minbert {given}; use it with minbert {right}\n" in (
        message
    )
