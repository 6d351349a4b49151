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
    from .texts import (
        Encoded as Encoded,
        Encoding as Encoding,
        own_tokenizer as own_tokenizer,
        tokenize as tokenize,
    )

__version__ = "0.1.0"

# Further names by their modules, which predicting does not load.
MODULES: dict[str, tuple[str, ...]] = {
    "calibration": ("best_threshold", "choose_threshold", "find_temperature"),
    "cpu": ("bfloat16_is_fast", "choose_precision"),
    "distillation": ("align_outputs", "symmetric_kl"),
    "heads": ("Pretrained",),
    "int8": ("MinBertInt8Config",),
    "losses": ("LOSSES",),
    "onnx_export": ("export_onnx",),
    "packing": ("MinBertSequences",),
    "pieces": (
        *("cut_windows", "cut_word_windows", "find_layout", "find_space", "share_tokens"),
        *("split_documents", "split_questions", "tokenize_words"),
    ),
    "ranking": ("cosent", "multiple_negatives_ranking"),
    "spans": ("find_entities", "split_words"),
    "texts": ("Encoded", "Encoding", "own_tokenizer", "tokenize"),
}


def __getattr__(name: str) -> Any:
    for module, names in MODULES.items():
        if name in names:
            return getattr(import_module(f".{module}", __name__), name)
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
    texts: dict[str, Any] = modeling_auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    texts["minbert"] = ("MinBertForSequenceClassification", "MinBertForMultiTask")
    tags: dict[str, Any] = modeling_auto.MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES
    tags["minbert"] = "MinBertForTokenClassification"


register()
