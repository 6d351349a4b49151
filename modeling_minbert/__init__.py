"""minBERT: configuration and models; the import registers them with the Auto classes."""

from .configuration_minbert import MinBertConfig
from .modeling_minbert import (
    MinBertForMaskedLM,
    MinBertForNextSentencePrediction,
    MinBertForNSP,
    MinBertForPreTraining,
    MinBertForQuestionAnswering,
    MinBertForSequenceClassification,
    MinBertForTokenClassification,
    MinBertModel,
    MinBertPreTrainedModel,
)
from .modeling_minbert_multitask import MinBertForMultiTask
from .onnx_export import export_onnx
from .registration import register
from .task_minbert import MinBertTask
from .tasks_minbert import TASKS

__version__ = "0.1.0"

register()

__all__ = [
    "TASKS",
    "MinBertConfig",
    "MinBertForMaskedLM",
    "MinBertForMultiTask",
    "MinBertForNSP",
    "MinBertForNextSentencePrediction",
    "MinBertForPreTraining",
    "MinBertForQuestionAnswering",
    "MinBertForSequenceClassification",
    "MinBertForTokenClassification",
    "MinBertModel",
    "MinBertPreTrainedModel",
    "MinBertTask",
    "export_onnx",
]
