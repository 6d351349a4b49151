"""Windows of long texts on a simulated CUDA device have the same results."""

import pytest
import torch
from torch.testing import assert_close

from modeling_minbert import MinBertForMultiTask
from tests.test_simulated_cuda import cuda, move  # noqa: F401  a fixture
from tests.trainers import tiny

TASK = {
    "problem_type": "classification",
    "labels": ["a", "b"],
    "dropout": 0.0,
    "truncation": "windows",
    "max_length": 8,
    "window_overlap": 2,
}


pytestmark = pytest.mark.usefixtures("cuda")


def make_model():
    torch.manual_seed(0)
    # a head as large as attention kernels need
    return MinBertForMultiTask(tiny.make_config({"own": TASK}, hidden_size=24))


def make_batch(**options):
    windows = [[[2, 7, 3]], [[2, 5, 6, 7, 3], [2, 8, 3], [2, 9, 9, 9, 3]], [[2, 4, 3], [2, 5, 3]]]
    rows = [
        {
            "input_ids": ids,
            "token_type_ids": [[0] * len(window) for window in ids],
            "num_windows": [len(ids)],
            "labels": place % 2,
        }
        for place, ids in enumerate(windows)
    ]
    return tiny.collate("own", rows, **options)


@pytest.mark.parametrize("packed", [True, False])
def test_losses_and_gradients_equal_the_cpu(packed):
    batch = make_batch(packed=packed)
    model, other = make_model(), make_model().to("cuda")

    expected, found = model(**batch), other(**move(batch))
    expected.loss.backward()
    found.loss.backward()

    assert_close(found.logits.values, expected.logits, atol=1e-5, rtol=1e-4)
    for value, mine in zip(model.parameters(), other.parameters(), strict=True):
        assert (value.grad is None) == (mine.grad is None)
        if value.grad is not None:
            assert_close(mine.grad.values, value.grad, atol=1e-5, rtol=1e-4)
