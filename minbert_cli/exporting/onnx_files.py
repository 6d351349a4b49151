"""ONNX files: comparison with their models in ONNX Runtime, and int8 weights."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from modeling_minbert import MinBertForMultiTask

# Largest difference of a float32 file.
TOLERANCE = 1e-4
# Rows and tokens of the batches on which a float32 file is compared.
SHAPES = ((1, 1), (2, 5), (3, 16))
# Windows of a text in these batches.
WINDOWS = 2
# Largest relative difference of an int8 file. MiniLM and its fine-tuned heads have 0.07 to 0.19;
# coarser quantization with more than 0.5 loses 0.016 of the Spearman correlation on STS.
INT8_TOLERANCE = 0.4
# Rows and tokens of the batch on which an int8 file is compared.
INT8_SHAPE = (32, 24)

Outputs = list[tuple[np.ndarray, np.ndarray]]


def compare(path: Path, model: Any, task: str | None) -> str:
    """Compare a float32 file with its model on batches of random tokens."""
    if find_spec("onnxruntime") is None:
        return "not compared, onnxruntime is not installed"
    compute = open_both(path, model, task)
    mean, scale = _units(model, task)
    # where the mean is hundreds of deviations, float32 has no digits for a small part of these
    scale = np.maximum(scale, np.abs(mean) / 100)
    generator = torch.Generator().manual_seed(0)
    differences = []
    for rows, length in SHAPES:
        size = (rows, *_sequences(model, task), length)
        ids = torch.randint(1, model.config.vocab_size, size, generator=generator)
        pairs = compute(ids)
        differences += [(np.abs(found - expected) / scale).max() for found, expected in pairs]
    largest = np.max(differences)  # nan if one is, which is an error, too
    if not largest <= TOLERANCE:
        raise ValueError(f"{path.name} differs from the model by {largest:.1e}: nothing is written")
    return f"equals the model within {largest:.0e} in ONNX Runtime"


def compare_int8(
    path: Path, model: Any, task: str | None, tokenizer: PreTrainedTokenizerBase
) -> str:
    """Compare an int8 file with its float32 model on rows of random tokens.

    Each output is compared as a whole: the norm of the difference relative to the norm of the
    output. This is near the square root of `2 - 2 * cosine`. Rows start and end with the special
    tokens of a text; without them, logits differ twice as much as those of real texts.
    """
    rows, length = INT8_SHAPE
    size = (rows, *_sequences(model, task), min(length, model.config.max_position_embeddings))
    ids = make_rows(tokenizer, model.config.vocab_size, size)
    tiny = np.finfo(np.float32).tiny
    mean, scale = _units(model, task)
    differences = [
        np.linalg.norm((found - expected) / scale)
        / max(np.linalg.norm((expected - mean) / scale), tiny)
        for found, expected in open_both(path, model, task)(ids)
    ]
    largest = np.max(differences)
    if not largest <= INT8_TOLERANCE:
        raise ValueError(
            f"{path.name} in int8 differs from the model by {100 * largest:.0f} %, more than "
            f"{100 * INT8_TOLERANCE:.0f} %: nothing is written; leave out --precision int8"
        )
    return f"differs from the model by {100 * largest:.0f} % in ONNX Runtime"


def make_rows(tokenizer: PreTrainedTokenizerBase, vocabulary: int, size: tuple[int, ...]) -> Tensor:
    """Draw rows of tokens between the special tokens that start and end a text."""
    special = set(tokenizer.all_special_ids)
    words = torch.tensor([index for index in range(vocabulary) if index not in special])
    ids = words[torch.randint(len(words), size, generator=torch.Generator().manual_seed(0))]
    for position, token in ((0, tokenizer.cls_token_id), (-1, tokenizer.sep_token_id)):
        if token is not None:
            ids[..., position] = token
    return ids


def open_both(path: Path, model: Any, task: str | None) -> Callable[[Tensor], Outputs]:
    """Return a function that computes the outputs of an ONNX file and of its model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    forward = model
    if task is not None:
        forward = partial(model, task=task)
    elif isinstance(model, MinBertForMultiTask):
        forward = model.bert

    def compute(ids: Tensor) -> Outputs:
        inputs = {
            "input_ids": ids,
            "attention_mask": torch.ones_like(ids),
            "token_type_ids": torch.zeros_like(ids),
        }
        found = session.run(names, {name: value.numpy() for name, value in inputs.items()})
        with torch.no_grad():
            expected = forward(**inputs)
        return [(values, expected[name].numpy()) for name, values in zip(names, found, strict=True)]

    return compute


def _sequences(model: Any, task: str | None) -> tuple[int, ...]:
    """Return the sizes of the axes of sequences and windows, if inputs of a task have any."""
    if model.takes_choices:
        return (3,)
    if task is None:
        return ()
    spec = model.config.task(task)
    sequences = () if spec.num_sequences is None else (spec.num_sequences,)
    return (*sequences, WINDOWS) if spec.has_windows else sequences


def _units(model: Any, task: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and standard deviation of the outputs, in which differences are measured."""
    mean, scale = ([0.0], [1.0]) if task is None else model.config.task(task).logit_units
    return np.asarray(mean, np.float32), np.asarray(scale, np.float32)


def quantize(path: Path) -> None:
    """Replace a float32 file by one with int8 weights, which multiplies in int8.

    Products of two activations (attention), LayerNorm, softmax and GELU stay float32.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    partial_path = path.with_suffix(".partial")  # so that no incomplete file has the final name
    with _quiet_quantizer():
        quantize_dynamic(
            path,
            partial_path,
            # linear layers and embeddings
            op_types_to_quantize=["MatMul", "Gather"],
            weight_type=QuantType.QInt8,
            # one scale per matrix would lose four times as much cosine
            per_channel=True,
            # 7 bits: x86 processors without VNNI add two products in 16 bits, which 8 would exceed
            reduce_range=True,
        )
    partial_path.replace(path)


@contextmanager
def _quiet_quantizer() -> Iterator[None]:
    """Silence the advice to prepare the file, which changes nothing for a BERT."""
    root, handler = logging.getLogger(), logging.NullHandler()
    level = root.level
    root.setLevel(logging.ERROR)
    # without any handler, the quantizer's messages would configure the root logger
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
