# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Loading: what a checkpoint must have, and one task of several in a model with a single head."""

import os
import re
from copy import deepcopy
from typing import Any, ClassVar, Self

from transformers import PreTrainedConfig
from transformers.utils import logging

from .configuration_minbert import MinBertConfig
from .inference import HUB_KEYS

logger = logging.get_logger(__name__)


def check_loaded(model: Any, info: Any, path: Any, options: dict[str, Any]) -> None:
    """Refuse a model of which parts that the checkpoint should have are random.

    These are all of the encoder, and the heads of the tasks of its configuration. Other heads are
    new, and so may be those of `tasks` that the caller passes.

    Args:
        model: The model.
        info: Of transformers, which weights were missing or unexpected.
        path: Folder or Hub id.
        options: Keyword arguments of `from_pretrained`.

    Raises:
        ValueError: If there are any; the message names one, and what to do.
    """
    missing = sorted(info["missing_keys"])
    lost = [name for name in missing if re.match(r"(bert\.)?(embeddings|encoder)\.", name)]
    if lost:
        advice = (
            "give a checkpoint of a 'bert' or 'minbert' of these sizes (see its config.json); for "
            "a model without trained weights, pass a configuration to the class"
        )
        if any("lora_" in name for name in info["unexpected_keys"]):
            advice = (
                "these are weights of a run with LoRA: load the folder of the finished run, into "
                "whose weights LoRA is merged, or resume the run"
            )
        raise ValueError(
            f"{str(path)!r} has no weights for {len(lost)} tensors of the encoder, such as "
            f"{lost[0]}: {advice}"
        )
    heads = sorted({name.split(".")[1] for name in missing if name.startswith("heads.")})
    if not heads or "tasks" in options:
        return
    where = {name: options[name] for name in HUB_KEYS if name in options}
    stored = MinBertConfig.get_config_dict(path, **where)[0].get("tasks") or {}
    if lost := [name for name in heads if stored.get(name) == model.config.tasks[name]]:
        raise ValueError(
            f"{str(path)!r} has no weights for the heads of its tasks {', '.join(lost)}: give the "
            "checkpoint of the whole model, load the encoder alone with MinBertModel, or pass "
            "tasks to train new heads"
        )


class MinBertAdoptedHead:
    """`from_pretrained` of models whose single head may come from a task."""

    # Name of the attribute with the head.
    _head_layer: ClassVar[str]

    @classmethod
    def from_pretrained(
        cls, pretrained_model_name_or_path: Any, *args: Any, task: str | None = None, **kwargs: Any
    ) -> Self:
        """Load a checkpoint; of a multi-task one, the head of a task.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            *args: As in `PreTrainedModel.from_pretrained`.
            task: Name of the task; None for the default task, or the first of this type by name,
                unless the caller passes other labels.
            **kwargs: As in `PreTrainedModel.from_pretrained`.

        Raises:
            ValueError: If there is no such task, it has another type, or uses a lower layer.
        """
        path = pretrained_model_name_or_path
        config, unused = find_config(path, task, kwargs)
        if config is not None:
            kwargs = {**unused, "config": config}
            adopted = choose_task(config, task, cls.__name__)
            if adopted is not None:
                config.default_task = adopted
                config.describe_default_task()
                source = rf"^heads\.{re.escape(adopted)}\.out\."
                mapping = {source: f"{cls._head_layer}.", **kwargs.get("key_mapping", {})}
                kwargs["key_mapping"] = mapping
        parent: Any = super()
        return parent.from_pretrained(path, *args, **kwargs)


def find_config(
    path: str | os.PathLike[str], task: str | None, kwargs: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Return a copy of the configuration, None without tasks or `task`, and unused keywords."""
    config = kwargs.get("config")
    # an Auto class that trusts remote code has a copy of MinBertConfig, which is another class
    if isinstance(config, PreTrainedConfig):
        return deepcopy(config), kwargs
    kept = {name: value for name, value in kwargs.items() if name in (*HUB_KEYS, "dtype")}
    where = {name: value for name, value in kept.items() if name != "dtype"}
    config = path if config is None else config
    if task is None and not MinBertConfig.get_config_dict(config, **where)[0].get("tasks"):
        return None, kwargs
    options = {name: value for name, value in kwargs.items() if name != "dtype"}
    config, unused = MinBertConfig.from_pretrained(config, return_unused_kwargs=True, **options)
    return config, unused | kept


def choose_task(config: Any, task: str | None, model_class: str) -> str | None:
    """Return the task whose head a model takes; None if none fits or labels were passed."""
    tasks = {name: config.task(name) for name in sorted(config.tasks or {})}
    names = [name for name, each in tasks.items() if each.single_task_model == model_class]
    if task is None:
        if not names or not config.has_default_labels:
            return None
        name = str(config.default_task if config.default_task in names else names[0])
    else:
        name, kind = task, config.task(task).kind  # refuses unknown tasks
        if task not in names:
            raise ValueError(f"task {task!r} is {kind}, but this model is a {model_class}")
    _check_adopted(name, tasks[name], config, model_class)
    return name


def _check_adopted(name: str, task: Any, config: Any, model_class: str) -> None:
    """Refuse a task that a model with one head cannot do; warn of what pipelines do otherwise."""
    layer = task.pooling_layer
    if layer not in (-1, config.num_hidden_layers):
        raise ValueError(
            f"task {name!r} uses layer {layer} (pooling_layer), but a model with one head the "
            "last one: load it as MinBertForMultiTask"
        )
    if getattr(task, "words", "pattern") != "pattern":
        problem = (
            f"has words: {task.words}, by which pipelines of transformers do not split, so that "
            "their tags would be of other words"
        )
    elif task.offers_choices and (task.head, task.pooling) != ("linear", "pooler"):
        problem = f"has head {task.head!r} on pooling {task.pooling!r}, not 'linear' on 'pooler'"
    else:
        problem = None
    if problem is not None:
        raise ValueError(
            f"task {name!r} {problem} as {model_class}: load it as MinBertForMultiTask"
        )
    if hasattr(task, "words"):
        scores = "" if task.temperature is None else ", scores without the fitted temperature"
        logger.warning(
            "task %r: the pipeline token-classification of transformers gives other tags than "
            "predict for words with inner punctuation, such as U.S. or Lee-Low, and for unknown "
            "characters, none beyond the positions of the model%s: where that matters, take "
            "predict of MinBertForMultiTask; for other words give "
            'aggregation_strategy="first"',
            name,
            scores,
        )
