"""sentence-transformers: torch, ONNX Runtime and OpenVINO, with its documented exports.

The exports run in the environment of ``--peer_python``.
"""

import json
from pathlib import Path
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from .contenders import Apply

BATCH = 32
OPENVINO_INT8 = "openvino_model_qint8_quantized.xml"
# instruction set -> configuration of export_dynamic_quantized_onnx_model, best first
DYNAMIC = {"avx512_vnni": "avx512_vnni", "avx512f": "avx512", "avx2": "avx2"}


def load_torch(folder: Path, precision: str, _threads: int) -> Apply:
    """Load its encoder in torch."""
    return _make_encode(
        SentenceTransformer(
            str(folder / "models" / "encoder"),
            device="cpu",
            model_kwargs={"dtype": getattr(torch, precision)},
        )
    )


def load_onnx(folder: Path, precision: str, threads: int) -> Apply:
    """Load the exported encoder in ONNX Runtime."""
    source = folder / "models" / "onnx"
    (int8,) = (source / "onnx").glob("model_*int8*.onnx")
    file = int8.name if precision == "int8" else "model.onnx"
    return _make_encode(_open_onnx(source, threads, file_name=f"onnx/{file}"))


def load_openvino(folder: Path, precision: str, threads: int) -> Apply:
    """Load the exported encoder in OpenVINO.

    OpenVINO computes a float32 model in bfloat16 where the CPU has instructions for it: that is
    ``bfloat16`` here, and ``float32`` is what its hint of the precision asks for.
    """
    source = folder / "models" / "openvino"
    file = OPENVINO_INT8 if precision == "int8" else "openvino_model.xml"
    hint = {"INFERENCE_PRECISION_HINT": "f32"} if precision == "float32" else {}
    return _make_encode(_open_openvino(source, threads, hint, file_name=f"openvino/{file}"))


def export_onnx(folder: Path, threads: int) -> None:
    """Export for ONNX Runtime, in float32 and with dynamic int8."""
    from sentence_transformers import export_dynamic_quantized_onnx_model

    target = folder / "models" / "onnx"
    model = _open_onnx(folder / "models" / "encoder", threads, export=True)
    model.save_pretrained(str(target))
    export_dynamic_quantized_onnx_model(model, _find_dynamic(), str(target))


def export_openvino(folder: Path, threads: int) -> None:
    """Export for OpenVINO, in float32 and with static int8 calibrated on local sentences."""
    from sentence_transformers import export_static_quantized_openvino_model

    target = folder / "models" / "openvino"
    model = _open_openvino(folder / "models" / "encoder", threads, {}, export=True)
    model.save_pretrained(str(target))
    export_static_quantized_openvino_model(
        model,
        None,
        str(target),
        dataset_name=str(_write_calibration(folder)),
        dataset_config_name="default",
        dataset_split="train",
        column_name="sentence",
    )


def _write_calibration(folder: Path, count: int = 300) -> Path:
    """Write the last sentences as a dataset; these are never measured."""
    lines = (folder / "sentences.txt").read_text(encoding="utf-8").splitlines()[-count:]
    target = folder / "calibration"
    target.mkdir(exist_ok=True)
    rows = "".join(json.dumps({"sentence": line}) + "\n" for line in lines)
    (target / "train.jsonl").write_text(rows, encoding="utf-8")
    return target


def _open_onnx(folder: Path, threads: int, **options: Any) -> SentenceTransformer:
    import onnxruntime

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = threads
    options |= {"provider": "CPUExecutionProvider", "session_options": session}
    return SentenceTransformer(str(folder), device="cpu", backend="onnx", model_kwargs=options)


def _open_openvino(
    folder: Path, threads: int, config: dict[str, str], **options: Any
) -> SentenceTransformer:
    options["ov_config"] = {"INFERENCE_NUM_THREADS": str(threads), **config}
    return SentenceTransformer(str(folder), device="cpu", backend="openvino", model_kwargs=options)


def _find_dynamic() -> str:
    from benchmarks.machine import find_instruction_sets

    found = find_instruction_sets()
    return next((name for key, name in DYNAMIC.items() if key in found), "arm64")


def _make_encode(model: Any) -> Apply:
    return lambda sentences: model.encode(
        sentences, batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True
    )
