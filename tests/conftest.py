"""Shared by all tests: no network, one thread, separate caches, distinct sizes."""

import gc
import os
import shutil
import socket
import tempfile
from typing import Any

import pytest

# Libraries read these when they are imported, so they are set first; subprocesses inherit them.
CACHE = tempfile.mkdtemp(prefix="minbert-tests-")
for name in ("HF_HUB_CACHE", "HF_DATASETS_CACHE", "HF_ASSETS_CACHE", "HF_MODULES_CACHE"):
    os.environ.pop(name, None)
os.environ.update(
    HF_HOME=CACHE,
    HF_HUB_DISABLE_TELEMETRY="1",
    HF_HUB_OFFLINE="1",
    MPLBACKEND="Agg",
    MPLCONFIGDIR=CACHE,
    OMP_NUM_THREADS="1",  # the models of these tests are too small to share
    TOKENIZERS_PARALLELISM="false",
)


def pytest_configure(config: pytest.Config) -> None:
    """Hide the GPU from a run without ``cuda`` tests, so that it tests the same everywhere."""
    if "not cuda" in config.getoption("markexpr"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


def pytest_collection_finish() -> None:
    """Take what is imported out of garbage collection, which every training runs at its end."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Remove the caches of this run."""
    shutil.rmtree(CACHE, ignore_errors=True)


def is_local(address: Any) -> bool:
    """Return whether a socket address stays on this machine (loopback, or a path)."""
    return not isinstance(address, tuple) or address[0].startswith(("127.", "localhost", "::1"))


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Fail the test that reaches for the network."""
    connect = socket.socket.connect

    def guarded(self, address):
        if not is_local(address):
            pytest.fail(f"a test tried to connect to {address!r}; tests run without a network")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(scope="session", autouse=True)
def same_precision():
    """Train in float32 on every processor, so that tests expect the same numbers everywhere."""
    from minbert_cli import ProgramTrainingArguments

    chosen = ProgramTrainingArguments.is_fast_in_bfloat16
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ProgramTrainingArguments, "is_fast_in_bfloat16", lambda *_: False)
        yield chosen


@pytest.fixture
def default_precision(same_precision, monkeypatch):
    """Let the programs choose the precision of training by the processor, as outside of tests."""
    from minbert_cli import ProgramTrainingArguments

    monkeypatch.setattr(ProgramTrainingArguments, "is_fast_in_bfloat16", same_precision)


@pytest.fixture
def tiny_sizes():
    """Return sizes of a tiny model, by config field: all differ, so no swapped dimension passes.

    Three heads of 11. Batches of five rows and seven tokens (``tiny_batch``) also differ from them.
    """
    return {
        "vocab_size": 31,
        "hidden_size": 33,
        "num_hidden_layers": 2,
        "num_attention_heads": 3,
        "intermediate_size": 29,
        "max_position_embeddings": 17,
    }


@pytest.fixture
def tiny_batch(tiny_sizes):
    """Return a padded batch for ``tiny_sizes``: five rows of at most seven tokens, two segments."""
    import torch

    lengths = torch.tensor([7, 3, 6, 2, 5])
    positions = torch.arange(7)
    generator = torch.Generator().manual_seed(0)
    input_ids = torch.randint(1, tiny_sizes["vocab_size"], (5, 7), generator=generator)
    attention_mask = (positions < lengths[:, None]).long()
    return {
        "input_ids": input_ids * attention_mask,
        "attention_mask": attention_mask,
        "token_type_ids": (positions >= lengths[:, None] // 2).long() * attention_mask,
    }
