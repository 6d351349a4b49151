"""Models as ONNX files: the padded path in plain operations, for batches of any size and length.

Needs onnx and onnxscript, minBERT's optional part `onnx`.

Shapes: N sequences of L tokens, M texts, K labels, D hidden size.
"""

import copy
import json
import logging
import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from .inference import evaluating
from .modeling_minbert import MinBertModel
from .multitask import MinBertForMultiTask
from .packing import pool
from .questions import keep_scores
from .rows import ONNX_FILE, ONNX_SETTINGS, ONNX_VERSION, VectorPlan
from .texts import own_tokenizer

NEEDED = ("onnx", "onnxscript")


class OnnxModel(nn.Module):
    """A model with named inputs and outputs in a fixed order.

    An encoder and its heads are computed once, with all vectors and decisions of predictions.

    Attributes:
        axes: The dynamic axes of each input, by name.
        heads: Those of the tasks, by name.
        plans: How the vectors are made, by the name of their output; none of other models.
        output_names: Names of the outputs, known after a call.
    """

    def __init__(self, model: Any, task: str | None = None) -> None:
        super().__init__()
        self.model = model
        self.output_names: list[str] = []
        has_heads, config = isinstance(model, MinBertForMultiTask), model.config
        self.heads: dict[str, Any] = {}
        if has_heads:
            self.heads = dict(model.heads.items()) if task is None else {task: model._head(task)}
        elif task is not None:
            name = type(model).__name__
            raise ValueError(f"task={task!r}: a {name} has no named tasks, leave it out")
        self.tasks = {name: head.task for name, head in self.heads.items()}
        plans: list[VectorPlan] = []
        if has_heads or isinstance(model, MinBertModel):
            if (default := config.embedding_task) is not None:  # of `encode`, also without a head
                self.tasks[default] = config.task(default)
            poolings = ["cls", "mean", "max"]
            with suppress(ValueError):  # of a model without a pooler, or with a new one
                model._check_pooler()
                poolings.append("pooler")
            self.has_pooler = "pooler" in poolings
            plans = [model._plan(pooling=pooling, prompt="").vectors for pooling in poolings]
            plans += [x.plan_vectors(config) for x in self.tasks.values() if not x.is_token_level]
        self.plans = {plan.output: plan for plan in plans}
        tokens = {0: "sequences", 1: "length"}
        self.axes: dict[str, dict[int, str]] = {"input_ids": tokens, "attention_mask": tokens}
        # answers are looked for in tokens of the second type
        if config.type_vocab_size > 1 or any(x.answers_questions for x in self.tasks.values()):
            self.axes["token_type_ids"] = tokens
        if plans:
            self.axes["mix"] = {0: "texts", 1: "sequences"}

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Compute the outputs in the order of their names."""
        outputs = self.compute(dict(zip(self.axes, inputs, strict=True)))
        tensors = {name: value for name, value in outputs.items() if isinstance(value, Tensor)}
        self.output_names[:] = tensors
        return tuple(tensors.values())

    def compute(self, inputs: dict[str, Tensor]) -> Any:
        """Compute the outputs by name; `mix`, (M, N), has the weights of sequences in each text."""
        given = {name: value for name, value in inputs.items() if name != "mix"}
        if not self.plans:
            return self.model(**given, return_dict=True)
        encoder, count = self.model.base_model, self.model.config.num_hidden_layers
        depths = {name: task.count_layers(count) for name, task in self.tasks.items()}
        read = {*depths.values(), *(plan.num_layers for plan in self.plans.values())}
        is_deep = bool(read - {count, None})
        states = encoder(**given, read="padded", return_dict=True, output_hidden_states=is_deep)
        last, found = states.last_hidden_state, dict[str, Tensor]()
        layers = {**dict(enumerate(states.hidden_states or ())), count: last, None: last}
        for name, plan in self.plans.items():
            hidden = layers[plan.num_layers]
            if plan.pooling == "pooler":
                found[name] = encoder.pooler(hidden)
            else:
                found[name] = pool(hidden, inputs["attention_mask"], str(plan.pooling))
        for name, head in self.heads.items():
            if head.outputs == "spans":
                scores = head.score(layers[depths[name]])
                values = {"answers": keep_scores(given, *scores.unbind(dim=-1))}
            elif head.outputs == "tags":
                scores = head.score(layers[depths[name]])
                scores, tags = head.probabilities(scores.float()).max(dim=-1)
                values = {"scores": scores, "tags": tags}
            else:
                vectors = inputs["mix"] @ found[head.task.plan_vectors(self.model.config).output]
                if head.task.is_separate:  # each text with the next one
                    vectors = torch.stack([vectors, torch.cat([vectors[1:], vectors[:1]])], dim=1)
                # decisions are made here, so that no other program needs their rules
                values = head.decide_texts(head.score_texts(vectors))
            found |= {f"{name}.{kind}": value for kind, value in values.items()}
        return found


# Fields of a task that the runtime reads, if it has them.
FIELDS = (
    *("problem_type", "row_kind", "num_texts", "is_token_level", "kind", "normalizes_vectors"),
    *("labels", "targets", "outputs", "classes", "words", "truncation", "score_range"),
    *("scheme", "max_answer_length", "null_score_diff_threshold"),
)
OF_CONFIG = ("longest_sequence", "num_hidden_layers", "hidden_size", "vectors_task")
OF_TOKENIZER = ("unk_token_id", "truncation_side", "model_max_length", "split_special_tokens")


def take(source: Any, names: Iterable[str]) -> dict[str, Any]:
    """Take attributes of an object by their names, those that it has."""
    return {name: getattr(source, name) for name in names if hasattr(source, name)}


def describe_task(task: Any, config: PreTrainedConfig) -> dict[str, Any]:
    """Describe a task for the runtime."""
    found = take(task, FIELDS) | {"encoding": asdict(task.reading(config))}
    if not task.is_token_level:
        _, *found["vectors"] = task.plan_vectors(config)
    return found


def write_settings(wrapped: OnnxModel, folder: Path) -> None:
    """Write what the runtime needs beside the graph: the tokenizer, and how tasks are read."""
    model, config = wrapped.model, wrapped.model.config
    tokenizer = own_tokenizer(model.tokenizer)
    tokenizer.save_pretrained(folder)
    facts = take(config, OF_CONFIG) | {"sentence_embedding": config.sentence_embedding}
    facts |= {"embedding": asdict(config.embedding), "pad_token_id": config.pad_token_id or 0}
    settings = {
        "version": ONNX_VERSION,
        "config": facts | {"has_pooler": wrapped.has_pooler},
        "tokenizer": take(tokenizer, OF_TOKENIZER),
        "tasks": {name: describe_task(task, config) for name, task in wrapped.tasks.items()},
    }
    text = json.dumps(settings, indent=2, ensure_ascii=False)
    (folder / ONNX_SETTINGS).write_text(text + "\n", encoding="utf-8")


def export_onnx(
    model: Any, save_directory: str | os.PathLike[str], *, task: str | None = None
) -> Path:
    """Save a model as an ONNX file, `model.onnx`, for any number of sequences of any length.

    An encoder and a `MinBertForMultiTask` become a folder that `minbert.load` opens without torch:
    one graph with the vectors and the predictions of all tasks, the tokenizer, and
    `minbert.json`. Its inputs are `input_ids`, `attention_mask` and, if the encoder or a task needs
    them, `token_type_ids`, int64 (N, L), and `mix`, float32 (M, N), with the weights of sequences
    in each text: the identity where every text is one sequence. Its outputs are `vectors.mean.12`
    and so on, by pooling and layer, (N, D), and `<task>.probabilities` and `<task>.decisions`, or
    `<task>.scores`, of each text, or for separate pairs of each text with the next one. Of other
    models there is only the file, with the outputs that the model has.

    Args:
        model: Any minBERT; it does not change. The file is in float32, whatever the weights are in.
        save_directory: The folder, created if necessary.
        task: Name of the only task to save; None for all that predict texts.

    Returns:
        The file; weights above 1.5 GiB are in `model.onnx.data` beside it.

    Raises:
        ValueError: If there is no such task, it predicts nothing about texts, the model has no
            named tasks, or no fast tokenizer, or the folder has a checkpoint.
        ImportError: If onnx or onnxscript is not installed.
    """
    if any(x.is_floating_point() and x.dtype != torch.float32 for x in model.parameters()):
        model = copy.deepcopy(model)
        nn.Module.float(model)  # transformers would refuse to cast what int8 weights leave in float
    wrapped = OnnxModel(model, task)
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise ImportError(
            f"{' and '.join(missing)} not installed; an export to ONNX needs them: "
            "pip install onnx onnxscript"
        )
    if wrapped.plans:
        model.check_tokenizer()
        if not model.tokenizer.is_fast:
            raise ValueError(
                f"{type(model.tokenizer).__name__} is written in Python, and cannot be exported; "
                "use a fast tokenizer (tokenizer.json)"
            )
    folder = Path(save_directory)
    if weights := [*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")]:
        raise ValueError(f"{weights[0]}: a checkpoint is here; export to another folder")
    before = model.config._attn_implementation
    # the only attention of plain operations, without a choice of kernels
    model.set_attn_implementation("eager")
    try:
        with evaluating(wrapped), torch.no_grad():
            program = _trace(wrapped)
    finally:
        model.set_attn_implementation(before)
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder) as incomplete:
        program.save(str(Path(incomplete, ONNX_FILE)))
        for name in (ONNX_SETTINGS, f"{ONNX_FILE}.data"):  # of an earlier export
            (folder / name).unlink(missing_ok=True)
        for file in Path(incomplete).iterdir():  # weights above 1.5 GiB are beside the graph
            file.replace(folder / file.name)
    if wrapped.plans:
        write_settings(wrapped, folder)
    return folder / ONNX_FILE


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
