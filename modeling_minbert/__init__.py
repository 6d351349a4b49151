"""minBERT: configuration and models, which the import registers with the Auto classes."""

from typing import TYPE_CHECKING, Any

import transformers
from transformers import AutoConfig, AutoTokenizer, BertTokenizer
from transformers.models.auto import modeling_auto

from .configuration_minbert import MinBertConfig
from .heads import MinBertTask
from .int8 import MinBertInt8Config
from .modeling_minbert import (
    AUTO_MODELS,
    MinBertForMaskedLM,
    MinBertForMultipleChoice,
    MinBertForNextSentencePrediction,
    MinBertForNSP,
    MinBertForPreTraining,
    MinBertForQuestionAnswering,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
    MinBertModel,
    MinBertPreTrainedModel,
)
from .multitask import MinBertForMultiTask
from .names import suggest, unknown
from .tasks import TASKS

if TYPE_CHECKING:
    from .onnx_export import export_onnx

__version__ = "0.1.0"

# Names by which pipelines look up models, by task.
PIPELINE_MODELS: dict[str, Any] = {
    "SEQUENCE_CLASSIFICATION": ("MinBertForSequenceClassification", "MinBertForMultiTask"),
    "TOKEN_CLASSIFICATION": "MinBertForTokenClassification",
}


def __getattr__(name: str) -> Any:
    if name == "export_onnx":  # which predicting does not load
        from .onnx_export import export_onnx

        return export_onnx
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def register() -> None:
    """Register configuration, tokenizer and models with transformers; idempotent."""
    AutoConfig.register(MinBertConfig.model_type, MinBertConfig, exist_ok=True)
    # Otherwise a folder with only a vocabulary gives a tokenizer without segment ids.
    AutoTokenizer.register(MinBertConfig, tokenizer_class=BertTokenizer, exist_ok=True)
    for model in AUTO_MODELS:
        getattr(transformers, model._auto_class).register(MinBertConfig, model, exist_ok=True)
    # `architectures` in the configuration of the checkpoint chooses one of these two.
    transformers.AutoModelForSequenceClassification.register(
        MinBertConfig, (MinBertForSequenceClassification, MinBertForMultiTask), exist_ok=True
    )
    # Pipelines warn that models without these names are unsupported.
    for kind, names in PIPELINE_MODELS.items():
        mapping = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES")
        mapping[MinBertConfig.model_type] = names


register()

__all__ = [
    "TASKS",
    "MinBertConfig",
    "MinBertForMaskedLM",
    "MinBertForMultiTask",
    "MinBertForMultipleChoice",
    "MinBertForNSP",
    "MinBertForNextSentencePrediction",
    "MinBertForPreTraining",
    "MinBertForQuestionAnswering",
    "MinBertForSequenceClassification",
    "MinBertForTokenClassification",
    "MinBertInt8Config",
    "MinBertModel",
    "MinBertPreTrainedModel",
    "MinBertTask",
    "export_onnx",
    "suggest",
    "unknown",
]
