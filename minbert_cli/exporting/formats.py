"""The formats of ``minbert export``."""

import json
import shutil
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedConfig

import modeling_minbert
from minbert_cli.checkpoints import load_tokenizer
from minbert_cli.exporting.onnx_files import compare, compare_int8, quantize
from minbert_cli.resources import SPACE
from modeling_minbert import (
    MinBertConfig,
    MinBertForMultipleChoice,
    MinBertForMultiTask,
    MinBertForQuestionAnswering,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
    export_onnx,
)
from modeling_minbert.inference import check_vocabulary, find_casing
from modeling_minbert.modeling_minbert import AUTO_MODELS
from trainers import load_pretrained, named_writes

SINGLE_TASKS = (
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
    MinBertForQuestionAnswering,
    MinBertForMultipleChoice,
)


def load_model(checkpoint: str) -> Any:
    """Load a checkpoint as the class that it was saved from."""
    config = load_pretrained(MinBertConfig, checkpoint, flag="checkpoint")
    saved = (config.architectures or ["BertModel"])[0].removeprefix("Min").removeprefix("Bert")
    classes = {model.__name__: model for model in (*AUTO_MODELS, MinBertForMultiTask)}
    saved = {"ForNextSentencePrediction": "ForNSP"}.get(saved, saved)
    if f"MinBert{saved}" not in classes:
        raise ValueError(
            f"checkpoint={checkpoint!r} is a {config.architectures[0]}; known: "
            f"{', '.join(sorted(classes))} and the same of BERT"
        )
    model: Any = load_pretrained(classes[f"MinBert{saved}"], checkpoint, flag="checkpoint")
    if getattr(model, "is_quantized", False):
        model.dequantize()
    return model.eval()


def save_tokenizer(model: Any, checkpoint: str, folder: Path) -> Any:
    """Write the tokenizer of a checkpoint, which must fit its model, and return it."""
    casing = find_casing(checkpoint)
    tokenizer = load_pretrained(AutoTokenizer, checkpoint, flag="checkpoint", **casing)
    check_vocabulary(tokenizer, model.config.vocab_size, f"checkpoint={checkpoint!r}")
    # without minBERT, truncation=True is all that keeps a text within the positions
    positions = model.config.max_position_embeddings
    tokenizer.model_max_length = min(tokenizer.model_max_length, positions)
    tokenizer.save_pretrained(folder)
    return tokenizer


def to_bert(model: Any, checkpoint: str, folder: Path, task: str | None) -> str:
    """Write a plain BERT; a multi-task model exports its encoder."""
    if task is not None:
        raise ValueError(f"--task {task}: BERT has no class for the heads of tasks; leave it out")
    model.save_as_bert(folder)
    save_tokenizer(model, checkpoint, folder)
    return f"{type(model).__name__} as a plain bert"


def to_sentence_transformers(model: Any, checkpoint: str, folder: Path, task: str | None) -> str:
    """Write a folder for `SentenceTransformer`: the embeddings of a task, or of the encoder."""
    is_multi_task = isinstance(model, MinBertForMultiTask)
    if task is not None and not is_multi_task:
        raise ValueError(f"--task {task}: the checkpoint has no tasks; leave it out")
    encoder = model if is_multi_task else model.base_model
    encoder.tokenizer = load_tokenizer(checkpoint, "checkpoint")
    encoder.save_as_sentence_transformers(folder, task=task)
    return "sentence-transformers opens it without trust_remote_code"


def to_onnx(
    model: Any, checkpoint: str, folder: Path, task: str | None, precision: str = "float32"
) -> str:
    """Write a model, or one or all of its tasks, as ONNX; compare if ONNX Runtime is installed."""
    if precision == "int8" and find_spec("onnxruntime") is None:
        raise ImportError(
            "onnxruntime is not installed; --precision int8 needs it: pip install onnxruntime"
        )
    tokenizer = save_tokenizer(model, checkpoint, folder)
    names: list[str | None] = [task]
    if isinstance(model, MinBertForMultiTask) and task is None:
        names += list(model.config.tasks or {})
    lines = []
    for name in names:
        path = export_onnx(model, folder, task=name)
        compared = compare(path, model, name)
        if precision == "int8":
            size = path.stat().st_size
            quantize(path)
            compared = compare_int8(path, model, name, tokenizer)
            compared = f"int8, {100 * path.stat().st_size / size:.0f} % of the size; {compared}"
        lines.append(f"{path.name}: {compared}")
    # of a plain BERT, since ONNX Runtime and the tokenizer need no code of minBERT
    config = model.config.to_bert()
    config.tasks = describe_tasks(model.config)
    config.save_pretrained(folder)
    return "\n".join(lines)


def describe_tasks(config: Any) -> dict[str, dict[str, Any]] | None:
    """Describe the tasks of a model for programs without minBERT, with the length of each."""
    tasks = getattr(config, "tasks", None)
    if not tasks:
        return None
    described = {name: dict(fields) for name, fields in tasks.items()}
    for fields in described.values():
        if "max_length" in fields:
            own = fields["max_length"] or config.max_position_embeddings
            fields["max_length"] = min(own, config.max_position_embeddings)
    return described


def to_space(model: Any, checkpoint: str, folder: Path, task: str | None) -> str:
    """Write a Space; weights are copied if they are local or not in minBERT's format."""
    if task is not None:
        raise ValueError(f"--task {task}: a Space shows every head; leave it out")
    if isinstance(model, SINGLE_TASKS):
        raise ValueError(  # noqa: TRY004  the value of a user is wrong, not a type in the code
            "a Space shows tasks of a multi-task model, heads of pre-training, and vectors; "
            f"checkpoint={checkpoint!r} is a {type(model).__name__}: show its pipeline with "
            "gradio.Interface.from_pipeline"
        )
    # the page finds the class of a model in the configuration of a minBERT checkpoint
    kind = PreTrainedConfig.get_config_dict(checkpoint)[0].get("model_type")
    local = Path(checkpoint).exists() or kind != MinBertConfig.model_type
    name = "model" if local else checkpoint
    page = (SPACE / "app.py").read_text(encoding="utf-8")
    page = page.replace('os.environ.get("MODEL", "model")', f'os.environ.get("MODEL", "{name}")')
    title = json.dumps(Path(checkpoint).resolve().name, ensure_ascii=False)
    page = page.replace('TITLE = "minBERT"', f"TITLE = {title}")
    header = (SPACE / "README.md").read_text(encoding="utf-8")
    header = header.replace("title: minBERT", f"title: {title}")
    if not local:
        header = header.replace("pinned: false\n", f"pinned: false\nmodels: [{checkpoint}]\n")
    (folder / "app.py").write_text(page, encoding="utf-8")
    (folder / "README.md").write_text(header, encoding="utf-8")
    shutil.copyfile(SPACE / "requirements.txt", folder / "requirements.txt")
    # the page runs no code of a checkpoint
    (folder / modeling_minbert.__name__).mkdir()
    for path in Path(modeling_minbert.__path__[0]).glob("*.py"):
        shutil.copy(path, folder / modeling_minbert.__name__)
    if local:
        model.save_pretrained(folder / "model")
        save_tokenizer(model, checkpoint, folder / "model")
    return "a Space; to try it, pip install gradio and run its app.py"


def to_minbert(
    model: Any, checkpoint: str, folder: Path, task: str | None, precision: str = "float32"
) -> str:
    """Write a minBERT checkpoint, with weights in int8 if requested."""
    if task is not None:
        raise ValueError(f"--task {task}: a checkpoint has all its tasks; leave it out")
    if precision == "int8":
        model.quantize()
    model.save_pretrained(folder)
    save_tokenizer(model, checkpoint, folder)
    size = sum(path.stat().st_size for path in folder.glob("*.safetensors")) / 1e6
    return f"{type(model).__name__} with weights in {precision}, {size:.1f} MB"


Writer = Callable[[Any, str, Path, str | None], str]
# By format and precision.
WRITERS: dict[tuple[str, str], Writer] = {
    ("bert", "float32"): to_bert,
    ("sentence-transformers", "float32"): to_sentence_transformers,
    ("onnx", "float32"): to_onnx,
    ("onnx", "int8"): partial(to_onnx, precision="int8"),
    ("space", "float32"): to_space,
    ("minbert", "float32"): to_minbert,
    ("minbert", "int8"): partial(to_minbert, precision="int8"),
}


def export(
    checkpoint: str, export_format: str, folder: Path, task: str | None, precision: str = "float32"
) -> str:
    """Write a checkpoint in another format, completely or not at all; return a line about it."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"--output_dir {folder} is not empty; name a new or an empty folder")
    model = load_model(checkpoint)
    target = folder.resolve()
    with named_writes(folder):
        target.parent.mkdir(parents=True, exist_ok=True)
    # an existing folder may be another file system, or the working directory, and stays
    place = target if target.is_dir() else target.parent
    with named_writes(folder), tempfile.TemporaryDirectory(dir=place) as incomplete:
        whole = Path(incomplete) / "whole"
        whole.mkdir()
        try:
            summary = WRITERS[export_format, precision](model, checkpoint, whole, task)
        except ImportError as error:
            raise ValueError(str(error)) from error
        if target.is_dir():
            for path in whole.iterdir():
                path.replace(target / path.name)
        else:
            whole.replace(target)
    return summary
