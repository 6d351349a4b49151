"""Make the Auto classes of transformers know minBERT."""

import transformers
from transformers import AutoConfig, AutoTokenizer, BertTokenizer

from .configuration_minbert import MinBertConfig
from .modeling_minbert import AUTO_MODELS, MinBertForSequenceClassification
from .modeling_minbert_multitask import MinBertForMultiTask


def register() -> None:
    """Register configuration, tokenizer and every head; doing it again changes nothing."""
    AutoConfig.register(MinBertConfig.model_type, MinBertConfig, exist_ok=True)
    # A folder with only a vocabulary would else give a tokenizer without segment ids.
    AutoTokenizer.register(MinBertConfig, tokenizer_class=BertTokenizer, exist_ok=True)
    for model in AUTO_MODELS:
        getattr(transformers, model._auto_class).register(MinBertConfig, model, exist_ok=True)
    # Of these two, `architectures` in the checkpoint's configuration decides.
    transformers.AutoModelForSequenceClassification.register(
        MinBertConfig, (MinBertForSequenceClassification, MinBertForMultiTask), exist_ok=True
    )
