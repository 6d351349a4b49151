# Copyright 2026 The minBERT authors. SPDX-License-Identifier: Apache-2.0
"""Models with one head that load it from a task of a multi-task checkpoint."""

import os
import re
from copy import deepcopy
from typing import Any, ClassVar

from transformers import PreTrainedConfig

from .configuration_minbert import MinBertConfig
from .inference_minbert import HUB_KEYS


class MinBertAdoptedHead:
    """`from_pretrained` of models with one head, which a task may have as well."""

    # Name of the layer that is the head.
    _head_layer: ClassVar[str]

    @classmethod
    def from_pretrained(
        cls,
        pretrained_model_name_or_path: Any,
        *args: Any,
        task: str | None = None,
        **kwargs: Any,
    ) -> Any:
        """Load a checkpoint; of a multi-task one, the head of a task.

        Args:
            pretrained_model_name_or_path: Folder or Hub id.
            *args: As in `PreTrainedModel.from_pretrained`.
            task: Name of the task; None for the default task, or the first of this type by name,
                unless other labels are asked for.
            **kwargs: As in `PreTrainedModel.from_pretrained`.

        Raises:
            ValueError: If there is no such task, it is of another type, or reads a lower layer.
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
    """Load the configuration of a multi-task checkpoint.

    Args:
        path: The checkpoint.
        task: Name of the task that is asked for.
        kwargs: Those of `from_pretrained`.

    Returns:
        A copy of the configuration, None if the checkpoint has no tasks and none is asked for; and
        the keyword arguments that it did not use.
    """
    config = kwargs.get("config")
    # an Auto class that trusts remote code has a copy of MinBertConfig that is another class
    if isinstance(config, PreTrainedConfig):
        return deepcopy(config), kwargs
    where = {name: kwargs[name] for name in HUB_KEYS if name in kwargs}
    config = path if config is None else config
    if task is None and not MinBertConfig.get_config_dict(config, **where)[0].get("tasks"):
        return None, kwargs
    others = {name: value for name, value in kwargs.items() if name not in (*HUB_KEYS, "dtype")}
    config, unused = MinBertConfig.from_pretrained(
        config, return_unused_kwargs=True, **where, **others
    )
    kept = {name: value for name, value in kwargs.items() if name not in others}
    return deepcopy(config), unused | kept


def choose_task(config: Any, task: str | None, model_class: str) -> str | None:
    """Return the name of the task whose head a model takes.

    Args:
        config: Of a multi-task checkpoint.
        task: The name that is asked for; None for the default task, or the first that fits by name.
        model_class: Name of the class of the model.

    Returns:
        The name; None if no task fits, or the caller has chosen other labels.

    Raises:
        ValueError: If there is no such task, it is of another type, or reads a lower layer.
    """
    tasks = {name: config.task(name) for name in sorted(config.tasks or {})}
    names = [name for name, each in tasks.items() if each.single_task_model == model_class]
    if task is not None and task not in names:
        kind = config.task(task).problem_type  # refuses unknown tasks
        raise ValueError(f"task {task!r} is a {kind}, but this model is a {model_class}")
    if task is None and (not names or not config.has_default_labels):
        return None
    name = str(task or (config.default_task if config.default_task in names else names[0]))
    _check_layer(name, tasks[name].pooling_layer, config.num_hidden_layers)
    return name


def _check_layer(name: str, layer: int, last: int) -> None:
    if layer not in (-1, last):
        raise ValueError(
            f"task {name!r} reads layer {layer} (pooling_layer), but a model with one head the "
            "last one: load it as MinBertForMultiTask"
        )


__all__ = ["MinBertAdoptedHead"]
