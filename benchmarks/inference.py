"""Inference: sentences to vectors or classes, in one call with many and in calls with one.

Imports of minBERT are inside functions, since ONNX Runtime and OpenVINO of sentence-transformers
run in an environment that lacks what minBERT needs.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertForSequenceClassification,
    BertModel,
    pipeline,
)

from .block import Job, Meter, to_array
from .flops import count_flops, measure_products
from .machine import find_instruction_sets

Apply = Callable[[Any], Any]
BATCH = 32
WARMUP = 64  # sentences
CHECKED = 100  # sentences
TASK = "sst"
CALIBRATION = 300  # sentences
OPENVINO_INT8 = "openvino_model_qint8_quantized.xml"
# instruction set -> configuration of export_dynamic_quantized_onnx_model, best first
DYNAMIC = {"avx512_vnni": "avx512_vnni", "avx512f": "avx512", "avx2": "avx2"}
# Three tasks that are predicted for the same texts.
THREE = {
    "classes": {"problem_type": "classification", "labels": ["no", "maybe", "yes"]},
    "topics": {"problem_type": "multi_label_classification", "labels": ["a", "b", "c", "d"]},
    "tags": {"problem_type": "token_classification", "labels": ["O", "B-X", "I-X"]},
}
# The joint way with the smallest head: one number per pair.
JOINT = {"joint": {"problem_type": "paraphrase", "pair_encoding": "joint", "pooling": "cls"}}


def run(job: Job, meter: Meter, load: Callable[[Job], Apply]) -> dict[str, Any]:
    """Measure a contender with many sentences in a call or one, or record what it computes."""
    apply = load(job)
    sentences = job.read_sentences()
    kind = job.workload.removesuffix("_one")
    if job.is_check:
        return _record(job, meter, apply, sentences, kind)
    if kind != job.workload:
        wanted = job.warmup + job.units
        singles = list(dict.fromkeys(sentences))[:wanted]
        if len(singles) < wanted:
            raise ValueError(f"{len(singles)} different sentences, {wanted} are needed")
        meter.ready()
        for sentence in singles:
            apply(sentence)
            meter.unit(1)
        return {}
    texts = sentences[: job.sentences]
    meter.ready()
    apply(texts[:WARMUP])
    meter.unit(WARMUP)
    for _ in range(job.units):
        apply(texts)
        meter.unit(len(texts))
    if job.name.peer in ("minbert", "minbert words"):
        loaded = job.model_dir if kind == "encode" else find_classifier(job, "minbert")
        folder = find_folder(job, loaded)
        meter.extra["folder_mib"] = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
    if kind == "encode" and job.name.precision != "int8":
        tokenizer = AutoTokenizer.from_pretrained(job.model_dir)
        lengths = np.array([len(ids) for ids in tokenizer(texts)["input_ids"]])
        shape = json.loads((job.model_dir / "config.json").read_text(encoding="utf-8"))
        meter.extra["flops"] = job.units * count_flops(lengths, shape)
        meter.extra["products"] = measure_products(
            shape, round(float(lengths.mean()) * BATCH), job.dtype, job.device,
            backward=False, seconds=job.seconds,
        )  # fmt: skip
    return {}


def _record(
    job: Job, meter: Meter, apply: Apply, sentences: Sequence[str], kind: str
) -> dict[str, Any]:
    """Return vectors or classes of some sentences; ``extra`` gets the quality if there are data."""
    pairs = job.folder / "sts.json"
    if kind == "encode" and pairs.exists():
        rows = json.loads(pairs.read_text(encoding="utf-8"))
        first, second = (to_array(apply([texts[side] for _, texts in rows])) for side in (0, 1))
        meter.extra["quality"] = 100 * spearman(first, second, [score for score, _ in rows])
    outputs = apply(sentences[:CHECKED])
    return {"vectors" if kind == "encode" else "classes": outputs}


def spearman(first: NDArray[Any], second: NDArray[Any], scores: Sequence[float]) -> float:
    """Correlate the cosines of pairs with their scores."""
    from scipy.stats import spearmanr

    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(spearmanr((first * second).sum(axis=1) / norms, scores)[0])


def load_sentence_transformer(job: Job) -> Apply:
    """Load ``SentenceTransformer.encode`` in torch, mean pooling."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    encoder = Transformer(str(job.model_dir), model_kwargs={"dtype": job.dtype})
    pooling = Pooling(encoder.get_embedding_dimension(), "mean")
    model = SentenceTransformer(modules=[encoder, pooling], device=job.device)
    return _make_encode(model)


def load_bert(job: Job) -> Apply:
    """Load BERT of transformers: tokenizer, model and mean, longest sentences first."""
    model: Any = AutoModel.from_pretrained(job.model_dir, dtype=job.dtype)
    model = model.to(job.device).eval()
    tokenizer: Any = AutoTokenizer.from_pretrained(job.model_dir)

    @torch.no_grad()
    def embed(rows: list[str]) -> Tensor:
        batch = tokenizer(rows, padding=True, truncation=True, return_tensors="pt").to(job.device)
        states = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return ((states * mask).sum(dim=1) / mask.sum(dim=1)).float().cpu()

    return lambda sentences: _embed_sorted(embed, sentences, model.config.hidden_size)


def load_minbert_onnx(job: Job) -> Apply:
    """Open minBERT's export in ONNX Runtime, mean pooling."""
    import minbert

    os.environ["OMP_NUM_THREADS"] = str(job.threads)  # which the session reads
    model: Any = minbert.load(_find_export(job))
    return lambda sentences: torch.from_numpy(model.encode(sentences, pooling="mean"))


def _embed_sorted(
    embed: Callable[[list[str]], Tensor], sentences: str | list[str], width: int
) -> Tensor:
    """Embed sentences in batches of similar length, (N, width), or one, (width,)."""
    if isinstance(sentences, str):
        return embed([sentences])[0]
    order = sorted(range(len(sentences)), key=lambda index: -len(sentences[index]))
    vectors = torch.empty(len(sentences), width)
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        vectors[rows] = embed([sentences[row] for row in rows])
    return vectors


def _find_export(job: Job) -> Path:
    return job.folder / "models" / f"{job.size}-onnx-{job.name.precision}"


def export_minbert_onnx(job: Job) -> None:
    """Export the encoder as users do."""
    target = _find_export(job)
    if not (target / "model.onnx").exists():
        source = job.model_dir.with_name(f"{job.size}-plain")  # without pre-training heads
        BertModel.from_pretrained(job.model_dir).save_pretrained(source)
        AutoTokenizer.from_pretrained(job.model_dir).save_pretrained(source)
        command = [sys.executable, "-m", "minbert_cli", "export", str(source)]
        command += ["--format", "onnx", "--precision", job.name.precision]
        subprocess.run([*command, "--output_dir", str(target)], check=True)  # noqa: S603


def load_minbert(job: Job) -> Apply:
    """Load ``MinBertModel.encode``; int8 from a folder that was saved quantized."""
    from modeling_minbert import MinBertModel

    model = _load_own(MinBertModel, job, job.model_dir)
    options = _precision_options(job)
    return lambda sentences: model.encode(sentences, show_progress=False, **options)


def load_classifier(job: Job) -> Apply:
    """Load ``MinBertForMultiTask.predict``; returns the classes."""
    from modeling_minbert import MinBertForMultiTask

    model = _load_own(MinBertForMultiTask, job, find_classifier(job, "minbert"))
    options = _precision_options(job)

    def predict(sentences: str | list[str]) -> list[int]:
        predicted = model.predict(TASK, _wrap(sentences), show_progress=False, **options)
        return [int(row["label"]) for row in predicted]

    return predict


def load_together(job: Job) -> Apply:
    """Load a model that predicts three tasks for the same texts with one call."""
    model = _load_tasks(job, THREE)
    return lambda texts: _list_rows(model.predict_all(_wrap(texts), [*THREE], show_progress=False))


def load_apart(job: Job) -> Apply:
    """Load a model that predicts three tasks for the same texts with three calls."""
    model = _load_tasks(job, THREE)

    def predict(texts: str | list[str]) -> list[str]:
        rows = _wrap(texts)
        return _list_rows({task: model.predict(task, rows, show_progress=False) for task in THREE})

    return predict


def _wrap(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _list_rows(predictions: Any) -> list[str]:
    return [json.dumps(row) for task in THREE for row in predictions[task]]


def load_pipelines(job: Job) -> Apply:
    """Load three pipelines of transformers for the same texts."""
    pipelines = [load_pipeline(job) for _ in THREE]
    return lambda texts: [classes for classify in pipelines for classes in classify(texts)]


def load_pipeline(job: Job) -> Apply:
    """Load transformers' pipeline for text classification; returns the classes."""
    source = find_classifier(job, "bert")
    classify: Any = pipeline(
        "text-classification",
        model=BertForSequenceClassification.from_pretrained(source, dtype=job.dtype),
        tokenizer=AutoTokenizer.from_pretrained(source),
        device=job.device,
        batch_size=BATCH,
    )

    def predict(sentences: str | list[str]) -> list[int]:
        return [int(row["label"].removeprefix("LABEL_")) for row in classify(sentences)]

    return predict


def _load_own(kind: Any, job: Job, folder: Path) -> Any:
    folder = find_folder(job, folder)
    on_gpu = job.device == "cuda"
    options = {"dtype": job.dtype} if on_gpu else {}
    model = kind.from_pretrained(folder, **options).to(job.device).eval()
    model.tokenizer = AutoTokenizer.from_pretrained(folder)
    model.set_precision(None, fixed_weights=True)
    if job.name.peer == "minbert compiled":
        model.compile(dynamic=True)
    return model


def find_folder(job: Job, folder: Path) -> Path:
    """Return the folder that a contender loads: a plain one, or its copy in int8."""
    if job.name.precision != "int8":
        return folder
    words = "-words" if job.name.peer.endswith("words") else ""
    return folder.with_name(f"{folder.name}{words}-int8")


def _precision_options(job: Job) -> dict[str, str]:
    # the model's own precision is float32, and int8 in a folder that was saved quantized
    is_half = job.name.precision == "bfloat16" and job.device == "cpu"
    return {"precision": "bfloat16"} if is_half else {}


def find_classifier(job: Job, kind: str) -> Path:
    """Return the folder of the classifier of a library: ``minbert`` or ``bert``."""
    return job.folder / "models" / f"{job.size}-classifier-{kind}"


def save_int8(job: Job) -> None:
    """Quantize the encoder and save it, if it is asked for."""
    from modeling_minbert import MinBertModel

    if job.name.precision == "int8":
        _quantize(MinBertModel, job, job.model_dir)


def _quantize(kind: Any, job: Job, folder: Path) -> None:
    from modeling_minbert import MinBertInt8Config

    target = find_folder(job, folder)
    if not target.exists():
        words = None if not job.name.peer.endswith("words") else False
        settings = MinBertInt8Config(word_embeddings=words)
        model = kind.from_pretrained(folder, quantization_config=settings).eval()
        model.save_pretrained(target)
        AutoTokenizer.from_pretrained(folder).save_pretrained(target)


def save_classifiers(job: Job) -> None:
    """Save equal classifiers of both libraries with a head of random weights."""
    from modeling_minbert import MinBertForMultiTask

    from .training import CLASSES, describe_head, set_classifier
    from .workloads import TASKS

    if not find_classifier(job, "minbert").exists():
        head = describe_head(TASKS[TASK], 0.1)
        own: Any = MinBertForMultiTask.from_pretrained(job.model_dir, tasks={TASK: head})
        set_classifier(own.heads[TASK].out)
        plain: Any = BertForSequenceClassification.from_pretrained(
            job.model_dir, num_labels=CLASSES
        )
        set_classifier(plain.classifier)
        tokenizer = AutoTokenizer.from_pretrained(job.model_dir)
        for model, kind in ((plain, "bert"), (own, "minbert")):
            model.save_pretrained(find_classifier(job, kind))
            tokenizer.save_pretrained(find_classifier(job, kind))
    if job.name.peer == "minbert" and job.name.precision == "int8":
        _quantize(MinBertForMultiTask, job, find_classifier(job, "minbert"))


def load_onnx(job: Job) -> Apply:
    """Load sentence-transformers in ONNX Runtime."""
    source = job.folder / "models" / f"{job.size}-st-onnx"
    (int8,) = (source / "onnx").glob("model_*int8*.onnx")
    file = int8.name if job.name.precision == "int8" else "model.onnx"
    return _make_encode(_open_onnx(job, source, file_name=f"onnx/{file}"))


def load_openvino(job: Job) -> Apply:
    """Load sentence-transformers in OpenVINO.

    OpenVINO computes a float32 model in bfloat16 where the CPU has instructions for it: that is
    ``bfloat16`` here, and ``float32`` is what its hint of the precision asks for.
    """
    source = job.folder / "models" / f"{job.size}-st-openvino"
    file = OPENVINO_INT8 if job.name.precision == "int8" else "openvino_model.xml"
    hint = {"INFERENCE_PRECISION_HINT": "f32"} if job.name.precision == "float32" else {}
    return _make_encode(_open_openvino(job, source, hint, file_name=f"openvino/{file}"))


def export_onnx(job: Job) -> None:
    """Export for ONNX Runtime, in float32 and with dynamic int8."""
    from sentence_transformers import export_dynamic_quantized_onnx_model

    target = job.folder / "models" / f"{job.size}-st-onnx"
    if target.exists():
        return
    model = _open_onnx(job, job.model_dir, export=True)
    model.save_pretrained(str(target))
    sets = find_instruction_sets()
    best = next((name for key, name in DYNAMIC.items() if key in sets), "arm64")
    export_dynamic_quantized_onnx_model(model, best, str(target))


def export_openvino(job: Job) -> None:
    """Export for OpenVINO, in float32 and with static int8, calibrated on the last sentences."""
    from sentence_transformers import export_static_quantized_openvino_model

    target = job.folder / "models" / f"{job.size}-st-openvino"
    if target.exists():
        return
    model = _open_openvino(job, job.model_dir, {}, export=True)
    model.save_pretrained(str(target))
    calibration = job.folder / "calibration"
    calibration.mkdir(exist_ok=True)
    lines = [json.dumps({"sentence": text}) for text in job.read_sentences()[-CALIBRATION:]]
    (calibration / "train.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    export_static_quantized_openvino_model(
        model, None, str(target), dataset_name=str(calibration), dataset_config_name="default",
        dataset_split="train", column_name="sentence",
    )  # fmt: skip


def _open_onnx(job: Job, folder: Path, **options: Any) -> Any:
    import onnxruntime
    from sentence_transformers import SentenceTransformer

    session = onnxruntime.SessionOptions()
    session.intra_op_num_threads = job.threads
    options |= {"provider": "CPUExecutionProvider", "session_options": session}
    return SentenceTransformer(str(folder), device="cpu", backend="onnx", model_kwargs=options)


def _open_openvino(job: Job, folder: Path, config: dict[str, str], **options: Any) -> Any:
    from sentence_transformers import SentenceTransformer

    options["ov_config"] = {"INFERENCE_NUM_THREADS": str(job.threads), **config}
    return SentenceTransformer(str(folder), device="cpu", backend="openvino", model_kwargs=options)


def _make_encode(model: Any) -> Apply:
    return lambda sentences: model.encode(
        sentences, batch_size=BATCH, show_progress_bar=False, convert_to_tensor=True
    )


def _load_tasks(job: Job, tasks: Any) -> Any:
    from modeling_minbert import MinBertForMultiTask

    torch.manual_seed(0)
    model: Any = MinBertForMultiTask.from_pretrained(job.model_dir, tasks=tasks)
    model.tokenizer = AutoTokenizer.from_pretrained(job.model_dir)
    return model.to(job.device).eval()


def compare_vectors(job: Job, meter: Meter) -> dict[str, Any]:
    """Find the nearest other text of each by vectors and the cosines of all pairs.

    Source: Reimers and Gurevych 2019, section 1.
    """
    encode = load_minbert(job)
    texts = job.read_sentences()[: job.sentences]
    meter.ready()
    encode(texts[:WARMUP])
    meter.unit(WARMUP)
    vectors = torch.nn.functional.normalize(encode(texts), dim=1)
    for block in vectors.split(256):  # not all cosines at once
        (block @ vectors.T).topk(2)  # a text and its nearest other
    meter.unit(len(texts) * (len(texts) - 1) // 2)
    return {}


def compare_jointly(job: Job, meter: Meter) -> dict[str, Any]:
    """Read both sentences of random pairs together, as a cross-encoder would have to read all."""
    model = _load_tasks(job, JOINT)
    texts = job.read_sentences()[: job.sentences]
    places = np.random.default_rng(job.seed).integers(len(texts), size=(len(texts), 2)).tolist()
    pairs = [(texts[first], texts[second]) for first, second in places]
    meter.ready()
    model.predict("joint", pairs[:WARMUP], show_progress=False)
    meter.unit(WARMUP)
    model.predict("joint", pairs, show_progress=False)
    meter.unit(len(pairs))
    return {}
