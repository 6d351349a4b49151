# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Models of transformers of other types than BERT: what differs, as data; and trained heads.

A type is a row of `FAMILIES`: the names of its weights and of its settings, and the values that all
of its checkpoints have. All else, packing, attention, int8 and heads, is that of BERT, but for the
layers of ModernBERT, see `modernbert.py`.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, AutoConfig, PreTrainedConfig
from transformers.utils import logging

from .names import unknown
from .tasks import TASKS, parse_task, parse_tasks
from .texts import Fields

logger = logging.get_logger(__name__)


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
    fixed: Fields = field(default_factory=dict)
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
            ("pre_classifier.", "bert.pooler.dense."),
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
        {"type_vocab_size": 0, "layer_norm_eps": 1e-12, "pooler_act": "relu"},
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


def check_keywords(config: Any, stored: Fields, given: Fields) -> None:
    """Refuse keywords that change the type of weights, or are settings that minBERT has not."""
    model_type = stored.get("encoder_type", "bert")
    if config.encoder_type != model_type:
        raise ValueError(
            f"encoder_type={config.encoder_type!r}, but the weights are of type {model_type!r}: "
            "leave it out"
        )
    known, of_bert = (
        {entry.name for entry in fields(CONFIG_MAPPING[kind])} for kind in (model_type, "bert")
    )
    for name in sorted(given.keys() & (known - of_bert - {entry.name for entry in fields(config)})):
        if given[name] != stored.get(name):
            ours = FAMILIES[model_type].settings.get(name)
            raise ValueError(
                f"{name}={given[name]!r} of {model_type!r} has no effect in minBERT: "
                + (f"use {ours}" if ours else "leave it out")
            )


def list_layer_types(count: int, every: int) -> list[str]:
    """List the attention of ModernBERT's layers, as its configuration does."""
    return ["sliding_attention" if n % every else "full_attention" for n in range(count)]


def read_config(model_type: str, values: Fields) -> dict[str, Any]:
    """Turn the configuration of a checkpoint into one of minBERT.

    Files of transformers leave out defaults, which differ between types.
    """
    if model_type == "bert":
        return dict(values)
    family = FAMILIES[model_type]
    known = CONFIG_MAPPING[model_type].from_dict(dict(values)).to_dict()
    for name in family.settings.values():
        known.pop(name, None)  # ours for what the type calls otherwise: it reads none of these
    found = {family.settings.get(name, name): value for name, value in known.items()}
    found |= family.fixed
    found["encoder_type"] = model_type
    if model_type == "modernbert":
        found.pop("position_embedding_type", None)  # of mmBERT sans_pos, which nothing reads
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
    if family.counts_positions:  # of null, which the configuration refuses, any
        found["position_offset"] = (found["pad_token_id"] or 0) + 1
    return found


def convert_config(path: Any, values: Fields) -> dict[str, Any]:
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


# To and from transformers

# Fields that do not change what an encoder computes.
FREE = (
    *("tasks", "default_task", "embedding_task", "sentence_embedding", "sparse_prediction"),
    *("classifier_dropout", "auto_map", "model_type", "architectures", "transformers_version"),
    *("quantization_config", "asked_num_labels"),
)

# Heads of stock models, and the fields of a task of which they can be the head.
LAST = {"pooling_layer": -1}
STOCK_HEADS: dict[str, dict[str, object]] = {
    "ForSequenceClassification": {
        "problem_type": "classification",
        "head": "linear",
        "pooling": "pooler",
        **LAST,
    },
    "ForTokenClassification": {"problem_type": "token_classification", **LAST},
    "ForQuestionAnswering": {"problem_type": "question_answering", **LAST},
}


def describe_stock_head(kind: str, stored: Fields) -> dict[str, object]:
    """Return the fields of the tasks that a stock head fits, from the configuration beside it."""
    fields = {**STOCK_HEADS[kind]}
    if not kind.endswith("Classification"):
        return fields
    # files leave out the names that transformers makes up for two labels
    names = dict(stored.get("id2label") or {0: "LABEL_0", 1: "LABEL_1"})
    labels, problem = [names[key] for key in sorted(names, key=int)], stored.get("problem_type")
    if kind == "ForSequenceClassification" and (problem == "regression" or len(labels) == 1):
        fields |= {"targets": labels} if len(labels) > 1 else {}
        plain = {"mean": [0.0] * len(labels), "std": [1.0] * len(labels)}
        return fields | {"problem_type": "regression", **plain}
    if problem == "multi_label_classification":
        fields["problem_type"] = problem
    return fields | {"labels": labels}


def find_stock_head(
    config_class: Any, path: Any, tasks: Any, where: dict[str, Any]
) -> dict[str, str]:
    """Find the task that the only head of a model fits, and return how weights are renamed then.

    A warning names a head that fits no task, and other tasks that it would fit.
    """
    specs = parse_tasks(tasks)
    stored: dict[str, Any] = {}
    with suppress(OSError, ValueError):  # weights without a configuration
        stored = config_class.get_config_dict(path, **where)[0]
    saved = str((stored.get("architectures") or [""])[0])
    kind = next((kind for kind in STOCK_HEADS if saved.endswith(kind)), None)
    if kind is None:
        return {}
    fields = describe_stock_head(kind, stored)
    advice = f"it would be that of a task with the fields {fields}"
    if saved.startswith("ModernBert"):
        advice, specs = "it is behind a layer that minBERT does not have", {}
    fitting = [
        name
        for name, spec in specs.items()
        if all(getattr(spec, key, None) == value for key, value in fields.items())
    ]
    if not fitting:
        logger.warning("%s: the head of a %s is not loaded; %s", path, saved, advice)
        return {}
    name, *others = fitting
    if others:
        message = "%s: the head of a %s becomes that of task %r; %s, which fit, too, get new ones"
        logger.warning(message, path, saved, name, ", ".join(others))
    theirs = "qa_outputs" if kind == "ForQuestionAnswering" else "classifier"
    return list_renames() | {f"^{theirs}\\.": f"heads.{name}.out."}


# What follows from a key, and does not stay if that has another value.
FOLLOWS = {
    "loss": ("cosine_scale", "margin", "thresholds", "threshold", "threshold_fitted"),
    "truncation": ("window_overlap", "max_windows"),
    "max_length": ("window_overlap", "max_question_length", "doc_stride"),
    "max_question_length": ("doc_stride",),
    "max_answer_length": ("doc_stride",),
}


def follow_task(config: Any, before: Fields) -> None:
    """Let `encode` make the vectors of `embedding_task` instead of those of `sentence_embedding`.

    Training makes them other ones. What the task does not say stays: prompts, which are written if
    they are named, and whether vectors have length 1. If the configuration `before` had such a task
    with equal vectors, `sentence_embedding` has been chosen since, and stays.
    """
    if config.embedding_task is None:
        return
    task = asdict(config.task(config.embedding_task))
    known = (before.get("tasks") or {}).get(before.get("embedding_task"))
    keys = ("problem_type", "head", "pooling", "pooling_layer", "truncation", "max_length")
    if known is not None and all(known.get(key) == task[key] for key in keys):
        return
    changes = dict.fromkeys(("pooling", "max_length", "default_prompt_name", "truncate_dim"))
    if task["head"] == "cosine":
        changes["similarity"] = "cosine"
    config.sentence_embedding = {**config.sentence_embedding, **changes, "missing": None}


def keep_meaning(stored: Fields, new: dict[str, Any]) -> dict[str, Any]:
    """Complete tasks that replace those of a configuration, and its defaults among them.

    What a task of the same name and kind leaves out is as before; see `keep`.
    """
    known = stored["tasks"]
    parse_tasks(known)  # which may be damaged
    tasks = {name: keep(known.get(name, {}), given) for name, given in new["tasks"].items()}
    parsed, completed = parse_tasks(tasks), {**new, "tasks": tasks}
    for key, kind, wanted in (
        ("default_task", "is_unlabelled", False),
        ("embedding_task", "is_separate", True),
    ):
        name = stored.get(key)
        if new[key] is None and name in parsed and getattr(parsed[name], kind) is wanted:
            completed[key] = name
    return completed


def keep(before: Fields, given: Fields) -> Fields:
    """Complete a task by how its head read, decided and had its loss before, if it is the same."""
    if not before:
        return given
    kind = TASKS[before["problem_type"]]
    alike = [key for key in kind.fields_of("meaning") if key in before and key != "labels"]
    counts = {len(each.get("labels") or before.get("labels") or ()) for each in (given, before)}
    if len(counts) > 1 or any(given.get(key, before[key]) != before[key] for key in alike):
        return given
    changed = [key for key in FOLLOWS if given.get(key, before.get(key)) != before.get(key)]
    lost = {each for key in changed for each in FOLLOWS[key]}
    stays = [key for key in kind.fields_of("reading", "decision", "loss") if key not in lost]
    return {key: before[key] for key in stays if key in before} | {**given}


def keep_places(old: list[str], new: list[str]) -> bool:
    """Return whether no label of the old ones has another place among the new ones."""
    return all(old.index(name) == place for place, name in enumerate(new) if name in old)


def forget_fits(model: Any, name: str, before: Fields) -> None:
    """Remove what was fitted to the head that a new one replaces."""
    task = model.heads.get(name).task
    for key in ("temperature", "thresholds"):
        if before.get(key) is not None and before[key] == getattr(task, key, None):
            setattr(task, key, None)
    model.config.tasks = {**model.config.tasks, name: asdict(task)}


def check_meanings(model: Any, info: Any, path: Any, described: dict[str, Any]) -> None:
    """Refuse trained heads under tasks of other outputs; a regression keeps its mean and std.

    Labels may have new names, with a warning.
    """
    new = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])}
    for name, head in model.heads.items():
        has_new_weights = f"heads.{name}.out.weight" in new
        if has_new_weights and name in described:
            forget_fits(model, name, described[name])
        if has_new_weights or getattr(head, "out", None) is None or name not in described:
            continue
        before, task = parse_task(name, described[name]), head.task
        for key in before.fields_of("meaning"):
            old: Any = getattr(before, key, None)
            given: Any = getattr(task, key, None)
            if key == "labels" and old != given and keep_places(old, given):
                message = "%s: the head of task %r, trained with labels=%s, has now labels=%s"
                logger.warning(message, path, name, old, given)
            elif old != given:
                raise ValueError(
                    f"{str(path)!r}: the head of task {name!r} was trained with {key}={old!r}, but "
                    f"the task that is given has {key}={given!r}: set {key} to {old!r}, or for a "
                    "new head give the task another name"
                )
        scaling = {key: getattr(before, key) for key in ("mean", "std") if hasattr(before, key)}
        if scaling != {key: getattr(task, key) for key in scaling}:
            logger.warning("%s: task %r keeps the scaling of its head, %s", path, name, scaling)
            vars(task).update(scaling)
            model.config.tasks = {**model.config.tasks, name: asdict(task)}


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
        if config.classifier_dropout is None:
            found["classifier_dropout"] = config.hidden_dropout_prob
        layers = values["num_hidden_layers"]
        # what all greater ones are to these layers
        values["global_attention_every"] = min(config.global_attention_every, layers)
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
    above = "norm" if hasattr(model.base_model.encoder, "final_norm") else "head"
    if num_layers not in (None, layers) and (above == "norm" or not is_encoder):
        other = "" if is_encoder else ", or its encoder, its base_model"
        raise ValueError(
            f"{name} has a {above} above its last layer: save all {layers} layers{other}"
        )
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


def save_stock(model: Any, folder: Path, num_layers: int | None) -> None:
    """Save a model of transformers; see `MinBertPreTrainedModel.save_as_transformers`."""
    from .folders import check_folder, finish_folder, refuse_leftovers, remove_modules

    layers = model.config.num_hidden_layers
    if num_layers is not None and not 1 <= num_layers <= layers:
        raise ValueError(f"num_layers={num_layers} must be in [1, {layers}], or None for all")
    check_folder(folder, model.config.model_type)
    stock = make_stock(model, num_layers)
    refuse_leftovers(folder, stock)
    remove_modules(folder)
    stock.save_pretrained(folder)
    finish_folder(folder)
