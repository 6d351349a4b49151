# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Encoders of other model types with BERT's layers: what differs, as data.

A type is a row of `FAMILIES`: the names of its weights and of its settings, and the values that all
of its checkpoints have. All else, packing, attention, int8 and heads, is that of BERT.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from transformers import CONFIG_MAPPING

from .names import unknown


@dataclass(frozen=True)
class Family:
    """A model type of transformers.

    Args:
        prefix: Name of the encoder in a model with a head.
        names: Parts of the names of its weights, with those of minBERT.
        settings: Names of its settings, with those of minBERT.
        fixed: Values of settings of minBERT that all of its checkpoints have.
        counts_positions: Whether positions start after the padding id, and paddings have none.
    """

    prefix: str
    names: tuple[tuple[str, str], ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    counts_positions: bool = False


# Of ModernBERT's own settings.
MODERN_DEFAULTS = {
    "local_attention": 128,
    "global_attention_every": 3,
    "rope_theta": 160000.0,
    "local_rope_theta": 10000.0,
}
LM_HEAD = (
    ("lm_head.dense.", "cls.predictions.transform.dense."),
    ("lm_head.layer_norm.", "cls.predictions.transform.LayerNorm."),
    ("lm_head.decoder.", "cls.predictions.decoder."),
    ("lm_head.bias", "cls.predictions.bias"),
)
# Their classifier is BERT's pooler and BERT's classifier.
CLASSIFIER = (("classifier.dense.", "bert.pooler.dense."), ("classifier.out_proj.", "classifier."))
ROBERTA = Family("roberta", (*LM_HEAD, *CLASSIFIER), counts_positions=True)
FAMILIES = {
    "bert": Family("bert"),
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "camembert": ROBERTA,
    "mpnet": Family(
        "mpnet",
        (
            (".attention.attn.q.", ".attention.self.query."),
            (".attention.attn.k.", ".attention.self.key."),
            (".attention.attn.v.", ".attention.self.value."),
            (".attention.attn.o.", ".attention.output.dense."),
            (".attention.LayerNorm.", ".attention.output.LayerNorm."),
            *LM_HEAD,
            *CLASSIFIER,
        ),
        fixed={"type_vocab_size": 0},
        counts_positions=True,
    ),
    "modernbert": Family(
        "model",
        (
            ("embeddings.tok_embeddings.", "embeddings.word_embeddings."),
            ("embeddings.norm.", "embeddings.LayerNorm."),
            ("layers.", "encoder.layer."),
            ("final_norm.", "encoder.final_norm."),
            ("head.dense.", "cls.predictions.transform.dense."),
            ("head.norm.", "cls.predictions.transform.LayerNorm."),
            ("decoder.", "cls.predictions.decoder."),
        ),
        {
            "hidden_activation": "hidden_act",
            "norm_eps": "layer_norm_eps",
            "attention_dropout": "attention_probs_dropout_prob",
            "embedding_dropout": "hidden_dropout_prob",
        },
        {"type_vocab_size": 0, "sparse_prediction": True},
    ),
    "distilbert": Family(
        "distilbert",
        (
            ("transformer.layer.", "encoder.layer."),
            (".attention.q_lin.", ".attention.self.query."),
            (".attention.k_lin.", ".attention.self.key."),
            (".attention.v_lin.", ".attention.self.value."),
            (".attention.out_lin.", ".attention.output.dense."),
            (".sa_layer_norm.", ".attention.output.LayerNorm."),
            (".ffn.lin1.", ".intermediate.dense."),
            (".ffn.lin2.", ".output.dense."),
            (".output_layer_norm.", ".output.LayerNorm."),
            ("vocab_transform.", "cls.predictions.transform.dense."),
            ("vocab_layer_norm.", "cls.predictions.transform.LayerNorm."),
            ("vocab_projector.", "cls.predictions.decoder."),
        ),
        {
            "dim": "hidden_size",
            "n_layers": "num_hidden_layers",
            "n_heads": "num_attention_heads",
            "hidden_dim": "intermediate_size",
            "activation": "hidden_act",
            "dropout": "hidden_dropout_prob",
            "attention_dropout": "attention_probs_dropout_prob",
        },
        {"type_vocab_size": 0, "layer_norm_eps": 1e-12},
    ),
}


# For messages.
LOADS = (
    f"minBERT loads checkpoints of type minbert, {', '.join(FAMILIES)}: start from one of these, "
    "such as FacebookAI/roberta-base"
)


def list_renames() -> dict[str, str]:
    """List the names of weights of all types as patterns, with what they become.

    One list serves all types, since no name of one means something else in another.
    """
    renames: dict[str, str] = {}
    for family in FAMILIES.values():
        renames |= {f"^{family.prefix}\\.": "bert."} if family.prefix != "bert" else {}
        for theirs, ours in family.names:
            start = "" if theirs.startswith(".") else r"(^|(?<=^bert\.))"
            renames[start + re.escape(theirs)] = ours
    return renames


def rename(name: str) -> str:
    """Return the name in minBERT of a weight of any type."""
    for theirs, ours in list_renames().items():
        name = re.sub(theirs, ours, name)
    return name


def check_encoder(config: Any) -> None:
    """Refuse a configuration that no encoder of its type can have."""
    if config.encoder_type not in FAMILIES:
        raise ValueError(unknown("encoder_type", config.encoder_type, FAMILIES))
    if config.encoder_type != "modernbert":
        own = [name for name in MODERN_DEFAULTS if getattr(config, name)]
        own += [name for name in ("norm_bias", "layer_bias") if not getattr(config, name)]
        if own:
            values = ", ".join(f"{name}={getattr(config, name)}" for name in own)
            raise ValueError(
                f"{values}: an encoder of type {config.encoder_type!r} cannot have this; it is "
                "for encoder_type='modernbert'"
            )
        return
    for name, least in zip(MODERN_DEFAULTS, (2, 1, 1, 1), strict=True):
        if not least <= getattr(config, name) < float("inf"):
            raise ValueError(f"{name}={getattr(config, name)} must be at least {least}")
    if config.hidden_size // config.num_attention_heads % 2:
        raise ValueError(
            f"hidden_size={config.hidden_size} over num_attention_heads="
            f"{config.num_attention_heads} must be even, since rotary positions turn pairs"
        )
    if config.position_offset or config.relative_attention_num_buckets:
        raise ValueError(
            "encoder_type='modernbert' has rotary positions only: leave position_offset and "
            "relative_attention_num_buckets out"
        )


def list_layer_types(count: int, every: int) -> list[str]:
    """List the attention of ModernBERT's layers, as its configuration does."""
    return ["sliding_attention" if n % every else "full_attention" for n in range(count)]


def read_config(model_type: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the configuration of a checkpoint into one of minBERT.

    Files of transformers leave out defaults, which differ between types.
    """
    if model_type == "bert":
        return dict(values)
    family = FAMILIES[model_type]
    known = CONFIG_MAPPING[model_type].from_dict(dict(values)).to_dict()
    found = {family.settings.get(name, name): value for name, value in known.items()}
    found |= family.fixed
    found["encoder_type"] = model_type
    if model_type == "modernbert":
        kinds = found.pop("layer_types")
        every = [*kinds, "full_attention"].index("full_attention", 1)
        if kinds != list_layer_types(len(kinds), every):
            raise ValueError(
                f"layer_types={kinds}: minBERT has full attention in layer 0 and every so many "
                "after it, and sliding attention in all others"
            )
        ropes = found.pop("rope_parameters")
        if any(rope["rope_type"] != "default" for rope in ropes.values()):
            raise ValueError(f"rope_parameters={ropes}: minBERT has default rotary positions only")
        biases = {found[name] for name in ("attention_bias", "mlp_bias", "classifier_bias")}
        is_alike = found["classifier_activation"] == found["hidden_act"]
        if len(biases) > 1 or found["mlp_dropout"] or not is_alike:
            raise ValueError(
                "attention_bias, mlp_bias and classifier_bias must be equal, so must "
                "hidden_activation and classifier_activation, and mlp_dropout must be 0"
            )
        found["global_attention_every"] = every
        found["layer_bias"] = found["mlp_bias"]
        found["rope_theta"] = ropes["full_attention"]["rope_theta"]
        found["local_rope_theta"] = ropes["sliding_attention"]["rope_theta"]
    if model_type == "mpnet" and found["pad_token_id"] != 1:
        # transformers does not read it, and counts positions from 2
        raise ValueError(f"pad_token_id={found['pad_token_id']} must be 1, as in every mpnet")
    if family.counts_positions:
        found["position_offset"] = found["pad_token_id"] + 1
    return found


def convert_config(path: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the configuration of a checkpoint into one of minBERT, or refuse it."""
    if "model_type" not in values and "auto_map" in values:
        raise ValueError(
            f"{path} is a model with code of its own (auto_map), which minBERT does not run; "
            f"{LOADS}"
        )
    # Configurations of the first BERT checkpoints have no type.
    model_type = values.get("model_type", "bert")
    names = values.get("architectures") or ["Bert"]
    if "model_type" not in values and not str(names[0]).startswith("Bert"):
        raise ValueError(
            f"{path}: config.json has architectures={names} and no model_type, which must be "
            f"added; {LOADS}"
        )
    if model_type not in FAMILIES:
        raise ValueError(
            f"{path} is a {model_type!r} checkpoint, which minBERT does not support; {LOADS}"
        )
    return read_config(model_type, values)
