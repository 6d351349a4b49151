"""Make the Auto classes and pipelines of transformers know minBERT."""

from typing import Any

import transformers
from transformers import AutoConfig, AutoTokenizer, BertTokenizer
from transformers.models.auto import modeling_auto
from transformers.pipelines import PIPELINE_REGISTRY

from .configuration_minbert import MinBertConfig
from .modeling_minbert import AUTO_MODELS, MinBertForSequenceClassification
from .modeling_minbert_multitask import MinBertForMultiTask

# Names of models by model type, in which pipelines look them up.
PIPELINE_MODELS: dict[str, Any] = {
    "SEQUENCE_CLASSIFICATION": ("MinBertForSequenceClassification", "MinBertForMultiTask"),
    "TOKEN_CLASSIFICATION": "MinBertForTokenClassification",
}


def register() -> None:
    """Register configuration, tokenizer, heads and pipelines; again, it changes nothing."""
    AutoConfig.register(MinBertConfig.model_type, MinBertConfig, exist_ok=True)
    # A folder with only a vocabulary would else give a tokenizer without segment ids.
    AutoTokenizer.register(MinBertConfig, tokenizer_class=BertTokenizer, exist_ok=True)
    for model in AUTO_MODELS:
        getattr(transformers, model._auto_class).register(MinBertConfig, model, exist_ok=True)
    # Of these two, `architectures` in the checkpoint's configuration decides.
    transformers.AutoModelForSequenceClassification.register(
        MinBertConfig, (MinBertForSequenceClassification, MinBertForMultiTask), exist_ok=True
    )
    # Pipelines know models by name, and call others unsupported before they compute with them.
    for kind, names in PIPELINE_MODELS.items():
        known = getattr(modeling_auto, f"MODEL_FOR_{kind}_MAPPING_NAMES")
        known[MinBertConfig.model_type] = names
    for name, pipeline in MinBertForMultiTask._pipelines.items():
        PIPELINE_REGISTRY.supported_tasks.pop(name, None)  # a second time would be warned of
        auto_class = getattr(transformers, MinBertForMultiTask._auto_class)
        PIPELINE_REGISTRY.register_pipeline(name, pipeline, auto_class)
