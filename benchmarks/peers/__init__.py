"""The peers by name. A peer is imported when it is created, so that a process holds only one."""

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

from .common import Job, Peer, Probe

# name -> module and class
PEERS = {
    "minbert": ("minbert", "MinBertPeer"),
    "minbert-again": ("minbert", "MinBertPeer"),
    "minbert-padded": ("minbert", "MinBertPadded"),
    "trainer": ("hf_trainer", "TrainerPeer"),
    "bare": ("bare", "BarePeer"),
    "sentence-transformers": ("sentence", "SentencePeer"),
    "reference": ("reference", "ReferencePeer"),
}
# "minbert+graphs" is minbert under torch.compile with this mode
MODES = {"compile": "default", "graphs": "reduce-overhead"}
ENCODERS = {
    "minbert": ("encode", "encode_minbert"),
    "minbert-again": ("encode", "encode_minbert"),
    "sentence-transformers": ("encode", "encode_sentence_transformers"),
    "bare": ("encode", "encode_bare"),
}


def make_peer(name: str, job: Job) -> Peer:
    """Create a peer that trains.

    Args:
        name: Its name, and after a plus one of ``MODES``.
        job: What to do.
    """
    base, _, mode = name.partition("+")
    if mode:
        job = replace(job, compile=MODES[mode])
    return _find(PEERS, base)(job)


def make_encoder(name: str, job: Job) -> Callable[[list[str]], Any]:
    """Return a function that encodes sentences, (N, D)."""
    return _find(ENCODERS, name)(job)


def _find(table: dict[str, tuple[str, str]], name: str) -> Any:
    if name not in table:
        raise ValueError(f"unknown peer {name!r}; known: {', '.join(table)}")
    module, attribute = table[name]
    return getattr(import_module(f".{module}", __name__), attribute)


__all__ = ["ENCODERS", "MODES", "PEERS", "Job", "Peer", "Probe", "make_encoder", "make_peer"]
