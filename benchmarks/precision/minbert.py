"""minBERT in each precision; int8 from folders that were saved quantized."""

from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from modeling_minbert import MinBertForMultiTask, MinBertModel

from .contenders import Apply

TASK = "sst"


def load_encoder(folder: Path, precision: str, _threads: int) -> Apply:
    """Load ``MinBertModel.encode``."""
    model = _load(MinBertModel, folder / "models" / "encoder", precision)
    options = _options(precision)
    return lambda sentences: model.encode(sentences, show_progress=False, **options)


def load_classifier(folder: Path, precision: str, _threads: int) -> Apply:
    """Load ``MinBertForMultiTask.predict``; returns the classes."""
    model = _load(MinBertForMultiTask, folder / "models" / "sst", precision)
    options = _options(precision)

    def predict(sentences: str | list[str]) -> list[int]:
        rows = [sentences] if isinstance(sentences, str) else sentences
        found = model.predict(TASK, rows, show_progress=False, **options)
        return [int(row["label"]) for row in found]

    return predict


def export_int8(folder: Path, _threads: int) -> None:
    """Quantize the encoder and the classifier, and save them."""
    for kind, name in ((MinBertModel, "encoder"), (MinBertForMultiTask, "sst")):
        source = folder / "models" / name
        if not source.exists():
            continue
        model = _load(kind, source, "float32")
        model.quantize()
        target = folder / "models" / f"{name}-int8"
        model.save_pretrained(target)
        model.tokenizer.save_pretrained(target)


def _load(kind: Any, folder: Path, precision: str) -> Any:
    if precision == "int8":
        folder = folder.with_name(f"{folder.name}-int8")
    model = kind.from_pretrained(folder).eval()
    model.tokenizer = AutoTokenizer.from_pretrained(folder)
    return model


def _options(precision: str) -> dict[str, str]:
    # the model's own precision is float32, and int8 in a folder that was saved quantized
    return {"precision": precision} if precision == "bfloat16" else {}
