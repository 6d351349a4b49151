"""What is compared: a peer in a precision. Imports nothing but the standard library.

The processes of peers whose versions clash with minBERT's run in another environment, which has
only what they need; so this file and ``block`` import nothing of ours at their top.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

REFERENCE = "sentence-transformers float32"
AGAIN = "-again"
# workload -> name of a contender -> module and function that loads it
CONTENDERS: dict[str, dict[str, tuple[str, str]]] = {
    "encode": {
        REFERENCE: ("sentence", "load_torch"),
        "sentence-transformers bfloat16": ("sentence", "load_torch"),
        "transformers float32": ("plain", "load_encoder"),
        "minbert float32": ("minbert", "load_encoder"),
        "minbert bfloat16": ("minbert", "load_encoder"),
        "minbert int8": ("minbert", "load_encoder"),
        "onnx float32": ("sentence", "load_onnx"),
        "onnx int8": ("sentence", "load_onnx"),
        "openvino float32": ("sentence", "load_openvino"),
        "openvino bfloat16": ("sentence", "load_openvino"),
        "openvino int8": ("sentence", "load_openvino"),
        "minbert float32-again": ("minbert", "load_encoder"),
    },
    "predict": {
        "transformers float32": ("plain", "load_pipeline"),
        "transformers bfloat16": ("plain", "load_pipeline"),
        "minbert float32": ("minbert", "load_classifier"),
        "minbert bfloat16": ("minbert", "load_classifier"),
        "minbert int8": ("minbert", "load_classifier"),
    },
}
# peers that need the other environment
ELSEWHERE = ("onnx", "openvino")
# what is exported before anything is measured: module and function
EXPORTS = {
    "minbert": ("minbert", "export_int8"),
    "onnx": ("sentence", "export_onnx"),
    "openvino": ("sentence", "export_openvino"),
}
Apply = Callable[[Any], Any]


class Contender(NamedTuple):
    """A peer in a precision.

    Args:
        peer: Name of the peer.
        precision: ``float32``, ``bfloat16`` or ``int8``.
    """

    peer: str
    precision: str

    @classmethod
    def parse(cls, name: str) -> "Contender":
        """Split a name such as ``minbert int8``."""
        peer, precision = name.removesuffix(AGAIN).split(" ")
        return cls(peer, precision)


def load(workload: str, name: str, folder: Path, threads: int) -> Apply:
    """Load a contender.

    Args:
        workload: ``encode`` or ``predict``.
        name: Name of the contender.
        folder: The files of the benchmark.
        threads: Threads to use.

    Returns:
        A function of a list of sentences, or of one: vectors, or predicted classes.
    """
    module, function = CONTENDERS[workload][name]
    loader = getattr(import_module(f".{module}", __package__), function)
    apply: Apply = loader(folder, Contender.parse(name).precision, threads)
    return apply


def export(peer: str, folder: Path, threads: int) -> None:
    """Write the files that a peer loads instead of the plain model."""
    module, function = EXPORTS[peer]
    getattr(import_module(f".{module}", __package__), function)(folder, threads)
