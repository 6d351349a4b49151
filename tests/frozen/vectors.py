"""Numbers of ``encode``, its precisions and exported files, and what ``predict`` searches."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from modeling_minbert import MinBertForMultiTask, MinBertInt8Config
from tests.frozen.outcomes import Case, Rough, Workshop
from tests.minbert_onnx.examples import HAS_ONNX

TEXTS = [
    "the river is fine",
    "this song was dull, cold and bleak",
    "a garden of windows and stories and songs and rivers, lovely and warm, cold and bleak " * 3,
]
HAS_BYTES = torch.cpu._is_vnni_supported() or torch.cpu._is_amx_tile_supported()


def describe(vectors: Any, number: Callable[[float], float] = float) -> dict[str, list[float]]:
    rows = np.asarray(vectors, dtype=np.float64).reshape(len(vectors), -1)
    return {
        str(place): [number(float(value)) for value in (np.linalg.norm(row), *row[:4])]
        for place, row in enumerate(rows)
    }


def load(folder: Path, **options: Any) -> MinBertForMultiTask:
    return MinBertForMultiTask.from_pretrained(folder, **options)


def encode(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    model = load(workshop.three_tasks / "out")
    yield "default", describe(model.encode(TEXTS))
    for pooling in ("cls", "mean", "max"):
        yield pooling, describe(model.encode(TEXTS, pooling=pooling))
    for truncation in ("head", "tail", "head_tail", "windows"):
        yield truncation, describe(model.encode(TEXTS, truncation=truncation))
    yield "normalized", describe(model.encode(TEXTS, normalize=True))
    vectors = model.encode(TEXTS)
    yield "similarity", np.asarray(model.similarity(vectors, vectors)).tolist()


def encode_roughly(precision: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        model = load(workshop.three_tasks / "out")
        yield "vectors", describe(model.encode(TEXTS, precision=precision), Rough)
        prediction = model.predict("moods", TEXTS, precision=precision)
        yield "scores", [Rough(row["score"]) for row in prediction]

    return case


def load_int8(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    output = workshop.new("int8-vectors") / "export"
    argv = ("--format", "minbert", "--precision", "int8", "--output_dir", output)
    workshop.succeed("export", workshop.three_tasks / "out", *argv)
    yield "exported", describe(load(output).encode(TEXTS), Rough)
    options = {"quantization_config": MinBertInt8Config()}
    model = load(workshop.three_tasks / "out", **options)
    yield "quantized", describe(model.encode(TEXTS), Rough)


def run_onnx(precision: str) -> Case:
    def case(workshop: Workshop) -> Iterator[tuple[str, Any]]:
        import onnxruntime

        output = workshop.new(f"onnx-{precision}") / "export"
        argv = ("--format", "onnx", "--precision", precision, "--output_dir", output)
        workshop.succeed("export", workshop.three_tasks / "out", *argv)
        session = onnxruntime.InferenceSession(
            output / "model.onnx", providers=["CPUExecutionProvider"]
        )
        ids = 7 + np.arange(12).reshape(2, 6).astype(np.int64)
        inputs = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
        outputs = session.run(None, inputs | {"mix": np.eye(2, dtype=np.float32)})
        for entry, values in zip(session.get_outputs(), outputs, strict=True):
            number = Rough if precision == "int8" else float
            yield entry.name, describe(values, number)

    return case


def predict(workshop: Workshop) -> Iterator[tuple[str, Any]]:
    run = workshop.three_tasks
    texts = workshop.new("predict") / "texts.txt"
    rows = (run / "moods-train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    unlike = dict.fromkeys(row.split("\t")[1] for row in rows)  # equal texts would be ties
    texts.write_text("\n".join(unlike) + "\n", encoding="utf-8")
    asked: dict[str, tuple[object, ...]] = {
        "all": ("--task", "all", "--file", texts),
        "table": ("--task", "pairs", "--file", run / "pairs-dev.tsv"),
        "csv": ("--task", "moods", "--file", run / "moods-dev.tsv", "--format", "csv"),
        "matrix": ("--embed", texts.with_name("vectors.npy"), "--file", texts),
    }
    for name, flags in asked.items():
        ran = workshop.succeed("predict", run / "out", "--precision", "float32", *flags)
        for number, line in enumerate(ran.out.splitlines()[:9]):
            yield f"{name}.{number}", line
    yield "vectors.npy", describe(np.load(texts.with_name("vectors.npy"))[:2])


VECTORS: dict[str, Case] = {
    "float32": encode,
    "bfloat16": encode_roughly("bfloat16"),
    "int8": encode_roughly("int8"),
    "weights in int8": load_int8,
    "onnx": run_onnx("float32"),
    "onnx in int8": run_onnx("int8"),
    "predict": predict,
}
# What a case needs; it is neither written nor compared without.
MISSING = {
    **({} if HAS_BYTES else dict.fromkeys(("int8", "weights in int8"), "no VNNI or AMX")),
    **({} if HAS_ONNX else dict.fromkeys(("onnx", "onnx in int8"), "no onnx, onnxruntime")),
}
