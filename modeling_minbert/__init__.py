"""minBERT: configuration and models, which the import registers with the Auto classes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import transformers
from transformers import AutoConfig, AutoTokenizer, BertTokenizer
from transformers.models.auto import modeling_auto

from .configuration_minbert import MinBertConfig as MinBertConfig
from .heads import MinBertEmbedding as MinBertEmbedding, MinBertTask as MinBertTask
from .modeling_minbert import (
    AUTO_MODELS,
    MinBertForMaskedLM as MinBertForMaskedLM,
    MinBertForNextSentencePrediction as MinBertForNextSentencePrediction,
    MinBertForNSP as MinBertForNSP,
    MinBertForPreTraining as MinBertForPreTraining,
    MinBertForQuestionAnswering as MinBertForQuestionAnswering,
    MinBertForSequenceClassification as MinBertForSequenceClassification,
    MinBertForTokenClassification as MinBertForTokenClassification,
    MinBertModel as MinBertModel,
    MinBertPreTrainedModel as MinBertPreTrainedModel,
)
from .multitask import MinBertForMultiTask as MinBertForMultiTask
from .names import suggest as suggest, unknown as unknown
from .tasks import TASKS as TASKS, parse_task as parse_task

if TYPE_CHECKING:
    from .calibration import (
        best_threshold as best_threshold,
        choose_threshold as choose_threshold,
        find_temperature as find_temperature,
    )
    from .cpu import bfloat16_is_fast as bfloat16_is_fast, choose_precision as choose_precision
    from .distillation import align_outputs as align_outputs, symmetric_kl as symmetric_kl
    from .heads import Pretrained as Pretrained
    from .int8 import MinBertInt8Config as MinBertInt8Config
    from .losses import LOSSES as LOSSES
    from .onnx_export import export_onnx as export_onnx
    from .packing import MinBertSequences as MinBertSequences
    from .pieces import (
        cut_windows as cut_windows,
        cut_word_windows as cut_word_windows,
        find_layout as find_layout,
        find_space as find_space,
        share_tokens as share_tokens,
        split_documents as split_documents,
        split_questions as split_questions,
        tokenize_words as tokenize_words,
    )
    from .ranking import cosent as cosent, multiple_negatives_ranking as multiple_negatives_ranking
    from .spans import find_entities as find_entities, split_words as split_words
    from .texts import Encoded as Encoded, Encoding as Encoding, tokenize as tokenize

__version__ = "0.1.0"

# Modules of further names, which predicting does not load.
MODULES = {
    "Encoded": "texts",
    "Encoding": "texts",
    "LOSSES": "losses",
    "MinBertInt8Config": "int8",
    "MinBertSequences": "packing",
    "Pretrained": "heads",
    "align_outputs": "distillation",
    "best_threshold": "calibration",
    "bfloat16_is_fast": "cpu",
    "choose_precision": "cpu",
    "choose_threshold": "calibration",
    "cosent": "ranking",
    "cut_windows": "pieces",
    "cut_word_windows": "pieces",
    "export_onnx": "onnx_export",
    "find_entities": "spans",
    "find_layout": "pieces",
    "find_space": "pieces",
    "find_temperature": "calibration",
    "multiple_negatives_ranking": "ranking",
    "share_tokens": "pieces",
    "split_documents": "pieces",
    "split_questions": "pieces",
    "split_words": "spans",
    "symmetric_kl": "distillation",
    "tokenize": "texts",
    "tokenize_words": "pieces",
}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{MODULES[name]}", __name__), name)


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
    texts: dict[str, Any] = modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    texts["minbert"] = ("MinBertForSequenceClassification", "MinBertForMultiTask")
    tags: dict[str, Any] = modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES
    tags["minbert"] = "MinBertForTokenClassification"


register()
