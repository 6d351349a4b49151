"""Models as ONNX files: the padded path in plain operations, for batches of any size and length.

Needs onnx and onnxscript, minBERT's optional part `onnx`.

Shapes: N sequences of L tokens, M texts, K labels, D hidden size.
"""

import json
import logging
import os
import warnings
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from .inference import evaluating
from .modeling_minbert import MinBertModel
from .multitask import MinBertForMultiTask
from .packing import pool
from .questions import keep_scores
from .rows import ONNX_FILE, ONNX_SETTINGS, ONNX_VERSION
from .spans import LONGEST_WINDOW
from .texts import own_tokenizer

NEEDED = ("onnx", "onnxscript")


class OnnxModel(nn.Module):
    """A model with inputs and outputs in a fixed order.

    Attributes:
        axes: The dynamic axes of each input, by name.
        output_names: Names of the outputs, known after a call.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model: Any = model
        tokens = {0: "sequences", 1: "length"}
        self.axes: dict[str, dict[int, str]] = {"input_ids": tokens, "attention_mask": tokens}
        if self.needs_types:
            self.axes["token_type_ids"] = tokens
        self.output_names: list[str] = []

    @property
    def needs_types(self) -> bool:
        """Whether types of tokens are an input."""
        return self.model.config.type_vocab_size > 1

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs in the order of their names."""
        outputs = self.compute(dict(zip(self.axes, inputs, strict=True)))
        tensors = {name: value for name, value in outputs.items() if isinstance(value, Tensor)}
        self.output_names[:] = tensors
        return tuple(tensors.values())

    def compute(self, inputs: dict[str, Tensor]) -> Any:
        """Compute the outputs by name."""
        return self.model(**inputs, return_dict=True)


class OnnxPredictor(OnnxModel):
    """An encoder, which runs once, with all vectors and heads that predictions need.

    Attributes:
        heads: Those of the tasks, by name.
        hidden: The task of the default vectors, if its head is left out.
        vectors: Layer and pooling of the vectors, by the name of the output.
    """

    def __init__(self, model: Any, name: str | None) -> None:
        self.heads: dict[str, Any] = {}
        if isinstance(model, MinBertForMultiTask):
            self.heads = dict(model.heads.items()) if name is None else {name: model._head(name)}
        super().__init__(model)
        self.axes["mix"] = {0: "texts", 1: "sequences"}
        self.layers: int = model.config.num_hidden_layers
        poolings = ["cls", "mean", "max", *(["pooler"] if model._has_pooler else [])]
        self.vectors = {
            self.name_vectors(self.layers, name): (self.layers, name) for name in poolings
        }
        default = model.config.embedding_task
        is_hidden = default is not None and default not in self.heads
        self.hidden = {default: model.config.task(default)} if is_hidden else {}
        for task in (*(head.task for head in self.heads.values()), *self.hidden.values()):
            if not task.is_token_level:
                plan = task.plan_vectors(model.config)
                name = self.name_vectors(plan.num_layers, plan.pooling)
                self.vectors[name] = (plan.num_layers, plan.pooling)

    @property
    def needs_types(self) -> bool:
        """Whether types of tokens are an input; answers are found in the second type."""
        answers = any(head.task.answers_questions for head in self.heads.values())
        return answers or super().needs_types

    def name_vectors(self, layer: int, pooling: str | None) -> str:
        """Return the name of an output."""
        return f"vectors.{pooling}" + ("" if layer == self.layers else f".{layer}")

    def compute(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        """Compute all outputs; `mix`, (M, N), are the weights of sequences in each text."""
        mix, mask, encoder = inputs["mix"], inputs["attention_mask"], self.model.base_model
        given = {name: inputs[name] for name in inputs if name != "mix"}
        is_deep = any(layer < self.layers for layer, _ in self.vectors.values())
        states: Any = encoder(
            **given, read="padded", return_dict=True, output_hidden_states=is_deep
        )
        last = states.last_hidden_state
        found: dict[str, Tensor] = {}
        for name, (layer, pooling) in self.vectors.items():
            hidden = last if layer == self.layers else states.hidden_states[layer]
            is_pooler = pooling == "pooler"
            found[name] = encoder.pooler(hidden) if is_pooler else pool(hidden, mask, pooling)
        for name, head in self.heads.items():
            if head.outputs == "spans":
                values = {"answers": keep_scores(inputs, *head.score(last).unbind(dim=-1))}
            elif head.outputs == "tags":
                scores, tags = head.probabilities(head.score(last).float()).max(dim=-1)
                values = {"scores": scores, "tags": tags}
            else:
                plan = head.task.plan_vectors(self.model.config)
                vectors = found[self.name_vectors(plan.num_layers, plan.pooling)]
                values = score_texts(head, mix @ vectors)
            found |= {f"{name}.{kind}": value for kind, value in values.items()}
        return found


def score_texts(head: Any, vectors: Tensor) -> dict[str, Tensor]:
    """Compute what describes texts, or pairs of each with the next one, from vectors, (M, D).

    Decisions are made here, so that no other program needs their rules.
    """
    if head.task.is_separate:
        vectors = torch.stack([vectors, torch.cat([vectors[1:], vectors[:1]])], dim=1)
    logits = head.summarize(head.to_logits(head.score(head.embed(vectors)))).float()
    if head.outputs == "scores":
        return {"scores": head.decode(logits).unsqueeze(-1)}
    if head.outputs in ("numbers", "vectors", "choices"):
        return {"scores": logits}
    return {"probabilities": head.probabilities(logits), "decisions": head.decode(logits)}


def describe_task(task: Any, config: Any) -> dict[str, Any]:
    """Describe a task for the runtime."""
    names = ("problem_type", "row_kind", "num_texts", "is_separate", "is_token_level", "kind")
    further = ("labels", "targets", "outputs", "classes", "words", "temperature")
    further += ("max_answer_length", "null_score_diff_threshold", "normalizes_vectors")
    fields = {name: getattr(task, name) for name in names}
    fields |= {name: getattr(task, name) for name in further if hasattr(task, name)}
    positions = config.longest_sequence
    if task.answers_questions:
        encoding = task.encoding(min(positions, LONGEST_WINDOW))
    elif task.is_token_level:
        encoding = task.encoding(positions)
    else:
        encoding, *vectors = task.plan_vectors(config)
        fields["vectors"] = vectors
    return {**fields, "longest": task.limit_length(positions), "encoding": asdict(encoding)}


def write_settings(predictor: OnnxPredictor, folder: Path) -> None:
    """Write what the runtime needs beside the graph: the tokenizer, and how tasks are read."""
    model = predictor.model
    tokenizer, config = own_tokenizer(model.tokenizer), model.config
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} is written in Python, and cannot be exported; use a fast "
            "tokenizer (tokenizer.json)"
        )
    tokenizer.save_pretrained(folder)
    names = ("unk_token_id", "truncation_side", "model_max_length", "split_special_tokens")
    of_config = ("longest_sequence", "num_hidden_layers", "hidden_size", "embedding_task")
    settings = {
        "version": ONNX_VERSION,
        "config": {name: getattr(config, name) for name in of_config}
        | {"sentence_embedding": config.sentence_embedding, "has_pooler": model._has_pooler}
        | {"embedding": asdict(config.embedding), "pad_token_id": config.pad_token_id or 0},
        "tokenizer": {name: getattr(tokenizer, name) for name in names},
        "tasks": {name: describe_task(head.task, config) for name, head in predictor.heads.items()},
        # whose vectors are the default of `encode`
        "hidden_tasks": {
            name: describe_task(task, config) for name, task in predictor.hidden.items()
        },
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / ONNX_SETTINGS).write_text(text + "\n", encoding="utf-8")


def wrap(model: Any, task: str | None) -> OnnxModel:
    """Return a model, or its encoder and heads, as the module that is exported."""
    if task is not None and not isinstance(model, MinBertForMultiTask):
        name = type(model).__name__
        raise ValueError(f"task={task!r}: a {name} has no named tasks, leave it out")
    has_vectors = isinstance(model, MinBertModel | MinBertForMultiTask)
    return OnnxPredictor(model, task) if has_vectors else OnnxModel(model)


def export_onnx(
    model: Any, save_directory: str | os.PathLike[str], *, task: str | None = None
) -> Path:
    """Save a model as an ONNX file, `model.onnx`, for any number of sequences of any length.

    An encoder and a `MinBertForMultiTask` become a folder that `minbert.load` opens without torch:
    one graph with the vectors and the predictions of all tasks, the tokenizer, and
    `minbert.json`. Its inputs are `input_ids`, `attention_mask` and, if the encoder or a task needs
    them, `token_type_ids`, int64 (N, L), and `mix`, float32 (M, N), with the weights of sequences
    in each text: the identity where every text is one sequence. Its outputs are `vectors.mean` and
    so on, (N, D), and `<task>.probabilities` and `<task>.decisions`, or `<task>.scores`, of each
    text, or for separate pairs of each text with the next one. Of other models there is only the
    file, with the outputs that the model has.

    Args:
        model: Any minBERT; its mode and attention implementation do not change.
        save_directory: The folder, created if necessary.
        task: Name of the only task to save; None for all that predict texts.

    Returns:
        The file.

    Raises:
        ValueError: If there is no such task, it predicts nothing about texts, the model has no
            named tasks, or no fast tokenizer.
        ImportError: If onnx or onnxscript is not installed.
    """
    wrapped = wrap(model, task)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(
            f"{' and '.join(missing)} not installed; an export to ONNX needs them: "
            "pip install onnx onnxscript"
        )
    folder = Path(save_directory)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ONNX_FILE
    if isinstance(wrapped, OnnxPredictor):
        write_settings(wrapped, folder)
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


def _trace(wrapped: OnnxModel) -> Any:
    """Trace a batch; sizes that are 1, or equal to each other, would be taken as fixed."""
    config, device = wrapped.model.config, wrapped.model.device
    # ModernBERT has a mask of its window only for rows that are longer, and so has the file
    window = config.local_attention // 2 + 2
    sizes = {"sequences": 3, "texts": 5, "length": min(max(7, window), config.longest_sequence)}
    inputs = []
    for name, axes in wrapped.axes.items():
        dtype = torch.float32 if name == "mix" else torch.int64
        fill = torch.ones if name == "attention_mask" else torch.zeros
        inputs.append(fill([sizes[axis] for axis in axes.values()], dtype=dtype, device=device))
    wrapped(*inputs)  # fills in the names
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporter warns about itself
        exporter.setLevel(logging.ERROR)  # and notes libraries that a BERT does not need
        try:
            return torch.onnx.export(
                wrapped,
                tuple(inputs),
                dynamo=True,
                input_names=list(wrapped.axes),
                output_names=list(wrapped.output_names),
                dynamic_shapes=(tuple(wrapped.axes.values()),),
                external_data=False,
                verbose=False,
            )
        finally:
            exporter.setLevel(level)
