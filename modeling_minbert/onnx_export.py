"""Models as ONNX files: the padded path in plain operations, for batches of any size and length.

Needs onnx and onnxscript, minBERT's optional part `onnx`.
"""

import logging
import os
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .heads import TaskBatch
from .inference import evaluating
from .multitask import MinBertForMultiTask

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
NEEDED = ("onnx", "onnxscript")


class _OnnxModel(nn.Module):
    """A model, or one task of it, with inputs in a fixed order and a tuple of tensors as output."""

    def __init__(self, model: Any, task: str | None) -> None:
        super().__init__()
        self.model: Any = model
        self.task = task
        spec = None if task is None else model.config.task(task)
        self.sentences = None if spec is None else spec.num_sequences
        self.output_names: list[str] = []

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        inputs = (input_ids, attention_mask, token_type_ids)
        if self.task is None:
            outputs = self.model(*inputs, return_dict=True)
        else:  # without a loss, which an unlabeled task would always compute
            batch = TaskBatch(self.task, (*inputs, None, None), num_sequences=self.sentences)
            outputs = self.model.compute(batch)
        tensors = {name: value for name, value in outputs.items() if isinstance(value, Tensor)}
        self.output_names[:] = tensors
        return tuple(tensors.values())


def export_onnx(
    model: Any, save_directory: str | os.PathLike[str], *, task: str | None = None
) -> Path:
    """Save a model, or one task of it, as an ONNX file.

    Inputs are `input_ids`, `attention_mask` and, for an encoder with token types, `token_type_ids`,
    int64: (batch, length), or (batch, sentences, length) for a task with separate pairs, and a
    contrastive one, and (batch, choices, length) for multiple choice. Batch and length are dynamic,
    length up to the positions of the model. Outputs are named as the model names them: `logits`,
    `start_logits` and `end_logits`, `prediction_logits` and `seq_relationship_logits`, or
    `last_hidden_state` and `pooler_output`.

    Args:
        model: Any minBERT; its mode and attention implementation do not change.
        save_directory: The folder, created if necessary.
        task: Name of a task of a `MinBertForMultiTask`; None for its encoder.

    Returns:
        The file: `<task>.onnx`, or `model.onnx` without a task.

    Raises:
        ValueError: If there is no such task, the model has no named tasks, or the task splits texts
            into windows.
        ImportError: If onnx or onnxscript is not installed.
    """
    if isinstance(model, MinBertForMultiTask):
        model = model.bert if task is None else model
    elif task is not None:
        name = type(model).__name__
        raise ValueError(f"task={task!r}: a {name} has no named tasks, leave it out")
    if task is not None and model.config.task(task).has_windows:
        raise ValueError(
            f"task {task!r} splits texts into windows, which an ONNX file cannot: export the "
            "encoder, without a task, or train with another truncation"
        )
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(
            f"{' and '.join(missing)} not installed; an export to ONNX needs them: "
            "pip install onnx onnxscript"
        )
    wrapped = _OnnxModel(model, task)
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{task or 'model'}.onnx"
    before = model.config._attn_implementation
    # the only attention of plain operations, without a choice of kernels
    model.set_attn_implementation("eager")
    try:
        with evaluating(wrapped), torch.no_grad():
            program = _trace(wrapped)
    finally:
        model.set_attn_implementation(before)
    partial = path.with_suffix(".partial")  # so that no incomplete file has the final name
    program.save(str(partial))
    partial.replace(path)
    return path


def _trace(wrapped: _OnnxModel) -> Any:
    """Trace a batch; sizes that are 1, or equal to each other, would be taken as fixed."""
    model, sentences = wrapped.model, wrapped.sentences
    # ModernBERT has a mask of its window only for rows that are longer, and so has the file
    window = model.config.local_attention // 2 + 2
    length = min(max(7, window), model.config.longest_sequence)
    shape = (3, length) if sentences is None else (3, sentences, length)
    ids = torch.zeros(shape, dtype=torch.int64, device=model.device)
    inputs: tuple[Tensor, ...] = (ids, torch.ones_like(ids))
    if model.config.type_vocab_size > 1:
        inputs = (*inputs, torch.zeros_like(ids))
    wrapped(*inputs)  # fills in the names
    axes = {0: "batch", len(shape) - 1: "length"}
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about itself
        exporter.setLevel(logging.ERROR)  # and notes libraries that a BERT does not need
        try:
            return torch.onnx.export(
                wrapped,
                inputs,
                dynamo=True,
                input_names=list(INPUTS[: len(inputs)]),
                output_names=list(wrapped.output_names),
                dynamic_shapes=(axes,) * len(inputs),
                external_data=False,
                verbose=False,
            )
        finally:
            exporter.setLevel(level)
