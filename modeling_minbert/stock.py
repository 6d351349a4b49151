# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Models of transformers: what they take of minBERT, and what minBERT takes of their heads."""

from dataclasses import fields
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig
from transformers.utils import logging

from .families import FAMILIES, list_layer_types, list_renames, read_config, rename
from .tasks import parse_tasks

logger = logging.get_logger(__name__)

# Fields that do not change what an encoder computes.
FREE = (
    *("tasks", "default_task", "embedding_task", "sentence_embedding", "sparse_prediction"),
    *("classifier_dropout", "auto_map", "model_type", "architectures", "transformers_version"),
    "quantization_config",
)

# Heads of stock models, and the fields of a task of which they can be the head.
POOLED = {"head": "linear", "pooling": "pooler"}
STOCK_HEADS = {
    "ForSequenceClassification": {"problem_type": "classification", **POOLED},
    "ForMultipleChoice": {"problem_type": "multiple_choice", **POOLED},
    "ForTokenClassification": {"problem_type": "token_classification"},
    "ForQuestionAnswering": {"problem_type": "question_answering"},
}


def find_stock_head(
    config_class: Any, path: Any, tasks: Any, where: dict[str, Any]
) -> dict[str, str]:
    """Find the task that the head of a stock model fits, and return how weights are renamed then.

    A warning names a head that fits no task.
    """
    stored, specs = config_class.get_config_dict(path, **where)[0], parse_tasks(tasks)
    saved = str((stored.get("architectures") or [""])[0])
    kind = next((kind for kind in STOCK_HEADS if saved.endswith(kind)), None)
    if kind is None or saved.startswith("MinBert"):
        return {}
    fields: dict[str, Any] = {**STOCK_HEADS[kind]}
    if kind.endswith("Classification"):
        names = dict(stored.get("id2label") or {})
        fields["labels"] = [names[key] for key in sorted(names, key=int)]
        if stored.get("problem_type") == "multi_label_classification":
            fields["problem_type"] = "multi_label_classification"
    advice = f"it would be that of a task with the fields {fields}"
    if saved.startswith("ModernBert") or ("head" in fields and saved.startswith("DistilBert")):
        advice, specs = "it is behind a layer that minBERT does not have", {}
    for name, spec in specs.items():
        if all(getattr(spec, key, None) == value for key, value in fields.items()):
            theirs = "qa_outputs" if kind == "ForQuestionAnswering" else "classifier"
            return list_renames() | {f"^{theirs}\\.": f"heads.{name}.out."}
    logger.warning("%s: the head of a %s is not loaded; %s", path, saved, advice)
    return {}


def make_config(config: Any, num_layers: int | None) -> PreTrainedConfig:
    """See `MinBertConfig.to_transformers`."""
    model_type, family = config.encoder_type, FAMILIES[config.encoder_type]
    values = PreTrainedConfig.to_dict(config)  # of all fields
    values["num_hidden_layers"] = num_layers or config.num_hidden_layers
    names = {ours: theirs for theirs, ours in family.settings.items()}
    known = {entry.name for entry in fields(CONFIG_MAPPING[model_type])}
    own = {*type(config).__annotations__, *FREE}
    found = {
        names.get(name, name): value
        for name, value in values.items()
        if name not in family.fixed and (names.get(name, name) in known or name not in own)
    }
    if model_type == "modernbert":
        bias = config.layer_bias
        found |= {"attention_bias": bias, "mlp_bias": bias, "classifier_bias": bias}
        found["classifier_activation"] = config.hidden_act
        layers = values["num_hidden_layers"]
        found["layer_types"] = list_layer_types(layers, config.global_attention_every)
        found["rope_parameters"] = {
            "full_attention": {"rope_type": "default", "rope_theta": config.rope_theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": config.local_rope_theta},
        }
    stock = AutoConfig.for_model(model_type, **found)
    again = PreTrainedConfig.to_dict(type(config)(**read_config(model_type, stock.to_dict())))
    for name in sorted({entry.name for entry in fields(config)} - {*FREE}):
        if again.get(name) != values.get(name):
            raise ValueError(
                f"{name}={values[name]!r}: as a {model_type!r} of transformers it would "
                f"be {again.get(name)!r}; save_pretrained saves a minbert"
            )
    return stock


def make_stock(model: Any, num_layers: int | None) -> Any:
    """Make the model of transformers with the weights of a model, or of its lowest layers."""
    is_encoder = model.base_model is model
    name = f"a {type(model).__name__} of type {model.config.encoder_type!r}"
    advice = "save its encoder, its base_model, or a minbert with save_pretrained"
    layers = model.config.num_hidden_layers
    if num_layers not in (None, layers) and hasattr(model.base_model.encoder, "final_norm"):
        raise ValueError(f"{name} has a norm above its last layer: save all {layers} layers")
    config = model.config.to_transformers(num_layers)
    stock = getattr(transformers, model._auto_class).from_config(config, dtype=model.dtype)
    if is_encoder and model.pooler is None and hasattr(stock, "pooler"):
        stock.pooler = None
    state = dict(model.state_dict())
    for scaled in [key for key in state if key.endswith(".weight_scale")]:  # of int8
        weight, scale = scaled.removesuffix("_scale"), state.pop(scaled)
        state[weight] = state[weight].float() * scale.unsqueeze(1)
    sources = {key: rename(key) for key in stock.state_dict()}
    lost = state.keys() - sources.values() - {"cls.predictions.bias"}  # that of the decoder
    if is_encoder:
        lost = {key for key in lost if not key.startswith(("pooler.", "encoder.layer."))}
    if lost or (lost := sources.values() - state.keys()):
        raise ValueError(
            f"transformers' {type(stock).__name__} has other parts than {name}, such as "
            f"{min(lost)}: {advice}"
        )
    stock.load_state_dict({key: state[source] for key, source in sources.items()})
    return stock
