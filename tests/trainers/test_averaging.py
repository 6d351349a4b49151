"""Averages of weights against torch's own, and by hand."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from trainers import WeightAveraging
from trainers.methods.averaging import WeightAverage


def move(model: nn.Module) -> None:
    """Change all weights."""
    with torch.no_grad():
        for value in model.parameters():
            value.add_(torch.randn_like(value))


@pytest.mark.parametrize("kind", ["ema", "swa"])
def test_averages_equal_torch(kind: str) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    rule = {"multi_avg_fn": get_ema_multi_avg_fn(0.9)} if kind == "ema" else {}
    peer = AveragedModel(model, **rule)
    average = WeightAverage(model)
    for _ in range(5):
        move(model)
        peer.update_parameters(model)
        average.update(kind, 0.9)

    for ours, theirs in zip(average.averages.values(), peer.module.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs.detach())


def test_a_model_has_the_averages_for_a_while() -> None:
    model = nn.Linear(2, 1)
    average = WeightAverage(model)
    with average.applied():  # there is no average yet
        pass
    average.update("swa", 0.0)
    first = deepcopy(model.state_dict())
    move(model)
    last = deepcopy(model.state_dict())
    with average.applied():
        torch.testing.assert_close(model.state_dict(), first)
    torch.testing.assert_close(model.state_dict(), last)
    average.keep()
    torch.testing.assert_close(model.state_dict(), first)


def test_a_file_goes_on_where_it_was(tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    average = WeightAverage(model)
    for _ in range(2):
        move(model)
        average.update("swa", 0.0)
    average.save(tmp_path / "average.safetensors")
    other = WeightAverage(model)
    other.load(tmp_path / "average.safetensors")
    move(model)
    for one in (average, other):
        one.update("swa", 0.0)

    assert other.count == 3
    for name, value in average.averages.items():
        assert torch.equal(value, other.averages[name])
    with pytest.raises(ValueError, match="of another model"):
        WeightAverage(nn.Linear(3, 1)).load(tmp_path / "average.safetensors")


def test_settings_are_checked() -> None:
    with pytest.raises(ValueError, match="weight_averaging='mean'"):
        WeightAveraging("mean")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"averaging_decay=1.0; expected in \[0, 1\)"):
        WeightAveraging("ema", decay=1.0)
    with pytest.raises(ValueError, match="averaging_start=-1"):
        WeightAveraging("swa", start=-1)
