"""minBERT: configuration and models, which the import registers with the Auto classes."""

from typing import Any

import lazy_loader
import transformers
from transformers import AutoConfig, AutoTokenizer, BertTokenizer
from transformers.models.auto import modeling_auto

from .configuration_minbert import MinBertConfig
from .modeling_minbert import AUTO_MODELS, MinBertForSequenceClassification
from .multitask import MinBertForMultiTask

# what `__init__.pyi` lists is imported when it is used
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"


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
