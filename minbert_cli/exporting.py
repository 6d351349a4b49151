"""What ``minbert export`` writes: models of transformers, ONNX, int8."""

import logging
import re
import tempfile
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from minbert_cli.checkpoints import has_weights, load_pretrained, load_tokenizer
from minbert_cli.predicting import check_vectors
from modeling_minbert import MinBertConfig, MinBertForMultiTask, MinBertModel, export_onnx
from modeling_minbert.inference import check_vocabulary
from modeling_minbert.modeling_minbert import AUTO_MODELS
from modeling_minbert.onnx_export import OnnxModel
from modeling_minbert.rows import ONNX_FILE, ONNX_SETTINGS
from trainers import named_writes

# Largest difference of a float32 file, and rows and tokens of the batches that are compared.
TOLERANCE, SHAPES = 1e-4, ((1, 1), (2, 5), (3, 16))
# Of an int8 file the largest relative difference. MiniLM and its fine-tuned heads have 0.07 to
# 0.19; coarser quantization with more than 0.5 loses 0.016 of the Spearman correlation on STS.
INT8_TOLERANCE, INT8_SHAPES = 0.4, ((32, 24),)


def compare(path: Path, model: Any, task: str | None, *, is_int8: bool = False) -> str:
    """Compare a file with its model on rows of random tokens; return a line about it.

    A float32 file is compared number by number. Of an int8 file each output is compared as a whole:
    the norm of the difference relative to the norm of the output, which is near the square root of
    `2 - 2 * cosine`. Rows start and end with the special tokens of a text; without them, int8
    logits differ twice as much as those of real texts.

    Raises:
        ValueError: If they differ too much.
    """
    if find_spec("onnxruntime") is None:
        return "not compared, onnxruntime is not installed"
    differences = []
    for rows, least in INT8_SHAPES if is_int8 else SHAPES:
        # the longest rows exceed the window of a ModernBERT
        length = max(least, model.config.local_attention + 1) if rows > 2 else least
        size = (rows, min(length, model.config.longest_sequence))
        ids = make_rows(model.tokenizer, model.config.vocab_size, size)
        for found, expected in compute_both(path, model, task, ids).values():
            if is_int8:
                norm = max(np.linalg.norm(expected), np.finfo(np.float32).tiny)
                differences.append(np.linalg.norm(found - expected) / norm)
            else:  # float32 has no digits for a small part of a large number
                unit = max(1, np.abs(expected).max() / 100)
                differences.append(np.abs(found - expected).max() / unit)
    largest = np.max(differences)  # nan if one is, which is an error, too
    if is_int8 and not largest <= INT8_TOLERANCE:
        raise ValueError(
            f"{path.name} in int8 differs from the model by {100 * largest:.0f} %, more than "
            f"{100 * INT8_TOLERANCE:.0f} %: nothing is written; leave out --precision int8"
        )
    if is_int8:
        return f"differs from the model by {100 * largest:.0f} % in ONNX Runtime"
    if not largest <= TOLERANCE:
        raise ValueError(f"{path.name} differs from the model by {largest:.1e}: nothing is written")
    return f"equals the model within {largest:.0e} in ONNX Runtime"


def make_rows(tokenizer: PreTrainedTokenizerBase, vocabulary: int, size: tuple[int, ...]) -> Tensor:
    """Draw rows of tokens between the special tokens that start and end a text."""
    special = set(tokenizer.all_special_ids)
    words = torch.tensor([index for index in range(vocabulary) if index not in special])
    ids = words[torch.randint(len(words), size, generator=torch.Generator().manual_seed(0))]
    for position, token in ((0, tokenizer.cls_token_id), (-1, tokenizer.sep_token_id)):
        if token is not None:
            ids[..., position] = token
    return ids


def compute_both(
    path: Path, model: Any, task: str | None, ids: Tensor
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Compute the outputs of an ONNX file, and those of its model, that are no decisions."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    wrapped = OnnxModel(model, task)
    is_second = torch.arange(ids.shape[1]) >= ids.shape[1] // 2
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "token_type_ids": is_second.long().expand_as(ids),
        "mix": torch.eye(len(ids)),
    }
    inputs = {name: inputs[name] for name in wrapped.axes}
    names = [output.name for output in session.get_outputs()]
    values = session.run(names, {name: given.numpy() for name, given in inputs.items()})
    with torch.no_grad():
        expected = wrapped.compute(inputs)
    both = {
        name: (found, expected[name].numpy()) for name, found in zip(names, values, strict=True)
    }
    for name, pair in both.items():
        if name.endswith(".answers"):  # sums and the first logits; equal logits may change places
            both[name] = tuple(x.reshape(len(x), 2, -1)[:, :, :2] for x in pair)
    return {name: pair for name, pair in both.items() if pair[0].dtype == np.float32}


def compare_answers(folder: Path, model: Any) -> None:
    """Compare what an export answers in float32 with what its model predicts and embeds.

    The graph is compared with the module that it was traced from; this finds what that module, the
    settings beside the graph, or the runtime do otherwise than the model.

    Raises:
        ValueError: If an answer differs.
    """
    from minbert_onnx import MinBertOnnx

    exported = MinBertOnnx(folder)
    ids = make_rows(model.tokenizer, model.config.vocab_size, (6, 24))
    texts = [text if text.strip() else "a" for text in map(model.tokenizer.decode, ids[:, 1:-1])]
    both = {"encode": [np.asarray(x.encode(texts)).tolist() for x in (exported, model)]}
    for name in exported.heads:
        task, rows = model.config.task(name), list[Any](texts)
        if task.num_texts > 1:
            rows = list(zip(texts, texts[1:] + texts[:1], strict=True))
        elif getattr(task, "words", None) == "given":
            rows = [text.split() for text in texts]
        both[name] = [x.predict(name, rows) for x in (exported, model)]
    for name, (found, expected) in both.items():
        pairs = list(zip_longest(list_leaves(found), list_leaves(expected)))
        unit = max(1, max((abs(x) / 100 for _, x in pairs if isinstance(x, float)), default=0))
        for answer, right in pairs:
            if isinstance(answer, float) and isinstance(right, float):
                is_same = abs(answer - right) <= TOLERANCE * unit  # false for nan
            else:
                is_same = answer == right
            if not is_same:
                raise ValueError(
                    f"{ONNX_FILE} answers {answer!r} for {name}, but the model {right!r}: nothing "
                    "is written"
                )


def list_leaves(value: Any) -> list[Any]:
    """List what nested lists and dictionaries hold, keys included."""
    if isinstance(value, dict):
        value = [x for pair in value.items() for x in pair]
    return [y for x in value for y in list_leaves(x)] if isinstance(value, list) else [value]


def quantize(path: Path) -> None:
    """Replace a float32 file by one with int8 weights, which multiplies in int8.

    Products of two activations (attention), LayerNorm, softmax, GELU and heads stay float32.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    nodes = onnx.load(path, load_external_data=False).graph.node
    scopes = {node.name: str([entry.value for entry in node.metadata_props]) for node in nodes}
    heads = [name for name, scope in scopes.items() if "model.heads." in scope]
    partial_path = path.with_suffix(".partial")  # so that no incomplete file has the final name
    # silence the advice to prepare the file, which changes nothing for a BERT; without any handler,
    # the quantizer's messages would configure the root logger
    root, handler, level = logging.getLogger(), logging.NullHandler(), logging.getLogger().level
    root.setLevel(logging.ERROR)
    root.addHandler(handler)
    try:
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
            # the second ones are made of Gemm
            nodes_to_exclude=[*heads, *(f"{name}_MatMul" for name in heads)],
        )
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    partial_path.replace(path)
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # the weights in float32


def load_model(checkpoint: str) -> Any:
    """Load a checkpoint as the class that it was saved from, in float32."""
    config = load_pretrained(MinBertConfig, checkpoint, flag="checkpoint")
    name = (config.architectures or ["BertModel"])[0]
    saved = re.sub(r"^.*?((?<!Head)Model|For[A-Z]\w*)$", r"\1", name)
    classes = {model.__name__: model for model in (*AUTO_MODELS, MinBertForMultiTask)}
    saved = {"ForNextSentencePrediction": "ForNSP"}.get(saved, saved)
    if f"MinBert{saved}" not in classes:
        raise ValueError(
            f"checkpoint={checkpoint!r} is a {name}; known: "
            f"{', '.join(sorted(classes))} and the same of other types"
        )
    kind = classes[f"MinBert{saved}"]
    is_pretraining = saved in ("ForMaskedLM", "ForNSP", "ForPreTraining")
    if is_pretraining and not has_weights(checkpoint, "cls."):
        kind = MinBertModel  # a sentence encoder that names the class that it started from
    without = kind is MinBertModel and not has_weights(checkpoint, "pooler.dense.weight")
    options: dict[str, Any] = {"add_pooling_layer": False} if without else {}
    model: Any = load_pretrained(kind, checkpoint, flag="checkpoint", **options)
    if getattr(model, "is_quantized", False):
        model.dequantize()
    return model.float().eval()


def save_tokenizer(model: Any, checkpoint: str, folder: Path) -> Any:
    """Write the tokenizer of a checkpoint, which must fit its model, and return it."""
    tokenizer = load_pretrained(AutoTokenizer, checkpoint, flag="checkpoint")
    check_vocabulary(tokenizer, model.config, f"checkpoint={checkpoint!r}")
    # without minBERT, truncation=True is all that keeps a text within the positions
    positions = model.config.longest_sequence
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    tokenizer.save_pretrained(folder)
    return tokenizer


def to_onnx(model: Any, checkpoint: str, folder: Path, task: str | None, precision: str) -> str:
    """Write a model with one or all of its tasks as ONNX; compare if ONNX Runtime is installed."""
    if precision == "int8" and find_spec("onnxruntime") is None:
        raise ValueError(
            "onnxruntime is not installed; --precision int8 needs it: pip install onnxruntime"
        )
    model.tokenizer = save_tokenizer(model, checkpoint, folder)
    path = export_onnx(model, folder, task=task)
    compared = compare(path, model, task)
    if (folder / ONNX_SETTINGS).exists() and find_spec("onnxruntime") is not None:
        compare_answers(folder, model)
    if precision == "int8":
        size = sum(file.stat().st_size for file in folder.glob(f"{path.name}*"))
        quantize(path)
        compared = compare(path, model, task, is_int8=True)
        compared = f"int8, {100 * path.stat().st_size / size:.0f} % of the size; {compared}"
    # for programs without minBERT: ONNX Runtime and the tokenizer need no code of it
    model.config.to_transformers().save_pretrained(folder)
    return f"{path.name}: {compared}"


# Why a format takes no task.
WITHOUT_TASK = {
    "transformers": "transformers has no class for the heads of tasks",
    "minbert": "a checkpoint has all its tasks",
}


def export(checkpoint: str, to: str, folder: Path, task: str | None, precision: str) -> str:
    """Write a checkpoint in another format, completely or not at all; return a line about it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--output_dir {folder} is not empty; name a new or an empty folder")
    model = load_model(checkpoint)
    if task is not None and to in WITHOUT_TASK:
        raise ValueError(f"--task {task}: {WITHOUT_TASK[to]}; leave it out")
    target = folder.resolve()
    with named_writes(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
    # an existing folder may be another file system, or the working directory, and stays
    place = target if target.is_dir() else target.parent
    with named_writes(folder), tempfile.TemporaryDirectory(dir=place) as incomplete:
        whole = Path(incomplete) / "whole"
        whole.mkdir()
        summary = write(model, checkpoint, to, whole, task, precision)
        if target.is_dir():
            # the settings of ONNX last: without them, an incomplete folder is no export
            for path in sorted(whole.iterdir(), key=lambda path: path.name == ONNX_SETTINGS):
                path.replace(target / path.name)
        else:
            whole.replace(target)
    return summary


def write(
    model: Any, checkpoint: str, to: str, folder: Path, task: str | None, precision: str
) -> str:
    """Write a model in a format; return a line about it."""
    if to == "onnx":
        return to_onnx(model, checkpoint, folder, task, precision)
    if to == "sentence-transformers":
        is_multi_task = isinstance(model, MinBertForMultiTask)
        if task is not None and not model.config.tasks:
            raise ValueError(f"--task {task}: the checkpoint has no tasks; leave it out")
        if task is None:
            check_vectors(model, checkpoint)
        encoder = model if is_multi_task else model.base_model
        encoder.tokenizer = load_tokenizer(checkpoint, "checkpoint")
        encoder.save_as_sentence_transformers(folder, task=task)
        if task is None:
            task = model.config.vectors_task
        made = f"{model.config.embedding.pooling} pooling" if task is None else f"task {task!r}"
        heads = ", without the heads of tasks" if is_multi_task else ""
        return f"vectors of {made}{heads}; sentence-transformers opens it without trust_remote_code"
    if to == "transformers":  # of a multi-task model its encoder
        model.save_as_transformers(folder)
        summary = f"as a plain {model.config.encoder_type}"
        if isinstance(model, MinBertForMultiTask):
            summary += f", without the heads of its tasks: {', '.join(model.config.tasks or [])}"
    else:
        if precision == "int8":
            model.quantize()
        model.save_pretrained(folder)
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
        summary = f"with weights in {precision}, {size:.1f} MB"
    save_tokenizer(model, checkpoint, folder)
    return f"{type(model).__name__} {summary}"
