"""The training keys of a task."""

import pytest

from trainers import TaskTraining


@pytest.mark.parametrize(
    "values",
    [
        {"batch_size": 0},
        {"batch_size": 1.5},
        {"batch_size": "8"},
        {"batch_size": True},
        {"max_tokens_per_batch": 0},
        {"max_tokens_per_batch": 4096.0},
        {"max_tokens_per_batch": True},
        {"loss_weight": 0},
        {"loss_weight": -1.0},
        {"loss_weight": float("nan")},
        {"loss_weight": "1"},
        {"loss_weight": True},
        {"auxiliary": 1},
        {"regularize": "no"},
    ],
)
def test_bad_values_are_refused_by_name(values):
    (name, value) = next(iter(values.items()))

    with pytest.raises(ValueError, match=f"{name}={value!r}; expected"):
        TaskTraining(**values)


def test_a_batch_has_rows_or_tokens():
    with pytest.raises(ValueError, match="batch_size=8 and max_tokens_per_batch=512; give one"):
        TaskTraining(batch_size=8, max_tokens_per_batch=512)
